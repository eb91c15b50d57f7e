//! What travels on a link: frames of a kind, a length and a body in postcard. Pure.
//!
//! Versions meet without trouble: a newer minor version may add kinds, which are skipped, and fields behind those of a body, which are not
//! read. A new major version has another ALPN, so the two never get here. Nothing that arrives is trusted, peers included.

use std::borrow::Borrow;
use std::str::FromStr;

use postcard::ser_flavors::Flavor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_core::types::{Channel, EphemeralEvent, EventName, Identity, Payload};

/// Version of the frames. The major one is in the ALPN, too.
pub(crate) const VERSION: (u16, u16) = (1, 0);

/// Largest body: the largest event with the longest names, and room for what a newer version may add.
pub(crate) const MAX_BODY: usize = 128 * 1024;

/// A kind, and a length of 4 bytes.
const HEADER: usize = 5;

/// The longest that the length of a text in a frame is written.
const LENGTH: usize = 3;

const HELLO: u8 = 1;
const EVENT: u8 = 2;
const INTEREST: u8 = 3;
const SEEN: u8 = 4;
const ARRIVED: u8 = 5;

/// The first frame of either side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: (u16, u16),
    pub(crate) from: Identity,
    /// Whom it takes the other side for.
    pub(crate) to: Identity,
    /// Of the connection; see [`Rank`](crate::links::Rank). The answer repeats them.
    pub(crate) generation: u64,
    pub(crate) attempt: u64,
}

/// Changes of what the sender wants to hear.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interest {
    /// Which state of its interest the peer has seen with this frame; 0 if more frames are to follow for that.
    pub(crate) version: u64,
    pub(crate) add: Vec<Channel>,
    pub(crate) remove: Vec<Channel>,
}

/// An event as it lies in a frame.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event<'a> {
    pub(crate) channel: &'a str,
    pub(crate) name: &'a str,
    pub(crate) payload: &'a str,
}

impl Event<'_> {
    /// The event itself; `None` if it breaks a rule.
    pub(crate) fn checked(&self, names: &mut Names, payload_limit: usize) -> Option<EphemeralEvent> {
        let payload = Payload::from_raw(serde_json::from_str::<&RawValue>(self.payload).ok()?);
        payload.within(payload_limit).ok()?;
        let channel = same_or(&mut names.channel, self.channel)?;
        Some(EphemeralEvent { channel, event: same_or(&mut names.event, self.name)?, payload })
    }
}

/// The names of the last event. Events come in rows that share them, so that most need not be checked and kept anew.
#[derive(Default)]
pub(crate) struct Names {
    channel: Option<Channel>,
    event: Option<EventName>,
}

/// The last name if `text` is the same; else `text` becomes the last one, if it is a name.
fn same_or<N: Borrow<str> + FromStr + Clone>(last: &mut Option<N>, text: &str) -> Option<N> {
    if last.as_ref().is_none_or(|last| last.borrow() != text) {
        *last = text.parse().ok();
    }
    last.clone()
}

/// One frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Hello(Hello),
    Event(Event<'a>),
    Interest(Interest),
    /// The state of the receiver's interest that the sender has seen.
    Seen(u64),
    /// How many events have come to the sender over this link.
    Arrived(u64),
}

/// Bytes that no version of this code sends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame of {0} bytes; at most {MAX_BODY} are allowed")]
    TooLong(usize),
    #[error("a frame of kind {kind} cannot be read: {source}")]
    Malformed { kind: u8, source: postcard::Error },
    #[error("a frame of kind {0} where a hello was expected")]
    NoHello(u8),
}

pub(crate) fn write_hello(hello: &Hello, into: &mut Vec<u8>) {
    write(HELLO, hello, into);
}

pub(crate) fn write_event(event: &Event<'_>, into: &mut Vec<u8>) {
    let texts = [event.channel, event.name, event.payload];
    into.reserve(HEADER + texts.map(|text| text.len() + LENGTH).iter().sum::<usize>());
    write(EVENT, event, into);
}

pub(crate) fn write_interest(interest: &Interest, into: &mut Vec<u8>) {
    write(INTEREST, interest, into);
}

pub(crate) fn write_seen(version: u64, into: &mut Vec<u8>) {
    write(SEEN, &version, into);
}

