//! What an event says: JSON text that nobody on the way re-encodes.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::Invalid;

/// JSON text, delivered byte for byte as published.
///
/// Numbers above 2^53, key order, duplicate keys and white space between tokens survive, because the text is
/// checked but never parsed into values. Nesting is limited to [`Payload::MAX_DEPTH`], so that no parser behind
/// us can be driven out of its stack. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<str>);

impl Payload {
    /// Deepest nesting of arrays and objects; the limit most JSON parsers share.
    pub const MAX_DEPTH: usize = 127;

    /// Checks that `text` is one JSON value. White space around the value is not part of it and is dropped.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        // A short text cannot nest that deep.
        if text.len() > Self::MAX_DEPTH && depth(text) > Self::MAX_DEPTH {
            return Err(Invalid::new("payload", text, "must not nest arrays and objects deeper than 127"));
        }
        match serde_json::from_str::<&RawValue>(text) {
            Ok(raw) => Ok(Self::from_raw(raw)),
            Err(error) => Err(Invalid::new("payload", text, format!("must be JSON ({error})"))),
        }
    }

    /// Wraps JSON that has been parsed already, whatever its depth: what a store holds must be delivered.
    pub fn from_raw(raw: &RawValue) -> Self {
        Self(Arc::from(raw.get()))
    }

    /// The text as published.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Always false: the empty text is not JSON.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How deep it nests arrays and objects.
    pub(crate) fn depth(&self) -> usize {
        depth(&self.0)
    }

    /// Refuses a payload of more than `limit` bytes.
    pub fn within(&self, limit: usize) -> Result<(), Invalid> {
        if self.len() <= limit {
            return Ok(());
        }
        Err(Invalid::new(
            "payload",
            self.as_str(),
            format!("must be at most {limit} bytes, not {}", self.len()),
        ))
    }
}

/// Nesting of brackets outside strings. Runs before the real parser, so it must not trust the text.
fn depth(text: &str) -> usize {
    let (mut open, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

impl std::str::FromStr for Payload {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::parse(text)
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({})", self.0)
    }
}

/// Into JSON a payload goes as it is, not as a quoted string.
impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

/// Largest payloads a bus accepts, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadLimits {
    /// For durable events.
    pub durable: usize,
    /// For ephemeral events; the same on every transport.
    pub ephemeral: usize,
}

impl Default for PayloadLimits {
    /// 1 MiB durable, 64 KiB ephemeral.
    fn default() -> Self {
        Self { durable: 1024 * 1024, ephemeral: 64 * 1024 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_kept_byte_for_byte() {
        let text = r#"{"n":9007199254740993,"m":123456789012345678901234567890,"f":1.10,"e":1e400,"z":-0.0,"a":1, "a":2,"u":"\u0000\ud800"}"#;
        let payload = Payload::parse(text).unwrap();
        assert_eq!(payload.as_str(), text);
        assert_eq!(serde_json::to_string(&payload).unwrap(), text);
        assert_eq!(serde_json::from_str::<Payload>(text).unwrap(), payload);
    }

    #[test]
    fn what_is_not_one_json_value_is_refused() {
        for bad in ["", " ", "{", "}", "nul", "1 2", "{\"a\":}", "\u{feff}{}", "'a'", "NaN", "[1,]", "\"\n\""]
        {
            assert!(Payload::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn nesting_is_bounded_and_brackets_in_strings_do_not_count() {
        assert!(Payload::parse(&format!("{}{}", "[".repeat(127), "]".repeat(127))).is_ok());
        assert!(Payload::parse(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_err());
        assert!(Payload::parse(&"[".repeat(1_000_000)).is_err());
        assert!(Payload::parse(&format!("\"{}\\\"{}\"", "[".repeat(500), "{".repeat(500))).is_ok());
    }

    #[test]
    fn a_limit_is_inclusive() {
        let payload = Payload::parse("\"12345678\"").unwrap();
        assert!(payload.within(10).is_ok());
        let error = payload.within(9).unwrap_err().to_string();
        assert!(error.contains("at most 9 bytes, not 10"), "{error}");
    }
}
