//! A TCP proxy with faults: what happens to networks, on demand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the proxy does with what it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forwards.
    Forward,
    /// Forwards each piece after a pause.
    Delay(Duration),
    /// A black hole: connections stay open, nothing gets through in either direction.
    Stall,
    /// A black hole for what the server says; what clients say gets through.
    StallAnswers,
    /// New connections are reset; those that are open go on.
    Refuse,
}

/// A proxy in front of one address.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    mode: watch::Sender<Mode>,
    /// Counts how often open connections were ended, and how they were the last time.
    ended: watch::Sender<(u64, Ending)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Fin,
    Reset,
}

impl Proxy {
    /// Listens on a free port of the loopback address and forwards to `target`.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            mode: watch::Sender::new(Mode::Forward),
            ended: watch::Sender::new((0, Ending::Fin)),
        });
        let task = tokio::spawn(accept(listener, target, Arc::clone(&state)));
        Self { address, state, task }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what happens from now on, also to open connections.
    pub fn set(&self, mode: Mode) {
        self.state.mode.send_replace(mode);
    }

    /// Closes all open connections in an orderly way (FIN).
    pub fn cut(&self) {
        self.end(Ending::Fin);
    }

    /// Resets all open connections (RST).
    pub fn reset(&self) {
        self.end(Ending::Reset);
    }

    fn end(&self, ending: Ending) {
        self.state.ended.send_modify(|(times, how)| (*times, *how) = (*times + 1, ending));
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, state: Arc<State>) {
    while let Ok((client, _)) = listener.accept().await {
        if *state.mode.borrow() == Mode::Refuse {
            reset(&client);
            continue;
        }
        tokio::spawn(connection(client, target, Arc::clone(&state), state.ended.subscribe()));
    }
}

async fn connection(
    client: TcpStream,
    target: SocketAddr,
    state: Arc<State>,
    mut ended: watch::Receiver<(u64, Ending)>,
) {
    let Ok(server) = TcpStream::connect(target).await else {
        reset(&client);
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::select! {
        () = pump(&mut from_client, &mut to_server, &state, false) => {}
        () = pump(&mut from_server, &mut to_client, &state, true) => {}
        _ = ended.changed() => {
            if ended.borrow().1 == Ending::Reset {
                reset(to_client.as_ref());
                reset(to_server.as_ref());
            }
        }
    }
}

async fn pump(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, state: &State, answers: bool) {
    let mut piece = vec![0; 64 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut piece).await else { return };
        let mut mode = state.mode.subscribe();
        let passes = |mode: &Mode| match mode {
            Mode::Stall => false,
            Mode::StallAnswers => !answers,
            Mode::Forward | Mode::Delay(_) | Mode::Refuse => true,
        };
        let Ok(now) = mode.wait_for(passes).await.map(|mode| *mode) else { return };
        if let Mode::Delay(pause) = now {
            tokio::time::sleep(pause).await;
        }
        if to.write_all(&piece[..read]).await.is_err() {
            return;
        }
    }
}

/// The next close sends RST instead of FIN.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