pub(crate) fn write_arrived(events: u64, into: &mut Vec<u8>) {
    write(ARRIVED, &events, into);
}

fn write(kind: u8, body: &impl Serialize, into: &mut Vec<u8>) {
    let start = into.len();
    into.extend([kind, 0, 0, 0, 0]);
    // Writing plain data to memory cannot fail.
    match postcard::serialize_with_flavor(body, Tail(into)) {
        Ok(()) => {
            let length = u32::try_from(into.len() - start - HEADER).unwrap_or(u32::MAX);
            into[start + 1..start + HEADER].copy_from_slice(&length.to_le_bytes());
        }
        Err(_) => into.truncate(start),
    }
}

/// Lets postcard append to a vector without taking it, texts as a whole.
struct Tail<'a>(&'a mut Vec<u8>);

impl Flavor for Tail<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

type Split<'a> = (u8, &'a [u8], &'a [u8]);

/// Splits the first frame off `bytes`: its kind, its body and what follows. `None` if it is not whole yet.
fn split(bytes: &[u8]) -> Result<Option<Split<'_>>, FrameError> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER) else { return Ok(None) };
    let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MAX_BODY {
        return Err(FrameError::TooLong(length));
    }
    Ok(rest.split_at_checked(length).map(|(body, rest)| (header[0], body, rest)))
}

fn read<'a, T: Deserialize<'a>>(kind: u8, body: &'a [u8]) -> Result<T, FrameError> {
    postcard::from_bytes(body).map_err(|source| FrameError::Malformed { kind, source })
}

/// Reads the hello at the start of `bytes`; also says how long it was. Nothing else may come first.
pub(crate) fn read_hello(bytes: &[u8]) -> Result<Option<(Hello, usize)>, FrameError> {
    if let Some(kind) = bytes.first().filter(|kind| **kind != HELLO) {
        return Err(FrameError::NoHello(*kind));
    }
    let Some((kind, body, rest)) = split(bytes)? else { return Ok(None) };
    Ok(Some((read(kind, body)?, bytes.len() - rest.len())))
}

/// Reads frames from a stream of bytes that comes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// A frame that is not whole yet.
    rest: Vec<u8>,
}

