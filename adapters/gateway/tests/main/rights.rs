//! Clients with tokens of their own: how they send them, and what they may do with them.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use switchboard_core::ports::{DurableBus, DurableItem, EphemeralBus, EphemeralItem, StartFrom};
use switchboard_core::types::Channel;
use switchboard_gateway::GatewayConfig;
use switchboard_gateway::auth::{AuthConfig, JwksFile, Verifier};
use switchboard_testkit::{LONG, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{Server, TOKEN, answer};
use crate::tokens::{expiring, fixture, sign, token, with_leeway, with_tokens};

const DURABLE: &str = r#"{"event":"message","payload":1}"#;
const EPHEMERAL: &str = r#"{"event":"typing","payload":1,"ephemeral":true}"#;

async fn publish(server: &Server, token: &str, channel: &str, body: &'static str) -> (u16, Value) {
    let request = server.client.post(server.events(channel)).bearer_auth(token);
    answer(request.header("content-type", "application/json").body(body).send().await.unwrap()).await
}

async fn history(server: &Server, token: &str, channel: &str) -> (u16, Value) {
    answer(server.client.get(server.events(channel)).bearer_auth(token).send().await.unwrap()).await
}

/// Status of a stream, which is left at once.
async fn stream(server: &Server, token: &str, channel: &str) -> u16 {
    let request = server.client.get(server.events(channel)).bearer_auth(token);
    request.header("accept", "text/event-stream").send().await.unwrap().status().as_u16()
}

/// What a token opens in a channel: an ephemeral and a durable publish, history, a stream.
async fn opens(server: &Server, token: &str, channel: &str) -> [u16; 4] {
    [
        publish(server, token, channel, EPHEMERAL).await.0,
        publish(server, token, channel, DURABLE).await.0,
        history(server, token, channel).await.0,
        stream(server, token, channel).await,
    ]
}

#[tokio::test]
async fn each_right_opens_its_own_door() {
    let server = Server::start(with_tokens()).await;
    for (rights, expected) in [
        (json!([]), [403, 403, 403, 403]),
        (json!(["presence"]), [403, 403, 403, 403]),
        (json!(["publish"]), [202, 403, 403, 403]),
        (json!(["durable"]), [403, 201, 403, 403]),
        (json!(["subscribe"]), [403, 403, 200, 200]),
        (json!(["subscribe", "publish", "durable"]), [202, 201, 200, 200]),
    ] {
        assert_eq!(opens(&server, &token(&json!({"room:*": rights})), "room:1").await, expected, "{rights}");
    }
    assert_eq!(opens(&server, TOKEN, "room:1").await, [202, 201, 200, 200], "the admin token opens all");
    assert_eq!(opens(&server, &sign(&json!({"exp": 32_503_680_000_i64})), "room:1").await, [403; 4]);
}

#[tokio::test]
async fn a_refusal_says_what_is_missing_to_people_and_programs() {
    let server = Server::start(with_tokens()).await;
    let cases = [
        (None, 401, "missing", "Bearer", "a token is needed"),
        (
            Some(token(&json!({}))),
            403,
            "forbidden",
            "Bearer error=\"insufficient_scope\"",
            "the right `subscribe`",
        ),
        (Some(expiring(&json!({}), -1.0)), 401, "expired", "Bearer error=\"invalid_token\"", "has expired"),
        (Some("x.y.z".to_owned()), 401, "invalid", "Bearer error=\"invalid_token\"", "not valid"),
        (
            Some(sign(&json!({"exp": 32_503_680_000_i64, "nbf": 32_503_670_000_i64}))),
            401,
            "not_yet_valid",
            "Bearer error=\"invalid_token\"",
            "not valid yet",
        ),
        (
            Some(token(&json!({"room:1": ["read"]}))),
            401,
            "invalid",
            "Bearer error=\"invalid_token\"",
            "right \"read\": must be subscribe, publish, durable or presence",
        ),
    ];
    for (token, status, kind, challenge, detail) in cases {
        let mut request = server.client.get(server.events("room:1"));
        if let Some(token) = &token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], challenge);
        let (found, problem) = answer(response).await;
        assert_eq!((found, problem["reason"].as_str()), (status, Some(kind)), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
}

#[tokio::test]
async fn a_token_comes_in_whatever_way_the_client_can_send_it() {
    let server = Server::start(with_tokens()).await;
    let good = token(&json!({"room:1": ["subscribe"]}));
    let (bearer, none, bad) = (format!("Bearer {good}"), "Bearer ".to_owned(), "Bearer x.y.z".to_owned());
    for (authorization, apikey, query, expected) in [
        (Some(&bearer), None, String::new(), 200),
        (None, Some(&good), String::new(), 200),
        (None, None, format!("?token={good}"), 200),
        (None, None, format!("?apikey={good}"), 200),
        (None, None, format!("?apikey={good}&limit=1"), 200),
        // What Supabase's client sends as long as nobody has signed in.
        (Some(&none), Some(&good), String::new(), 200),
        (Some(&bearer), Some(&bad), String::new(), 200),
        (Some(&bad), Some(&good), String::new(), 401),
        (None, Some(&bad), format!("?token={good}"), 401),
        (None, None, format!("?token={good}&apikey=x"), 200),
        (None, None, format!("?token={good}&token={good}"), 401),
        (None, None, format!("?Token={good}"), 401),
        (None, None, String::new(), 401),
        (None, None, "?token=".to_owned(), 401),
    ] {
        let mut request = server.client.get(format!("{}{query}", server.events("room:1")));
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        if let Some(value) = apikey {
            request = request.header("apikey", value);
        }
        let status = request.send().await.unwrap().status();
        assert_eq!(status, expected, "{authorization:?} {apikey:?} {query}");
    }
    // What opens everything is for headers alone: URLs are in everybody's logs.
    for query in ["token", "apikey"] {
        let url = format!("{}?{query}={TOKEN}", server.events("room:1"));
        let (status, problem) = answer(server.client.get(url).send().await.unwrap()).await;
        assert_eq!((status, problem["reason"].as_str()), (401, Some("invalid")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("send it in a header"), "{problem}");
    }
    let request = server.client.get(server.events("room:1")).header("apikey", TOKEN);
    assert_eq!(request.send().await.unwrap().status(), 200);
    // An empty token is none.
    let request =
        server.client.get(format!("{}?token=&apikey=", server.events("room:1"))).header("apikey", "");
    let (status, problem) = answer(request.send().await.unwrap()).await;
    assert_eq!((status, problem["reason"].as_str()), (401, Some("missing")), "{problem}");
}

#[tokio::test]
async fn tokens_of_clients_do_not_open_the_admin_route() {
    let server = Server::start(with_tokens()).await;
    let all = token(&json!({"*": ["subscribe", "publish", "durable", "presence"]}));
    let request = server.client.get(format!("{}/api/admin/cluster", server.url)).bearer_auth(&all);
    let (status, problem) = answer(request.send().await.unwrap()).await;
    assert_eq!((status, &problem["reason"]), (401, &json!("invalid")));
}

#[tokio::test]
async fn keys_for_tokens_are_enough_to_open_channels() {
    let server = Server::start(GatewayConfig { admin_token: None, ..with_tokens() }).await;
    assert_eq!(history(&server, &token(&json!({"room:1": ["subscribe"]})), "room:1").await.0, 200);
    assert_eq!(history(&server, "", "room:1").await.0, 401);
    assert_eq!(server.get("/api/admin/cluster").await.0, 403);
}

#[tokio::test]
async fn a_broken_file_of_keys_is_told_in_health_and_the_node_works() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    fs::write(&path, fixture("jwks.json")).unwrap();
    let file = Some(JwksFile::open(&path).unwrap());
    let verifier = Verifier::new(AuthConfig { jwks_file: file, ..AuthConfig::default() });
    let server = Server::start(GatewayConfig { verifier: Some(Arc::new(verifier)), ..with_tokens() }).await;
    assert!(server.get("/health").await.1.get("warnings").is_none());
    fs::write(&path, "{").unwrap();
    let warned = async || {
        let (status, health) = server.get("/health").await;
        assert_eq!((status, &health["status"]), (200, &json!("healthy")));
        health["warnings"][0].as_str().is_some_and(|warning| warning.contains("keys for tokens"))
    };
    eventually(LONG, "health warns", warned).await;
    assert_eq!(history(&server, &token(&json!({"room:1": ["subscribe"]})), "room:1").await.0, 200);
}

/// Whoever may do nothing in a channel costs no memory.
#[tokio::test]
async fn a_publish_without_rights_is_refused_before_its_body_is_read() {
    let server = Server::start(with_tokens()).await;
    let token = token(&json!({"room:1": ["subscribe"]}));
    let request = server.client.post(server.events("room:1")).bearer_auth(token);
    // It would be of the wrong type, and too large.
    assert_eq!(request.body(vec![b' '; 8 * 1024 * 1024]).send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn b126_exp_counts_to_the_second_and_with_the_documented_leeway() {
    for (leeway, ago, expected) in
        [(0, 1.0, 401), (0, 30.0, 401), (0, 61.0, 401), (45, 1.0, 200), (45, 30.0, 200), (45, 61.0, 401)]
    {
        let server = Server::start(with_leeway(Duration::from_secs(leeway))).await;
        let token = expiring(&json!({"room:1": ["subscribe"]}), -ago);
        let (status, problem) = history(&server, &token, "room:1").await;
        assert_eq!(status, expected, "exp {ago} s ago with a leeway of {leeway} s");
        assert_eq!(stream(&server, &token, "room:1").await, expected, "exp {ago} s ago, leeway {leeway} s");
        assert!(expected == 200 || problem["reason"] == "expired", "{problem}");
    }
}

/// Every spelling that somebody once took for the same name, as the path has it.
#[tokio::test]
async fn b130_no_spelling_of_a_name_reaches_another_channel() {
    let server = Server::start(with_tokens()).await;
    let token = token(&json!({"room:1": ["subscribe", "publish", "durable"]}));
    let (durable, ephemeral) = (server.cluster.durable(), server.cluster.ephemeral());
    let mut heard = Vec::new();
    for name in ["room:1", "room:2"] {
        let channel = Channel::parse(name).unwrap();
        heard.push((
            durable.subscribe(&channel, StartFrom::Now).await.unwrap(),
            ephemeral.subscribe(&channel).await.unwrap(),
        ));
    }
    assert_eq!(publish(&server, TOKEN, "room:2", r#"{"event":"message","payload":2}"#).await.0, 201);
    let long = format!("room:1{}", "x".repeat(57));
    for spelling in [
        "room:1%20",
        "%20room:1",
        "ROOM:1",
        "Room:1",
        "room%253A1",
        "room:%EF%BC%91",
        "room:*",
        "*",
        "room:1,room:2",
        "room:1%2Croom:2",
        "room:1%0Aroom:2",
        "room:1%00",
        "channel:room:2",
        "ephemeral:room:2",
        "private-room:1",
        "room:1%2F..%2Froom:2",
        "room:1%E2%80%8B",
        "room:%CC%811",
        "room:2",
        "room:2%20",
        "%24switchboard",
        "$switchboard:room:1",
        &long,
        &"room:1".repeat(50),
    ] {
        for status in opens(&server, &token, spelling).await {
            assert!(matches!(status, 403 | 422), "{spelling}: {status}");
        }
        for (status, body) in
            [history(&server, &token, spelling).await, publish(&server, &token, spelling, DURABLE).await]
        {
            assert!(matches!(status, 403 | 422) && body.get("data").is_none(), "{spelling}: {body}");
        }
    }
    // Once decoded it is that very name.
    assert_eq!(opens(&server, &token, "room%3A1").await, [202, 201, 200, 200]);
    for ((mut durable, mut ephemeral), expected) in heard.into_iter().zip([1, 2]) {
        let Some(DurableItem::Event(event)) = durable.next().await else { panic!() };
        assert_eq!(event.payload.as_str(), expected.to_string());
        if expected == 1 {
            assert!(matches!(ephemeral.next().await, Some(EphemeralItem::Event(_))));
        }
    }
    let room_2 = history(&server, TOKEN, "room:2").await.1;
    assert_eq!(room_2["data"].as_array().unwrap().len(), 1, "somebody got in: {room_2}");
}

/// A client library would tidy these up before it sends them.
#[tokio::test]
async fn b130_dots_in_a_path_lead_nowhere() {
    let server = Server::start(with_tokens()).await;
    let token = token(&json!({"room:1": ["subscribe"]}));
    let address = server.url.strip_prefix("http://").unwrap();
    for path in ["room:1/../room:2", "./room:2", "room:1/%2e%2e/room:2", "room:1//events/../../room:2"] {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let head = format!("GET /api/channels/{path}/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        socket.write_all(format!("{head}authorization: Bearer {token}\r\n\r\n").as_bytes()).await.unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).await.unwrap();
        assert!(text.starts_with("HTTP/1.1 404"), "{path}: {text}");
    }
}

#[tokio::test]
async fn the_cluster_s_own_channels_are_nobody_s() {
    let server = Server::start(with_tokens()).await;
    let all = token(&json!({"*": ["subscribe", "publish", "durable"], "$switchboard*": ["subscribe"]}));
    for token in [&all, TOKEN] {
        assert_eq!(opens(&server, token, "$switchboard:presence").await, [403; 4]);
    }
    let open = Server::start(GatewayConfig { open_access: true, ..with_tokens() }).await;
    assert_eq!(opens(&open, "", "$switchboard:presence").await, [403; 4]);
    assert_eq!(opens(&open, "", "room:1").await, [202, 201, 200, 200]);
}
