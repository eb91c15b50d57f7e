//! Reads doorbells: `d1 ` and a JSON array of `[channel, position, event, payload, microseconds]` or `[channel, position]`.
//!
//! Written by the SQL function `publish_batch`. Anybody may notify anything, so nothing is trusted; a payload is sliced out of the text,
//! never parsed into values.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use switchboard_core::types::{Channel, DurableEvent, EventName, Payload, Position};
use time::OffsetDateTime;

/// One entry of a doorbell.
pub(super) enum Ring<'a> {
    /// The event itself, built when asked for; `None` if its parts are not what a node writes.
    Event(&'a dyn Fn() -> Option<DurableEvent>),
    /// The channel has got to here.
    Head(Position),
}

/// Hands every entry to `visit`; answers whether the text was a doorbell at all.
pub(super) fn read(text: &str, mut visit: impl FnMut(&str, Ring<'_>)) -> bool {
    let Some(entries) =
        text.strip_prefix("d1 ").and_then(|json| serde_json::from_str::<Vec<Entry<'_>>>(json).ok())
    else {
        return false;
    };
    for entry in &entries {
        match &entry.inline {
            Some(inline) => {
                visit(&entry.channel, Ring::Event(&|| inline.event(&entry.channel, entry.position)));
            }
            None => visit(&entry.channel, Ring::Head(entry.position)),
        }
    }
    true
}

struct Entry<'a> {
    channel: Cow<'a, str>,
    position: Position,
    inline: Option<Inline<'a>>,
}

struct Inline<'a> {
    event: Cow<'a, str>,
    payload: &'a RawValue,
    micros: i64,
}

impl Inline<'_> {
    fn event(&self, channel: &str, position: Position) -> Option<DurableEvent> {
        Some(DurableEvent {
            channel: Channel::parse(channel).ok()?,
            position,
            event: EventName::parse(&self.event).ok()?,
            payload: Payload::from_raw(self.payload),
            created_at: OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.micros) * 1000).ok()?,
        })
    }
}

/// `Cow` borrows only when asked to.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Entry<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[channel, position] or [channel, position, event, payload, microseconds]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Entry<'de>, A::Error> {
        let missing = || A::Error::custom("an entry is too short");
        let Text(channel) = parts.next_element()?.ok_or_else(missing)?;
        let position = parts.next_element()?.ok_or_else(missing)?;
        let inline = match parts.next_element::<Text<'de>>()? {
            None => None,
            Some(Text(event)) => Some(Inline {
                event,
                payload: parts.next_element()?.ok_or_else(missing)?,
                micros: parts.next_element()?.ok_or_else(missing)?,
            }),
        };
        // A later version may say more.
        while parts.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Entry { channel, position, inline })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> (bool, Vec<String>) {
        let mut seen = Vec::new();
        let understood = read(text, |channel, ring| {
            seen.push(match ring {
                Ring::Head(head) => format!("{channel} head {head}"),
                Ring::Event(event) => event().map_or_else(
                    || "broken".to_owned(),
                    |event| format!("{channel} {} {} {}", event.position, event.event, event.payload),
                ),
            });
        });
        (understood, seen)
    }

    #[test]
    fn events_and_heads_are_read_and_payloads_kept_byte_for_byte() {
        let text = r#"d1 [["a\"b","0000000000000001-7","message",{"n":9007199254740993, "a":1,"a":2},1700000000000000],["c","0000000000000001-8"]]"#;
        let (understood, seen) = seen(text);
        assert!(understood);
        assert_eq!(
            seen,
            [
                r#"a"b 0000000000000001-7 message {"n":9007199254740993, "a":1,"a":2}"#,
                "c head 0000000000000001-8"
            ]
        );
    }

    #[test]
    fn whatever_else_arrives_is_ignored() {
        let deep = format!("d1 {}", "[".repeat(7990));
        for text in [
            "",
            "null",
            "true",
            "[]",
            "\"x\"",
            "{",
            "{\"type\":1}",
            &deep,
            "d1",
            "d1 ",
            "d1 [[]]",
            "d1 [[\"a\"]]",
            "d2 []",
            "d1 [[\"a\",\"x-1\"]]",
            "d1 [[\"a\",\"0000000000000001-1\",\"e\"]]",
            "d1 [[1,2]]",
        ] {
            assert_eq!(seen(text), (false, vec![]), "{text:.40}");
        }
        assert_eq!(seen("d1 []"), (true, vec![]));
    }
}
