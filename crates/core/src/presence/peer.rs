//! One peer as this node knows it: how far it has followed the peer's entries, and how it catches up.
//!
//! Invariant: a diff is taken in only on top of the version it was made from. Whoever has missed one follows no more until the peer has sent
//! everything; until then what is known is shown, however old it is. It is asked once, and once more with each of its digests: whoever says nothing
//! is asked no more.

use super::entry::{PresenceMeta, PresenceRef};
use super::ledger::{Ledger, Place};
use super::wire::{Diff, Entry, State};
use crate::types::{Channel, NodeId, PresenceKey};

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node_id: NodeId,
    pub(super) ledger: Ledger,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    /// Everything up to this version is known.
    Following(u64),
    /// Something was missed, or nothing is known yet.
    Behind { to_ask: bool, partial: Option<Partial> },
    /// It has said good-bye: whatever still comes is old.
    Left,
}

/// The parts of a state that have arrived; they come in order or not at all.
#[derive(Debug)]
struct Partial {
    version: u64,
    parts: u32,
    next: u32,
    entries: Vec<(Channel, PresenceKey, PresenceMeta)>,
}

/// What is to be shown.
#[derive(Debug)]
pub(super) enum Shown {
    Put(Channel, PresenceKey, PresenceMeta),
    Gone(PresenceRef, Place),
    Cut(PresenceRef, Place),
}

impl Peer {
    /// One that has said nothing yet, so it has nothing.
    pub(super) fn new(node_id: NodeId) -> Self {
        Self { node_id, ledger: Ledger::default(), progress: Progress::Following(0) }
    }

    /// One that may have said anything.
    pub(super) fn unknown(node_id: NodeId) -> Self {
        let progress = Progress::Behind { to_ask: true, partial: None };
        Self { node_id, ledger: Ledger::default(), progress }
    }

