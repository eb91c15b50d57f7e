//! A cluster, its supervisor, and the course of one history.

use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::time::Duration;

use futures::FutureExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use switchboard_core::node::{NodeEnd, OnEviction};
use switchboard_core::types::Identity;
use switchboard_memory::{Link, MemoryCluster};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::faults::{Fault, Length, up_to};
use super::process::{Found, Process, node_id, timing};

/// How often is looked. What must hold at all times follows from what a look compares, so it need not be often.
const LOOK: Duration = Duration::from_millis(100);

/// Longest time from its start, or from the end of trouble, in which a process has joined or been refused: a registration that
/// hangs is given up after five seconds.
const JOIN: Duration = Duration::from_secs(8);

/// Longest time, in milliseconds, that a request or an answer is on its way. Twice of it is less than a renewal may take.
const LONGEST_LATENCY: u64 = 100;

/// What latency, rounding of timers and spacing of looks may add to any of it.
const SLACK: Duration = Duration::from_millis(800);

pub(super) struct World {
    cluster: MemoryCluster,
    rng: StdRng,
    length: Length,
    slots: usize,
    processes: Vec<Process>,
    restarts: Vec<(Instant, usize)>,
    back_at: Option<Instant>,
    /// Since when the registry has answered.
    calm: Option<Instant>,
    tally: Tally,
}

