//! The entries of one node: which, in which version, and their fingerprint.
//!
//! Invariant: two ledgers with the same entries have the same hash, on every machine and in every release.

use std::collections::BTreeMap;
use std::hash::Hasher;

use fnv::FnvHasher;

use super::entry::{PresenceMeta, PresenceRef};
use crate::types::{Channel, PresenceKey};

/// Where an entry is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) channel: Channel,
    pub(super) key: PresenceKey,
    hash: u64,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<PresenceRef, Place>,
    /// The sum of the entries' hashes, so that it can follow changes and needs no order.
    hash: u64,
}

impl Ledger {
    pub(super) fn add(&mut self, channel: &Channel, key: &PresenceKey, meta: &PresenceMeta) {
        let hash = fingerprint(channel, key, meta);
        let place = Place { channel: channel.clone(), key: key.clone(), hash };
        self.hash = self.hash.wrapping_add(hash);
        if let Some(before) = self.entries.insert(meta.reference, place) {
            self.hash = self.hash.wrapping_sub(before.hash);
        }
    }

    pub(super) fn remove(&mut self, reference: PresenceRef) -> Option<Place> {
        let place = self.entries.remove(&reference)?;
        self.hash = self.hash.wrapping_sub(place.hash);
        Some(place)
    }

    pub(super) fn get(&self, reference: PresenceRef) -> Option<&Place> {
        self.entries.get(&reference)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (PresenceRef, &Place)> {
        self.entries.iter().map(|(reference, place)| (*reference, place))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }
}

fn fingerprint(channel: &Channel, key: &PresenceKey, meta: &PresenceMeta) -> u64 {
    let mut hasher = FnvHasher::default();
    // Bytes alone: integers would be hashed in the machine's own order. No text contains the separator.
    for text in [channel.as_str(), key.as_str(), meta.payload.as_str()] {
        hasher.write(text.as_bytes());
        hasher.write(&[0xff]);
    }
    hasher.write(&meta.reference.origin.to_be_bytes());
    hasher.write(&meta.reference.number.to_be_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Payload;

    fn meta(number: u64) -> PresenceMeta {
        let payload = Payload::parse("{}").unwrap();
        PresenceMeta { reference: PresenceRef { origin: 1, number }, previous: None, payload }
    }

    #[test]
    fn the_hash_tells_entries_and_not_how_they_came_about() {
        let (channel, key) = (Channel::parse("c").unwrap(), PresenceKey::parse("k").unwrap());
        let (mut one, mut two) = (Ledger::default(), Ledger::default());
        for n in [1, 2, 3, 2] {
            one.add(&channel, &key, &meta(n));
        }
        assert!(one.remove(meta(1).reference).is_some() && one.remove(meta(1).reference).is_none());
        two.add(&channel, &key, &meta(3));
        assert_ne!(one.hash(), two.hash());
        two.add(&channel, &key, &meta(2));
        assert_eq!(one.hash(), two.hash());
        assert_eq!((one.len(), two.len()), (2, 2));
    }

    /// Nodes of different releases compare hashes.
    #[test]
    fn the_hash_never_changes() {
        let mut ledger = Ledger::default();
        ledger.add(&Channel::parse("room:1").unwrap(), &PresenceKey::parse("alice").unwrap(), &meta(1));
        assert_eq!(ledger.hash(), 0x7e6b_1ccb_e231_da82);
    }
}
