//! Names that clients choose: channels, events, presence keys, idempotency keys. Data everywhere, never an identifier of anything below.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Invalid, text_conversions};

/// Longest name, in bytes.
const MAX_BYTES: usize = 255;

const RULE: &str = "must be 1 to 255 bytes of UTF-8 without control characters";

fn parse(what: &'static str, text: &str) -> Result<Arc<str>, Invalid> {
    if text.is_empty() || text.len() > MAX_BYTES || text.chars().any(char::is_control) {
        return Err(Invalid::new(what, text, RULE));
    }
    Ok(Arc::from(text))
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// Longest accepted name, in bytes.
            pub const MAX_BYTES: usize = MAX_BYTES;

            /// Checks and wraps `text`.
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                parse($what, text).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        text_conversions!($type);

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// The name of a stream of events: 1 to 255 bytes of UTF-8 without control characters.
    ///
    /// Compared byte by byte: `Room` and `room`, and look-alike letters, are different channels. It is data and
    /// never becomes a PostgreSQL identifier, so the 63-byte limit and the quoting of LISTEN names cannot reach it.
    /// Cloning is cheap.
    Channel,
    "channel"
);

name_type!(
    /// What kind of event this is (`"message"`, `"typing"`), for clients to bind handlers to:
    /// 1 to 255 bytes of UTF-8 without control characters. Cloning is cheap.
    EventName,
    "event name"
);

name_type!(
    /// Names one act of publishing, so that it can be repeated after a lost answer without storing the event twice:
    /// 1 to 255 bytes of UTF-8 without control characters. Unique within a channel for as long as the event is kept.
    /// Cloning is cheap.
    IdempotencyKey,
    "idempotency key"
);

impl Channel {
    /// Whether the name belongs to the cluster itself: it starts with `$switchboard`. No client may use such a channel.
    pub fn is_reserved(&self) -> bool {
        self.as_str().starts_with("$switchboard")
    }
}

name_type!(
    /// Who is present, usually a user: 1 to 255 bytes of UTF-8 without control characters. Everything that is tracked in a
    /// channel under one key belongs together, whichever nodes it is tracked on. Cloning is cheap.
    PresenceKey,
    "presence key"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_byte_for_byte() {
        for good in [
            "a\"b",
            "x\"; DROP TABLE node_registry; --",
            "a b",
            "%",
            "select",
            "*",
            "Straße",
            "İ",
            "\u{202e}",
            "\u{200d}",
            &"x".repeat(255),
        ] {
            assert_eq!(Channel::parse(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn empty_overlong_and_control_characters_are_refused() {
        for bad in ["", "a\nb", "a\tb", "a\0b", "\u{7f}", "\u{85}", &"x".repeat(256), &"é".repeat(128)] {
            assert!(Channel::parse(bad).is_err(), "{bad:?} was accepted");
            assert!(EventName::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
