//! What stands in front of a node hears of its end later than the node does.
//!
//! Where that can be helped, as on Kubernetes, the node is told later (`preStop` in `deploy/kubernetes`, checked by `.ci/manifests`). This
//! is what whoever comes nevertheless meets with.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use switchboard_testkit::{LONG, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::node::{Cluster, Node, TOKEN};

/// Sockets are closed over a quarter of it.
const DRAIN: Duration = Duration::from_secs(12);
const SOCKETS: usize = 20;

/// A WebSocket, as far as this needs one.
async fn socket(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /socket/websocket?vsn=2.0.0 HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\nconnection: upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101", "{}", String::from_utf8_lossy(&answer));
    stream
}

/// Whether a newcomer gets anything but a refusal. `None` if it is left hanging.
async fn is_served(address: &str) -> Option<bool> {
    let attempt = async {
        let Ok(mut stream) = TcpStream::connect(address).await else { return false };
        let _ = stream.write_all(format!("GET /readyz HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.is_ok() && &answer == b"HTTP/1.1 200"
    };
    timeout(Duration::from_secs(1), attempt).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn b141_who_comes_after_sigterm_is_refused_at_once_and_who_is_there_is_sent_elsewhere() {
    let cluster = Cluster::new().await;
    let mut command = cluster.command("a");
    command.env("CLUSTER_DRAIN_TIMEOUT", format!("{}s", DRAIN.as_secs()));
    let mut node = Node::start("a", command).await;
    node.sees(1).await;
    let address = node.url.strip_prefix("http://").unwrap().to_owned();
    assert_eq!(is_served(&address).await, Some(true));
    let mut sockets = Vec::new();
    for _ in 0..SOCKETS {
        sockets.push(socket(&address).await);
    }

    node.process.signal(Signal::SIGTERM);
    let asked = Instant::now();
    eventually(Duration::from_secs(1), "it serves nobody new", async || {
        is_served(&address).await == Some(false)
    })
    .await;
    let mut refused = 0;
    while node.process.ended().is_none() {
        assert_eq!(is_served(&address).await, Some(false), "after {:?}", asked.elapsed());
        refused += 1;
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(node.process.wait(LONG).await.code(), Some(0));
    assert!(asked.elapsed() < DRAIN, "{:?}", asked.elapsed());
    assert!(refused > 5, "the node was gone before anybody came");
    for mut socket in sockets {
        let mut said = Vec::new();
        timeout(LONG, socket.read_to_end(&mut said)).await.unwrap().unwrap();
        let service_restart = 1012_u16.to_be_bytes();
        assert!(
            said.windows(2).any(|bytes| bytes == service_restart),
            "a socket was not sent elsewhere: {said:?}"
        );
    }
}
