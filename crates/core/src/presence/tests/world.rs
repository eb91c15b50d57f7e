//! A cluster of replicas, the ways between them, and a registry that each of them sees late.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::entry::{PresenceLimits, PresenceRef, Presences};
use super::super::replica::{Counts, Replica};
use super::super::wire::Message;
use crate::types::{Channel, Identity, Incarnation, NodeId, Payload, PresenceKey};

pub(super) const GRACE: Duration = Duration::from_secs(2);

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn room(n: usize) -> Channel {
    Channel::parse(&format!("room:{n}")).unwrap()
}

pub(super) fn user(n: usize) -> PresenceKey {
    PresenceKey::parse(&format!("user:{n}")).unwrap()
}

pub(super) fn meta(n: u64) -> Payload {
    Payload::parse(&format!("{{\"n\":{n}}}")).unwrap()
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) rng: StdRng,
    pub(super) nodes: BTreeMap<usize, Process>,
    /// What is on its way from one slot to another, in order.
    ways: HashMap<(usize, usize), Way>,
    /// Who is registered, by slot.
    pub(super) members: BTreeMap<usize, Identity>,
    /// Chance in a hundred that a message is lost on its way to one node.
    pub(super) loss: u32,
    /// Longest time, in milliseconds, that a message or a look at the registry takes.
    pub(super) latency: u64,
    /// Ways that carry nothing.
    pub(super) blocked: Vec<(usize, usize)>,
    /// Messages and bytes that were sent.
    pub(super) sent: (usize, usize),
    incarnations: u128,
}

type Way = VecDeque<(Instant, Identity, Payload)>;

