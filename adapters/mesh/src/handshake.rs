//! From a dial, or a stranger at the door, to a connection whose two ends know each other. All waiting of one attempt; its caller
//! bounds it.

use std::net::SocketAddr;
use std::time::Duration;

use futures::FutureExt;
use futures::future::select_ok;
use quinn::{Connection, ConnectionError, Incoming, ReadError, RecvStream, SendStream, VarInt};
use switchboard_core::types::{Endpoint, Host, Identity};
use tokio::net::lookup_host;
use tokio::time::sleep;

use crate::frame::{self, FrameError, Hello, VERSION};
use crate::key::KeyPair;
use crate::links::{CloseReason, Rank, Target};
use crate::members::Trusted;
use crate::sockets::Sockets;
use crate::tls;

/// Head start of each address of a name over the next one.
const STAGGER: Duration = Duration::from_millis(250);
/// A hello that is longer is none.
const HELLO_MAX: usize = 4096;

/// A connection whose other end has proved who it is.
pub(crate) struct Candidate {
    pub(crate) connection: Connection,
    pub(crate) send: SendStream,
    pub(crate) recv: RecvStream,
    /// What came behind the hello.
    pub(crate) rest: Vec<u8>,
}

impl Candidate {
    pub(crate) fn close(self, reason: CloseReason) {
        close(&self.connection, reason);
    }
}

pub(crate) fn close(connection: &Connection, reason: CloseReason) {
    let (code, text) = reason.told();
    connection.close(VarInt::from_u32(code), text.as_bytes());
}

/// What the other side said when it closed the connection.
pub(crate) fn told(error: &ConnectionError) -> Option<CloseReason> {
    match error {
        ConnectionError::ApplicationClosed(close) => CloseReason::of(close.error_code.into_inner()),
        _ => None,
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("cannot resolve the address: {0}")]
    Resolve(#[from] std::io::Error),
    #[error("the name has no address")]
    NoAddress,
    #[error(transparent)]
    Dial(#[from] quinn::ConnectError),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("it ended before the hello")]
    Ended,
    #[error("the hello is longer than {HELLO_MAX} bytes")]
    LongHello,
    #[error("it says it is {said}, and its key is that of {proved}")]
    Impostor { said: Identity, proved: Identity },
    #[error("it takes this node for {0}")]
    Mistaken(Identity),
    #[error("its key is not in the registry any more")]
    NotAMember,
    #[error("no answer in time")]
    Timeout,
    #[error("this process cannot make TLS")]
    Tls,
}

impl HandshakeError {
    /// Whether the other side prefers another connection.
    pub(crate) fn is_duplicate(&self) -> bool {
        matches!(self, Self::Connection(error) if told(error) == Some(CloseReason::Duplicate))
    }

    fn reason(&self) -> CloseReason {
        match self {
            Self::Impostor { .. } | Self::Mistaken(_) | Self::NotAMember => CloseReason::NotAMember,
            _ => CloseReason::Protocol,
        }
    }
}

/// Dials `target` and waits until it has taken the connection.
pub(crate) async fn dial(
    sockets: &Sockets,
    key: &KeyPair,
    trusted: &Trusted,
    me: Identity,
    target: &Target,
    rank: Rank,
) -> Result<Candidate, HandshakeError> {
    let attempts = resolve(&target.endpoint).await?.into_iter().zip(0..).map(|(address, place)| {
        async move {
            sleep(STAGGER * place).await;
            let crypto = tls::client(key, trusted, target.key).map_err(|_| HandshakeError::Tls)?;
            Ok::<_, HandshakeError>(sockets.connect(address, crypto)?.await?)
        }
        .boxed()
    });
    let (connection, _) = select_ok(attempts).await?;
    let (mut send, mut recv) = connection.open_bi().await?;
    let Rank { generation, attempt, .. } = rank;
    let hello = Hello { version: VERSION, from: me, to: target.identity.clone(), generation, attempt };
    let mut bytes = Vec::new();
    frame::write_hello(&hello, &mut bytes);
    send.write_all(&bytes).await.map_err(|_| ended(&connection))?;
    let (answer, rest) = match read_hello(&connection, &mut recv).await {
        Ok(answer) => answer,
        Err(error) => return Err(refuse(&connection, error)),
    };
    if let Err(error) = check(&answer, &hello.from, &hello.to) {
        return Err(refuse(&connection, error));
    }
    Ok(Candidate { connection, send, recv, rest })
}

/// Lets a stranger in, and reads who it is.
pub(crate) async fn receive(
    incoming: Incoming,
    trusted: &Trusted,
    me: &Identity,
) -> Result<(Candidate, Hello), HandshakeError> {
    let connection = incoming.accept()?.await?;
    // The row may have vanished during the handshake.
    let Some(proved) = tls::peer(&connection, trusted) else {
        return Err(refuse(&connection, HandshakeError::NotAMember));
    };
    let (send, mut recv) = connection.accept_bi().await?;
    let (hello, rest) = match read_hello(&connection, &mut recv).await {
        Ok(hello) => hello,
        Err(error) => return Err(refuse(&connection, error)),
    };
    if let Err(error) = check(&hello, me, &proved) {
        return Err(refuse(&connection, error));
    }
    Ok((Candidate { connection, send, recv, rest }, hello))
}

/// The answer to `hello`.
pub(crate) fn answer(hello: Hello) -> Hello {
    Hello { version: VERSION, from: hello.to, to: hello.from, ..hello }
}

fn check(hello: &Hello, me: &Identity, proved: &Identity) -> Result<(), HandshakeError> {
    if hello.from != *proved {
        return Err(HandshakeError::Impostor { said: hello.from.clone(), proved: proved.clone() });
    }
    if hello.to != *me {
        return Err(HandshakeError::Mistaken(hello.to.clone()));
    }
    Ok(())
}

async fn resolve(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, HandshakeError> {
    let addresses: Vec<_> = match endpoint.host() {
        Host::Ip(ip) => vec![SocketAddr::new(ip.to_canonical(), endpoint.port())],
        Host::Name(name) => lookup_host((name.as_str(), endpoint.port())).await?.collect(),
    };
    if addresses.is_empty() { Err(HandshakeError::NoAddress) } else { Ok(addresses) }
}

async fn read_hello(
    connection: &Connection,
    recv: &mut RecvStream,
) -> Result<(Hello, Vec<u8>), HandshakeError> {
    let mut bytes = Vec::new();
    loop {
        match recv.read_chunk(HELLO_MAX, true).await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk.bytes),
            Ok(None) => return Err(HandshakeError::Ended),
            Err(ReadError::ConnectionLost(error)) => return Err(error.into()),
            Err(_) => return Err(ended(connection)),
        }
        if let Some((hello, length)) = frame::read_hello(&bytes)? {
            return Ok((hello, bytes.split_off(length)));
        }
        if bytes.len() > HELLO_MAX {
            return Err(HandshakeError::LongHello);
        }
    }
}

fn ended(connection: &Connection) -> HandshakeError {
    connection.close_reason().map_or(HandshakeError::Ended, HandshakeError::Connection)
}

fn refuse(connection: &Connection, error: HandshakeError) -> HandshakeError {
    close(connection, error.reason());
    error
}
