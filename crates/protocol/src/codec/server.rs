//! What servers send. The session writes it; clients and tests read it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::binary::{self, BROADCAST, PUSH, REPLY, Reader, USER_BROADCAST};
use super::text::{self, Parts};
use super::{Broadcast, DecodeError, Frame, Version};

/// One message of a server.
#[derive(Debug, Clone)]
pub struct ServerMessage<'a> {
    /// Which join of the topic it is meant for; `None` for all.
    pub join_ref: Option<Cow<'a, str>>,
    /// Which message of the client it replies to; in an event of the dialect `phoenix`, its position if it is durable.
    pub reference: Option<Cow<'a, str>>,
    /// The channel, in the spelling of the client's dialect.
    pub topic: Cow<'a, str>,
    /// What happened.
    pub event: Cow<'a, str>,
    /// The rest.
    pub payload: ServerPayload<'a>,
}

/// What a server's message carries.
#[derive(Debug, Clone)]
pub enum ServerPayload<'a> {
    /// JSON, as text.
    Json(&'a RawValue),
    /// Bytes: a binary push if there is a `join_ref`, else a binary broadcast of Phoenix. Neither has a reference.
    Bytes(&'a [u8]),
    /// A binary reply of Phoenix; its event is `phx_reply`.
    Reply {
        /// `ok` or `error`.
        status: Cow<'a, str>,
        /// The response.
        response: &'a [u8],
    },
    /// A binary broadcast of `@supabase/realtime-js`; its event is `broadcast`.
    Broadcast(Broadcast<'a>),
}

impl<'a> ServerMessage<'a> {
    /// Reads a text message.
    pub fn from_text(version: Version, text: &'a str) -> Result<Self, DecodeError> {
        let Parts { join_ref, reference, topic, event, payload } = text::decode(version, text)?;
        Ok(Self { join_ref, reference, topic, event, payload: ServerPayload::Json(payload) })
    }

    /// Reads a binary message.
    pub fn from_binary(version: Version, frame: &'a [u8]) -> Result<Self, DecodeError> {
        if version == Version::V1 {
            return Err(DecodeError::BinaryInV1);
        }
        let mut reader = Reader::new(frame);
        match reader.byte()? {
            PUSH => {
                let [join_ref, topic, event] = reader.bytes()?;
                Ok(Self {
                    join_ref: Some(reader.text("join_ref", join_ref)?),
                    reference: None,
                    topic: reader.text("topic", topic)?,
                    event: reader.text("event", event)?,
                    payload: ServerPayload::Bytes(reader.rest()),
                })
            }
            REPLY => {
                let [join_ref, reference, topic, status] = reader.bytes()?;
                Ok(Self {
                    join_ref: Reader::optional(reader.text("join_ref", join_ref)?),
                    reference: Reader::optional(reader.text("ref", reference)?),
                    topic: reader.text("topic", topic)?,
                    event: Cow::Borrowed("phx_reply"),
                    payload: ServerPayload::Reply {
                        status: reader.text("status", status)?,
                        response: reader.rest(),
                    },
                })
            }
            BROADCAST => {
                let [topic, event] = reader.bytes()?;
                Ok(Self {
                    join_ref: None,
                    reference: None,
                    topic: reader.text("topic", topic)?,
                    event: reader.text("event", event)?,
                    payload: ServerPayload::Bytes(reader.rest()),
                })
            }
            USER_BROADCAST => {
                let [topic, event, meta, encoding] = reader.bytes()?;
                Ok(Self {
                    join_ref: None,
                    reference: None,
                    topic: reader.latin_text(topic)?,
                    event: Cow::Borrowed("broadcast"),
                    payload: ServerPayload::Broadcast(reader.broadcast(event, meta, encoding)?),
                })
            }
            kind => Err(DecodeError::Kind { kind, allowed: "0, 1, 2 or 4" }),
        }
    }

    /// Writes it.
    ///
    /// `None`: a binary message that has a part of more than 255 bytes, or belongs on a socket of version 1. Send JSON instead.
    pub fn encode(&self, version: Version) -> Option<Frame> {
        let Self { join_ref, reference, topic, event, payload } = self;
        let (topic_bytes, event_bytes) = (topic.as_bytes(), event.as_bytes());
        match payload {
            ServerPayload::Json(payload) => Some(text::encode(
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
            ServerPayload::Bytes(bytes) => match join_ref {
                Some(join_ref) => {
                    binary::write(PUSH, &[join_ref.as_bytes(), topic_bytes, event_bytes], None, bytes)
                }
                None => binary::write(BROADCAST, &[topic_bytes, event_bytes], None, bytes),
            },
            ServerPayload::Reply { status, response } => {
                let (join_ref, reference) = (join_ref.as_deref(), reference.as_deref());
                let refs = [join_ref.unwrap_or_default(), reference.unwrap_or_default()].map(str::as_bytes);
                binary::write(REPLY, &[&refs[..], &[topic_bytes, status.as_bytes()]].concat(), None, response)
            }
            ServerPayload::Broadcast(broadcast) => {
                binary::write_broadcast(USER_BROADCAST, &[topic_bytes], broadcast)
            }
        }
    }
}
