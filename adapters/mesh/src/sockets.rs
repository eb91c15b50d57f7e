//! UDP sockets and the settings of QUIC.
//!
//! One socket serves both families where the system has both. A socket that was bound to one address gets another one beside it, for
//! dialling peers of the other family.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{
    ConnectError, Connecting, Endpoint, EndpointConfig, IdleTimeout, Incoming, MtuDiscoveryConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use socket2::{Domain, Protocol, Socket, Type};
use tracing::warn;

use crate::error::MeshError;
use crate::key::KeyPair;
use crate::members::Trusted;
use crate::tls;

/// Silence after which an end says that it is there.
const KEEP_ALIVE: Duration = Duration::from_millis(400);
/// Silence after which a link is dead: three keep-alives and some. With the one that restarts the clock, within 2 s of the last sign of life.
const SILENCE: Duration = Duration::from_millis(1400);
/// What may be on its way on one link, in bytes. What cannot leave waits in the outbox, which drops its oldest.
const WINDOW: u32 = 2 * 1024 * 1024;
/// Asked of the system for each socket; it may give less.
const SOCKET_BUFFER: usize = 4 * 1024 * 1024;
/// Largest packet, for networks with large frames; how much a path really takes is found out for each. The system is handed up to ten at once and
/// takes at most 65,507 bytes: more than that it would lose.
const PACKET: u16 = 65_507 / 10;
/// First guess of a round trip: peers are near each other.
const FIRST_RTT: Duration = Duration::from_millis(100);

/// The sockets of one process.
pub(crate) struct Sockets {
    main: Endpoint,
    main_family: Family,
    /// For dialling where the main one cannot.
    other: Option<Endpoint>,
    transport: Arc<TransportConfig>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
    Both,
}

impl Sockets {
    /// Binds `address`; the unspecified IPv6 address stands for both families, and for IPv4 alone where there is no IPv6.
    pub(crate) fn bind(
        address: SocketAddr,
        segmentation_offload: bool,
        key: &KeyPair,
        trusted: &Trusted,
    ) -> Result<Self, MeshError> {
        let refuse = |source| MeshError::Bind { address: address.to_string(), source };
        let transport = Arc::new(transport(segmentation_offload));
        let mut server = quinn::ServerConfig::with_crypto(Arc::new(tls::server(key, trusted)?));
        server.transport_config(Arc::clone(&transport)).migration(false).max_incoming(1024);
        let (socket, main_family) = open(address).map_err(refuse)?;
        let main = endpoint(socket, Some(server)).map_err(refuse)?;
        let other = match main_family {
            Family::Both => None,
            Family::V4 => open_one(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), true),
            Family::V6 => open_one(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), false),
        };
        Ok(Self { main, main_family, other, transport })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.main.local_addr()
    }

    /// Begins to dial.
    pub(crate) fn connect(
        &self,
        address: SocketAddr,
        crypto: quinn::crypto::rustls::QuicClientConfig,
    ) -> Result<Connecting, ConnectError> {
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::clone(&self.transport));
        let serves = match self.main_family {
            Family::Both => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        };
        let socket = if serves { Some(&self.main) } else { self.other.as_ref() };
        socket.ok_or(ConnectError::InvalidRemoteAddress(address))?.connect_with(
            config,
            address,
            tls::SERVER_NAME,
        )
    }

    /// The next stranger at the door; `None` once closed.
    pub(crate) async fn accept(&self) -> Option<Incoming> {
        self.main.accept().await
    }

    /// How many connections take up memory: those that are closed until their peers must have heard of it, too.
    pub(crate) fn connections(&self) -> usize {
        std::iter::once(&self.main).chain(&self.other).map(Endpoint::open_connections).sum()
    }

    /// Closes every connection and lets the farewells leave.
    pub(crate) async fn close(&self, code: u32, reason: &str) {
        for socket in std::iter::once(&self.main).chain(&self.other) {
            socket.close(VarInt::from_u32(code), reason.as_bytes());
            socket.wait_idle().await;
        }
    }
}

fn transport(segmentation_offload: bool) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(PACKET);
    transport
        .mtu_discovery_config(Some(discovery))
        .enable_segmentation_offload(segmentation_offload)
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(IdleTimeout::try_from(SILENCE).ok())
        .initial_rtt(FIRST_RTT)
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(u64::from(WINDOW));
    transport
}

fn open(address: SocketAddr) -> io::Result<(UdpSocket, Family)> {
    if address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
        return Ok((socket(address, true)?, family));
    }
    match socket(address, false) {
        Ok(socket) => Ok((socket, Family::Both)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(error) => {
            warn!(%error, "no IPv6 for the mesh; using IPv4 alone");
            Ok((socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())), true)?, Family::V4))
        }
    }
}

/// A socket for dialling alone. Where it cannot be had, peers of that family cannot be dialled.
fn open_one(address: SocketAddr, only_v6: bool) -> Option<Endpoint> {
    socket(address, only_v6).and_then(|socket| endpoint(socket, None)).ok()
}

fn socket(address: SocketAddr, only_v6: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // Its default differs from system to system.
        socket.set_only_v6(only_v6)?;
    }
    // The system's own limit counts, and is enough for most.
    let _ =
        socket.set_recv_buffer_size(SOCKET_BUFFER).and_then(|()| socket.set_send_buffer_size(SOCKET_BUFFER));
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn endpoint(socket: UdpSocket, server: Option<quinn::ServerConfig>) -> io::Result<Endpoint> {
    let mut config = EndpointConfig::default();
    // Fails for less than 1,200 bytes alone.
    let _ = config.max_udp_payload_size(PACKET);
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime))
}
