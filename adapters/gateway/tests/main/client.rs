//! A client that says exactly what it is told to, for what well-behaved libraries never do.

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use switchboard_testkit::LONG;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::server::Server;

pub(crate) struct Client(WebSocketStream<TcpStream>);

impl Client {
    /// A socket under `path`, or the answer that it gets instead.
    pub(crate) async fn try_open(server: &Server, path: &str, headers: &str) -> Result<Self, String> {
        let address = server.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let host = if headers.contains("host:") { "" } else { "host: 127.0.0.1\r\n" };
        let request = format!(
            "GET {path} HTTP/1.1\r\n{host}connection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(LONG, stream.read_u8()).await.expect("no answer").unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        if head.starts_with("HTTP/1.1 101") {
            // The example of RFC 6455.
            assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
            return Ok(Self(WebSocketStream::from_raw_socket(stream, Role::Client, None).await));
        }
        let length = head.to_lowercase();
        let length = length.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        Err(head + &String::from_utf8(body).unwrap())
    }

    pub(crate) async fn open(server: &Server, path: &str) -> Self {
        Self::try_open(server, path, "").await.unwrap_or_else(|answer| panic!("{answer}"))
    }

    /// A socket of the dialect of `phoenix` that may do everything.
    pub(crate) async fn admin(server: &Server) -> Self {
        let header = format!("authorization: Bearer {}\r\n", crate::server::TOKEN);
        Self::try_open(server, "/socket/websocket?vsn=2.0.0", &header).await.unwrap()
    }

    pub(crate) async fn say(&mut self, text: impl ToString) {
        self.send(Message::text(text.to_string())).await;
    }

    pub(crate) async fn send(&mut self, message: Message) {
        // A socket that was closed meanwhile says so to whoever listens.
        let _ = self.0.send(message).await;
    }

    /// The next message, or why there will be none.
    pub(crate) async fn hear(&mut self) -> Result<Value, (u16, String)> {
        loop {
            match timeout(LONG, self.0.next()).await.expect("nothing is said") {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(Some(close)))) => {
                    return Err((close.code.into(), close.reason.to_string()));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(bytes))) => return Ok(json!({ "binary": bytes.len() })),
                Some(Ok(other)) => panic!("{other:?}"),
                Some(Err(error)) => return Err((0, error.to_string())),
                None => return Err((0, String::new())),
            }
        }
    }

    /// The code with which it is closed, whatever is said before.
    pub(crate) async fn closed(&mut self) -> u16 {
        loop {
            if let Err((code, _)) = self.hear().await {
                return code;
            }
        }
    }

    /// Pushes an event; answers status and response.
    pub(crate) async fn push(&mut self, topic: &str, event: &str, payload: Value) -> (String, Value) {
        self.say(json!(["1", "r", topic, event, payload])).await;
        loop {
            let message = self.hear().await.unwrap_or_else(|closed| panic!("{closed:?}"));
            if message[1] == "r" && message[3] == "phx_reply" {
                let reply = &message[4];
                return (reply["status"].as_str().unwrap().to_owned(), reply["response"].clone());
            }
        }
    }

    pub(crate) async fn join(&mut self, topic: &str, params: Value) {
        let (status, response) = self.push(topic, "phx_join", params).await;
        assert_eq!(status, "ok", "{response}");
    }

    /// The connection below it, to break its rules.
    pub(crate) fn raw(&mut self) -> &mut TcpStream {
        self.0.get_mut()
    }
}
