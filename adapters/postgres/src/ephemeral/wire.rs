//! The text of a notification, readable in `psql`. Pure.
//!
//! `e1 ORIGIN NUMBER [[channel, event, payload], …]` carries whole events; `p1 ORIGIN NUMBER INDEX COUNT TEXT` carries a piece of one
//! that does not fit. ORIGIN lets a node skip its own; NUMBER keeps two equal notifications of one transaction from being merged
//! by the server. Payloads are sliced out, never parsed into values; nothing that arrives is trusted.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_core::types::{Channel, EphemeralEvent, EventName, Payload};

/// The server refuses notifications of 8000 bytes and more.
pub(super) const NOTIFY_MAX: usize = 7999;

/// Longest header: tag, origin, number, index, count.
const HEADER_MAX: usize = 100;

/// Room for content.
const ROOM: usize = NOTIFY_MAX - HEADER_MAX;

/// Most pieces an event is accepted in. The largest payload takes 36, if the SQL function cuts it.
const PARTS_MAX: usize = 40;

/// Packs events, in order, into as few notifications as fit; `number` counts notifications and goes on across calls.
pub(super) fn pack<'a>(
    origin: &str,
    number: &mut u64,
    events: impl IntoIterator<Item = &'a EphemeralEvent>,
) -> Vec<String> {
    let mut packed = Vec::new();
    let mut open = String::new();
    for event in events {
        let entry = encode(event);
        if !open.is_empty() && open.len() + entry.len() + 1 > ROOM {
            packed.push(whole(origin, number, &std::mem::take(&mut open)));
        }
        if entry.len() > ROOM {
            // Pieces of one event stay together, and behind the events that came before it.
            if !open.is_empty() {
                packed.push(whole(origin, number, &std::mem::take(&mut open)));
            }
            packed.extend(pieces(origin, number, &entry));
            continue;
        }
        if !open.is_empty() {
            open.push(',');
        }
        open.push_str(&entry);
    }
    if !open.is_empty() {
        packed.push(whole(origin, number, &open));
    }
    packed
}

fn encode(event: &EphemeralEvent) -> String {
    let (channel, name) = (event.channel.as_str(), event.event.as_str());
    // Strings always serialize.
    let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
    format!("[{},{},{}]", quoted(channel), quoted(name), event.payload)
}

fn whole(origin: &str, number: &mut u64, entries: &str) -> String {
    *number += 1;
    format!("e1 {origin} {number:x} [{entries}]")
}

fn pieces(origin: &str, number: &mut u64, entry: &str) -> Vec<String> {
    *number += 1;
    let texts = split(entry);
    let count = texts.len();
    let piece = |(index, text)| {
        let mut piece = format!("p1 {origin} {number:x} {index} {count} ");
        // Writing to a String cannot fail.
        let _ = piece.write_str(text);
        piece
    };
    texts.into_iter().enumerate().map(piece).collect()
}

/// Pieces of at most [`ROOM`] bytes, cut between characters.
fn split(mut text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while text.len() > ROOM {
        let (piece, rest) = text.split_at(text.floor_char_boundary(ROOM));
        pieces.push(piece);
        text = rest;
    }
    pieces.push(text);
    pieces
}

/// A notification.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub(super) origin: &'a str,
    pub(super) number: &'a str,
    pub(super) events: Body<'a>,
}

#[derive(Debug)]
pub(super) enum Body<'a> {
    Events(Vec<Entry<'a>>),
    Part(Part<'a>),
}

/// One piece of an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) index: usize,
    pub(super) count: usize,
    pub(super) text: &'a str,
}

/// One event as it arrived: `[channel, event, payload]`.
#[derive(Debug, Deserialize)]
#[serde(from = "(Text<'a>, Text<'a>, &'a RawValue)", bound(deserialize = "'de: 'a"))]
pub(super) struct Entry<'a> {
    pub(super) channel: Cow<'a, str>,
    event: Cow<'a, str>,
    payload: &'a RawValue,
}

/// A string that is borrowed unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> From<(Text<'a>, Text<'a>, &'a RawValue)> for Entry<'a> {
    fn from((Text(channel), Text(event), payload): (Text<'a>, Text<'a>, &'a RawValue)) -> Self {
        Self { channel, event, payload }
    }
}

