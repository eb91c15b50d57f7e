//! The accept loop. It owns every connection's task, and outlives none of them by more than its patience.
//!
//! Invariant: there are never more connections than places, and an idle one keeps no new one waiting for long.

use std::io;
use std::time::Duration;

use axum::Router;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::connection::{self, Bounds};
use crate::idle::Idle;
use crate::state::Gateway;

/// Pause after the system refused a connection, which is mostly for want of file descriptors.
const PAUSE: Duration = Duration::from_secs(1);

impl Gateway {
    /// Serves `listener` until `stop`, then drains, and lets what is under way finish for at most `patience`.
    ///
    /// Requests that are being handled are answered. Streams end, and a client that does not take the end of its answer is left
    /// within a second. Dropping the future closes every connection at once.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken, patience: Duration) {
        let most = self.config().connections;
        let server = run(listener, self.router(), Bounds::default(), most, &stop, patience);
        let drain = async {
            stop.cancelled().await;
            self.drain();
        };
        tokio::join!(server, drain);
    }
}

/// A connection ends, or goes on as something else.
type Connections = JoinSet<Option<BoxFuture<'static, ()>>>;

async fn run(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    most: usize,
    stop: &CancellationToken,
    patience: Duration,
) {
    let (mut connections, idle) = (Connections::new(), Idle::new(bounds.chance));
    // Accepted, but there is no place for it yet. Whoever comes after it waits in the kernel.
    let mut newcomer = None;
    // Somebody is making place for it. The place is free when that one has gone, not before.
    let mut dismissing = false;
    loop {
        let full = connections.len() >= most;
        dismissing = full && (dismissing || newcomer.is_some() && idle.dismiss_one());
        if let Some(stream) = newcomer.take_if(|_| !full) {
            let (seat, router, stop) = (idle.seat(), router.clone(), stop.clone());
            connections.spawn(async move {
                let attended = connection::attend(stream, router, bounds, &seat, stop);
                seat.dismissed().run_until_cancelled(attended).await.flatten()
            });
            debug_assert!(connections.len() <= most, "{} connections in {most} places", connections.len());
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => go_on(&mut connections, ended),
            () = idle.somebody(), if newcomer.is_some() && !dismissing => {}
            accepted = listener.accept(), if newcomer.is_none() => match accepted {
                Ok((stream, _)) => newcomer = Some(stream),
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    warn!(%error, "cannot accept HTTP connections");
                    // Either way the loop goes on, and sees for itself whether to stop.
                    let _ = timeout(PAUSE, stop.cancelled()).await;
                }
            },
        }
    }
    drop(listener);
    let finished = async {
        while let Some(ended) = connections.join_next().await {
            go_on(&mut connections, ended);
        }
    };
    if timeout(patience, finished).await.is_err() {
        warn!(?patience, "closed HTTP connections that did not finish in time");
        connections.shutdown().await;
    }
}