/// What happened.
#[derive(Debug, Default)]
pub(super) struct Tally {
    evictions: u64,
    refusals: u64,
    departures: u64,
    dead_rows: u64,
    suspensions: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let cluster = MemoryCluster::new();
        let (length, slots) = (Length::random(&mut rng), rng.random_range(2..=4));
        let now = Instant::now();
        let restarts = (0..slots).map(|slot| (now, slot)).collect();
        let (processes, tally) = (Vec::new(), Tally::default());
        Self { cluster, rng, length, slots, processes, restarts, back_at: None, calm: Some(now), tally }
    }

    pub(super) async fn run(mut self) -> Tally {
        let end = Instant::now() + self.length.of_history();
        let mut next_fault = Instant::now() + self.length.of_peace(&mut self.rng);
        while Instant::now() < end {
            self.supervise();
            self.mend(false);
            // Whoever has just woken up does what it can before anything else happens.
            for _ in 0..3 {
                yield_now().await;
            }
            self.look();
            if Instant::now() >= next_fault {
                self.disturb();
                next_fault = Instant::now() + self.length.of_peace(&mut self.rng);
            }
            sleep(LOOK).await;
        }
        self.settle().await;
        self.tally
    }

    /// One thing goes wrong.
    fn disturb(&mut self) {
        let until = Instant::now() + self.length.of_fault(&mut self.rng);
        let fault = Fault::random(&mut self.rng);
        match fault {
            Fault::Outage(link) => {
                self.cluster.set_link(link);
                (self.back_at, self.calm) = (self.back_at.max(Some(until)), None);
                return;
            }
            Fault::Crash => {
                self.cluster.crash();
                self.processes.iter_mut().for_each(|process| process.robbed = true);
                return;
            }
            _ => {}
        }
        if self.processes.is_empty() {
            return;
        }
        let index = self.rng.random_range(0..self.processes.len());
        let process = &mut self.processes[index];
        match fault {
            Fault::Outage(_) | Fault::Crash => {}
            Fault::Kill => {
                let slot = self.processes.swap_remove(index).slot;
                self.restarts.push((until, slot));
            }
            Fault::Pause => process.pause(until),
            // The answer is seen when it ends.
            Fault::Leave => drop(process.node.leave(Duration::from_secs(1)).now_or_never()),
            Fault::Partition(link) => process.break_link(link, until),
            Fault::LoseSession => process.lose_session(),
            Fault::Delete => {
                let slot = process.slot;
                self.cluster.delete(&node_id(slot));
                self.in_slot(slot).for_each(|process| process.robbed = true);
            }
            Fault::Rival => {
                let slot = process.slot;
                self.start(slot);
            }
        }
    }

    /// Ends what has lasted long enough, or everything.
    fn mend(&mut self, everything: bool) {
        let now = Instant::now();
        if self.back_at.take_if(|at| everything || *at <= now).is_some() {
            self.cluster.set_link(Link::Up);
            self.calm = Some(now);
        }
        self.processes.iter_mut().for_each(|process| process.mend(everything));
    }

    /// Starts what is due.
    fn supervise(&mut self) {
        let now = Instant::now();
        let due: Vec<usize> =
            self.restarts.extract_if(.., |(at, _)| *at <= now).map(|(_, slot)| slot).collect();
        for slot in due {
            self.start(slot);
        }
    }

    fn start(&mut self, slot: usize) {
        let on_eviction =
            if self.rng.random_range(0..4) == 0 { OnEviction::Rejoin } else { OnEviction::Stop };
        let latency = self.rng.random_range(0..2) * up_to(&mut self.rng, LONGEST_LATENCY);
        let mut process = Process::start(&self.cluster, slot, on_eviction, latency);
        for other in self.in_slot(slot) {
            other.contested = true;
            process.contested = true;
        }
        self.processes.push(process);
    }

    fn in_slot(&mut self, slot: usize) -> impl Iterator<Item = &mut Process> {
        self.processes.iter_mut().filter(move |process| process.slot == slot)
    }

    /// Sees to it that everything that must hold does, and notices what has ended.
    fn look(&mut self) {
        let mut index = 0;
        while index < self.processes.len() {
            let process = &mut self.processes[index];
            match process.look(&self.cluster, self.calm) {
                Found::Running => index += 1,
                Found::Rejoining => {
                    self.tally.evictions += 1;
                    index += 1;
                }
                Found::Ended(end) => {
                    self.ended(index, &end);
                }
            }
        }
        self.dead_rows_are_swept();
        self.tally.suspensions += self
            .processes
            .iter()
            .filter(|p| p.joined().is_some() && !p.node.status().borrow().is_active())
            .count() as u64;
    }

    fn ended(&mut self, index: usize, end: &NodeEnd) {
        let process = self.processes.swap_remove(index);
        match end {
            NodeEnd::Left => self.tally.departures += 1,
            NodeEnd::Evicted(identity) => {
                self.tally.evictions += 1;
                assert!(process.may_be_evicted(), "{identity} was evicted although nothing was done to it");
            }
            NodeEnd::Refused(error) => {
                self.tally.refusals += 1;
                assert!(process.contested, "{} was refused without a rival: {error}", process.identity());
            }
            NodeEnd::Broken => panic!("the task of {} ended without a word", process.identity()),
        }
        // A supervisor starts again whatever has ended, unless the place is taken.
        if self.in_slot(process.slot).next().is_none() {
            let pause = up_to(&mut self.rng, 2_000);
            self.restarts.push((Instant::now() + pause, process.slot));
        }
    }

    /// A peer that has been well for threshold and tick has swept what is older.
    fn dead_rows_are_swept(&mut self) {
        let patience = timing().stale_threshold() + timing().cadence() + SLACK;
        let alive = self.alive();
        for slot in 0..self.slots {
            let Some((identity, age)) = self.cluster.holder(&node_id(slot)) else { continue };
            if alive.contains(&identity) {
                continue;
            }
            self.tally.dead_rows += 1;
            let sweeper = self.processes.iter().find(|process| {
                process.healthy_since().is_some_and(|since| since.elapsed() > patience) && age > patience
            });
            assert!(sweeper.is_none(), "{} keeps {identity}, dead for {age:?}", sweeper.unwrap().identity());
        }
    }

    fn alive(&self) -> BTreeSet<Identity> {
        self.processes.iter().map(|process| process.identity().clone()).collect()
    }

    /// Once nothing goes wrong any more, everybody soon agrees, and goes on agreeing.
    async fn settle(&mut self) {
        let ended = Instant::now();
        self.mend(true);
        // Of those that are down, some stay so: their rows are the others' business.
        for (_, slot) in std::mem::take(&mut self.restarts) {
            if self.rng.random_range(0..2) == 0 {
                self.start(slot);
            }
        }
        let (ticks, patience) = (timing().cadence() * 2, timing().stale_threshold());
        let mut agreed: Option<Instant> = None;
        while agreed.is_none_or(|agreed| agreed.elapsed() < ticks) {
            sleep(LOOK).await;
            self.look();
            self.restarts.clear();
            let joined = self.processes.iter().map(Process::joined);
            let last = joined.map(|joined| joined.unwrap_or(ended + JOIN)).max().unwrap_or(ended).max(ended);
            match (self.agree(), agreed) {
                (true, None) => agreed = Some(Instant::now()),
                (false, Some(_)) => panic!("no longer agreed: {}", self.describe()),
                (true, Some(_)) => {}
                (false, None) => {
                    let late = last.elapsed() > patience + ticks + SLACK;
                    assert!(!late, "no agreement after {:?}: {}", ended.elapsed(), self.describe());
                }
            }
        }
    }

    /// Whether everybody who lives sees everybody who lives, and the registry nobody else. If all are dead, nobody minds.
    fn agree(&self) -> bool {
        let alive = self.alive();
        let rows: BTreeSet<_> = (0..self.slots)
            .filter_map(|slot| self.cluster.holder(&node_id(slot)))
            .map(|(identity, _)| identity)
            .collect();
        alive.is_empty()
            || rows == alive
                && self.processes.iter().all(|process| {
                    let view = process.node.membership().borrow().clone();
                    let peers = view.peers().iter().map(|peer| peer.identity.clone());
                    process.healthy_since().is_some()
                        && peers.chain([view.me().clone()]).collect::<BTreeSet<_>>() == alive
                })
    }

    fn describe(&self) -> String {
        let processes = self.processes.iter().map(|process| {
            let (status, view) = (process.node.status(), process.node.membership());
            let (status, view) = (status.borrow().clone(), view.borrow().clone());
            let peers: Vec<_> = view.peers().iter().map(|peer| peer.identity.to_string()).collect();
            format!("\n{status:?}\n    sees {peers:?}")
        });
        let rows = (0..self.slots).map(|slot| format!("\n{:?}", self.cluster.holder(&node_id(slot))));
        processes.chain(rows).collect()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.evictions += other.evictions;
        self.refusals += other.refusals;
        self.departures += other.departures;
        self.dead_rows += other.dead_rows;
        self.suspensions += other.suspensions;
    }
}

impl Tally {
    /// A simulation in which nothing ever happens proves nothing.
    pub(super) fn assert_that_much_happened(&self, seeds: u64) {
        let least = [self.evictions, self.refusals * 5, self.departures, self.dead_rows, self.suspensions];
        assert!(least.iter().all(|count| *count > seeds / 10), "in {seeds} seeds only {self:?}");
    }
}
