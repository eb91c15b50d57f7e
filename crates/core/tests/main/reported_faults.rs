//! Faults that users of similar systems have reported, as far as they can be shown without a database. Named after
//! their entries in the list of faults.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use switchboard_core::lease::LeaseState;
use switchboard_core::node::{Node, NodeConfig, NodeEnd, NodeStatus, OnEviction};
use switchboard_core::ports::{
    ChangeHints, Heartbeat, Member, Registered, Registration, Registry, RegistryError, Renewed,
};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{Identity, Incarnation, NodeId, Stats};
use switchboard_memory::{Link, MemoryCluster, MemoryRegistry};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::pause::pausable;

const SLACK: Duration = Duration::from_millis(200);

fn id(name: &str) -> NodeId {
    NodeId::parse(name).unwrap()
}

fn config(name: &str, timing: Timing, on_eviction: OnEviction) -> NodeConfig {
    NodeConfig {
        node_id: id(name),
        endpoint: "127.0.0.1:4000".parse().unwrap(),
        meta: Stats::default(),
        timing,
        on_eviction,
    }
}

async fn joined(registry: Arc<dyn Registry>, config: NodeConfig) -> Node {
    let node = Node::spawn(registry, config, StatsRegistry::default());
    node.joined().await.unwrap();
    node
}

/// What a lagging replica, or a pause between write and read, makes of the caller's own row.
#[derive(Debug, Clone, Copy)]
enum OwnRow {
    Stale,
    Missing,
    SomebodyElses,
    ReadLate,
}

/// A registry whose reads do not show what its writes have done.
struct Lagging {
    inner: Arc<MemoryRegistry>,
    own_row: OwnRow,
}

impl Lagging {
    fn distort(&self, me: &NodeId, members: &mut Vec<Member>) {
        match self.own_row {
            OwnRow::Missing => members.retain(|member| member.identity.node_id != *me),
            OwnRow::ReadLate => {}
            OwnRow::Stale | OwnRow::SomebodyElses => {
                for own in members.iter_mut().filter(|member| member.identity.node_id == *me) {
                    own.age = Duration::from_hours(1);
                    if matches!(self.own_row, OwnRow::SomebodyElses) {
                        own.identity.incarnation = Incarnation::random();
                    }
                }
            }
        }
    }
}

#[async_trait]
impl Registry for Lagging {
    async fn register(&self, registration: &Registration) -> Result<Registered, RegistryError> {
        self.inner.register(registration).await
    }

    async fn renew(&self, heartbeat: &Heartbeat) -> Result<Renewed, RegistryError> {
        let mut renewed = self.inner.renew(heartbeat).await?;
        if matches!(self.own_row, OwnRow::ReadLate) {
            sleep(Duration::from_secs(3)).await;
        }
        self.distort(&heartbeat.identity.node_id, &mut renewed.members);
        Ok(renewed)
    }

    async fn members(&self) -> Result<Vec<Member>, RegistryError> {
        let mut members = self.inner.members().await?;
        self.distort(&id("a"), &mut members);
        Ok(members)
    }

    async fn deregister(&self, identity: &Identity) -> Result<(), RegistryError> {
        self.inner.deregister(identity).await
    }

    fn changes(&self) -> ChangeHints {
        self.inner.changes()
    }
}

/// B004: a node's own row looks stale, or is missing, in the list it has just read.
#[tokio::test(start_paused = true)]
async fn b004_a_node_never_takes_itself_for_a_peer_or_for_dead() {
    let timing = Timing::new(Duration::from_secs(1), Duration::from_secs(4)).unwrap();
    for own_row in [OwnRow::Stale, OwnRow::Missing, OwnRow::SomebodyElses, OwnRow::ReadLate] {
        let cluster = MemoryCluster::new();
        let lagging = Arc::new(Lagging { inner: cluster.registry(), own_row });
        let a = joined(lagging, config("a", timing, OnEviction::Stop)).await;
        let b = joined(cluster.registry(), config("b", timing, OnEviction::Stop)).await;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(20) {
            sleep(Duration::from_millis(50)).await;
            let view = a.membership().borrow().clone();
            assert!(
                view.peers().iter().all(|peer| peer.identity.node_id == id("b")),
                "{own_row:?}: {view:?}"
            );
            assert_eq!(view.size(), view.peers().len() + 1);
            assert!(!a.status().borrow().lease.is_some_and(|lease| lease == LeaseState::Evicted));
            let (holder, age) = cluster.holder(&id("a")).expect("its row was swept");
            assert_eq!(holder, a.status().borrow().identity);
            assert!(age <= timing.stale_threshold(), "{own_row:?}: it stopped renewing");
        }
        assert_eq!(a.membership().borrow().size(), 2, "{own_row:?}");
        assert_eq!(b.membership().borrow().size(), 2, "{own_row:?}");
    }
}

