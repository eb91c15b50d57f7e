//! The simulated cluster: hosts, the network between them, the registry that they read late.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use switchboard_core::types::{Endpoint, Identity, Incarnation, NodeId};

use super::super::{Action, CloseReason, Input, LinkId, LinkTable, Rank, Rules, Target};
use crate::key::Fingerprint;

/// A connection finds out that its other end is silent.
const IDLE: Duration = Duration::from_millis(1500);
const DIAL_LIMIT: Duration = Duration::from_secs(3);

/// One connection as the network sees it.
pub(super) struct Connection {
    pub(super) dialler: (usize, LinkId),
    pub(super) acceptor: (usize, Option<LinkId>),
    incarnations: (Incarnation, Incarnation),
    rank: Rank,
    /// Whether each end still has it.
    alive: (bool, bool),
    answered: bool,
}

#[derive(Clone, Copy)]
enum Event {
    Hello(usize),
    Answer(usize),
    /// One end has closed it; `to_dialler` says which end is told.
    CloseTold {
        connection: usize,
        to_dialler: bool,
        reason: CloseReason,
    },
    DialTimeout(usize),
    Idle {
        connection: usize,
        at_dialler: bool,
    },
    Members(usize),
    Wake(usize),
}

pub(super) struct Host {
    identity: Identity,
    port: u16,
    pub(super) table: LinkTable,
    links: HashMap<LinkId, usize>,
    in_use: HashMap<NodeId, LinkId>,
    /// Of the last connection used with each peer.
    eras: HashMap<Identity, u64>,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) random: StdRng,
    rules: Rules,
    pub(super) hosts: Vec<Host>,
    pub(super) connections: Vec<Connection>,
    queue: BTreeMap<(Instant, u64), Event>,
    ticket: u64,
    /// Longest time on the way.
    pub(super) latency: Duration,
    /// Pairs between which nothing passes.
    pub(super) cut: Vec<(usize, usize)>,
    pub(super) uses: usize,
}

fn identity(host: usize, incarnation: u128) -> Identity {
    Identity {
        node_id: NodeId::parse(&format!("n{host}")).unwrap(),
        incarnation: Incarnation::from_bits(incarnation),
    }
}

impl World {
    pub(super) fn new(seed: u64, size: usize) -> Self {
        let mut world = Self {
            now: Instant::now(),
            random: StdRng::seed_from_u64(seed),
            rules: Rules::default(),
            hosts: Vec::new(),
            connections: Vec::new(),
            queue: BTreeMap::new(),
            ticket: 0,
            latency: Duration::from_millis(40),
            cut: Vec::new(),
            uses: 0,
        };
        for host in 0..size {
            let fresh = world.host(host, 0);
            world.hosts.push(fresh);
        }
        world
    }

    fn host(&mut self, host: usize, restarts: u128) -> Host {
        let identity = identity(host, restarts);
        let table = LinkTable::new(identity.node_id.clone(), self.rules, self.random.random());
        let port = 1000 + u16::try_from(restarts).unwrap();
        Host { identity, port, table, links: HashMap::new(), in_use: HashMap::new(), eras: HashMap::new() }
    }

    fn after(&mut self, pause: Duration, event: Event) {
        self.ticket += 1;
        self.queue.insert((self.now + pause, self.ticket), event);
    }

    fn delay(&mut self) -> Duration {
        self.latency.mul_f64(self.random.random())
    }

