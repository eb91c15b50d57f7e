//! Who is present in each channel, whichever node tracks it, and what subscribers have been told of it.
//!
//! A key is shown with its live metas; if it has none, with those that linger: lost a moment ago, and perhaps back in a moment. So
//! whoever changes the node or reconnects is never absent in between, and a change of somebody with other sockets is shown at once.
//!
//! Invariant: a key's metas are all live or all linger. Diffs, one after the other, lead from any earlier state to the present one.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::entry::{PresenceDiff, PresenceMeta, PresenceRef, Presences};
use crate::types::{Channel, Incarnation, PresenceKey};

#[derive(Debug, Default)]
pub(super) struct Rooms {
    by_channel: HashMap<Channel, Room>,
    /// Metas that linger, the first to be given up first.
    lingering: VecDeque<(Instant, Channel, PresenceKey)>,
    /// What was last shown of each key that has changed since.
    touched: BTreeMap<Channel, BTreeMap<PresenceKey, Vec<PresenceMeta>>>,
    serial: u64,
}

#[derive(Debug, Default)]
struct Room {
    keys: HashMap<PresenceKey, Vec<Item>>,
    entries: usize,
    /// What subscribers who have been told everything so far know, if it has been asked for.
    shown: Option<Arc<Presences>>,
}

/// Kept in the order of refs.
#[derive(Debug, Clone)]
struct Item {
    meta: PresenceMeta,
    owner: Incarnation,
    lingers_until: Option<Instant>,
}

/// How a meta goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Departure {
    AtOnce,
    LingerUntil(Instant),
}

impl Rooms {
    /// Metas in a channel.
    pub(super) fn len(&self, channel: &Channel) -> usize {
        self.by_channel.get(channel).map_or(0, |room| room.entries)
    }

    pub(super) fn get(
        &self,
        channel: &Channel,
        key: &PresenceKey,
        reference: PresenceRef,
    ) -> Option<&PresenceMeta> {
        let items = self.by_channel.get(channel)?.keys.get(key)?;
        Some(&items[find(items, reference).ok()?].meta)
    }

    /// Shows a meta.
    pub(super) fn put(
        &mut self,
        owner: Incarnation,
        channel: &Channel,
        key: &PresenceKey,
        meta: PresenceMeta,
    ) {
        self.change(channel, key, |items| {
            let item = Item { meta, owner, lingers_until: None };
            match find(items, item.meta.reference) {
                Ok(at) => items[at] = item,
                Err(at) => items.insert(at, item),
            }
        });
    }

    /// Takes a meta away, if it is (still) that owner's.
    pub(super) fn remove(
        &mut self,
        owner: Incarnation,
        channel: &Channel,
        key: &PresenceKey,
        reference: PresenceRef,
        departure: Departure,
    ) {
        self.change(channel, key, |items| {
            let Ok(at) = find(items, reference) else { return };
            match departure {
                _ if items[at].owner != owner => {}
                Departure::AtOnce => drop(items.remove(at)),
                Departure::LingerUntil(until) => items[at].lingers_until = Some(until),
            }
        });
        if let Departure::LingerUntil(until) = departure {
            self.lingering.push_back((until, channel.clone(), key.clone()));
        }
    }

