//! A TCP proxy with faults: what happens to networks, on demand.
//!
//! Invariant: whoever is on one side learns only what the [`Mode`] lets through. An end of a connection (FIN or RST) is no
//! exception: a black hole swallows it as it swallows data, so that the other side is left half-open, as in life.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// What the proxy does with what it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forwards.
    Forward,
    /// Forwards each piece after a pause.
    Delay(Duration),
    /// A black hole: connections stay open, nothing gets through in either direction.
    Stall,
    /// A black hole for what clients say; what the server says gets through.
    StallRequests,
    /// A black hole for what the server says; what clients say gets through.
    StallAnswers,
    /// New connections are reset; those that are open go on.
    Refuse,
}

impl Mode {
    fn passes(self, direction: Direction) -> bool {
        match self {
            Self::Stall => false,
            Self::StallRequests => direction == Direction::Answers,
            Self::StallAnswers => direction == Direction::Requests,
            Self::Forward | Self::Delay(_) | Self::Refuse => true,
        }
    }
}

/// A proxy in front of one address. Dropping it ends its connections.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    mode: watch::Sender<Mode>,
    /// How all open connections were ended the last time.
    ended: watch::Sender<Ending>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Fin,
    Reset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

impl Proxy {
    /// Listens on a free port of the loopback address and forwards to `target`.
    pub async fn start(target: SocketAddr) -> Self {
        Self::on(Ipv4Addr::LOCALHOST.into(), target).await
    }

    /// Listens on a free port of `address`, which may be of another network, and forwards to `target`.
    pub async fn on(address: IpAddr, target: SocketAddr) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            mode: watch::Sender::new(Mode::Forward),
            ended: watch::Sender::new(Ending::Fin),
        });
        let task = tokio::spawn(accept(listener, target, Arc::clone(&state)));
        Self { address, state, task }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens from now on, also to open connections. What a black hole has swallowed arrives when it ends.
    pub fn set(&self, mode: Mode) {
        self.state.mode.send_replace(mode);
    }

    /// Closes all open connections in an orderly way (FIN).
    pub fn cut(&self) {
        self.state.ended.send_replace(Ending::Fin);
    }

    /// Resets all open connections (RST).
    pub fn reset(&self) {
        self.state.ended.send_replace(Ending::Reset);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { return };
                if *state.mode.borrow() == Mode::Refuse {
                    reset(&client);
                } else {
                    connections.spawn(connection(client, target, Arc::clone(&state), state.ended.subscribe()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(
    client: TcpStream,
    target: SocketAddr,
    state: Arc<State>,
    mut ended: watch::Receiver<Ending>,
) {
    let Ok(server) = TcpStream::connect(target).await else {
        reset(&client);
        return;
    };
    // Small pieces must not wait for each other: delays are the proxy's alone.
    for side in [&client, &server] {
        let _ = side.set_nodelay(true);
    }
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let both = async {
        tokio::try_join!(
            pump(&mut from_client, &mut to_server, &state, Direction::Requests),
            pump(&mut from_server, &mut to_client, &state, Direction::Answers),
        )
    };
    let ending = tokio::select! {
        done = both => if done.is_ok() { Ending::Fin } else { Ending::Reset },
        _ = ended.changed() => *ended.borrow(),
    };
    if ending == Ending::Reset {
        for half in [to_client, to_server] {
            reset(half.as_ref());
            // Dropped, it would send a FIN first.
            half.forget();
        }
    }
}

/// Moves what one side says to the other, its end included.
async fn pump(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    state: &State,
    direction: Direction,
) -> io::Result<()> {
    let mut mode = state.mode.subscribe();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut piece).await;
        let Ok(now) = mode.wait_for(|mode| mode.passes(direction)).await.map(|mode| *mode) else {
            return Ok(());
        };
        if let Mode::Delay(pause) = now {
            sleep(pause).await;
        }
        match read? {
            0 => return to.shutdown().await,
            length => to.write_all(&piece[..length]).await?,
        }
    }
}

/// The next close sends RST instead of FIN.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