    /// Whether there is something of it that is not known.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self.progress, Progress::Behind { .. })
    }

    /// Whether it should be asked for everything.
    pub(super) fn is_to_ask(&self) -> bool {
        matches!(self.progress, Progress::Behind { to_ask: true, .. })
    }

    pub(super) fn asked(&mut self) {
        if let Progress::Behind { to_ask, .. } = &mut self.progress {
            *to_ask = false;
        }
    }

    pub(super) fn diff(&mut self, diff: Diff) -> Vec<Shown> {
        // Who is behind waits for the state that will hold this, too.
        let Progress::Following(version) = &mut self.progress else { return Vec::new() };
        if diff.version <= *version {
            return Vec::new();
        }
        if diff.version - 1 > *version {
            self.fall_behind();
            return Vec::new();
        }
        *version = diff.version;
        let mut shown = Vec::new();
        let ledger = &mut self.ledger;
        let mut take = |reference, how: fn(PresenceRef, Place) -> Shown| {
            shown.extend(ledger.remove(reference).map(|place| how(reference, place)));
        };
        diff.gone.into_iter().for_each(|reference| take(reference, Shown::Gone));
        diff.cut.into_iter().for_each(|reference| take(reference, Shown::Cut));
        for (channel, entries) in diff.put {
            for (key, meta) in entries.into_iter().map(Entry::open) {
                if let Some(previous) = meta.previous {
                    shown.extend(self.ledger.remove(previous).map(|place| Shown::Gone(previous, place)));
                }
                self.ledger.add(&channel, &key, &meta);
                shown.push(Shown::Put(channel.clone(), key, meta));
            }
        }
        shown
    }

    /// Takes in one part of everything; `None` until the last one has come.
    pub(super) fn state(&mut self, state: State) -> Option<Vec<Shown>> {
        if matches!(self.progress, Progress::Following(known) if state.version > known) {
            self.fall_behind();
        }
        // Otherwise somebody else has asked, or it is old.
        let Progress::Behind { partial, .. } = &mut self.progress else { return None };
        let State { version, part, parts, entries } = state;
        if part == 0 {
            *partial = Some(Partial { version, parts, next: 0, entries: Vec::new() });
        }
        // Without the part that is missing the others are of no use.
        partial
            .take_if(|arriving| (arriving.version, arriving.parts, arriving.next) != (version, parts, part));
        let arriving = partial.as_mut()?;
        arriving.next += 1;
        for (channel, entries) in entries {
            let opened = entries.into_iter().map(Entry::open);
            arriving.entries.extend(opened.map(|(key, meta)| (channel.clone(), key, meta)));
        }
        if arriving.next < arriving.parts {
            return None;
        }
        let entries = std::mem::take(&mut arriving.entries);
        self.progress = Progress::Following(version);
        Some(self.replace(entries))
    }

    /// Compares what it should be with what it is.
    pub(super) fn digest(&mut self, version: u64, hash: u64) {
        match &mut self.progress {
            Progress::Following(known) if (*known, self.ledger.hash()) == (version, hash) => {}
            Progress::Following(_) => self.fall_behind(),
            // The ask was lost, or the answer.
            Progress::Behind { to_ask, .. } => *to_ask = true,
            Progress::Left => {}
        }
    }

    /// It has said good-bye. Answers what it had.
    pub(super) fn leave(&mut self) -> Ledger {
        self.progress = Progress::Left;
        std::mem::take(&mut self.ledger)
    }

    fn fall_behind(&mut self) {
        self.progress = Progress::Behind { to_ask: true, partial: None };
    }

    /// What has vanished meanwhile has vanished a while ago: there is nothing to wait for.
    fn replace(&mut self, entries: Vec<(Channel, PresenceKey, PresenceMeta)>) -> Vec<Shown> {
        let mut before = std::mem::take(&mut self.ledger);
        let mut shown = Vec::new();
        for (channel, key, meta) in entries {
            self.ledger.add(&channel, &key, &meta);
            let was = before.remove(meta.reference);
            if was.as_ref() != self.ledger.get(meta.reference) {
                shown.push(Shown::Put(channel, key, meta));
            }
        }
        shown.extend(before.entries().map(|(reference, place)| Shown::Gone(reference, place.clone())));
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::pack_state;
    use super::*;
    use crate::types::Payload;

    fn entries(count: u64) -> Vec<(Channel, Entry)> {
        let payload = Payload::parse(&format!("{{\"about\":\"{}\"}}", "x".repeat(20_000))).unwrap();
        let entry = |number| {
            let reference = PresenceRef { origin: 1, number };
            let meta = PresenceMeta { reference, previous: None, payload: payload.clone() };
            (Channel::parse("room").unwrap(), Entry::new(PresenceKey::parse("alice").unwrap(), meta))
        };
        (0..count).map(entry).collect()
    }

    #[test]
    fn a_state_is_taken_in_when_all_its_parts_have_come_in_order() {
        let mut peer = Peer::unknown(NodeId::parse("n").unwrap());
        let (old, new) = (pack_state(4, entries(7)), pack_state(5, entries(8)));
        assert!(old.len() > 2 && old.len() == new.len());
        let last = new.len() - 1;
        // One part is lost; the answer before was cut off; a part comes twice.
        let without_second = new.iter().enumerate().filter(|(n, _)| *n != 1).map(|(_, part)| part);
        let cut_off = old[..last].iter().chain(&new[last..]);
        let repeated = new[..2].iter().chain(&new[1..]);
        for parts in [without_second.collect::<Vec<_>>(), cut_off.collect(), repeated.collect()] {
            for part in parts {
                assert!(peer.state(part.clone()).is_none());
            }
            assert!(peer.is_to_ask() && peer.ledger.len() == 0);
        }
        let shown: Vec<_> = new.into_iter().filter_map(|part| peer.state(part)).collect();
        assert_eq!((shown.len(), shown[0].len(), peer.ledger.len()), (1, 8, 8));
        assert!(!peer.is_to_ask());
    }
}