    /// When the next meta is given up.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.lingering.front().map(|(until, ..)| *until)
    }

    /// Gives up the metas that nobody has taken up in time.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((_, channel, key)) = self.lingering.pop_front_if(|(until, ..)| *until <= now) {
            self.change(&channel, &key, |items| {
                items.retain(|item| item.lingers_until.is_none_or(|until| until > now));
            });
        }
    }

    /// Whether there is anything to tell.
    pub(super) fn has_changed(&self) -> bool {
        !self.touched.is_empty()
    }

    /// What has changed since the last time, for subscribers.
    pub(super) fn take_diffs(&mut self) -> Vec<PresenceDiff> {
        let mut diffs = Vec::new();
        for (channel, keys) in std::mem::take(&mut self.touched) {
            let Some(room) = self.by_channel.get_mut(&channel) else { continue };
            let (mut joins, mut leaves) = (Presences::new(), Presences::new());
            for (key, before) in keys {
                let now = room.settle(&key);
                add(&mut joins, &key, missing_from(&before, &now));
                add(&mut leaves, &key, missing_from(&now, &before));
            }
            if !joins.is_empty() || !leaves.is_empty() {
                room.shown = None;
                self.serial += 1;
                diffs.push(PresenceDiff { channel: channel.clone(), joins, leaves, serial: self.serial });
            }
            if room.keys.is_empty() {
                self.by_channel.remove(&channel);
            }
        }
        diffs
    }

    /// Who is there, as of now.
    pub(super) fn list(&self, channel: &Channel) -> Presences {
        self.by_channel.get(channel).map(Room::list).unwrap_or_default()
    }

    /// Those of them whom one of `owners` tracks.
    pub(super) fn list_of(&self, channel: &Channel, owners: &HashSet<Incarnation>) -> Presences {
        let mut present = Presences::new();
        for (key, items) in self.by_channel.get(channel).into_iter().flat_map(|room| &room.keys) {
            let theirs = items.iter().filter(|item| owners.contains(&item.owner));
            add(&mut present, key, theirs.map(|item| item.meta.clone()).collect());
        }
        present
    }

    /// Who is there, as those know it who have been given every diff up to the serial.
    pub(super) fn shown(&mut self, channel: &Channel) -> (Arc<Presences>, u64) {
        let Some(room) = self.by_channel.get_mut(channel) else { return (Arc::default(), self.serial) };
        if room.shown.is_none() {
            let mut shown = room.list();
            for (key, before) in self.touched.get(channel).into_iter().flatten() {
                shown.remove(key);
                add(&mut shown, key, before.clone());
            }
            room.shown = Some(Arc::new(shown));
        }
        (room.shown.clone().unwrap_or_default(), self.serial)
    }

    fn change(&mut self, channel: &Channel, key: &PresenceKey, change: impl FnOnce(&mut Vec<Item>)) {
        let room = self.by_channel.entry(channel.clone()).or_default();
        let items = room.keys.entry(key.clone()).or_default();
        let touched = self.touched.entry(channel.clone()).or_default();
        touched.entry(key.clone()).or_insert_with(|| visible(items));
        room.entries -= items.len();
        change(items);
        room.entries += items.len();
    }
}

impl Room {
    fn list(&self) -> Presences {
        let mut present = Presences::new();
        for (key, items) in &self.keys {
            add(&mut present, key, visible(items));
        }
        present
    }

    /// What is to be shown of a key from now on. Whatever has thereby been shown to leave must not come back.
    fn settle(&mut self, key: &PresenceKey) -> Vec<PresenceMeta> {
        let Some(items) = self.keys.get_mut(key) else { return Vec::new() };
        self.entries -= items.len();
        if items.iter().any(Item::is_live) {
            items.retain(Item::is_live);
        }
        self.entries += items.len();
        let visible = visible(items);
        if visible.is_empty() {
            self.keys.remove(key);
        }
        visible
    }
}

impl Item {
    fn is_live(&self) -> bool {
        self.lingers_until.is_none()
    }
}

fn find(items: &[Item], reference: PresenceRef) -> Result<usize, usize> {
    items.binary_search_by_key(&reference, |item| item.meta.reference)
}

fn visible(items: &[Item]) -> Vec<PresenceMeta> {
    let any_live = items.iter().any(Item::is_live);
    items.iter().filter(|item| item.is_live() == any_live).map(|item| item.meta.clone()).collect()
}

/// Those of `metas` whose refs are not among `others`; both in the order of refs.
fn missing_from(others: &[PresenceMeta], metas: &[PresenceMeta]) -> Vec<PresenceMeta> {
    let known =
        |meta: &PresenceMeta| others.binary_search_by_key(&meta.reference, |other| other.reference).is_ok();
    metas.iter().filter(|meta| !known(meta)).cloned().collect()
}

