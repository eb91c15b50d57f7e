//! Bytes to messages and back, for both versions of the Phoenix serializer and the binary frames of `@supabase/realtime-js`.
//!
//! Decoding borrows: nothing is copied but names that hold escapes, and JSON payloads stay the text that was sent. Invariant: whatever
//! the bytes, the answer is a message or a [`DecodeError`]; never a panic, and never more memory than the bytes themselves take.

mod binary;
mod client;
mod error;
mod server;
mod text;

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;
use switchboard_core::types::Invalid;

pub use client::{ClientMessage, ClientPayload};
pub use error::DecodeError;
pub use server::{ServerMessage, ServerPayload};

pub(crate) use text::{Parts, Text, encode as encode_text};

/// Longest `join_ref` and `ref`, in bytes: one byte holds the length in a binary frame. Longer topics and events are messages that can be
/// replied to.
pub const MAX_NAME_BYTES: usize = 255;

/// Which serializer a socket speaks: `vsn` in the URL it was opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// `1.0.0`: JSON objects, no binary frames.
    V1,
    /// `2.0.0`: JSON arrays, and binary frames.
    V2,
}

impl Version {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V1, Self::V2];

    /// Reads the query parameter `vsn`; a socket without one speaks version 1, as with Phoenix.
    pub fn parse(vsn: Option<&str>) -> Result<Self, Invalid> {
        match vsn {
            None | Some("1.0.0") => Ok(Self::V1),
            Some("2.0.0") => Ok(Self::V2),
            Some(other) => Err(Invalid::new("vsn", other, "must be 1.0.0 or 2.0.0")),
        }
    }

    fn shape(self) -> &'static str {
        match self {
            Self::V1 => "a message must be {join_ref, ref, topic, event, payload}",
            Self::V2 => "a message must be [join_ref, ref, topic, event, payload]",
        }
    }
}

/// One WebSocket message that is ready to be sent. Cloning is cheap and shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A text message: always UTF-8.
    Text(Bytes),
    /// A binary message.
    Binary(Bytes),
}

impl Frame {
    /// The content, whatever its kind.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Text(bytes) | Self::Binary(bytes) => bytes,
        }
    }
}

/// What a broadcast of `@supabase/realtime-js` carries in a binary frame.
#[derive(Debug, Clone, Copy)]
pub enum BroadcastPayload<'a> {
    /// An `ArrayBuffer`.
    Bytes(&'a [u8]),
    /// Anything else.
    Json(&'a RawValue),
}

/// A broadcast in a binary frame of `@supabase/realtime-js`.
#[derive(Debug, Clone)]
pub struct Broadcast<'a> {
    /// The event that handlers are bound to.
    pub event: Cow<'a, str>,
    /// What stands next to the payload: a JSON object, if anything.
    pub meta: Option<&'a RawValue>,
    /// The payload.
    pub payload: BroadcastPayload<'a>,
}
