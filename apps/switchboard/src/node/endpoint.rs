//! Finds the address under which peers reach this node when nobody said it: the local end of the route to PostgreSQL,
//! which is on the network that all nodes share.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use switchboard_core::types::Endpoint;
use switchboard_postgres::Dsn;
use tokio::net::lookup_host;
use tokio::time::timeout;
use tracing::warn;

/// A name server that does not answer must not hold up the start.
const LOOKUP: Duration = Duration::from_secs(5);

/// The endpoint with this port. `None` only if no address at all can be dialled with it.
pub(crate) async fn detect(dsn: &Dsn, port: u16) -> Option<Endpoint> {
    for host in dsn.hosts() {
        if host.get_socket().is_some() || host.get_host().starts_with('/') {
            // On this very machine, and whoever shares the socket too.
            return Endpoint::from_ip(IpAddr::V4(Ipv4Addr::LOCALHOST), port).ok();
        }
        if let Some(ip) = local_address(host.get_host(), host.get_port()).await {
            return Endpoint::from_ip(ip, port).ok();
        }
    }
    let fallback = by_host_name(port).or_else(|| Endpoint::from_ip(Ipv4Addr::LOCALHOST.into(), port).ok());
    if let Some(endpoint) = &fallback {
        warn!(%endpoint, "found no route to PostgreSQL to take the address of; set CLUSTER_ENDPOINT if peers cannot reach this one");
    }
    fallback
}

/// The local address of the route to `host`.
async fn local_address(host: &str, port: u16) -> Option<IpAddr> {
    let addresses = timeout(LOOKUP, lookup_host((host, port))).await.ok()?.ok()?;
    addresses.filter_map(|address| source_address(address).ok()).find(can_be_dialled)
}

/// "Connecting" a datagram socket sends nothing; it asks the system for the route.
fn source_address(target: SocketAddr) -> io::Result<IpAddr> {
    let unspecified = match target {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((unspecified, 0))?;
    socket.connect(target)?;
    Ok(socket.local_addr()?.ip())
}

/// A link-local address means nothing without a zone, and a zone means nothing elsewhere.
fn can_be_dialled(ip: &IpAddr) -> bool {
    let link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !ip.is_unspecified() && !link_local
}

fn by_host_name(port: u16) -> Option<Endpoint> {
    let name = gethostname::gethostname().into_string().ok()?;
    Endpoint::parse(&format!("{name}:{port}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn detected(url: &str) -> String {
        detect(&Dsn::parse(url).unwrap(), 4000).await.unwrap().to_string()
    }

    #[tokio::test]
    async fn the_address_is_the_local_end_of_the_route_to_postgresql() {
        assert_eq!(detected("postgres://u@127.0.0.1/db").await, "127.0.0.1:4000");
        assert_eq!(detected("postgres://u@127.0.0.1:1,127.0.0.2:2/db").await, "127.0.0.1:4000");
    }

    #[tokio::test]
    async fn a_socket_is_on_this_machine() {
        assert_eq!(detected("postgres://u@localhost/db?host=/var/run/postgresql").await, "127.0.0.1:4000");
    }
}
