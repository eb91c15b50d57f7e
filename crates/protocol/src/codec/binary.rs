//! What all binary frames share: a byte that names the kind, a byte for the length of each part, the parts, and the payload as the rest.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Broadcast, BroadcastPayload, DecodeError, Frame};

/// A push. From a client: `join_ref`, `ref`, topic, event. From a server: `join_ref`, topic, event.
pub(super) const PUSH: u8 = 0;
/// A reply of a server: `join_ref`, `ref`, topic, status.
pub(super) const REPLY: u8 = 1;
/// What a server says to all subscribers: topic, event.
pub(super) const BROADCAST: u8 = 2;
/// A broadcast of `@supabase/realtime-js` from a client: `join_ref`, `ref`, topic, event, meta, and how the payload is encoded.
pub(super) const USER_BROADCAST_PUSH: u8 = 3;
/// The same from a server: topic, event, meta, and how the payload is encoded.
pub(super) const USER_BROADCAST: u8 = 4;

const BYTES: u8 = 0;
const JSON: u8 = 1;

/// Reads a frame from front to back and takes no length for granted.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame, length: frame.len() }
    }

    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated { length: self.length })?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(bytes)
    }

    fn part(&mut self, length: u8) -> Result<&'a [u8], DecodeError> {
        let (part, rest) = self
            .rest
            .split_at_checked(usize::from(length))
            .ok_or(DecodeError::Truncated { length: self.length })?;
        self.rest = rest;
        Ok(part)
    }

    pub(super) fn text(&mut self, field: &'static str, length: u8) -> Result<Cow<'a, str>, DecodeError> {
        std::str::from_utf8(self.part(length)?).map(Cow::Borrowed).map_err(|_| DecodeError::Utf8 { field })
    }

    /// As [`text`](Self::text), but what is not UTF-8 is read as Latin-1, because that is what `@supabase/realtime-js` writes.
    pub(super) fn latin_text(&mut self, length: u8) -> Result<Cow<'a, str>, DecodeError> {
        let part = self.part(length)?;
        Ok(match std::str::from_utf8(part) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => part.iter().map(|byte| char::from(*byte)).collect::<String>().into(),
        })
    }

    /// A text of no length is none.
    pub(super) fn optional(text: Cow<'a, str>) -> Option<Cow<'a, str>> {
        Some(text).filter(|text| !text.is_empty())
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// What follows the topic in both kinds of user broadcast.
    pub(super) fn broadcast(
        mut self,
        event_length: u8,
        meta_length: u8,
        encoding: u8,
    ) -> Result<Broadcast<'a>, DecodeError> {
        let event = self.latin_text(event_length)?;
        let meta = match self.part(meta_length)? {
            [] => None,
            meta => Some(json("meta", meta)?),
        };
        let payload = match encoding {
            BYTES => BroadcastPayload::Bytes(self.rest),
            JSON => BroadcastPayload::Json(json("payload", self.rest)?),
            other => return Err(DecodeError::Encoding(other)),
        };
        Ok(Broadcast { event, meta, payload })
    }
}

fn json<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a RawValue, DecodeError> {
    serde_json::from_slice(bytes).map_err(|_| DecodeError::Json { field })
}

/// Writes a frame; `None` if a part is longer than a byte can say.
pub(super) fn write(kind: u8, parts: &[&[u8]], encoding: Option<u8>, payload: &[u8]) -> Option<Frame> {
    let mut frame =
        Vec::with_capacity(2 + parts.iter().map(|part| part.len() + 1).sum::<usize>() + payload.len());
    frame.push(kind);
    for part in parts {
        frame.push(u8::try_from(part.len()).ok()?);
    }
    frame.extend(encoding);
    for part in parts {
        frame.extend_from_slice(part);
    }
    frame.extend_from_slice(payload);
    Some(Frame::Binary(frame.into()))
}

/// Writes a user broadcast, after the parts that come before its event.
pub(super) fn write_broadcast(kind: u8, before: &[&[u8]], broadcast: &Broadcast<'_>) -> Option<Frame> {
    let meta = broadcast.meta.map_or("", RawValue::get);
    let parts = [before, &[broadcast.event.as_bytes(), meta.as_bytes()]].concat();
    let (encoding, payload) = match broadcast.payload {
        BroadcastPayload::Bytes(bytes) => (BYTES, bytes),
        BroadcastPayload::Json(json) => (JSON, json.get().as_bytes()),
    };
    write(kind, &parts, Some(encoding), payload)
}