/// Never a key without metas.
fn add(presences: &mut Presences, key: &PresenceKey, metas: Vec<PresenceMeta>) {
    if !metas.is_empty() {
        presences.insert(key.clone(), metas);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::Payload;

    const OWNER: Incarnation = Incarnation::from_bits(1);
    const OTHER: Incarnation = Incarnation::from_bits(2);

    fn room() -> Channel {
        Channel::parse("room").unwrap()
    }

    fn alice() -> PresenceKey {
        PresenceKey::parse("alice").unwrap()
    }

    fn reference(number: u64) -> PresenceRef {
        PresenceRef { origin: 0, number }
    }

    fn put(rooms: &mut Rooms, owner: Incarnation, number: u64) {
        let payload = Payload::parse("{}").unwrap();
        let meta = PresenceMeta { reference: reference(number), previous: None, payload };
        rooms.put(owner, &room(), &alice(), meta);
    }

    fn remove(rooms: &mut Rooms, owner: Incarnation, number: u64, departure: Departure) {
        rooms.remove(owner, &room(), &alice(), reference(number), departure);
    }

    /// The refs that joined and left; nothing if there is no diff.
    fn told(rooms: &mut Rooms) -> (Vec<u64>, Vec<u64>) {
        let numbers = |presences: &Presences| {
            presences.values().flatten().map(|meta| meta.reference.number).collect::<Vec<_>>()
        };
        let diffs = rooms.take_diffs();
        assert!(diffs.len() <= 1);
        diffs.first().map(|diff| (numbers(&diff.joins), numbers(&diff.leaves))).unwrap_or_default()
    }

    fn soon(ms: u64) -> Departure {
        Departure::LingerUntil(at(ms))
    }

    fn at(ms: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_millis(ms)
    }

    #[test]
    fn who_is_back_in_time_was_never_away() {
        let mut rooms = Rooms::default();
        put(&mut rooms, OWNER, 1);
        assert_eq!(told(&mut rooms), (vec![1], vec![]));
        remove(&mut rooms, OWNER, 1, soon(10));
        assert_eq!(told(&mut rooms), (vec![], vec![]));
        rooms.expire(at(9));
        put(&mut rooms, OTHER, 2);
        assert_eq!(told(&mut rooms), (vec![2], vec![1]));
        rooms.expire(at(10));
        assert_eq!(told(&mut rooms), (vec![], vec![]));
        assert_eq!((rooms.len(&room()), rooms.next_expiry()), (1, None));
    }

    #[test]
    fn who_is_not_back_in_time_is_gone_and_forgotten() {
        let mut rooms = Rooms::default();
        put(&mut rooms, OWNER, 1);
        remove(&mut rooms, OWNER, 1, soon(10));
        assert_eq!(told(&mut rooms), (vec![1], vec![]));
        rooms.expire(at(10));
        assert_eq!(told(&mut rooms), (vec![], vec![1]));
        assert!(rooms.by_channel.is_empty() && rooms.lingering.is_empty());
    }

    #[test]
    fn of_several_sockets_one_may_go_at_once_and_does_not_come_back() {
        let mut rooms = Rooms::default();
        put(&mut rooms, OWNER, 1);
        put(&mut rooms, OWNER, 2);
        told(&mut rooms);
        remove(&mut rooms, OWNER, 1, soon(10));
        assert_eq!(told(&mut rooms), (vec![], vec![1]));
        remove(&mut rooms, OWNER, 2, soon(20));
        assert_eq!(told(&mut rooms), (vec![], vec![]));
        rooms.expire(at(20));
        assert_eq!(told(&mut rooms), (vec![], vec![2]));
    }

    /// A node that joins again brings its users back under the same refs.
    #[test]
    fn what_changes_its_owner_is_not_told() {
        let mut rooms = Rooms::default();
        put(&mut rooms, OWNER, 1);
        put(&mut rooms, OWNER, 2);
        told(&mut rooms);
        remove(&mut rooms, OWNER, 1, soon(10));
        remove(&mut rooms, OWNER, 2, soon(10));
        assert_eq!(told(&mut rooms), (vec![], vec![]));
        put(&mut rooms, OTHER, 1);
        put(&mut rooms, OTHER, 2);
        assert_eq!(told(&mut rooms), (vec![], vec![]));
        remove(&mut rooms, OWNER, 1, Departure::AtOnce);
        rooms.expire(at(10));
        assert_eq!(told(&mut rooms), (vec![], vec![]));
        assert_eq!(rooms.len(&room()), 2);
    }

    #[test]
    fn diffs_lead_from_what_was_shown_to_what_is_there() {
        let mut rooms = Rooms::default();
        put(&mut rooms, OWNER, 1);
        assert_eq!(rooms.shown(&room()), (Arc::default(), 0));
        assert_eq!(rooms.list(&room()).len(), 1);
        let diffs = rooms.take_diffs();
        let (shown, serial) = rooms.shown(&room());
        assert_eq!((&*shown, serial), (&diffs[0].joins, diffs[0].serial));
        // Asked for again, it is the same, and so it is while a change waits to be told.
        remove(&mut rooms, OWNER, 1, Departure::AtOnce);
        assert!(Arc::ptr_eq(&rooms.shown(&room()).0, &shown));
        assert!(rooms.list(&room()).is_empty());
        rooms.take_diffs();
        assert_eq!(rooms.shown(&room()), (Arc::default(), 2));
    }
}