pub(super) struct Process {
    pub(super) replica: Replica,
    pub(super) identity: Identity,
    /// What it tracks.
    pub(super) tracked: BTreeMap<PresenceRef, (Channel, PresenceKey, Payload)>,
    /// What a subscriber of everything knows.
    pub(super) told: HashMap<Channel, Presences>,
    look_at: Option<Instant>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Instant::now(),
            rng: StdRng::seed_from_u64(seed),
            nodes: BTreeMap::new(),
            ways: HashMap::new(),
            members: BTreeMap::new(),
            loss: 0,
            latency: 1,
            blocked: Vec::new(),
            sent: (0, 0),
            incarnations: 0,
        }
    }

    /// So many nodes that have seen each other.
    pub(super) fn of(nodes: usize) -> Self {
        let mut world = Self::new(1);
        (0..nodes).for_each(|slot| world.start(slot));
        world.run(ms(1_000));
        world
    }

    pub(super) fn start(&mut self, slot: usize) {
        let identity = self.register(slot);
        let replica = Replica::new(
            identity.clone(),
            self.rng.random(),
            GRACE,
            PresenceLimits::default(),
            Counts::default(),
            self.now,
        );
        let process =
            Process { replica, identity, tracked: BTreeMap::new(), told: HashMap::new(), look_at: None };
        self.nodes.insert(slot, process);
        self.announce();
    }

    /// Nobody is told.
    pub(super) fn kill(&mut self, slot: usize) {
        self.nodes.remove(&slot);
    }

    pub(super) fn sweep(&mut self, slot: usize) {
        self.members.remove(&slot);
        self.announce();
    }

    pub(super) fn leave(&mut self, slot: usize) {
        let messages = self.nodes.get_mut(&slot).unwrap().replica.farewell();
        self.send(slot, messages);
        self.nodes.remove(&slot);
        // The registry is told when peers have been.
        self.run(ms(self.latency));
        self.sweep(slot);
    }

    /// Evicted, and joins again in the same process.
    pub(super) fn rejoin(&mut self, slot: usize) {
        let identity = self.register(slot);
        let now = self.now;
        let process = self.nodes.get_mut(&slot).unwrap();
        process.identity = identity.clone();
        // It knows nobody until it has looked.
        process.replica.members(&identity, [].iter(), now);
        self.announce();
    }

    pub(super) fn track(&mut self, slot: usize, channel: &Channel, key: &PresenceKey, n: u64) -> PresenceRef {
        let process = self.nodes.get_mut(&slot).unwrap();
        let reference = process.replica.track(channel, key, meta(n)).unwrap();
        process.tracked.insert(reference, (channel.clone(), key.clone(), meta(n)));
        reference
    }

    pub(super) fn update(&mut self, slot: usize, reference: PresenceRef, n: u64) -> PresenceRef {
        let process = self.nodes.get_mut(&slot).unwrap();
        let new = process.replica.update(reference, meta(n)).unwrap();
        let (channel, key, _) = process.tracked.remove(&reference).unwrap();
        process.tracked.insert(new, (channel, key, meta(n)));
        new
    }

    pub(super) fn untrack(&mut self, slot: usize, reference: PresenceRef) {
        let process = self.nodes.get_mut(&slot).unwrap();
        process.tracked.remove(&reference);
        process.replica.untrack(reference);
    }

    pub(super) fn cut(&mut self, slot: usize, reference: PresenceRef) {
        let now = self.now;
        let process = self.nodes.get_mut(&slot).unwrap();
        process.tracked.remove(&reference);
        process.replica.cut(reference, now);
    }

    /// Cuts all ways between the two sides, in both directions.
    pub(super) fn partition(&mut self, one: &[usize], other: &[usize]) {
        let pairs = one.iter().flat_map(|a| other.iter().map(|b| (*a, *b)));
        self.blocked.extend(pairs.flat_map(|(a, b)| [(a, b), (b, a)]));
    }

    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
            self.now = self.next_moment().min(end).max(self.now + ms(1));
        }
        self.step();
    }

    /// What all nodes should show of a channel.
    pub(super) fn expected(&self, channel: &Channel) -> BTreeMap<PresenceKey, Vec<(PresenceRef, Payload)>> {
        let mut expected = BTreeMap::<_, Vec<_>>::new();
        let members =
            self.nodes.iter().filter(|(slot, process)| self.members.get(slot) == Some(&process.identity));
        for (reference, (at, key, payload)) in members.flat_map(|(_, process)| &process.tracked) {
            if at == channel {
                expected.entry(key.clone()).or_default().push((*reference, payload.clone()));
            }
        }
        for metas in expected.values_mut() {
            metas.sort_by_key(|(reference, _)| *reference);
        }
        expected
    }

    /// Panics unless all nodes show, and have told, what they should.
    pub(super) fn assert_agreement(&self, channel: &Channel) {
        let expected = self.expected(channel);
        for (slot, process) in &self.nodes {
            let listed = process.replica.rooms.list(channel);
            assert_eq!(plain(&listed), expected, "node {slot} lists something else");
            let told = process.told.get(channel).cloned().unwrap_or_default();
            assert_eq!(plain(&told), expected, "node {slot} has told something else");
        }
    }

    fn register(&mut self, slot: usize) -> Identity {
        self.incarnations += 1;
        let node_id = NodeId::parse(&format!("n{slot}")).unwrap();
        let identity = Identity { node_id, incarnation: Incarnation::from_bits(self.incarnations) };
        self.members.insert(slot, identity.clone());
        identity
    }

    /// Everybody looks at the registry, sooner or later.
    fn announce(&mut self) {
        for process in self.nodes.values_mut() {
            let at = self.now + ms(self.rng.random_range(0..=self.latency));
            process.look_at = Some(process.look_at.map_or(at, |earlier| earlier.min(at)));
        }
    }

    fn step(&mut self) {
        let members: Vec<_> = self.members.values().cloned().collect();
        for (slot, process) in &mut self.nodes {
            if process.look_at.take_if(|at| *at <= self.now).is_some() {
                let peers = members.iter().filter(|member| member.node_id != process.identity.node_id);
                process.replica.members(&process.identity, peers, self.now);
                process.replica.joined(self.now);
            }
            let arriving = self.ways.iter_mut().filter(|((_, to), _)| to == slot);
            for (_, way) in arriving {
                while let Some((_, to, payload)) = way.pop_front_if(|(at, ..)| *at <= self.now) {
                    // What was meant for the process before is lost with it.
                    if to.node_id == process.identity.node_id {
                        process.replica.receive(&payload, self.now);
                    }
                }
            }
        }
        for slot in self.nodes.keys().copied().collect::<Vec<_>>() {
            let process = self.nodes.get_mut(&slot).unwrap();
            let output = process.replica.step(self.now);
            for diff in output.diffs {
                process.hear(&diff.channel, &diff.joins, &diff.leaves);
            }
            self.send(slot, output.messages);
        }
    }

    fn send(&mut self, from: usize, messages: Vec<Message>) {
        for message in messages {
            let payload = message.encode().unwrap();
            assert!(payload.len() <= 64 * 1024);
            self.sent = (self.sent.0 + 1, self.sent.1 + payload.len());
            for (to, process) in &self.nodes {
                let lost = self.blocked.contains(&(from, *to)) || self.rng.random_range(0..100) < self.loss;
                if *to == from || lost {
                    continue;
                }
                let way = self.ways.entry((from, *to)).or_default();
                let at = self.now + ms(self.rng.random_range(0..=self.latency));
                // Never reordered.
                let at = way.back().map_or(at, |(before, ..)| at.max(*before));
                way.push_back((at, process.identity.clone(), payload.clone()));
            }
        }
    }

    fn next_moment(&self) -> Instant {
        let arrivals = self.ways.values().filter_map(|way| way.front().map(|(at, ..)| *at));
        let looks = self.nodes.values().filter_map(|process| process.look_at);
        let wakes = self.nodes.values().map(|process| process.replica.wake_at());
        arrivals.chain(looks).chain(wakes).min().unwrap_or(self.now + ms(1_000))
    }
}

impl Process {
    /// Takes in a diff as clients do, and checks that it fits what they know.
    fn hear(&mut self, channel: &Channel, joins: &Presences, leaves: &Presences) {
        let told = self.told.entry(channel.clone()).or_default();
        for (key, metas) in joins {
            let known = told.entry(key.clone()).or_default();
            for meta in metas {
                assert!(
                    !known.iter().any(|other| other.reference == meta.reference),
                    "joins twice: {meta:?}"
                );
                known.push(meta.clone());
            }
            known.sort_by_key(|meta| meta.reference);
        }
        for (key, metas) in leaves {
            let known = told.get_mut(key).expect("leaves without having joined");
            for meta in metas {
                let at = known.iter().position(|other| other.reference == meta.reference);
                known.remove(at.expect("leaves without having joined"));
            }
            if known.is_empty() {
                told.remove(key);
            }
        }
    }
}

fn plain(presences: &Presences) -> BTreeMap<PresenceKey, Vec<(PresenceRef, Payload)>> {
    let plain = |(key, metas): (&PresenceKey, &Vec<_>)| {
        let metas =
            metas.iter().map(|meta: &super::super::PresenceMeta| (meta.reference, meta.payload.clone()));
        (key.clone(), metas.collect())
    };
    presences.iter().map(plain).collect()
}