    fn passes(&self, a: usize, b: usize) -> bool {
        !self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Everybody reads the registry, each in its own time.
    pub(super) fn registry_changed(&mut self) {
        for host in 0..self.hosts.len() {
            let pause = Duration::from_millis(self.random.random_range(0..400));
            self.after(pause, Event::Members(host));
        }
    }

    pub(super) fn restart(&mut self, host: usize) {
        let restarts = self.hosts[host].identity.incarnation.bits() + 1;
        self.hosts[host] = self.host(host, restarts);
        for connection in 0..self.connections.len() {
            self.lose_end(connection, host);
        }
        self.registry_changed();
    }

    /// The end of `host` is gone without a word; the other one finds out when it is silent for too long.
    fn lose_end(&mut self, connection: usize, host: usize) {
        let it = &mut self.connections[connection];
        let at_dialler = if it.dialler.0 == host && it.alive.0 {
            it.alive.0 = false;
            false
        } else if it.acceptor.0 == host && it.alive.1 {
            it.alive.1 = false;
            true
        } else {
            return;
        };
        self.after(IDLE, Event::Idle { connection, at_dialler });
    }

    /// One end of any connection gives up and cannot say so.
    pub(super) fn lose_any_end(&mut self) {
        if self.connections.is_empty() {
            return;
        }
        let connection = self.random.random_range(0..self.connections.len());
        let at_dialler = self.random.random();
        self.ends(connection, at_dialler, false);
    }

    pub(super) fn cut(&mut self, a: usize, b: usize) {
        self.cut.push((a.min(b), a.max(b)));
        for connection in 0..self.connections.len() {
            let it = &self.connections[connection];
            if it.dialler.0.min(it.acceptor.0) == a.min(b) && it.dialler.0.max(it.acceptor.0) == a.max(b) {
                for at_dialler in [true, false] {
                    // Each end finds out in its own time; a short cut goes unnoticed.
                    let jitter = Duration::from_millis(self.random.random_range(0..400));
                    self.after(IDLE + jitter, Event::Idle { connection, at_dialler });
                }
            }
        }
    }

    fn step(&mut self, host: usize, input: Input) {
        let now = self.now;
        for action in self.hosts[host].table.step(now, input) {
            self.carry_out(host, action);
        }
        if let Some(wake) = self.hosts[host].table.wake_at() {
            let pause = wake.saturating_duration_since(now).max(Duration::from_millis(1));
            self.after(pause, Event::Wake(host));
        }
    }

    fn carry_out(&mut self, host: usize, action: Action) {
        match action {
            Action::Dial { link, target, rank } => self.dial(host, link, &target, rank),
            Action::Abandon { link } => {
                let connection = self.hosts[host].links.remove(&link).expect("abandons a dial that there is");
                self.end(connection, true, CloseReason::Duplicate);
            }
            Action::Use { link, peer, era } => {
                let connection = *self.hosts[host].links.get(&link).expect("uses a connection that there is");
                // Whoever has dialled it has an answer, so that it carries something at once.
                let least = u64::from(self.connections[connection].dialler == (host, link));
                let last = self.hosts[host].eras.insert(peer.clone(), era);
                assert!(last.is_none_or(|last| era >= last + least), "{host} uses {era} after {last:?}");
                self.hosts[host].in_use.insert(peer.node_id, link);
                self.uses += 1;
                if self.connections[connection].acceptor == (host, Some(link)) {
                    let delay = self.delay();
                    self.after(delay, Event::Answer(connection));
                }
            }
            Action::Close { link, reason } => {
                let connection =
                    self.hosts[host].links.remove(&link).expect("closes a connection that there is");
                self.hosts[host].in_use.retain(|_, used| *used != link);
                let at_dialler = self.connections[connection].dialler == (host, link);
                self.end(connection, at_dialler, reason);
            }
        }
    }

    fn dial(&mut self, host: usize, link: LinkId, target: &Target, rank: Rank) {
        let peer =
            self.hosts.iter().position(|other| other.identity.node_id == target.identity.node_id).unwrap();
        let connection = self.connections.len();
        self.connections.push(Connection {
            dialler: (host, link),
            acceptor: (peer, None),
            incarnations: (self.hosts[host].identity.incarnation, target.identity.incarnation),
            rank,
            alive: (true, true),
            answered: false,
        });
        self.hosts[host].links.insert(link, connection);
        self.after(DIAL_LIMIT, Event::DialTimeout(connection));
        let delay = self.delay();
        if target.endpoint.port() == self.hosts[peer].port {
            self.after(delay, Event::Hello(connection));
        }
    }

    /// One end closes it, and says so if anything passes.
    fn end(&mut self, connection: usize, at_dialler: bool, reason: CloseReason) {
        let it = &mut self.connections[connection];
        if at_dialler {
            it.alive.0 = false;
        } else {
            it.alive.1 = false;
        }
        let delay = self.delay();
        self.after(delay, Event::CloseTold { connection, to_dialler: !at_dialler, reason });
        self.after(IDLE, Event::Idle { connection, at_dialler: !at_dialler });
    }

    pub(super) fn is_current(&self, connection: usize) -> (bool, bool) {
        let it = &self.connections[connection];
        let same = |host: usize, incarnation| self.hosts[host].identity.incarnation == incarnation;
        (same(it.dialler.0, it.incarnations.0), same(it.acceptor.0, it.incarnations.1))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Wake(host) => self.step(host, Input::Tick),
            Event::Members(host) => {
                let targets = self.hosts.iter().enumerate().filter(|(other, _)| *other != host);
                let targets = targets.map(|(_, other)| target(other)).collect();
                self.step(host, Input::Members(targets));
            }
            Event::Hello(connection) => self.hello(connection),
            Event::Answer(connection) => {
                let it = &mut self.connections[connection];
                let (host, link) = it.dialler;
                if it.alive.0
                    && self.passes(host, self.connections[connection].acceptor.0)
                    && self.is_current(connection).0
                {
                    self.connections[connection].answered = true;
                    self.step(host, Input::Answered { link });
                }
            }
            Event::CloseTold { connection, to_dialler, reason } => {
                let it = &self.connections[connection];
                if self.passes(it.dialler.0, it.acceptor.0) {
                    self.ends(connection, to_dialler, reason == CloseReason::Duplicate);
                }
            }
            Event::Idle { connection, at_dialler } => {
                let it = &self.connections[connection];
                let other_alive = if at_dialler { it.alive.1 } else { it.alive.0 };
                if !other_alive || !self.passes(it.dialler.0, it.acceptor.0) {
                    self.ends(connection, at_dialler, false);
                }
            }
            Event::DialTimeout(connection) => {
                if !self.connections[connection].answered {
                    self.ends(connection, true, false);
                }
            }
        }
    }

