//! Presence as one node sees it: its own entries, and a copy of every peer's. Pure: time, messages and membership come in as arguments,
//! messages and diffs go out.
//!
//! Each node owns what it tracks and nobody else speaks for it, so there is nothing to merge. Its changes are counted and broadcast; who has
//! missed one finds the gap with the next, or a difference with the next digest, and asks for everything. A node that has never tracked
//! anything has nothing to repair, so it sends no digests: presence costs those who use it.
//!
//! Invariant: shown is what members own, what of it is known here, and what was lost less than the grace ago. What a stranger says is
//! dropped: as soon as it is seen to be a member it is asked for everything.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::entry::{PresenceDiff, PresenceError, PresenceLimits, PresenceMeta, PresenceRef};
use super::ledger::Ledger;
use super::peer::{Peer, Shown};
use super::rooms::{Departure, Rooms};
use super::wire::{self, Change, Diff, Entry, Message, Say};
use crate::stats::Counter;
use crate::types::{Channel, Identity, Incarnation, NodeId, Payload, PresenceKey};

/// Time between two digests of a node. What was lost without a trace is found that soon.
pub(super) const DIGEST_INTERVAL: Duration = Duration::from_secs(3);
/// What changes within this time leaves together. The first change after a pause does not wait.
pub(super) const WINDOW: Duration = Duration::from_millis(50);
/// Shortest time between two answers that hold everything.
const ANSWER_SPACING: Duration = Duration::from_millis(500);
/// How long a newcomer waits for the answers of its peers. Some may never come.
const SETTLING: Duration = Duration::from_millis(500);
/// Most peers that are asked in one message, so that not all send everything at the same moment.
const ASKED_AT_ONCE: usize = 32;
/// Strangers that are remembered. Of members that are not seen yet there are no more at a time; the rest has another cluster's manners.
const STRANGERS: usize = 1024;

pub(super) struct Replica {
    me: Identity,
    pub(super) limits: PresenceLimits,
    grace: Duration,
    pub(super) rooms: Rooms,
    origin: u64,
    tracked: u64,
    own: Ledger,
    version: u64,
    unsent: Unsent,
    peers: HashMap<Incarnation, Peer>,
    /// Those who said something that was dropped.
    strangers: HashSet<Incarnation>,
    settling: Settling,
    /// Before this, nothing leaves.
    gate: Instant,
    digest_at: Instant,
    answer_at: Option<Instant>,
    answered: Option<Instant>,
    pub(super) counts: Counts,
}

/// Whether what is known here is worth showing.
#[derive(Debug, Clone, Copy)]
enum Settling {
    /// Nobody is known yet.
    Unjoined,
    /// Peers are being asked.
    Until(Instant),
    Settled,
}

/// Changes of own entries that peers have not been told of.
#[derive(Debug, Default)]
struct Unsent {
    put: BTreeSet<PresenceRef>,
    gone: Vec<PresenceRef>,
    cut: Vec<PresenceRef>,
}

/// What goes out.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// For every node, in this order.
    pub(super) messages: Vec<Message>,
    /// For subscribers on this node.
    pub(super) diffs: Vec<PresenceDiff>,
}

/// What has happened so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    /// Diffs shown to subscribers.
    pub(super) diffs: Counter,
    /// Times that a peer's entries were taken in as a whole.
    pub(super) syncs: Counter,
    /// Times that all own entries were sent.
    pub(super) answers: Counter,
    /// Messages that no node wrote.
    pub(super) garbage: Counter,
}

impl Replica {
    /// `origin` makes the refs of this replica its own, and spreads the digests of many.
    pub(super) fn new(
        me: Identity,
        origin: u64,
        grace: Duration,
        limits: PresenceLimits,
        counts: Counts,
        now: Instant,
    ) -> Self {
        // A share of 1000: nodes that start together should not stay together.
        let share = u32::try_from(origin % 1000).unwrap_or_default();
        Self {
            me,
            limits,
            grace,
            rooms: Rooms::default(),
            origin,
            tracked: 0,
            own: Ledger::default(),
            version: 0,
            unsent: Unsent::default(),
            peers: HashMap::new(),
            strangers: HashSet::new(),
            settling: Settling::Unjoined,
            gate: now,
            digest_at: now + DIGEST_INTERVAL * share / 1000,
            answer_at: None,
            answered: None,
            counts,
        }
    }

