//! Server-Sent Events.

use std::time::Duration;

use serde_json::Value;
use switchboard_core::ports::{DurableBus, EphemeralBus};
use switchboard_core::types::{Channel, EventName, Payload};
use switchboard_gateway::GatewayConfig;
use switchboard_testkit::{LONG, eventually, http_client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::server::{Server, TOKEN, answer, config};
use crate::tokens::{expiring, with_leeway};

/// A stream, and what of it has not been read yet.
struct Stream {
    response: reqwest::Response,
    rest: String,
}

#[derive(Debug, Default, PartialEq)]
struct Message {
    kind: String,
    id: String,
    data: String,
}

impl Message {
    fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

impl Stream {
    async fn open(server: &Server, query: &str, last_event_id: Option<&str>) -> Self {
        let mut request = server.client.get(format!("{}{query}", server.events("room:1"))).bearer_auth(TOKEN);
        request = request.header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut stream = Self { response, rest: String::new() };
        let greeting = stream.block().await.unwrap();
        assert!(greeting.starts_with("retry: 1000\nevent: listening\nid: "), "{greeting}");
        stream
    }

    /// The next block of lines; `None` at the end.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.rest.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.rest = rest;
                return Some(block);
            }
            let piece = timeout(LONG, self.response.chunk()).await.expect("nothing arrives").unwrap()?;
            self.rest.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }

    /// The next message, read as the specification says.
    async fn next(&mut self) -> Message {
        let block = self.block().await.expect("the stream ended");
        let (mut message, mut data) = (Message::default(), Vec::new());
        for line in block.split('\n') {
            let (field, value) = line.split_once(": ").unwrap();
            match field {
                "event" => value.clone_into(&mut message.kind),
                "id" => value.clone_into(&mut message.id),
                "data" => data.push(value),
                other => panic!("{other} in {block}"),
            }
        }
        message.data = data.join("\n");
        message
    }
}

async fn publish(server: &Server, text: &str) -> String {
    let (channel, event) = (Channel::parse("room:1").unwrap(), EventName::parse("message").unwrap());
    let payload = Payload::parse(text).unwrap();
    server.cluster.durable().publish(&channel, &event, &payload).await.unwrap().to_string()
}

async fn publish_ephemeral(server: &Server, text: &str) {
    let (channel, event) = (Channel::parse("room:1").unwrap(), EventName::parse("typing").unwrap());
    server.cluster.ephemeral().publish(&channel, &event, &Payload::parse(text).unwrap()).await.unwrap();
}