impl Entry<'_> {
    /// The event; `None` if its names break the rules.
    pub(super) fn event(&self) -> Option<EphemeralEvent> {
        Some(EphemeralEvent {
            channel: Channel::parse(&self.channel).ok()?,
            event: EventName::parse(&self.event).ok()?,
            payload: Payload::from_raw(self.payload),
        })
    }
}

/// Reads a notification; `None` if no node wrote it.
pub(super) fn read(text: &str) -> Option<Message<'_>> {
    let (tag, rest) = text.split_once(' ')?;
    let (origin, rest) = rest.split_once(' ')?;
    let (number, rest) = rest.split_once(' ')?;
    let events = match tag {
        "e1" => Body::Events(serde_json::from_str(rest).ok()?),
        "p1" => {
            let (index, rest) = rest.split_once(' ')?;
            let (count, text) = rest.split_once(' ')?;
            let part = Part { index: index.parse().ok()?, count: count.parse().ok()?, text };
            if part.count > PARTS_MAX || part.index >= part.count {
                return None;
            }
            Body::Part(part)
        }
        _ => return None,
    };
    Some(Message { origin, number, events })
}

/// Reads one event that was put together from its pieces.
pub(super) fn read_entry(text: &str) -> Option<Entry<'_>> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::super::assembly::Assembly;
    use super::*;

    fn event(channel: &str, payload: &str) -> EphemeralEvent {
        EphemeralEvent {
            channel: Channel::parse(channel).unwrap(),
            event: EventName::parse("typing").unwrap(),
            payload: Payload::parse(payload).unwrap(),
        }
    }

    /// Packs, checks the size of every notification, and unpacks again.
    fn round_trip(events: &[EphemeralEvent]) -> Vec<EphemeralEvent> {
        let (mut number, mut assembly, mut arrived) = (0, Assembly::default(), Vec::new());
        for text in pack("0123456789abcdef", &mut number, events) {
            assert!(text.len() <= NOTIFY_MAX, "{} bytes", text.len());
            let message = read(&text).expect("our own notification");
            match message.events {
                Body::Events(entries) => arrived.extend(entries.iter().map(|entry| entry.event().unwrap())),
                Body::Part(part) => {
                    if let Some(whole) = assembly.add(message.origin, message.number, &part) {
                        arrived.push(read_entry(&whole).unwrap().event().unwrap());
                    }
                }
            }
        }
        arrived
    }

    #[test]
    fn events_of_every_size_arrive_whole_and_in_order() {
        let sizes = (7_600..7_999).chain([0, 1, 15_000, 65_534]);
        let events: Vec<_> =
            sizes.map(|size| event("room:\"1\"", &format!("\"{}\"", "x".repeat(size)))).collect();
        assert_eq!(round_trip(&events), events);
        let wide: Vec<_> =
            (2_600..2_700).map(|size| event("ü", &format!("\"{}\"", "€".repeat(size)))).collect();
        assert_eq!(round_trip(&wide), wide);
    }

    #[test]
    fn small_events_share_notifications_and_equal_ones_differ() {
        let events = vec![event("room:1", "{\"user\":1}"); 1000];
        let packed = pack("o", &mut 0, &events);
        assert!(packed.len() < 10, "{} notifications", packed.len());
        let distinct: std::collections::HashSet<_> = packed.iter().collect();
        assert_eq!(distinct.len(), packed.len(), "the server would merge equal notifications");
        assert_eq!(round_trip(&events).len(), 1000);
    }

    #[test]
    fn whatever_else_arrives_is_refused() {
        let deep = format!("e1 o 1 {}", "[".repeat(7990));
        for text in [
            "",
            "null",
            "[]",
            "{",
            "e1",
            "e1 o 1",
            "e1 o 1 {}",
            "e1 o 1 [[]]",
            "e1 o 1 [[1,2,3]]",
            &deep,
            "e2 o 1 []",
            "p1 o 1 0",
            "p1 o 1 1 1 x",
            "p1 o 1 -1 2 x",
            "p1 o 1 0 99999999 x",
            "p1 o 1 0 41 x",
        ] {
            assert!(read(text).is_none(), "{text:.40}");
        }
    }
}