    /// Metas of all nodes, as far as known here.
    pub(super) fn entries(&self) -> usize {
        self.own.len() + self.peers.values().map(|peer| peer.ledger.len()).sum::<usize>()
    }

    /// Metas of some peers.
    pub(super) fn entries_of(&self, owners: &HashSet<Incarnation>) -> usize {
        owners.iter().filter_map(|owner| self.peers.get(owner)).map(|peer| peer.ledger.len()).sum()
    }

    /// Metas of this node.
    pub(super) fn own_entries(&self) -> usize {
        self.own.len()
    }

    pub(super) fn track(
        &mut self,
        channel: &Channel,
        key: &PresenceKey,
        payload: Payload,
    ) -> Result<PresenceRef, PresenceError> {
        wire::check_meta(&payload, self.limits.meta_bytes)?;
        if self.rooms.len(channel) >= self.limits.metas_per_channel {
            return Err(PresenceError::Full {
                channel: channel.clone(),
                limit: self.limits.metas_per_channel,
            });
        }
        Ok(self.put_own(channel, key, None, payload))
    }

    /// Replaces the meta of an own entry; answers its new ref, which is the old one if there is no such entry.
    pub(super) fn update(
        &mut self,
        reference: PresenceRef,
        payload: Payload,
    ) -> Result<PresenceRef, PresenceError> {
        wire::check_meta(&payload, self.limits.meta_bytes)?;
        let Some(place) = self.own.get(reference).cloned() else { return Ok(reference) };
        let told = self.last_told(reference);
        self.own.remove(reference);
        self.rooms.remove(self.me.incarnation, &place.channel, &place.key, reference, Departure::AtOnce);
        Ok(self.put_own(&place.channel, &place.key, told, payload))
    }

    /// Takes an own entry away, on purpose: at once.
    pub(super) fn untrack(&mut self, reference: PresenceRef) {
        if let Some(told) = self.take_own(reference, Departure::AtOnce) {
            self.unsent.gone.push(told);
        }
    }

    /// An own entry was lost: its user may come back in a moment.
    pub(super) fn cut(&mut self, reference: PresenceRef, now: Instant) {
        if let Some(told) = self.take_own(reference, Departure::LingerUntil(now + self.grace)) {
            self.unsent.cut.push(told);
        }
    }

    /// The registry has told who is there.
    pub(super) fn joined(&mut self, now: Instant) {
        if matches!(self.settling, Settling::Unjoined) {
            self.settling = Settling::Until(now + SETTLING);
        }
    }

    /// Whether what peers had when this node joined is known.
    pub(super) fn has_settled(&self) -> bool {
        matches!(self.settling, Settling::Settled)
    }

