//! What clients hear when a bus does not do its work, and when the node ends meanwhile.

use std::sync::Arc;
use std::time::Duration;

use switchboard_memory::MemoryCluster;
use switchboard_testkit::LONG;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::buses::{Broken, Flood, Slow};
use crate::server::{Server, TOKEN, answer};

const BODY: &str = r#"{"event":"message","payload":1}"#;

#[tokio::test]
async fn an_unavailable_bus_is_answered_with_its_reason_and_when_to_try_again() {
    let server = Server::start_with(Arc::new(Broken), Arc::new(Broken)).await;
    let events = || server.client.get(server.events("room:1"));
    let publish = |body: &'static str| {
        server.client.post(server.events("room:1")).header("content-type", "application/json").body(body)
    };
    for (request, reason) in [
        (publish(BODY), "the durable bus is unavailable: connection refused"),
        (publish(r#"{"event":"typing","payload":1,"ephemeral":true}"#), "the ephemeral bus is closed"),
        (events(), "the durable bus is unavailable: connection refused"),
        (events().header("accept", "text/event-stream"), "the ephemeral bus is closed"),
    ] {
        let response = request.bearer_auth(TOKEN).send().await.unwrap();
        assert_eq!(response.headers()["retry-after"], "1");
        let (status, problem) = answer(response).await;
        assert_eq!((status, problem["detail"].as_str()), (503, Some(reason)));
    }
    assert_eq!(server.stat("http_published_durable_total"), 0);
}

#[tokio::test]
async fn a_publish_under_way_is_answered_although_the_node_drains() {
    let (asked, go_on) = <(Arc<_>, Arc<_>)>::default();
    let slow = Slow { asked: Arc::clone(&asked), go_on: Arc::clone(&go_on) };
    let server = Server::start_with(Arc::new(slow), MemoryCluster::new().ephemeral()).await;
    let request = server.client.post(server.events("room:1")).bearer_auth(TOKEN);
    let publish = tokio::spawn(request.header("content-type", "application/json").body(BODY).send());
    asked.notified().await;
    server.gateway.drain();
    assert_eq!(server.post("room:1", BODY).await.0, 503, "a draining node took work");
    let stop = tokio::spawn(server.stop());
    go_on.notify_one();
    assert_eq!(publish.await.unwrap().unwrap().status(), 201);
    timeout(LONG, stop).await.expect("the server does not stop").unwrap();
}

#[tokio::test]
async fn a_stream_ends_with_either_bus_instead_of_going_silent() {
    let server = Server::start_with(Arc::<Slow>::default(), MemoryCluster::new().ephemeral()).await;
    let request = server.client.get(server.events("room:1")).bearer_auth(TOKEN);
    let response = request.header("accept", "text/event-stream").send().await.unwrap();
    let text = timeout(LONG, response.text()).await.expect("the stream goes on").unwrap();
    let after = "0000000000000001-0";
    assert_eq!(
        text,
        format!("retry: 1000\nevent: listening\nid: {after}\ndata: {{\"after\":\"{after}\"}}\n\n")
    );
}

/// A process that hangs for its clients until it is killed costs a rolling update its patience for each node.
#[tokio::test]
async fn b048_clients_that_do_not_read_do_not_hold_up_the_end() {
    let server = Server::start_with(MemoryCluster::new().durable(), Arc::new(Flood)).await;
    let mut silent = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).await.unwrap();
    let request = format!(
        "GET /api/channels/room:1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\naccept: text/event-stream\r\n\r\n"
    );
    silent.write_all(request.as_bytes()).await.unwrap();
    let _ = silent.read(&mut [0; 64]).await.unwrap();
    timeout(Duration::from_secs(2), server.stop()).await.expect("the server waits for a client");
}