impl Reader {
    /// Hands every frame that `piece` completes to `each`. Keeps less than one frame.
    pub(crate) fn feed(&mut self, piece: &[u8], mut each: impl FnMut(Frame<'_>)) -> Result<(), FrameError> {
        if self.rest.is_empty() {
            let used = walk(piece, &mut each)?;
            self.rest.extend_from_slice(&piece[used..]);
        } else {
            self.rest.extend_from_slice(piece);
            let used = walk(&self.rest, &mut each)?;
            self.rest.drain(..used);
        }
        if self.rest.is_empty() && self.rest.capacity() > MAX_BODY {
            self.rest = Vec::new();
        }
        Ok(())
    }
}

/// Reads what is whole; answers how many bytes that were.
fn walk(bytes: &[u8], each: &mut impl FnMut(Frame<'_>)) -> Result<usize, FrameError> {
    let mut rest = bytes;
    while let Some((kind, body, next)) = split(rest)? {
        if let Some(frame) = understand(kind, body)? {
            each(frame);
        }
        rest = next;
    }
    Ok(bytes.len() - rest.len())
}

fn understand(kind: u8, body: &[u8]) -> Result<Option<Frame<'_>>, FrameError> {
    Ok(Some(match kind {
        HELLO => Frame::Hello(owned(kind, body)?),
        EVENT => Frame::Event(read(kind, body)?),
        INTEREST => Frame::Interest(owned(kind, body)?),
        SEEN => Frame::Seen(read(kind, body)?),
        ARRIVED => Frame::Arrived(read(kind, body)?),
        _ => return Ok(None),
    }))
}

fn owned<T: DeserializeOwned>(kind: u8, body: &[u8]) -> Result<T, FrameError> {
    read(kind, body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use switchboard_core::types::PayloadLimits;

    use super::*;

    fn event(channel: &str, payload: &str) -> EphemeralEvent {
        EphemeralEvent {
            channel: Channel::parse(channel).unwrap(),
            event: EventName::parse("typing").unwrap(),
            payload: Payload::parse(payload).unwrap(),
        }
    }

    fn borrowed(event: &EphemeralEvent) -> Event<'_> {
        Event { channel: event.channel.as_str(), name: event.event.as_str(), payload: event.payload.as_str() }
    }

    /// What `bytes` say when they come in pieces of `sizes`, in turns.
    fn events(bytes: &[u8], sizes: &[usize]) -> Vec<EphemeralEvent> {
        let (mut reader, mut got, mut rest) = (Reader::default(), Vec::new(), bytes);
        let mut names = Names::default();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, next) = rest.split_at((*size).min(rest.len()));
            reader
                .feed(piece, |frame| match frame {
                    Frame::Event(event) => {
                        got.push(event.checked(&mut names, PayloadLimits::default().ephemeral).unwrap());
                    }
                    other => panic!("{other:?}"),
                })
                .unwrap();
            rest = next;
        }
        got
    }

    #[test]
    fn the_largest_event_with_the_longest_names_fits() {
        let limit = PayloadLimits::default().ephemeral;
        let mut large = event(&"c".repeat(Channel::MAX_BYTES), &format!("\"{}\"", "x".repeat(limit - 2)));
        large.event = EventName::parse(&"e".repeat(EventName::MAX_BYTES)).unwrap();
        let mut bytes = Vec::new();
        write_event(&borrowed(&large), &mut bytes);
        assert!(bytes.len() < MAX_BODY);
        assert_eq!(events(&bytes, &[1200]), [large]);
    }

    #[test]
    fn frames_of_unknown_kinds_and_unknown_fields_are_skipped() {
        let known = event("room:1", "1");
        let mut bytes = Vec::new();
        write(200, &"something new", &mut bytes);
        write_event(&borrowed(&known), &mut bytes);
        write(EVENT, &("room:1", "typing", "1", "a new field"), &mut bytes);
        assert_eq!(events(&bytes, &[7]), [known.clone(), known]);
    }

    #[test]
    fn a_frame_that_says_it_is_too_long_is_refused_before_it_arrives() {
        let mut reader = Reader::default();
        let refused = reader.feed(&[EVENT, 255, 255, 255, 255], |_| {}).unwrap_err();
        assert!(matches!(refused, FrameError::TooLong(_)), "{refused}");
        assert!(read_hello(&[EVENT]).is_err(), "an event before the hello");
    }

    #[test]
    fn what_breaks_the_rules_of_events_is_no_event() {
        for (name, payload) in
            [("", "1"), ("a\n", "1"), ("a", ""), ("a", "{"), ("a", "1 2"), ("a", "\"123456789\"")]
        {
            assert_eq!(Event { channel: "a", name, payload }.checked(&mut Names::default(), 10), None);
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting(
            payloads in prop::collection::vec("[a-zA-Z0-9 €]{0,300}", 1..20),
            sizes in prop::collection::vec(1_usize..600, 1..8),
        ) {
            let sent: Vec<_> = payloads.iter().map(|text| event("room:1", &format!("\"{text}\""))).collect();
            let mut bytes = Vec::new();
            for event in &sent {
                write_event(&borrowed(event), &mut bytes);
            }
            prop_assert_eq!(events(&bytes, &sizes), sent);
        }

        #[test]
        fn whatever_arrives_is_read_or_refused_and_memory_is_bounded(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..20),
        ) {
            let mut reader = Reader::default();
            for piece in pieces {
                if reader.feed(&piece, |_| {}).is_err() {
                    break;
                }
                prop_assert!(reader.rest.len() < MAX_BODY + HEADER);
            }
        }

        #[test]
        fn damaged_frames_are_read_or_refused(
            at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let identity = |name: &str| Identity::fresh(name.parse().unwrap());
            let mut bytes = Vec::new();
            write_hello(
                &Hello { version: VERSION, from: identity("a"), to: identity("b"), generation: 7, attempt: 300 },
                &mut bytes,
            );
            let interest = Interest { version: 9, add: vec![Channel::parse("a").unwrap()], remove: Vec::new() };
            write_interest(&interest, &mut bytes);
            write_event(&borrowed(&event("room:1", "{\"a\":[1,2]}")), &mut bytes);
            write_seen(77, &mut bytes);
            write_arrived(7777, &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let _ = read_hello(&bytes);
            let _ = Reader::default().feed(&bytes, |frame| {
                if let Frame::Event(event) = frame {
                    let _ = event.checked(&mut Names::default(), 100);
                }
            });
        }
    }
}