/// B016: a node that is no longer in the table does not go on as if it were.
#[tokio::test(start_paused = true)]
async fn b016_a_node_whose_row_was_deleted_ends_or_comes_back_within_a_tick() {
    for on_eviction in [OnEviction::Stop, OnEviction::Rejoin] {
        for phase in [1, 4_000, 9_999] {
            let (cluster, timing) = (MemoryCluster::new(), Timing::default());
            let a = joined(cluster.registry(), config("a", timing, on_eviction)).await;
            let b = joined(cluster.registry(), config("b", timing, OnEviction::Stop)).await;
            sleep(Duration::from_secs(30) + Duration::from_millis(phase)).await;
            let before = a.status().borrow().identity.clone();

            cluster.delete(&id("a"));
            let deleted = Instant::now();
            match on_eviction {
                OnEviction::Stop => {
                    let end = a.ended().await;
                    assert!(matches!(&end, NodeEnd::Evicted(evicted) if *evicted == before), "{end:?}");
                    assert!(!a.status().borrow().is_active());
                }
                OnEviction::Rejoin => {
                    let mut status = a.status();
                    status.wait_for(|now| now.identity != before && now.is_active()).await.unwrap();
                    let (holder, _) = cluster.holder(&id("a")).expect("active without a row");
                    assert_eq!(holder, status.borrow().identity);
                }
            }
            assert!(deleted.elapsed() <= timing.heartbeat_interval() + SLACK, "{:?}", deleted.elapsed());

            let size = if on_eviction == OnEviction::Stop { 1 } else { 2 };
            sleep(timing.heartbeat_interval() + SLACK).await;
            assert_eq!(b.membership().borrow().size(), size, "{on_eviction:?} at {phase} ms");
        }
    }
}

/// An answer that is read late confirms the renewal it answers, not the one that is sent next. (Found by the simulation.)
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_read_late_does_not_make_the_heartbeat_younger() {
    let (cluster, timing) = (MemoryCluster::new(), Timing::default());
    let paused = watch::Sender::new(false);
    let asleep = paused.subscribe();
    let a = Node::spawn_by(
        cluster.registry(),
        config("a", timing, OnEviction::Stop),
        StatsRegistry::default(),
        |life| tokio::spawn(pausable(life, asleep)),
    );
    a.joined().await.unwrap();
    // The renewal of the tenth second is carried out, and its answer waits while the process sleeps.
    cluster.stall(true);
    sleep(Duration::from_secs(11)).await;
    paused.send_replace(true);
    cluster.stall(false);
    sleep(Duration::from_secs(15)).await;
    // The next one, which is overdue, gets no answer.
    cluster.stall(true);
    paused.send_replace(false);
    sleep(SLACK).await;
    let believed = a.status().borrow().heartbeat_age().unwrap();
    let (_, age) = cluster.holder(&id("a")).unwrap();
    assert!(believed >= age && age >= Duration::from_secs(15), "{believed:?} instead of {age:?}");
}

/// Whoever starts when the registry comes back does not take those for dead who have not tried again yet. (Found by the
/// simulation.)
#[tokio::test(start_paused = true)]
async fn a_node_that_starts_after_a_long_outage_sweeps_nobody_who_lives() {
    for outage in [Duration::from_secs(25), Duration::from_mins(1), Duration::from_hours(2)] {
        let (cluster, timing) = (MemoryCluster::new(), Timing::default());
        let a = joined(cluster.registry(), config("a", timing, OnEviction::Stop)).await;
        let b = joined(cluster.registry(), config("b", timing, OnEviction::Stop)).await;
        sleep(Duration::from_mins(2)).await;
        cluster.set_link(Link::RequestsLost);
        sleep(outage).await;
        cluster.set_link(Link::Up);
        let c = joined(cluster.registry(), config("c", timing, OnEviction::Stop)).await;
        for node in [&a, &b, &c] {
            node.membership().wait_for(|view| view.size() == 3).await.unwrap();
            node.status().wait_for(NodeStatus::is_active).await.unwrap();
        }
        sleep(timing.stale_threshold() * 2).await;
        assert_eq!(c.membership().borrow().size(), 3, "after {outage:?}");
    }
}

/// A node that sleeps past the threshold, its successor under the same id, and the sleeper awake again.
struct Succession {
    cluster: MemoryCluster,
    sleeper: Node,
    successor: Node,
}

impl Succession {
    async fn happen(on_eviction: OnEviction) -> Self {
        let (cluster, timing) = (MemoryCluster::new(), Timing::default());
        let (sleep_on, asleep) = watch::channel(false);
        let sleeper = Node::spawn_by(
            cluster.registry(),
            config("a", timing, on_eviction),
            StatsRegistry::default(),
            |life| tokio::spawn(pausable(life, asleep)),
        );
        sleeper.joined().await.unwrap();
        sleep_on.send_replace(true);
        sleep(Duration::from_secs(40)).await;
        let successor = joined(cluster.registry(), config("a", timing, OnEviction::Stop)).await;
        sleep(Duration::from_secs(25)).await;
        sleep_on.send_replace(false);
        Self { cluster, sleeper, successor }
    }

    async fn the_successor_lives_on(&self) {
        sleep(Duration::from_secs(40)).await;
        assert!(self.successor.status().borrow().is_active());
        let (holder, _) = self.cluster.holder(&id("a")).unwrap();
        assert_eq!(holder, self.successor.status().borrow().identity);
    }
}

#[tokio::test(start_paused = true)]
async fn b017_a_sleeper_that_rejoins_does_not_take_its_id_from_its_successor() {
    let succession = Succession::happen(OnEviction::Rejoin).await;
    assert!(matches!(succession.sleeper.ended().await, NodeEnd::Refused(_)));
    succession.the_successor_lives_on().await;
}

#[tokio::test(start_paused = true)]
async fn b017_a_sleeper_that_is_restarted_does_not_take_its_id_from_its_successor() {
    let Succession { cluster, sleeper, successor } = Succession::happen(OnEviction::Stop).await;
    assert!(matches!(sleeper.ended().await, NodeEnd::Evicted(_)));
    drop(sleeper);
    let restarted = Node::spawn(
        cluster.registry(),
        config("a", Timing::default(), OnEviction::Stop),
        StatsRegistry::default(),
    );
    assert!(matches!(restarted.ended().await, NodeEnd::Refused(_)));
    Succession { cluster, sleeper: restarted, successor }.the_successor_lives_on().await;
}