    fn hello(&mut self, connection: usize) {
        let it = &self.connections[connection];
        let ((dialler, _), (host, _), rank) = (it.dialler, it.acceptor, it.rank);
        if !self.passes(dialler, host) || !it.alive.1 {
            return;
        }
        let (dialler_current, acceptor_current) = self.is_current(connection);
        if !dialler_current || !acceptor_current {
            return self.end(connection, false, CloseReason::NotAMember);
        }
        let from = self.hosts[dialler].identity.clone();
        let link = self.hosts[host].table.next_id();
        self.connections[connection].acceptor.1 = Some(link);
        self.hosts[host].links.insert(link, connection);
        self.step(host, Input::Offered { link, from, rank });
    }

    /// One end learns that the connection is over.
    pub(super) fn ends(&mut self, connection: usize, at_dialler: bool, duplicate: bool) {
        let (dialler_current, acceptor_current) = self.is_current(connection);
        let it = &mut self.connections[connection];
        let (alive, current, (host, link)) = if at_dialler {
            (&mut it.alive.0, dialler_current, (it.dialler.0, Some(it.dialler.1)))
        } else {
            (&mut it.alive.1, acceptor_current, it.acceptor)
        };
        if !std::mem::take(alive) || !current {
            return;
        }
        let answered = it.answered;
        let Some(link) = link.filter(|link| self.hosts[host].links.remove(link).is_some()) else { return };
        self.hosts[host].in_use.retain(|_, used| *used != link);
        let input = if at_dialler && !answered {
            Input::DialFailed { link, duplicate }
        } else {
            Input::Closed { link, left: false }
        };
        self.step(host, input);
        // The other end hears no more of this one.
        self.after(IDLE, Event::Idle { connection, at_dialler: !at_dialler });
    }

    pub(super) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.handle(event);
            self.check_owned();
        }
        self.now = end;
    }

    /// What is in use is there.
    fn check_owned(&self) {
        for host in &self.hosts {
            for link in host.in_use.values() {
                assert!(host.links.contains_key(link));
            }
        }
    }

    /// Why the mesh is not whole, if it is not.
    pub(super) fn flaw(&self) -> Option<String> {
        for (a, one) in self.hosts.iter().enumerate() {
            for (b, other) in self.hosts.iter().enumerate().skip(a + 1) {
                let here = one.in_use.get(&other.identity.node_id).map(|link| one.links[link]);
                let there = other.in_use.get(&one.identity.node_id).map(|link| other.links[link]);
                if here.is_none() || here != there {
                    return Some(format!("{a}-{b}: {here:?} and {there:?}"));
                }
            }
            if one.links.len() != self.hosts.len() - 1 {
                return Some(format!("{a} holds {} connections", one.links.len()));
            }
        }
        None
    }
}

fn target(host: &Host) -> Target {
    let mut key = [0; 32];
    key[..16].copy_from_slice(&host.identity.incarnation.bits().to_be_bytes());
    let endpoint = Endpoint::parse(&format!("{}:{}", host.identity.node_id, host.port)).unwrap();
    Target { identity: host.identity.clone(), endpoint, key: Fingerprint(key) }
}
