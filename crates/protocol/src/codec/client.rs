//! What clients send.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::binary::{self, PUSH, Reader, USER_BROADCAST_PUSH};
use super::text::{self, Parts};
use super::{Broadcast, DecodeError, Frame, Version};

/// One message of a client. It borrows from what was received.
#[derive(Debug, Clone)]
pub struct ClientMessage<'a> {
    /// Which join of the topic it belongs to.
    pub join_ref: Option<Cow<'a, str>>,
    /// Names the message, so that it can be replied to.
    pub reference: Option<Cow<'a, str>>,
    /// The channel, in the spelling of the client's dialect.
    pub topic: Cow<'a, str>,
    /// What it wants, or what happened.
    pub event: Cow<'a, str>,
    /// The rest.
    pub payload: ClientPayload<'a>,
}

/// What a client's message carries.
#[derive(Debug, Clone)]
pub enum ClientPayload<'a> {
    /// JSON, as the text that was sent.
    Json(&'a RawValue),
    /// Bytes: the binary push of `phoenix`.
    Bytes(&'a [u8]),
    /// A binary broadcast of `@supabase/realtime-js`.
    Broadcast(Broadcast<'a>),
}

impl<'a> ClientMessage<'a> {
    /// Reads a text message.
    pub fn from_text(version: Version, text: &'a str) -> Result<Self, DecodeError> {
        let Parts { join_ref, reference, topic, event, payload } = text::decode(version, text)?;
        Ok(Self { join_ref, reference, topic, event, payload: ClientPayload::Json(payload) })
    }

    /// Reads a binary message.
    pub fn from_binary(version: Version, frame: &'a [u8]) -> Result<Self, DecodeError> {
        if version == Version::V1 {
            return Err(DecodeError::BinaryInV1);
        }
        let mut reader = Reader::new(frame);
        match reader.byte()? {
            PUSH => {
                let [join_ref, reference, topic, event] = reader.bytes()?;
                Ok(Self {
                    join_ref: Reader::optional(reader.text("join_ref", join_ref)?),
                    reference: Reader::optional(reader.text("ref", reference)?),
                    topic: reader.text("topic", topic)?,
                    event: reader.text("event", event)?,
                    payload: ClientPayload::Bytes(reader.rest()),
                })
            }
            USER_BROADCAST_PUSH => {
                let [join_ref, reference, topic, event, meta, encoding] = reader.bytes()?;
                Ok(Self {
                    join_ref: Reader::optional(reader.text("join_ref", join_ref)?),
                    reference: Reader::optional(reader.text("ref", reference)?),
                    topic: reader.latin_text(topic)?,
                    event: Cow::Borrowed("broadcast"),
                    payload: ClientPayload::Broadcast(reader.broadcast(event, meta, encoding)?),
                })
            }
            kind => Err(DecodeError::Kind { kind, allowed: "0 or 3" }),
        }
    }

    /// Reads what was written by [`encode`](Self::encode), or received.
    pub(crate) fn from_frame(version: Version, frame: &'a Frame) -> Option<Self> {
        match frame {
            Frame::Text(text) => Self::from_text(version, std::str::from_utf8(text).ok()?).ok(),
            Frame::Binary(bytes) => Self::from_binary(version, bytes).ok(),
        }
    }

    /// Writes it as a client does; for clients, tests, and what is kept.
    ///
    /// `None`: a binary message that has a part of more than 255 bytes, or belongs on a socket of version 1.
    pub fn encode(&self, version: Version) -> Option<Frame> {
        let Self { join_ref, reference, topic, event, payload } = self;
        let optional = |text: &'_ Option<Cow<'a, str>>| text.clone().unwrap_or_default();
        let (join, own) = (optional(join_ref), optional(reference));
        let head = [join.as_bytes(), own.as_bytes(), topic.as_bytes()];
        match payload {
            ClientPayload::Json(payload) => Some(text::encode(
                version,
                &Parts {
                    join_ref: join_ref.clone(),
                    reference: reference.clone(),
                    topic: topic.clone(),
                    event: event.clone(),
                    payload,
                },
            )),
            _ if version == Version::V1 => None,
            ClientPayload::Bytes(bytes) => {
                binary::write(PUSH, &[&head[..], &[event.as_bytes()]].concat(), None, bytes)
            }
            ClientPayload::Broadcast(broadcast) => {
                binary::write_broadcast(USER_BROADCAST_PUSH, &head, broadcast)
            }
        }
    }
}