/// Clients that are gone before they were accepted.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Lets a connection go on as something else, if it has not ended.
fn go_on(connections: &mut Connections, ended: Result<Option<BoxFuture<'static, ()>>, JoinError>) {
    match ended {
        Ok(None) => {}
        Ok(Some(other)) => {
            connections.spawn(async move {
                other.await;
                None
            });
        }
        Err(error) if error.is_panic() => error!(%error, "an HTTP connection ended in a panic"),
        Err(_cancelled) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use axum::body::{Body, Bytes};
    use axum::routing::{get, post};
    use futures::{StreamExt, stream};
    use switchboard_testkit::LONG;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::Notify;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

    struct Scene {
        address: SocketAddr,
        stop: CancellationToken,
        task: JoinHandle<()>,
    }

    async fn scene(router: Router, bounds: Bounds, most: usize, patience: Duration) -> Scene {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { run(listener, router, bounds, most, &stop, patience).await }
        });
        Scene { address, stop, task }
    }

    fn hello() -> Router {
        Router::new().route("/", get(async || "hello"))
    }

    impl Scene {
        async fn send(&self, request: &[u8]) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(request).await.unwrap();
            stream
        }

        /// Stops the server; answers how long that took.
        async fn stopped(self) -> Duration {
            let began = Instant::now();
            self.stop.cancel();
            timeout(LONG, self.task).await.expect("the server does not stop").unwrap();
            began.elapsed()
        }
    }

    /// What the server sends until it closes the connection.
    async fn rest(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        // A reset ends it, too.
        let _ = timeout(LONG, stream.read_to_end(&mut text)).await.expect("the connection stays open");
        String::from_utf8(text).unwrap()
    }

    async fn piece(stream: &mut TcpStream) -> String {
        let mut buffer = vec![0; 4096];
        let read = timeout(LONG, stream.read(&mut buffer)).await.expect("nothing arrives").unwrap();
        String::from_utf8(buffer[..read].to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_client_that_does_not_finish_its_head_is_let_go() {
        let bounds = Bounds { idle: Duration::from_millis(100), ..Bounds::default() };
        let scene = scene(hello(), bounds, 10, LONG).await;
        for unfinished in [&b""[..], b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\nx: "] {
            let mut slow = scene.send(unfinished).await;
            assert_eq!(rest(&mut slow).await, "");
        }
        let mut idle = scene.send(GET).await;
        assert!(
            rest(&mut idle).await.ends_with("hello"),
            "an idle connection was not closed after its answer"
        );
        scene.stopped().await;
    }

    #[tokio::test]
    async fn a_head_without_end_is_refused() {
        let scene = scene(hello(), Bounds::default(), 10, LONG).await;
        let mut large = scene.send(b"GET / HTTP/1.1\r\nx: ").await;
        // The server may close before it has read all.
        let _ = large.write_all(&vec![b'x'; 1 << 20]).await;
        assert!(rest(&mut large).await.starts_with("HTTP/1.1 431"));
        scene.stopped().await;
    }

    #[tokio::test]
    async fn a_house_full_of_idle_connections_serves_whoever_asks() {
        let scene = scene(hello(), Bounds::default(), 10, LONG).await;
        let mut first = scene.send(GET).await;
        assert!(piece(&mut first).await.ends_with("hello"));
        let mut others = Vec::new();
        for unfinished in [&b""[..], b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\nx: "].repeat(20) {
            others.push(scene.send(unfinished).await);
        }
        assert_eq!(rest(&mut first).await, "", "one that was idle for longer did not make place");
        let mut asks = scene.send(GET).await;
        assert!(piece(&mut asks).await.ends_with("hello"));
        scene.stopped().await;
    }

    #[tokio::test]
    async fn connections_wait_while_all_others_are_being_answered() {
        let go_on = Arc::new(Notify::new());
        let handler = {
            let go_on = go_on.clone();
            async move || {
                Body::from_stream(stream::once(async move {
                    go_on.notified().await;
                    Ok::<_, io::Error>(Bytes::from("hello"))
                }))
            }
        };
        let scene = scene(Router::new().route("/", get(handler)), Bounds::default(), 1, LONG).await;
        let mut first = scene.send(GET).await;
        assert!(piece(&mut first).await.starts_with("HTTP/1.1 200"));
        let mut second = scene.send(GET).await;
        let early = timeout(Duration::from_millis(100), second.readable()).await;
        assert!(early.is_err(), "it was served although there was no place");
        go_on.notify_one();
        assert!(rest(&mut first).await.contains("hello"), "its answer was cut short");
        assert!(piece(&mut second).await.starts_with("HTTP/1.1 200"));
        go_on.notify_one();
        scene.stopped().await;
    }

    /// Closing a socket that has something to read resets it, which takes the answer away from the client.
    #[tokio::test]
    async fn an_answer_to_a_request_that_was_not_read_arrives() {
        let refuse = Router::new().route("/", post(async |_: axum::extract::Request| "refused"));
        let scene = scene(refuse, Bounds::default(), 10, LONG).await;
        for _ in 0..20 {
            let mut stream =
                scene.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 8000000\r\n\r\n").await;
            stream.write_all(&vec![0; 8_000_000]).await.expect("the connection was reset");
            let answer = piece(&mut stream).await;
            assert!(answer.ends_with("refused"), "{answer}");
        }
        scene.stopped().await;
    }

    #[tokio::test]
    async fn b048_idle_and_unfinished_connections_do_not_hold_up_the_end() {
        let scene = scene(hello(), Bounds::default(), 10, LONG).await;
        let mut idle = scene.send(GET).await;
        assert!(piece(&mut idle).await.ends_with("hello"));
        let _silent = scene.send(b"").await;
        let _unfinished = scene.send(b"GET / HTTP/1.1\r\nhost:").await;
        assert!(scene.stopped().await < Duration::from_secs(2));
        assert_eq!(rest(&mut idle).await, "");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_its_stream_does_not_hold_up_the_end() {
        let endless = || stream::repeat(Bytes::from(vec![b'x'; 1 << 16])).map(Ok::<_, io::Error>);
        let router = Router::new().route("/", get(async move || Body::from_stream(endless())));
        let scene = scene(router, Bounds::default(), 10, LONG).await;
        let mut silent = scene.send(GET).await;
        assert!(piece(&mut silent).await.starts_with("HTTP/1.1 200"));
        assert!(scene.stopped().await < Duration::from_secs(2));
    }

    #[tokio::test]
    async fn a_request_under_way_is_answered_before_the_end() {
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handler = {
            let (begun, go_on) = (begun.clone(), go_on.clone());
            async move || {
                begun.notify_one();
                go_on.notified().await;
                "done"
            }
        };
        let scene = scene(Router::new().route("/", get(handler)), Bounds::default(), 10, LONG).await;
        let mut client = scene.send(GET).await;
        begun.notified().await;
        scene.stop.cancel();
        // Longer than a client has that merely does not take its answer.
        tokio::time::sleep(Bounds::default().parting * 2).await;
        assert!(!scene.task.is_finished(), "the server did not wait");
        go_on.notify_one();
        assert!(rest(&mut client).await.ends_with("done"));
        scene.stopped().await;
    }

    #[tokio::test]
    async fn patience_has_an_end() {
        let never = Router::new().route("/", get(async || std::future::pending::<()>().await));
        let scene = scene(never, Bounds::default(), 10, Duration::from_millis(200)).await;
        let mut client = scene.send(GET).await;
        client.writable().await.unwrap();
        assert!(scene.stopped().await < Duration::from_secs(2));
        assert_eq!(rest(&mut client).await, "");
    }
}
