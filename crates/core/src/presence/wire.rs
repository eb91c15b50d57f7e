//! What nodes tell each other about presence, as JSON in ephemeral events.
//!
//! Invariant: no message is larger than [`MESSAGE_BYTES`], which both transports carry; what is larger is many messages. A change and what it
//! replaces never part: an update is one entry.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::entry::{PresenceLimits, PresenceMeta, PresenceRef};
use crate::types::{Channel, Identity, Invalid, Payload, PresenceKey};

/// The channel that nodes talk on. Clients are refused whatever begins like it.
pub(super) const CHANNEL: &str = "$switchboard:presence";
/// The one event of that channel.
pub(super) const EVENT: &str = "presence";

/// Largest message, with some room below the 64 KiB of an ephemeral event.
const MESSAGE_BYTES: usize = 60 * 1024;

/// Deepest nesting of a meta: below it lie the brackets of the message.
pub(super) const MAX_META_DEPTH: usize = Payload::MAX_DEPTH - 6;

/// One message of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Message {
    /// Who says it.
    pub(super) from: Identity,
    /// What it says.
    pub(super) say: Say,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Say {
    /// The next change of the sender's own entries.
    Diff(Diff),
    /// A part of all the sender's own entries.
    State(State),
    /// Where the sender's own entries stand, so that a silent loss is found.
    Digest { version: u64, hash: u64 },
    /// Please send all your entries.
    Ask(Vec<Identity>),
    /// The sender leaves for good.
    Bye,
}

/// Makes version `version` out of the one before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Diff {
    pub(super) version: u64,
    /// New metas. Each takes the place of its previous one, if it has one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) put: Entries,
    /// Untracked on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gone: Vec<PresenceRef>,
    /// Lost: may come back in a moment, on this node or on another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) cut: Vec<PresenceRef>,
}

/// Part `part` of `parts`, counted from 0, of version `version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) version: u64,
    pub(super) part: u32,
    pub(super) parts: u32,
    pub(super) entries: Entries,
}

pub(super) type Entries = BTreeMap<Channel, Vec<Entry>>;

/// One meta, without its channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry(PresenceKey, PresenceRef, Option<PresenceRef>, Payload);

impl Entry {
    pub(super) fn new(key: PresenceKey, meta: PresenceMeta) -> Self {
        Self(key, meta.reference, meta.previous, meta.payload)
    }

    pub(super) fn open(self) -> (PresenceKey, PresenceMeta) {
        let Self(key, reference, previous, payload) = self;
        (key, PresenceMeta { reference, previous, payload })
    }

    /// Largest size that this may have on the wire, its channel included: names may be escaped, the payload is not.
    fn bytes(&self, channel: &Channel) -> usize {
        2 * (channel.as_str().len() + self.0.as_str().len()) + self.3.len() + 2 * REF_BYTES + 32
    }
}

/// Longest ref on the wire, with quotes and comma.
const REF_BYTES: usize = 16 + 1 + 20 + 3;

impl Message {
    pub(super) fn encode(&self) -> Result<Payload, serde_json::Error> {
        Ok(Payload::from_raw(&serde_json::value::to_raw_value(self)?))
    }

    pub(super) fn decode(payload: &Payload) -> Result<Self, serde_json::Error> {
        serde_json::from_str(payload.as_str())
    }
}

/// Refuses what no message could carry, or more than `limit` bytes.
pub(super) fn check_meta(payload: &Payload, limit: usize) -> Result<(), Invalid> {
    payload.within(limit.min(PresenceLimits::MAX_META_BYTES))?;
    if !payload.as_str().starts_with('{') {
        return Err(Invalid::new("presence meta", payload.as_str(), "must be a JSON object"));
    }
    if payload.depth() > MAX_META_DEPTH {
        let rule = format!("must not nest arrays and objects deeper than {MAX_META_DEPTH}");
        return Err(Invalid::new("presence meta", payload.as_str(), rule));
    }
    Ok(())
}

/// One change of a node's own entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Put(Channel, Entry),
    Gone(PresenceRef),
    Cut(PresenceRef),
}

/// The diffs that carry these changes, without their versions.
pub(super) fn pack_changes(changes: impl IntoIterator<Item = Change>) -> Vec<Diff> {
    let mut diffs = Packer::default();
    for change in changes {
        match change {
            Change::Put(channel, entry) => {
                let bytes = entry.bytes(&channel);
                diffs.room_for(bytes, Diff::default).put.entry(channel).or_default().push(entry);
            }
            Change::Gone(reference) => diffs.room_for(REF_BYTES, Diff::default).gone.push(reference),
            Change::Cut(reference) => diffs.room_for(REF_BYTES, Diff::default).cut.push(reference),
        }
    }
    diffs.full
}

/// A whole state in parts: at least one, since no entries are a state, too.
pub(super) fn pack_state(version: u64, entries: impl IntoIterator<Item = (Channel, Entry)>) -> Vec<State> {
    let mut parts = Packer::default();
    for (channel, entry) in entries {
        let bytes = entry.bytes(&channel);
        parts.room_for(bytes, Entries::new).entry(channel).or_default().push(entry);
    }
    let mut entries = parts.full;
    if entries.is_empty() {
        entries.push(Entries::new());
    }
    // 2^32 parts would be a quarter of a petabyte.
    let parts = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    (0..parts).zip(entries).map(|(part, entries)| State { version, part, parts, entries }).collect()
}

