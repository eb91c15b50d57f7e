//! Foreign web pages.

use serde_json::json;
use switchboard_gateway::{GatewayConfig, Origins};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{Server, TOKEN};
use crate::tokens::{token, with_tokens};

/// The head of the answer to a request with these header lines.
async fn head(server: &Server, method: &str, lines: &str) -> String {
    let mut socket = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).await.unwrap();
    let token = token(&json!({"room:1": ["subscribe"]}));
    let request = format!(
        "{method} /api/channels/room:1/events HTTP/1.1\r\nconnection: close\r\nauthorization: Bearer {token}\r\n{lines}\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    let (head, _) = text.split_once("\r\n\r\n").unwrap();
    head.to_lowercase()
}

async fn status(server: &Server, lines: &str) -> String {
    head(server, "GET", lines).await["http/1.1 ".len()..][..3].to_owned()
}

fn listed(origins: &str) -> GatewayConfig {
    GatewayConfig { origins: Origins::parse(origins).unwrap(), ..with_tokens() }
}

#[tokio::test]
async fn b114_a_page_comes_in_by_its_exact_origin_or_not_at_all() {
    const HOST: &str = "host: node.example:4000\r\n";
    let server = Server::start(listed("https://good.example,http://localhost:5173")).await;
    for (origin, expected) in [
        ("", "200"),
        ("origin: http://node.example:4000\r\n", "200"),
        // TLS may end in front of the node.
        ("origin: https://node.example:4000\r\n", "200"),
        ("origin: http://node.example\r\n", "403"),
        ("origin: http://node.example:4001\r\n", "403"),
        ("origin: http://node.example.:4000\r\n", "403"),
        ("origin: http://evil.example:4000\r\n", "403"),
        ("origin: http://node.example.evil.example:4000\r\n", "403"),
        ("origin: http://xnode.example:4000\r\n", "403"),
        ("origin: http://node.example:4000@evil.example\r\n", "403"),
        ("origin: null\r\n", "403"),
        ("origin: \r\n", "403"),
        ("origin: node.example:4000\r\n", "403"),
        ("origin: http://\r\n", "403"),
        ("origin: https://good.example\r\n", "200"),
        ("origin: http://localhost:5173\r\n", "200"),
        ("origin: http://good.example\r\n", "403"),
        ("origin: https://good.example:443\r\n", "403"),
        ("origin: https://good.example:8443\r\n", "403"),
        ("origin: https://good.example.evil.example\r\n", "403"),
        ("origin: https://evilgood.example\r\n", "403"),
        ("origin: https://GOOD.example\r\n", "403"),
        ("origin: HTTPS://good.example\r\n", "403"),
        ("origin: https://good.example.\r\n", "403"),
        ("origin: https://good.example/\r\n", "403"),
        ("origin: https://www.good.example\r\n", "403"),
        ("origin: http://localhost:5174\r\n", "403"),
        ("origin: https://good.example, https://evil.example\r\n", "403"),
        ("origin: https://good.example\r\norigin: https://good.example\r\n", "403"),
        ("origin: https://good.example\r\norigin: https://evil.example\r\n", "403"),
        ("origin: https://evil.example\r\nx-forwarded-host: evil.example\r\n", "403"),
        ("origin: https://evil.example\r\nforwarded: host=evil.example\r\n", "403"),
    ] {
        assert_eq!(status(&server, &format!("{HOST}{origin}")).await, expected, "{origin}");
    }
    // Behind a proxy, the host is what the browser calls it by, with the scheme's own port left out.
    for (host, origin, expected) in [
        ("app.example", "https://app.example", "200"),
        ("App.Example:443", "https://app.example", "200"),
        ("app.example:80", "https://app.example", "403"),
        ("10.0.0.1:4000", "https://app.example", "403"),
        ("[::1]:4000", "http://[::1]:4000", "200"),
    ] {
        let lines = format!("host: {host}\r\norigin: {origin}\r\nx-forwarded-host: app.example\r\n");
        assert_eq!(status(&server, &lines).await, expected, "{origin} at {host}");
    }
}