#[tokio::test]
async fn both_kinds_of_event_arrive_and_only_durable_ones_move_the_last_id() {
    let server = Server::start(config()).await;
    let mut stream = Stream::open(&server, "", None).await;
    let position = publish(&server, r#"{"n":9007199254740993}"#).await;
    let message = stream.next().await;
    assert_eq!((message.kind.as_str(), &message.id), ("", &position));
    assert!(message.data.contains(r#""payload":{"n":9007199254740993}"#), "{message:?}");
    let json = message.json();
    assert_eq!(
        (&json["channel"], &json["event"], &json["position"]),
        (&"room:1".into(), &"message".into(), &position.into())
    );
    publish_ephemeral(&server, "1").await;
    let message = stream.next().await;
    assert_eq!((message.kind.as_str(), message.id.as_str()), ("", ""));
    assert_eq!(message.json(), serde_json::json!({"channel": "room:1", "event": "typing", "payload": 1}));
}

#[tokio::test]
async fn a_stream_resumes_after_what_the_client_saw_last() {
    let server = Server::start(config()).await;
    let first = publish(&server, "1").await;
    let second = publish(&server, "2").await;
    publish(&server, "3").await;
    let mut by_header = Stream::open(&server, "", Some(&first)).await;
    let mut by_query = Stream::open(&server, &format!("?after={first}"), None).await;
    // What a browser says when it reconnects is newer than its URL.
    let mut by_both = Stream::open(&server, &format!("?after={first}"), Some(&second)).await;
    let mut from_start = Stream::open(&server, "?after=oldest", None).await;
    for expected in [2, 3] {
        assert_eq!(by_header.next().await.json()["payload"], expected);
        assert_eq!(by_query.next().await.json()["payload"], expected);
    }
    assert_eq!(by_both.next().await.json()["payload"], 3);
    assert_eq!(from_start.next().await.json()["payload"], 1);
    for wrong in ["x", "0", "-1", "9223372036854775808", "0000000000000000-9223372036854775808"] {
        let request = server
            .client
            .get(server.events("room:1"))
            .bearer_auth(TOKEN)
            .header("accept", "text/event-stream");
        let status = request.header("last-event-id", wrong).send().await.unwrap().status();
        assert_eq!(status, 422, "{wrong}");
    }
    let limited = server.client.get(format!("{}?limit=1", server.events("room:1"))).bearer_auth(TOKEN);
    assert_eq!(limited.header("accept", "text/event-stream").send().await.unwrap().status(), 422);
}

/// A browser knows where it stands from the first moment, and says so when it comes back.
#[tokio::test]
async fn a_stream_that_breaks_before_its_first_event_misses_nothing() {
    let server = Server::start(config()).await;
    publish(&server, "1").await;
    for (query, last_id, expected) in [("", None, 2), ("?after=oldest", None, 1)] {
        let request = server.client.get(format!("{}{query}", server.events("room:1"))).bearer_auth(TOKEN);
        let response = request.header("accept", "text/event-stream").send().await.unwrap();
        let mut stream = Stream { response, rest: String::new() };
        let greeting = stream.block().await.unwrap();
        let id = greeting.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
        drop(stream);
        publish(&server, "2").await;
        let mut again = Stream::open(&server, query, last_id.or(Some(id.as_str()))).await;
        assert_eq!(again.next().await.json()["payload"], expected);
    }
}

#[tokio::test]
async fn a_stream_is_asked_for_by_its_media_type() {
    let server = Server::start(config()).await;
    for (accept, kind) in [
        ("text/event-stream", "text/event-stream"),
        ("application/json, Text/Event-Stream;q=0.9", "text/event-stream"),
        ("text/event-streams", "application/json"),
        ("*/*", "application/json"),
    ] {
        let request = server.client.get(server.events("room:1")).bearer_auth(TOKEN);
        let response = request.header("accept", accept).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], kind, "{accept}");
    }
}

#[tokio::test]
async fn lost_history_is_told_and_a_reconnect_does_not_ask_for_it_again() {
    let server = Server::start(config()).await;
    let first = publish(&server, "1").await;
    for n in 2..=5 {
        publish(&server, &n.to_string()).await;
    }
    server.cluster.prune(&Channel::parse("room:1").unwrap(), 2);
    let mut stream = Stream::open(&server, "", Some(&first)).await;
    let pruned = stream.next().await;
    assert_eq!(pruned.kind, "pruned");
    assert!(pruned.json()["oldest"].as_str().unwrap().ends_with("-4"));
    let mut again = Stream::open(&server, "", Some(&pruned.id)).await;
    assert_eq!(again.next().await.json()["payload"], 4);
    assert_eq!(stream.next().await.json()["payload"], 4);

    let mut foreign = Stream::open(&server, "", Some("ffffffffffffffff-3")).await;
    let reset = foreign.next().await;
    assert_eq!(reset.kind, "reset");
    assert_eq!(reset.json()["head"], reset.id);
    publish(&server, "6").await;
    assert_eq!(foreign.next().await.json()["payload"], 6);
}

#[tokio::test]
async fn line_breaks_between_tokens_survive_the_format() {
    let server = Server::start(config()).await;
    let mut stream = Stream::open(&server, "", None).await;
    publish(&server, "{\n\r\n\t\"a\":\r1\n}").await;
    publish_ephemeral(&server, "[\r\n]").await;
    assert_eq!(stream.next().await.json()["payload"], serde_json::json!({"a": 1}));
    assert_eq!(stream.next().await.json()["payload"], serde_json::json!([]));
}

#[tokio::test]
async fn streams_end_when_the_node_drains_and_new_ones_are_refused() {
    let server = Server::start(config()).await;
    let mut stream = Stream::open(&server, "", None).await;
    assert_eq!(server.stat("sse_clients"), 1);
    server.gateway.drain();
    assert_eq!(stream.block().await, None);
    eventually(LONG, "nobody is counted", async || server.stat("sse_clients") == 0).await;
    let request =
        server.client.get(server.events("room:1")).bearer_auth(TOKEN).header("accept", "text/event-stream");
    let refused = request.send().await.unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    timeout(Duration::from_secs(2), server.stop()).await.expect("the server does not stop");
}

#[tokio::test]
async fn streams_leave_room_for_probes() {
    let server = Server::start(GatewayConfig { connections: 20, ..config() }).await;
    let mut streams = Vec::new();
    for _ in 0..18 {
        streams.push(Stream::open(&server, "", None).await);
    }
    let request = || {
        server.client.get(server.events("room:1")).bearer_auth(TOKEN).header("accept", "text/event-stream")
    };
    let refused = request().send().await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(answer(refused).await.0, 503);
    for _ in 0..5 {
        assert_eq!(http_client().get(format!("{}/livez", server.url)).send().await.unwrap().status(), 200);
    }
    streams.pop();
    eventually(LONG, "there is a place for a stream again", async || {
        request().send().await.unwrap().status() == 200
    })
    .await;
    publish(&server, "1").await;
    for stream in &mut streams {
        assert_eq!(stream.next().await.json()["payload"], 1, "a stream was cut for a probe");
    }
}

#[tokio::test]
async fn b123_a_stream_ends_with_its_token_and_says_so() {
    for (leeway, exp) in [(0, 3.0), (5, -2.0)] {
        let server = Server::start(with_leeway(Duration::from_secs(leeway))).await;
        let began = std::time::Instant::now();
        let token = expiring(&serde_json::json!({"room:1": ["subscribe"]}), exp);
        // As a browser sends it, which cannot set headers of a stream.
        let request = server.client.get(format!("{}?token={token}", server.events("room:1")));
        let response = request.header("accept", "text/event-stream").send().await.unwrap();
        let mut stream = Stream { response, rest: String::new() };
        assert!(stream.block().await.unwrap().contains("event: listening"));
        let position = publish(&server, "1").await;
        assert_eq!(stream.next().await.id, position);
        let last = stream.next().await;
        let expected = Message {
            kind: "expired".to_owned(),
            // The last id stays, so that a client with a fresh token misses nothing.
            id: String::new(),
            data: r#"{"reason":"expired"}"#.to_owned(),
        };
        assert_eq!(last, expected);
        let lasted = began.elapsed();
        assert!((Duration::from_secs(2)..Duration::from_secs(12)).contains(&lasted), "{lasted:?}");
        publish(&server, "2").await;
        assert_eq!(stream.block().await, None, "it goes on after the end");
        eventually(LONG, "nobody is counted", async || server.stat("sse_clients") == 0).await;
        let again =
            server.client.get(format!("{}?token={token}", server.events("room:1"))).send().await.unwrap();
        assert_eq!(answer(again).await.0, 401, "requests are refused from the moment at which streams end");
    }
}

/// A subscriber that does not read loses ephemeral events, gets durable ones later, and holds nothing up.
#[tokio::test]
async fn a_client_that_never_reads_costs_bounded_memory_and_is_told_what_it_missed() {
    let server = Server::start(config()).await;
    let address = server.url.strip_prefix("http://").unwrap();
    let mut silent = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /api/channels/room:1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\naccept: text/event-stream\r\n\r\n"
    );
    silent.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 512];
    let _ = silent.read(&mut head).await.unwrap();
    let large = format!("\"{}\"", "x".repeat(60_000));
    let began = std::time::Instant::now();
    // 300 MB, of which a mailbox keeps 60 MB at the most and the socket a few.
    for _ in 0..5_000 {
        publish_ephemeral(&server, &large).await;
    }
    assert!(began.elapsed() < LONG, "publishing waits for a client");
    publish_ephemeral(&server, "\"last\"").await;
    let mut text = String::new();
    let mut piece = vec![0; 1 << 20];
    while !text.contains("\"last\"") {
        let read = timeout(LONG, silent.read(&mut piece)).await.unwrap().unwrap();
        assert!(read > 0);
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    assert!(text.contains("event: lagged"), "it was not told that it missed something");
    assert!(text.len() < 150_000_000, "{} bytes were kept for it", text.len());
}