/// Fills one message after the other.
struct Packer<T> {
    full: Vec<T>,
    left: usize,
}

impl<T> Default for Packer<T> {
    fn default() -> Self {
        Self { full: Vec::new(), left: 0 }
    }
}

impl<T> Packer<T> {
    /// The message that has room for so many bytes, of which there is at least one: the last message, or another.
    fn room_for(&mut self, bytes: usize, another: fn() -> T) -> &mut T {
        if bytes > self.left {
            self.full.push(another());
            self.left = MESSAGE_BYTES - OVERHEAD;
        }
        self.left = self.left.saturating_sub(bytes);
        let last = self.full.len() - 1;
        &mut self.full[last]
    }
}

/// What a message takes besides its entries: the sender's identity and the names of fields.
const OVERHEAD: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::NodeId;

    fn says(say: Say) -> Message {
        let from = Identity::fresh(NodeId::parse(&"\\".repeat(NodeId::MAX_BYTES)).unwrap());
        Message { from, say }
    }

    fn entry(key: &str, payload: &str) -> Entry {
        let reference = PresenceRef { origin: u64::MAX, number: u64::MAX };
        let payload = Payload::parse(payload).unwrap();
        Entry::new(
            PresenceKey::parse(key).unwrap(),
            PresenceMeta { reference, previous: Some(reference), payload },
        )
    }

    #[test]
    fn every_message_survives_its_text_form() {
        let entries = Entries::from([(
            Channel::parse("a\"b\u{202e}").unwrap(),
            vec![entry("k\\", r#"{"n":9007199254740993, "n":1}"#)],
        )]);
        let reference = PresenceRef { origin: 1, number: 2 };
        let diff = Diff { version: 7, put: entries.clone(), gone: vec![reference], cut: vec![reference] };
        for say in [
            Say::Diff(diff),
            Say::Diff(Diff::default()),
            Say::State(State { version: 1, part: 0, parts: 1, entries }),
            Say::Digest { version: u64::MAX, hash: u64::MAX },
            Say::Ask(vec![Identity::fresh(NodeId::parse("n").unwrap())]),
            Say::Bye,
        ] {
            let message = says(say);
            assert_eq!(Message::decode(&message.encode().unwrap()).unwrap(), message);
        }
    }

    #[test]
    fn no_message_is_larger_than_an_ephemeral_event_and_nothing_is_left_out() {
        let channel = Channel::parse(&"\"".repeat(255)).unwrap();
        for bytes in [2, 100, 4_096, PresenceLimits::MAX_META_BYTES] {
            let big = entry(&"\\".repeat(255), &format!("{{{}}}", " ".repeat(bytes - 2)));
            check_meta(&big.3, bytes).unwrap();
            let entries = vec![(channel.clone(), big); 300];
            let reference = PresenceRef { origin: u64::MAX, number: u64::MAX };
            let changes = entries.iter().cloned().map(|(channel, entry)| Change::Put(channel, entry));
            let changes = changes.chain(vec![Change::Cut(reference); 5_000]);
            let diffs = pack_changes(changes.chain(vec![Change::Gone(reference); 5_000]));
            let count = |entries: &Entries| entries.values().map(Vec::len).sum::<usize>();
            assert_eq!(diffs.iter().map(|diff| count(&diff.put)).sum::<usize>(), 300);
            assert_eq!(diffs.iter().map(|diff| diff.cut.len() + diff.gone.len()).sum::<usize>(), 10_000);
            let states = pack_state(u64::MAX, entries);
            assert_eq!(states.iter().map(|state| count(&state.entries)).sum::<usize>(), 300);
            for say in diffs.into_iter().map(Say::Diff).chain(states.into_iter().map(Say::State)) {
                let payload = says(say).encode().unwrap();
                assert!(payload.len() <= 64 * 1024, "{} bytes", payload.len());
            }
        }
    }

    #[test]
    fn an_empty_state_is_one_part() {
        let parts = pack_state(3, []);
        assert_eq!(parts, [State { version: 3, part: 0, parts: 1, entries: Entries::new() }]);
    }

    #[test]
    fn the_deepest_meta_fits_into_a_message() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        let deepest = entry("k", &nested(MAX_META_DEPTH));
        check_meta(&deepest.3, 1024).unwrap();
        let put = Change::Put(Channel::parse("c").unwrap(), deepest);
        let message = says(Say::Diff(pack_changes([put]).remove(0)));
        Payload::parse(message.encode().unwrap().as_str()).unwrap();
        assert!(check_meta(&Payload::parse(&nested(MAX_META_DEPTH + 1)).unwrap(), 1024).is_err());
    }

    #[test]
    fn a_meta_that_is_no_object_or_too_large_is_refused() {
        for bad in ["1", "[]", "null", "\"{}\"", r#"{"a": 1}"#] {
            assert!(check_meta(&Payload::parse(bad).unwrap(), 7).is_err(), "{bad}");
        }
        let huge = format!("{{{}}}", " ".repeat(PresenceLimits::MAX_META_BYTES - 1));
        assert!(check_meta(&Payload::parse(&huge).unwrap(), usize::MAX).is_err());
    }
}