    /// Takes in what membership is now.
    pub(super) fn members<'a>(
        &mut self,
        me: &Identity,
        members: impl Iterator<Item = &'a Identity> + Clone,
        now: Instant,
    ) {
        let reborn = *me != self.me;
        if reborn {
            self.me = me.clone();
            self.take_over_own();
            // Peers that have met it as a new one learn that it is not.
            self.digest_at = now;
        }
        // Whoever is there when this node comes was there before it. Later ones come with nothing, unless they come back.
        let newcomer = self.peers.is_empty();
        let ids: HashMap<&NodeId, Incarnation> =
            members.clone().map(|member| (&member.node_id, member.incarnation)).collect();
        let is_gone =
            |incarnation: &Incarnation, peer: &mut Peer| ids.get(&peer.node_id) != Some(incarnation);
        let gone: Vec<_> = self.peers.extract_if(is_gone).collect();
        let mut restarted = HashSet::new();
        for (incarnation, peer) in gone {
            // Users of a node that was started again come back, and so do the peers of one that has joined again. A node that was swept
            // has been silent for long enough.
            let expected = reborn || ids.contains_key(&peer.node_id);
            let departure = if expected { self.linger(now) } else { Departure::AtOnce };
            self.remove_all(incarnation, &peer.ledger, departure);
            restarted.insert(peer.node_id);
        }
        for member in members {
            let heard = self.strangers.remove(&member.incarnation);
            self.peers.entry(member.incarnation).or_insert_with(|| {
                let may_have_spoken = newcomer || heard || restarted.contains(&member.node_id);
                let meet = if may_have_spoken { Peer::unknown } else { Peer::new };
                meet(member.node_id.clone())
            });
        }
    }

    /// Takes in what a node has said.
    pub(super) fn receive(&mut self, payload: &Payload, now: Instant) {
        let Ok(Message { from, say }) = Message::decode(payload) else {
            return self.counts.garbage.increment();
        };
        if from == self.me {
            return;
        }
        if let Say::Ask(asked) = &say {
            // Also a stranger's: it may be a member that is not seen yet.
            if asked.contains(&self.me) {
                self.answer_soon(now);
            }
            return;
        }
        let Some(peer) = self.peers.get_mut(&from.incarnation) else {
            if self.strangers.len() < STRANGERS {
                self.strangers.insert(from.incarnation);
            }
            return;
        };
        let shown = match say {
            Say::Diff(diff) => peer.diff(diff),
            Say::State(state) => match peer.state(state) {
                Some(shown) => {
                    self.counts.syncs.increment();
                    shown
                }
                None => return,
            },
            Say::Digest { version, hash } => return peer.digest(version, hash),
            Say::Bye => {
                let ledger = peer.leave();
                return self.remove_all(from.incarnation, &ledger, self.linger(now));
            }
            Say::Ask(_) => return,
        };
        for change in shown {
            self.show(from.incarnation, change, now);
        }
    }

    /// What is due now.
    pub(super) fn step(&mut self, now: Instant) -> Output {
        if let Settling::Until(end) = self.settling
            && (end <= now || !self.peers.values().any(Peer::is_behind))
        {
            self.settling = Settling::Settled;
        }
        if now < self.gate {
            return Output::default();
        }
        self.rooms.expire(now);
        let mut says: Vec<_> = self.take_unsent().into_iter().map(Say::Diff).collect();
        if self.answer_at.take_if(|at| *at <= now).is_some() {
            self.answered = Some(now);
            self.counts.answers.increment();
            says.extend(wire::pack_state(self.version, self.own_in_full()).into_iter().map(Say::State));
        }
        if self.digest_at <= now {
            self.digest_at = now + DIGEST_INTERVAL;
            if self.version > 0 {
                says.push(Say::Digest { version: self.version, hash: self.own.hash() });
            }
        }
        let ask = self.whom_to_ask();
        if !ask.is_empty() {
            says.push(Say::Ask(ask));
        }
        let diffs = self.rooms.take_diffs();
        self.counts.diffs.add(diffs.len() as u64);
        if !says.is_empty() || !diffs.is_empty() {
            self.gate = now + WINDOW;
        }
        Output { messages: self.sign(says), diffs }
    }

    /// When the next step has something to do.
    pub(super) fn wake_at(&self) -> Instant {
        let speaks =
            self.rooms.has_changed() || !self.unsent.is_empty() || self.peers.values().any(Peer::is_to_ask);
        let settled = match self.settling {
            Settling::Until(end) => Some(end),
            Settling::Unjoined | Settling::Settled => None,
        };
        let due = [speaks.then_some(self.gate), self.rooms.next_expiry(), self.answer_at, settled];
        due.into_iter().flatten().fold(self.digest_at, Instant::min).max(self.gate)
    }

    /// The last that is said.
    pub(super) fn farewell(&mut self) -> Vec<Message> {
        let mut says: Vec<_> = self.take_unsent().into_iter().map(Say::Diff).collect();
        says.push(Say::Bye);
        self.sign(says)
    }

    fn put_own(
        &mut self,
        channel: &Channel,
        key: &PresenceKey,
        previous: Option<PresenceRef>,
        payload: Payload,
    ) -> PresenceRef {
        self.tracked += 1;
        let reference = PresenceRef { origin: self.origin, number: self.tracked };
        let meta = PresenceMeta { reference, previous, payload };
        self.own.add(channel, key, &meta);
        self.unsent.put.insert(reference);
        self.rooms.put(self.me.incarnation, channel, key, meta);
        reference
    }

    /// Removes an own entry; answers the ref under which peers know it, if they do.
    fn take_own(&mut self, reference: PresenceRef, departure: Departure) -> Option<PresenceRef> {
        let place = self.own.get(reference).cloned()?;
        let told = self.last_told(reference);
        self.own.remove(reference);
        self.rooms.remove(self.me.incarnation, &place.channel, &place.key, reference, departure);
        told
    }

    /// The ref under which peers know an own entry, if they do; it will not be told under a later one.
    fn last_told(&mut self, reference: PresenceRef) -> Option<PresenceRef> {
        if !self.unsent.put.remove(&reference) {
            return Some(reference);
        }
        let place = self.own.get(reference)?;
        self.rooms.get(&place.channel, &place.key, reference)?.previous
    }

    fn take_unsent(&mut self) -> Vec<Diff> {
        let Unsent { put, gone, cut } = std::mem::take(&mut self.unsent);
        let put = put.into_iter().filter_map(|reference| {
            let place = self.own.get(reference)?;
            let meta = self.rooms.get(&place.channel, &place.key, reference)?;
            Some(Change::Put(place.channel.clone(), Entry::new(place.key.clone(), meta.clone())))
        });
        let gone = gone.into_iter().map(Change::Gone);
        let mut diffs = wire::pack_changes(gone.chain(cut.into_iter().map(Change::Cut)).chain(put));
        for diff in &mut diffs {
            self.version += 1;
            diff.version = self.version;
        }
        diffs
    }

    fn own_in_full(&self) -> impl Iterator<Item = (Channel, Entry)> {
        self.own.entries().filter_map(|(reference, place)| {
            let meta = self.rooms.get(&place.channel, &place.key, reference)?;
            Some((place.channel.clone(), Entry::new(place.key.clone(), meta.clone())))
        })
    }

    /// Own entries stay what they are under another incarnation; peers will ask for them.
    fn take_over_own(&mut self) {
        for (reference, place) in self.own.entries() {
            if let Some(meta) = self.rooms.get(&place.channel, &place.key, reference).cloned() {
                self.rooms.put(self.me.incarnation, &place.channel, &place.key, meta);
            }
        }
    }

    fn answer_soon(&mut self, now: Instant) {
        let earliest = now + WINDOW;
        let spaced = self.answered.map_or(earliest, |answered| answered + ANSWER_SPACING);
        self.answer_at.get_or_insert(earliest.max(spaced));
    }

    fn whom_to_ask(&mut self) -> Vec<Identity> {
        let due = self.peers.iter_mut().filter(|(_, peer)| peer.is_to_ask());
        due.take(ASKED_AT_ONCE)
            .map(|(incarnation, peer)| {
                peer.asked();
                Identity { node_id: peer.node_id.clone(), incarnation: *incarnation }
            })
            .collect()
    }

    fn show(&mut self, owner: Incarnation, change: Shown, now: Instant) {
        match change {
            Shown::Put(channel, key, meta) => self.rooms.put(owner, &channel, &key, meta),
            Shown::Gone(reference, place) => {
                self.rooms.remove(owner, &place.channel, &place.key, reference, Departure::AtOnce);
            }
            Shown::Cut(reference, place) => {
                self.rooms.remove(owner, &place.channel, &place.key, reference, self.linger(now));
            }
        }
    }

    fn remove_all(&mut self, owner: Incarnation, ledger: &Ledger, departure: Departure) {
        for (reference, place) in ledger.entries() {
            self.rooms.remove(owner, &place.channel, &place.key, reference, departure);
        }
    }

    fn linger(&self, now: Instant) -> Departure {
        Departure::LingerUntil(now + self.grace)
    }

    fn sign(&self, says: Vec<Say>) -> Vec<Message> {
        says.into_iter().map(|say| Message { from: self.me.clone(), say }).collect()
    }
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.put.is_empty() && self.gone.is_empty() && self.cut.is_empty()
    }
}
