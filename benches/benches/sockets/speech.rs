//! What clients say to either system: the same things in its own words.

use std::time::Duration;

use super::wire::Message;

/// Which system is spoken to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    /// Switchboard, as npm `phoenix` speaks to it.
    Phoenix,
    /// Socket.IO 4 over Engine.IO 4.
    SocketIo,
}

/// What is heard of a system.
pub(crate) enum Heard<'a> {
    /// An event, and its payload.
    Event(&'a [u8]),
    /// A question whether the client is still there, and the answer to it.
    Ping(Option<&'static str>),
    /// The answer to a heartbeat.
    Alive,
    Other,
}

/// Length of every event's payload in bytes.
const PAYLOAD: usize = 64;

impl Speech {
    pub(crate) const BOTH: [Self; 2] = [Self::SocketIo, Self::Phoenix];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Phoenix => "Switchboard",
            Self::SocketIo => "Socket.IO",
        }
    }

    pub(crate) fn path(self, token: &str) -> String {
        match self {
            Self::Phoenix => format!("/socket/websocket?vsn=2.0.0&token={token}"),
            Self::SocketIo => "/socket.io/?EIO=4&transport=websocket".to_owned(),
        }
    }

    /// What is said to join a channel: texts, and what is in the answer to each.
    pub(crate) fn join(self, channel: &str) -> Vec<(String, &'static str)> {
        match self {
            Self::Phoenix => {
                vec![(format!(r#"["1","1","{channel}","phx_join",{{}}]"#), r#""status":"ok""#)]
            }
            Self::SocketIo => {
                vec![("40".to_owned(), "40{"), (format!(r#"420["join","{channel}"]"#), "430[")]
            }
        }
    }

    /// Without a reference: nobody waits for a reply.
    pub(crate) fn publish(self, channel: &str, payload: &str) -> String {
        match self {
            Self::Phoenix => format!(r#"["1",null,"{channel}","message",{payload}]"#),
            Self::SocketIo => format!(r#"42["publish","{channel}",{payload}]"#),
        }
    }

    /// What `phoenix` says of itself. Socket.IO's clients only answer.
    pub(crate) const HEARTBEAT: &'static str = r#"[null,"0","phoenix","heartbeat",{}]"#;

    pub(crate) fn hear<'a>(self, message: &Message<'a>) -> Heard<'a> {
        let text = match message {
            Message::Text(text) => *text,
            Message::Ping(_) => return Heard::Ping(None),
            _ => return Heard::Other,
        };
        let event: &[u8] = match self {
            Self::Phoenix => b"[null,null,",
            Self::SocketIo => b"42[",
        };
        // The payload is last, before the bracket that closes the message.
        match (self, text) {
            _ if text.starts_with(event) => Heard::Event(&text[text.len() - PAYLOAD - 1..text.len() - 1]),
            (Self::SocketIo, b"2") => Heard::Ping(Some("3")),
            (Self::Phoenix, _) if text.starts_with(br#"[null,"0","phoenix""#) => Heard::Alive,
            _ => Heard::Other,
        }
    }
}

/// 64 bytes that say when they were sent.
pub(crate) fn payload(sent: Duration) -> String {
    let payload = format!(r#"{{"at":"{:020}","pad":"{}"}}"#, sent.as_nanos(), "x".repeat(26));
    debug_assert_eq!(payload.len(), PAYLOAD);
    payload
}

/// When it was sent.
pub(crate) fn sent(payload: &[u8]) -> Duration {
    let nanos = std::str::from_utf8(&payload[7..27]).ok().and_then(|digits| digits.parse().ok());
    Duration::from_nanos(nanos.expect("it is one of ours"))
}