/// The refusal comes before the token is looked at, and before a publish is done on behalf of the page.
#[tokio::test]
async fn b114_a_foreign_page_is_refused_before_any_work() {
    let server = Server::start(with_tokens()).await;
    for authorization in ["Bearer x", &format!("Bearer {TOKEN}")] {
        let request = server.client.post(server.events("room:1")).header("authorization", authorization);
        let request =
            request.header("origin", "https://evil.example").header("content-type", "application/json");
        let response = request.body(r#"{"event":"message","payload":1}"#).send().await.unwrap();
        assert!(!response.headers().contains_key("access-control-allow-origin"));
        let (status, problem) = crate::server::answer(response).await;
        assert_eq!((status, &problem["reason"]), (403, &json!("origin")));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("https://evil.example") && detail.contains("AUTH_ORIGINS"), "{detail}");
    }
    let (_, page) = server.get("/api/channels/room:1/events").await;
    assert_eq!(page["data"], json!([]));
}

#[tokio::test]
async fn a_listed_page_may_read_answers_and_send_tokens() {
    let server = Server::start(listed("https://good.example")).await;
    let answer = head(&server, "GET", "host: x\r\norigin: https://good.example\r\n").await;
    assert!(answer.contains("access-control-allow-origin: https://good.example"), "{answer}");
    assert!(answer.contains("vary: ") && answer.contains("origin"), "{answer}");
    assert!(!answer.contains("access-control-allow-credentials"), "{answer}");
    // Refusals, too: a page should be able to tell its user why.
    let request = server.client.get(server.events("room:1")).header("origin", "https://good.example");
    let refused = request.send().await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["access-control-allow-origin"]),
        (401, &"https://good.example".parse().unwrap())
    );

    let asked = "access-control-request-method: POST\r\naccess-control-request-headers: authorization,content-type,x-client-info\r\n";
    let preflight = format!("host: x\r\norigin: https://good.example\r\n{asked}");
    let answer = head(&server, "OPTIONS", &preflight).await;
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(answer.contains("access-control-allow-origin: https://good.example"), "{answer}");
    assert!(answer.contains("access-control-allow-methods: post"), "{answer}");
    assert!(
        answer.contains("access-control-allow-headers: authorization,content-type,x-client-info"),
        "{answer}"
    );

    let foreign = format!("host: x\r\norigin: https://evil.example\r\n{asked}");
    let answer = head(&server, "OPTIONS", &foreign).await;
    assert!(
        answer.starts_with("http/1.1 403") && !answer.contains("access-control-allow-origin"),
        "{answer}"
    );
}

#[tokio::test]
async fn every_page_may_come_in_if_that_was_said() {
    let server = Server::start(listed("*")).await;
    for origin in ["https://any.example", "null"] {
        let answer = head(&server, "GET", &format!("host: x\r\norigin: {origin}\r\n")).await;
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        assert!(answer.contains(&format!("access-control-allow-origin: {origin}")), "{answer}");
    }
    let twice = "host: x\r\norigin: https://a.example\r\norigin: https://b.example\r\n";
    assert_eq!(status(&server, twice).await, "403");
}

/// Without tokens, the page is all that is between a visitor's node and a stranger.
#[tokio::test]
async fn a_foreign_page_does_not_get_into_a_node_with_open_access() {
    let server = Server::start(GatewayConfig { open_access: true, ..with_tokens() }).await;
    for (origin, expected) in [
        ("http://127.0.0.1:4000", "200"),
        ("http://localhost:4000", "403"),
        ("http://127.0.0.1:5173", "403"),
        ("https://evil.example", "403"),
    ] {
        assert_eq!(status(&server, &format!("host: 127.0.0.1:4000\r\norigin: {origin}\r\n")).await, expected);
    }
}

#[tokio::test]
async fn probes_answer_whoever_asks() {
    let server = Server::start(with_tokens()).await;
    for path in ["/livez", "/readyz", "/health"] {
        let request =
            server.client.get(format!("{}{path}", server.url)).header("origin", "https://evil.example");
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("access-control-allow-origin"));
    }
}
