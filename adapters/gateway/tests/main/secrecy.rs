//! Tokens stay secret.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;
use switchboard_gateway::auth::{AuthConfig, JwksFile, Verifier};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::{Server, TOKEN};
use crate::tokens::{expiring, token, with_tokens};

/// All that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends a request as it is, and answers all that comes back. No library of ours has a part in it that could log.
async fn send(server: &Server, head: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).await.unwrap();
    let length = body.len();
    let request = format!("{head}host: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn b128_no_token_is_logged_or_repeated_however_it_comes() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let rights = json!({"room:1": ["subscribe", "publish", "durable"]});
    let good = token(&rights);
    let tokens = [
        good.clone(),
        expiring(&rights, -10.0),
        token(&json!({"room:1": ["read"]})),
        format!("{good}x"),
        "x".repeat(99),
    ];
    let server = Server::start(with_tokens()).await;
    tracing::trace!("the log works");
    let path = "/api/channels/room:1/events";
    let mut answers = String::new();
    for token in &tokens {
        for head in [
            format!("GET {path} HTTP/1.1\r\nauthorization: Bearer {token}\r\n"),
            format!("GET {path} HTTP/1.1\r\napikey: {token}\r\n"),
            format!("GET {path}?token={token} HTTP/1.1\r\n"),
            format!("GET {path}?apikey={token}&limit=x HTTP/1.1\r\n"),
            format!("GET {path}?apikey={token}&limit=0 HTTP/1.1\r\n"),
            format!("GET {path}?apikey={token}&other=1 HTTP/1.1\r\n"),
            format!("GET {path}?token={token}&token={token} HTTP/1.1\r\n"),
            format!("GET {path}?apikey={token} HTTP/1.1\r\norigin: https://evil.example\r\n"),
            format!("DELETE {path}?apikey={token} HTTP/1.1\r\n"),
            format!("GET /nothing?apikey={token} HTTP/1.1\r\n"),
            format!("GET /api/admin/cluster?apikey={token} HTTP/1.1\r\nauthorization: Bearer {token}\r\n"),
            format!("POST {path}?apikey={token} HTTP/1.1\r\ncontent-type: application/json\r\n"),
            format!("POST {path} HTTP/1.1\r\ncontent-type: text/plain\r\napikey: {token}\r\n"),
            format!(
                "GET {path}?apikey={token} HTTP/1.1\r\naccept: text/event-stream\r\nlast-event-id: x\r\n"
            ),
        ] {
            let body = if head.starts_with("POST") { r#"{"event":"message","payload":1}"# } else { "" };
            answers += &send(&server, &head, body).await;
        }
    }
    answers += &send(&server, &format!("GET {path}?token={TOKEN} HTTP/1.1\r\n"), "").await;
    let page = "POST /admin/login HTTP/1.1\r\norigin: http://x\r\ncontent-type: application/json\r\n";
    let signed_in = send(&server, page, &format!(r#"{{"token":"{TOKEN}"}}"#)).await;
    let (_, session) = signed_in.split_once("switchboard_admin=").unwrap();
    let (session, _) = session.split_once(';').unwrap();
    for body in [format!(r#"{{"token":"{TOKEN}x"}}"#), format!(r#"{{"tok":"{TOKEN}"}}"#), TOKEN.to_owned()] {
        answers += &send(&server, page, &body).await;
    }
    let session = format!("cookie: switchboard_admin={session}\r\n");
    let signed_in = send(&server, &format!("GET /admin/session HTTP/1.1\r\n{session}"), "").await;
    assert!(signed_in.contains("signed_in"), "{signed_in}");
    answers += &signed_in;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jwks.json");
    let file = JwksFile::open(path).unwrap();
    let config = AuthConfig { jwks_file: Some(file), ..AuthConfig::default() };
    let debug = format!("{config:?} {:?} {:?}", with_tokens().verifier, Verifier::new(config.clone()));
    server.stop().await;

    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(log.contains("the log works"));
    assert!(
        answers.contains("HTTP/1.1 200")
            && answers.contains("HTTP/1.1 401")
            && answers.contains("HTTP/1.1 201")
    );
    for token in &tokens {
        for part in token.split('.').skip(1).chain([token.as_str()]) {
            for (place, text) in [("log", &log), ("answers", &answers), ("Debug", &debug)] {
                assert!(!text.contains(part), "{part} is in the {place}");
            }
        }
    }
    let (_, signature) = session.trim().split_once('.').unwrap();
    assert!(!log.contains(signature) && !answers.contains(signature), "the cookie was logged or repeated");
    assert!(!log.contains(TOKEN) && !answers.contains(TOKEN) && !debug.contains("32 bytes or more"));
    assert!(debug.contains("Keys(4)") && !debug.contains("YSBzZWNyZXQg"), "{debug}");
}
