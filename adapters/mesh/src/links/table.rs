//! The table of links: one entry per peer, one step per input.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use switchboard_core::types::{Identity, NodeId};

use super::backoff::pause;
use super::peer::{Dial, Peer};
use super::{Action, CloseReason, Input, LinkId, Rank, Rules, Target};

/// The links of one process.
pub(crate) struct LinkTable {
    me: NodeId,
    rules: Rules,
    peers: HashMap<NodeId, Peer>,
    /// Whose each dialled or used connection is.
    owners: HashMap<LinkId, NodeId>,
    last_id: u64,
    random: StdRng,
}

impl LinkTable {
    pub(crate) fn new(me: NodeId, rules: Rules, seed: u64) -> Self {
        Self {
            me,
            rules,
            peers: HashMap::new(),
            owners: HashMap::new(),
            last_id: 0,
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Begins anew under another incarnation. Names of connections are not used again, since there may be late news of them.
    pub(crate) fn reset(&mut self) {
        self.peers.clear();
        self.owners.clear();
    }

    /// A name for a connection that a peer dialled.
    pub(crate) fn next_id(&mut self) -> LinkId {
        self.last_id += 1;
        LinkId(self.last_id)
    }

    /// Whether a connection from this process would be of the lesser node id.
    pub(crate) fn is_lesser(&self, other: &NodeId) -> bool {
        self.me < *other
    }

    /// Takes `input` in; answers what is to be done, in this order.
    pub(crate) fn step(&mut self, now: Instant, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Members(targets) => self.members(now, targets, &mut actions),
            Input::Offered { link, from, rank } => self.offered(now, link, &from, rank, &mut actions),
            Input::Answered { link } => self.answered(link, &mut actions),
            Input::DialFailed { link, duplicate } => self.dial_failed(now, link, duplicate),
            Input::Closed { link, left } => self.closed(now, link, left),
            Input::Tick => {}
        }
        self.dial_what_is_due(now, &mut actions);
        actions
    }

    /// When to step again if nothing happens before.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        if self.dials() >= self.rules.dials {
            return None;
        }
        self.peers.values().filter(|peer| peer.wants_dial()).map(|peer| peer.due).min()
    }

    /// Peers that are to be reached and have no link.
    pub(crate) fn unlinked(&self) -> impl Iterator<Item = &Target> {
        self.peers.values().filter(|peer| peer.current.is_none() && !peer.gone).map(|peer| &peer.target)
    }

    fn members(&mut self, now: Instant, targets: Vec<Target>, actions: &mut Vec<Action>) {
        let listed: HashMap<_, _> =
            targets.into_iter().map(|target| (target.identity.node_id.clone(), target)).collect();
        let vanished: HashSet<_> = self
            .peers
            .iter()
            .filter(|(id, peer)| listed.get(*id).is_none_or(|target| is_another(target, &peer.target)))
            .map(|(id, _)| id.clone())
            .collect();
        for id in vanished {
            self.forget(&id, actions);
        }
        for (id, target) in listed {
            let due = self.first_dial(now, &id);
            let peer = self.peers.entry(id).or_insert_with(|| Peer::new(target.clone(), due));
            if peer.target.endpoint != target.endpoint {
                peer.target = target;
                (peer.failures, peer.due) = (0, due);
                if let Some(dial) = peer.dial.take() {
                    self.owners.remove(&dial.link);
                    actions.push(Action::Abandon { link: dial.link });
                }
            }
        }
    }

    fn forget(&mut self, id: &NodeId, actions: &mut Vec<Action>) {
        let Some(peer) = self.peers.remove(id) else { return };
        if let Some(dial) = peer.dial {
            self.owners.remove(&dial.link);
            actions.push(Action::Abandon { link: dial.link });
        }
        if let Some((link, _)) = peer.current {
            self.owners.remove(&link);
            actions.push(Action::Close { link, reason: CloseReason::NotAMember });
        }
    }

    fn offered(
        &mut self,
        now: Instant,
        link: LinkId,
        from: &Identity,
        rank: Rank,
        actions: &mut Vec<Action>,
    ) {
        let refuse = |reason| Action::Close { link, reason };
        let trust = self.rules.trust;
        let Some(peer) = self.peers.get_mut(&from.node_id).filter(|peer| peer.target.identity == *from)
        else {
            return actions.push(refuse(CloseReason::NotAMember));
        };
        let outranked = peer.current.is_some_and(|(_, current)| current > rank);
        // Taken now, it would be replaced in a moment, and what was on its way would be lost.
        let awaited = |dial: &Dial| dial.rank > rank && now.saturating_duration_since(dial.since) < trust;
        if outranked || peer.dial.as_ref().is_some_and(awaited) {
            return actions.push(refuse(CloseReason::Duplicate));
        }
        if let Some(dial) = peer.dial.take_if(|dial| dial.rank < rank) {
            self.owners.remove(&dial.link);
            actions.push(Action::Abandon { link: dial.link });
        }
        peer.gone = false;
        self.owners.insert(link, from.node_id.clone());
        self.establish(&from.node_id, link, rank, actions);
    }

    fn answered(&mut self, link: LinkId, actions: &mut Vec<Action>) {
        let Some(id) = self.owners.get(&link).cloned() else { return };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(dial) = peer.dial.take_if(|dial| dial.link == link) else { return };
        // Whatever outranks it would have ended the dial: what is in use meanwhile is of lower rank.
        self.establish(&id, link, dial.rank, actions);
    }

    fn establish(&mut self, id: &NodeId, link: LinkId, rank: Rank, actions: &mut Vec<Action>) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let before = peer.establish(link, rank);
        let peer = peer.target.identity.clone();
        actions.push(Action::Use { link, peer, era: rank.era() });
        if let Some(before) = before {
            self.owners.remove(&before);
            actions.push(Action::Close { link: before, reason: CloseReason::Duplicate });
        }
    }

    fn dial_failed(&mut self, now: Instant, link: LinkId, duplicate: bool) {
        let Some(id) = self.owners.remove(&link) else { return };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.dial.take_if(|dial| dial.link == link).is_none() {
            return;
        }
        peer.due = now
            + if duplicate {
                self.rules.patience
            } else {
                peer.failures = peer.failures.saturating_add(1);
                pause(&self.rules, peer.failures, self.random.random())
            };
    }

    fn closed(&mut self, now: Instant, link: LinkId, left: bool) {
        let Some(id) = self.owners.remove(&link) else { return };
        let due = self.first_dial(now, &id);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.current.take_if(|(current, _)| *current == link).is_some() {
            peer.gone = left;
            peer.due = due;
        }
    }

    /// The lesser node id dials at once, the other one in case that does not succeed.
    fn first_dial(&mut self, now: Instant, id: &NodeId) -> Instant {
        let jitter = Duration::from_millis(20).mul_f64(self.random.random());
        if self.is_lesser(id) { now } else { now + self.rules.head_start + jitter }
    }

    fn dial_what_is_due(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let free = self.rules.dials.saturating_sub(self.dials());
        let mut due: Vec<_> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.wants_dial() && peer.due <= now)
            .map(|(id, peer)| (peer.failures, peer.due, id.clone()))
            .collect();
        // Those that fail again and again must not keep the others waiting.
        due.sort();
        for (_, _, id) in due.into_iter().take(free) {
            let (link, by_lesser) = (self.next_id(), self.is_lesser(&id));
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            let rank = peer.next_rank(by_lesser);
            peer.dial = Some(Dial { link, rank, since: now });
            actions.push(Action::Dial { link, target: peer.target.clone(), rank });
            self.owners.insert(link, id);
        }
    }

    fn dials(&self) -> usize {
        self.peers.values().filter(|peer| peer.dial.is_some()).count()
    }
}

/// Another process, or one that is to prove another key.
fn is_another(listed: &Target, known: &Target) -> bool {
    listed.identity != known.identity || listed.key != known.key
}
