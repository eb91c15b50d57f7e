//! Text messages: an array of five (version 2) or an object (version 1), the same in both directions.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{DecodeError, Frame, MAX_NAME_BYTES, Version};

/// The five parts of a message. `P` is JSON: raw text when decoded, anything that serialises when encoded.
#[derive(Debug)]
pub(crate) struct Parts<'a, P> {
    pub(crate) join_ref: Option<Cow<'a, str>>,
    pub(crate) reference: Option<Cow<'a, str>>,
    pub(crate) topic: Cow<'a, str>,
    pub(crate) event: Cow<'a, str>,
    pub(crate) payload: P,
}

/// A string that is borrowed unless it holds escapes.
#[derive(Deserialize)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    join_ref: Option<Text<'a>>,
    #[serde(borrow, default, rename = "ref")]
    reference: Option<Text<'a>>,
    #[serde(borrow)]
    topic: Text<'a>,
    #[serde(borrow)]
    event: Text<'a>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

type Array<'a> = (Option<Text<'a>>, Option<Text<'a>>, Text<'a>, Text<'a>, &'a RawValue);

pub(super) fn decode(version: Version, text: &str) -> Result<Parts<'_, &RawValue>, DecodeError> {
    let (join_ref, reference, topic, event, payload) = match version {
        Version::V1 => {
            // A struct would also be read from an array of its members.
            if text.trim_ascii_start().starts_with('[') {
                return Err(DecodeError::Shape { version, line: 1, column: 1 });
            }
            let object: Object<'_> =
                serde_json::from_str(text).map_err(|error| why::<RawObject<'_>>(version, text, &error))?;
            (object.join_ref, object.reference, object.topic, object.event, object.payload)
        }
        Version::V2 => serde_json::from_str::<Array<'_>>(text)
            .map_err(|error| why::<RawArray<'_>>(version, text, &error))?,
    };
    let parts = Parts {
        join_ref: join_ref.map(|text| text.0),
        reference: reference.map(|text| text.0),
        topic: topic.0,
        event: event.0,
        payload,
    };
    check("join_ref", parts.join_ref.as_deref().unwrap_or_default(), MAX_NAME_BYTES)?;
    check("ref", parts.reference.as_deref().unwrap_or_default(), MAX_NAME_BYTES)?;
    Ok(parts)
}

fn check(field: &'static str, text: &str, max: usize) -> Result<(), DecodeError> {
    if text.len() > max {
        return Err(DecodeError::TooLong { field, length: text.len(), max });
    }
    Ok(())
}

/// The same message, as far as it has the right number of parts.
#[derive(Deserialize)]
struct RawObject<'a> {
    #[serde(borrow, default)]
    join_ref: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "ref")]
    reference: Option<&'a RawValue>,
    #[serde(borrow)]
    topic: &'a RawValue,
    #[serde(borrow)]
    event: &'a RawValue,
}

type RawArray<'a> = (Option<&'a RawValue>, Option<&'a RawValue>, &'a RawValue, &'a RawValue, IgnoredAny);

trait Raw<'a>: Deserialize<'a> {
    /// `join_ref`, `ref`, `topic`, `event`.
    fn texts(&self) -> [Option<&'a RawValue>; 4];
}

impl<'a> Raw<'a> for RawObject<'a> {
    fn texts(&self) -> [Option<&'a RawValue>; 4] {
        [self.join_ref, self.reference, Some(self.topic), Some(self.event)]
    }
}

impl<'a> Raw<'a> for RawArray<'a> {
    fn texts(&self) -> [Option<&'a RawValue>; 4] {
        [self.0, self.1, Some(self.2), Some(self.3)]
    }
}

/// Why `text` is no message: the part that is no text, if it is that. Reads it once more, which only mistakes pay for.
fn why<'a, R: Raw<'a>>(version: Version, text: &'a str, error: &serde_json::Error) -> DecodeError {
    let wrong = serde_json::from_str::<R>(text).ok().and_then(|raw| {
        let mut fields = ["join_ref", "ref", "topic", "event"].into_iter().zip(raw.texts());
        fields.find_map(|(field, raw)| {
            let raw = raw?.get();
            match (raw.starts_with('"'), field) {
                (true, _) if serde_json::from_str::<Text<'_>>(raw).is_ok() => None,
                (true, _) => Some(DecodeError::Field { field, must: "valid Unicode" }),
                (false, "join_ref" | "ref") => Some(DecodeError::Field { field, must: "a string or null" }),
                (false, _) => Some(DecodeError::Field { field, must: "a string" }),
            }
        })
    });
    wrong.unwrap_or(DecodeError::Shape { version, line: error.line(), column: error.column() })
}

pub(crate) fn encode<P: Serialize>(version: Version, parts: &Parts<'_, P>) -> Frame {
    #[derive(Serialize)]
    struct Object<'a, P> {
        topic: &'a str,
        event: &'a str,
        payload: &'a P,
        #[serde(rename = "ref")]
        reference: Option<&'a str>,
        join_ref: Option<&'a str>,
    }
    let Parts { topic, event, payload, .. } = parts;
    let (join_ref, reference) = (parts.join_ref.as_deref(), parts.reference.as_deref());
    let json = match version {
        Version::V1 => serde_json::to_vec(&Object { topic, event, payload, reference, join_ref }),
        Version::V2 => serde_json::to_vec(&(join_ref, reference, topic, event, payload)),
    };
    // Strings and raw JSON always serialise.
    Frame::Text(json.unwrap_or_default().into())
}
