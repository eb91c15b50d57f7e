//! Publishing and history: names, payloads, sizes, nonsense.

use futures::StreamExt;
use switchboard_core::ports::{DurableBus, DurableItem, StartFrom};
use switchboard_core::types::Channel;

use crate::server::{Server, TOKEN, answer, config};

#[tokio::test]
async fn durable_events_answer_their_position_and_ephemeral_ones_do_not() {
    let server = Server::start(config()).await;
    let (status, first) = server.post("room:1", r#"{"event":"message","payload":{"a":1}}"#).await;
    assert_eq!(status, 201);
    assert!(first["position"].as_str().unwrap().ends_with("-1"), "{first}");
    let (status, _) = server.post("room:1", r#"{"event":"typing","payload":null,"ephemeral":true}"#).await;
    assert_eq!(status, 202);
    let (status, second) =
        server.post("room:1", r#"{"event":"message","payload":null,"ephemeral":false}"#).await;
    assert_eq!(status, 201);
    assert!(second["position"].as_str().unwrap().ends_with("-2"), "{second}");
}

#[tokio::test]
async fn an_idempotency_key_makes_a_repeated_request_answer_the_same() {
    let server = Server::start(config()).await;
    let publish = async |key: &str, n: u8| {
        let body = format!(r#"{{"event":"message","payload":{n}}}"#);
        let request = server.client.post(server.events("room:1")).bearer_auth(TOKEN);
        let request = request.header("content-type", "application/json").header("idempotency-key", key);
        answer(request.body(body).send().await.unwrap()).await
    };
    let first = publish("\"order 7\"", 1).await;
    assert_eq!(first.0, 201);
    assert_eq!(publish("\"order 7\"", 1).await, first);
    assert_eq!(publish("order 7", 2).await, first, "quotes are the header's, not the key's");
    assert_ne!(publish("order 8", 3).await.1, first.1);
    let (_, page) = server.get("/api/channels/room:1/events").await;
    let payloads: Vec<_> = page["data"].as_array().unwrap().iter().map(|event| &event["payload"]).collect();
    assert_eq!(payloads, [1, 3]);
    for wrong in ["", "\"\"", "a\tb", &"x".repeat(256)] {
        let (status, problem) = publish(wrong, 4).await;
        assert_eq!(status, 422, "{wrong:?}: {problem}");
        assert!(problem["detail"].as_str().unwrap().starts_with("idempotency key"), "{problem}");
    }
}

#[tokio::test]
async fn b065_a_channel_name_is_decoded_exactly_once() {
    let server = Server::start(config()).await;
    for (path, name) in [
        ("room:1", "room:1"),
        ("room%3A1", "room:1"),
        ("room%253A1", "room%3A1"),
        ("a%2Fb", "a/b"),
        ("a%20b", "a b"),
        ("a+b", "a+b"),
        ("%22%27%3B", "\"';"),
        ("%E2%80%AE", "\u{202e}"),
        ("Stra%C3%9Fe", "Straße"),
        ("%2E%2E%2Fx", "../x"),
        ("*", "*"),
        ("%25", "%"),
        ("a%zz", "a%zz"),
        ("a%22%22b", "a\"\"b"),
        ("a%5Cb", "a\\b"),
        ("a-b", "a-b"),
        ("%E2%80%8D", "\u{200d}"),
        ("%F0%9F%A6%80", "🦀"),
        ("select", "select"),
        ("123", "123"),
        ("x%22%3B%20DROP%20TABLE%20node_registry%3B%20--", "x\"; DROP TABLE node_registry; --"),
    ] {
        let channel = Channel::parse(name).unwrap();
        let mut events = server.cluster.durable().subscribe(&channel, StartFrom::Now).await.unwrap();
        let (status, answer) = server.post(path, r#"{"event":"message","payload":1}"#).await;
        assert_eq!(status, 201, "{path}: {answer}");
        let Some(DurableItem::Event(event)) = events.next().await else { panic!("{path}") };
        assert_eq!(event.channel, channel);
    }
    for (path, expected) in
        [("a%0Ab", 422), ("a%00b", 422), ("%7F", 422), ("%FF", 400), (&*"x".repeat(256), 422)]
    {
        let (status, problem) = server.post(path, r#"{"event":"message","payload":1}"#).await;
        assert_eq!(status, expected, "{path:.20}: {problem}");
    }
}

#[tokio::test]
async fn b074_payloads_pass_byte_for_byte() {
    let server = Server::start(config()).await;
    let text = r#"{"n":9007199254740993,"m":123456789012345678901234567890,"f":1.10,"e":1e400,"z":-0.0,"a":1,  "a":2,"u":"\u0000\ud800é"}"#;
    server.post("room:1", format!(r#"{{"payload": {text} ,"event":"message"}}"#)).await;
    let request = server.client.get(server.events("room:1")).bearer_auth(TOKEN);
    let page = request.send().await.unwrap().text().await.unwrap();
    assert!(page.contains(text), "{page}");
}

#[tokio::test]
async fn b076_nonsense_is_answered_with_what_is_allowed_and_harms_nobody() {
    let server = Server::start(config()).await;
    for (body, expected) in [
        ("", 400),
        ("}", 400),
        ("null", 422),
        ("[]", 422),
        ("[\"m\",1]", 422),
        ("[\"m\",1,true]", 422),
        ("0", 422),
        ("\"x\"", 422),
        ("{", 400),
        ("{}", 422),
        ("{\"event\":1,\"payload\":1}", 422),
        ("{\"event\":\"\",\"payload\":1}", 422),
        ("{\"event\":\"a\\nb\",\"payload\":1}", 422),
        ("{\"event\":\"m\"}", 422),
        ("{\"event\":\"m\",\"payload\":1,\"other\":1}", 422),
        ("{\"event\":null,\"payload\":1}", 422),
        ("{\"event\":\"m\",\"payload\":1,\"ephemeral\":null}", 422),
        ("{\"event\":\"m\",\"event\":\"m\",\"payload\":1}", 422),
        ("{\"event\":\"m\",\"payload\":1,\"payload\":2}", 422),
        ("{\"event\":\"m\",\"payload\":1,\"ephemeral\":\"yes\"}", 422),
        ("{\"event\":\"m\",\"payload\":}", 400),
        ("{\"event\":\"m\",\"payload\":1} x", 400),
        ("\u{feff}{\"event\":\"m\",\"payload\":1}", 400),
    ] {
        let (status, problem) = server.post("room:1", body.to_owned()).await;
        assert_eq!(status, expected, "{body}: {problem}");
        assert!(problem["detail"].as_str().unwrap().len() < 500, "{problem}");
    }
    let unknown = format!("{{\"event\":\"m\",\"payload\":1,\"{}\":1}}", "\\n".repeat(100_000));
    let (status, problem) = server.post("room:1", unknown).await;
    assert_eq!(status, 422);
    assert!(problem["detail"].as_str().unwrap().len() < 1000, "{problem}");
    for deep in [
        "[".repeat(1_000_000),
        format!("{{\"event\":\"m\",\"payload\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000)),
    ] {
        let (status, _) = server.post("room:1", deep).await;
        assert!(matches!(status, 400 | 422), "{status}");
    }
    let (status, _) = server.post("room:1", vec![0xff, 0xfe, b'{']).await;
    assert_eq!(status, 400);
    assert_eq!(server.post("room:1", r#"{"event":"message","payload":1}"#).await.0, 201);
}

#[tokio::test]
async fn a_refusal_names_field_value_and_rule() {
    let server = Server::start(config()).await;
    for (body, detail) in [
        (r#"{"event":1,"payload":1}"#, r#"event "1": must be a string"#),
        (r#"{"event":"","payload":1}"#, r#"event name "": must be 1 to 255 bytes"#),
        (r#"{"event":"m","payload":1,"ephemeral":"yes"}"#, r#"ephemeral "\"yes\"": must be true or false"#),
        (r#"{"event":"m"}"#, "missing field `payload`"),
        ("null", "invalid type: null, expected an object"),
        (r#"{"event":"m","payload":1,"a\nb":1}"#, "unknown field `a b`"),
        (r#"{"event":"m","payload":1,"x":1}"#, "unknown field `x`"),
        (r#"{"event":"m","payload":nope}"#, "expected ident at line 1 column 25"),
    ] {
        let (_, problem) = server.post("room:1", body).await;
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
    for (query, detail) in [
        ("tokens=secret", "unknown field `tokens`"),
        ("limit=x", "limit: invalid digit"),
        ("limit=0", "limit 0 must be from 1 to 1000"),
        ("after=x", r#"position "x": must be a position"#),
    ] {
        let (_, problem) = server.get(&format!("/api/channels/room:1/events?{query}")).await;
        let text = problem["detail"].as_str().unwrap();
        assert!(text.contains(detail) && !text.contains("secret"), "{problem}");
        assert!(text.starts_with(char::is_lowercase), "{problem}");
    }
}

#[tokio::test]
async fn b069_limits_are_exact() {
    let server = Server::start(config()).await;
    let body = |size: usize, ephemeral: bool| {
        format!(r#"{{"event":"m","ephemeral":{ephemeral},"payload":"{}"}}"#, "x".repeat(size - 2))
    };
    for (limit, ephemeral, accepted) in [(1024 * 1024, false, 201), (64 * 1024, true, 202)] {
        assert_eq!(server.post("room:1", body(limit, ephemeral)).await.0, accepted);
        let (status, problem) = server.post("room:1", body(limit + 1, ephemeral)).await;
        assert_eq!(status, 413, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(&limit.to_string()), "{problem}");
    }
    for _ in 0..10 {
        // Far too large to be read to its end, and yet the client learns why.
        let (status, problem) = server.post("room:1", body(8 * 1024 * 1024, false)).await;
        assert_eq!(status, 413);
        assert!(problem["detail"].as_str().unwrap().starts_with("the body must be at most"), "{problem}");
    }
}

#[tokio::test]
async fn b080_history_pages_and_says_what_is_gone() {
    let server = Server::start(config()).await;
    let mut positions = Vec::new();
    for n in 0..10 {
        let (_, published) = server.post("room:1", format!(r#"{{"event":"message","payload":{n}}}"#)).await;
        positions.push(published["position"].as_str().unwrap().to_owned());
    }
    let (status, page) = server.get("/api/channels/room:1/events?limit=4").await;
    assert_eq!((status, page["data"].as_array().unwrap().len()), (200, 4));
    assert_eq!(page["next"], positions[3]);
    let (_, page) = server.get(&format!("/api/channels/room:1/events?after={}", positions[7])).await;
    let payloads: Vec<_> =
        page["data"].as_array().unwrap().iter().map(|event| event["payload"].as_u64().unwrap()).collect();
    assert_eq!(payloads, [8, 9]);
    let (_, page) = server.get(&format!("/api/channels/room:1/events?after={}", positions[9])).await;
    assert_eq!((page["data"].as_array().unwrap().len(), page["next"].is_null()), (0, true));

    let channel = Channel::parse("room:1").unwrap();
    server.cluster.prune(&channel, 2);
    let (status, gone) = server.get(&format!("/api/channels/room:1/events?after={}", positions[0])).await;
    assert_eq!((status, &gone["oldest"]), (410, &positions[8].clone().into()));
    let (status, reset) = server.get("/api/channels/room:1/events?after=ffffffffffffffff-10").await;
    assert_eq!((status, &reset["head"]), (409, &positions[9].clone().into()));
    for wrong in [
        "after=",
        "after=0",
        "after=-1",
        "after=9223372036854775808",
        "after=x",
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=x",
        "other=1",
    ] {
        let (status, problem) = server.get(&format!("/api/channels/room:1/events?{wrong}")).await;
        assert!(matches!(status, 400 | 422), "{wrong}: {status} {problem}");
    }
}

#[tokio::test]
async fn publishes_and_rejections_are_counted() {
    let server = Server::start(config()).await;
    server.post("room:1", r#"{"event":"message","payload":1}"#).await;
    server.post("room:1", r#"{"event":"message","payload":2}"#).await;
    server.post("room:1", r#"{"event":"typing","payload":1,"ephemeral":true}"#).await;
    server.post("room:1", "nonsense").await;
    server.get("/nothing").await;
    for (name, count) in [
        ("http_requests_total", 5),
        ("http_published_durable_total", 2),
        ("http_published_ephemeral_total", 1),
        ("http_rejected_total", 2),
    ] {
        assert_eq!(server.stat(name), count, "{name}");
    }
}
