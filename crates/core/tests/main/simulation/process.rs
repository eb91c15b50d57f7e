//! One process of a simulated cluster, what was done to it, and what must hold for it all the time.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use switchboard_core::lease::LeaseState;
use switchboard_core::node::{Node, NodeConfig, NodeEnd, NodeStatus, OnEviction};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{Identity, NodeId, Stats};
use switchboard_memory::{Link, MemoryCluster, MemoryRegistry};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::pause::pausable;

pub(super) fn timing() -> Timing {
    Timing::new(Duration::from_secs(1), Duration::from_secs(3)).unwrap()
}

/// The node id of a slot, the place where a supervisor keeps a process running.
pub(super) fn node_id(slot: usize) -> NodeId {
    NodeId::parse(&format!("n{slot}")).unwrap()
}

pub(super) struct Process {
    pub(super) slot: usize,
    pub(super) node: Node,
    registry: Arc<MemoryRegistry>,
    identity: Identity,
    paused: watch::Sender<bool>,
    mend_link_at: Option<Instant>,
    wake_at: Option<Instant>,
    /// Something was done to it, and no renewal has got through since.
    touched: bool,
    /// When the last thing that was done to it ended.
    mended: Instant,
    /// Its row was removed by hand or by a crash.
    pub(super) robbed: bool,
    /// Another process wants its node id, or had it: it may take it when this one is stale, and only then.
    pub(super) contested: bool,
    joined: Option<Instant>,
    healthy_since: Option<Instant>,
}

/// What a look at a process finds.
pub(super) enum Found {
    Running,
    /// Evicted, and on its way back under a new incarnation.
    Rejoining,
    Ended(NodeEnd),
}

impl Process {
    pub(super) fn start(
        cluster: &MemoryCluster,
        slot: usize,
        on_eviction: OnEviction,
        latency: Duration,
    ) -> Self {
        let registry = cluster.registry();
        registry.set_latency(latency);
        let config = NodeConfig {
            node_id: node_id(slot),
            endpoint: "127.0.0.1:4000".parse().unwrap(),
            meta: Stats::default(),
            timing: timing(),
            on_eviction,
        };
        let paused = watch::Sender::new(false);
        let asleep = paused.subscribe();
        let node = Node::spawn_by(registry.clone(), config, StatsRegistry::default(), |life| {
            tokio::spawn(pausable(life, asleep))
        });
        Self {
            slot,
            identity: node.status().borrow().identity.clone(),
            node,
            registry,
            paused,
            mend_link_at: None,
            wake_at: None,
            touched: false,
            mended: Instant::now(),
            robbed: false,
            contested: false,
            joined: None,
            healthy_since: None,
        }
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// When this incarnation was first seen to have joined.
    pub(super) fn joined(&self) -> Option<Instant> {
        self.joined
    }

    /// Since when nothing has been wrong with it or with the registry.
    pub(super) fn healthy_since(&self) -> Option<Instant> {
        self.healthy_since
    }

    /// Until its next renewal nothing shows that it lives: whoever wants its node id may take it.
    pub(super) fn lose_session(&mut self) {
        self.registry.lose_session();
        self.touched = true;
        self.mended = Instant::now();
    }

    pub(super) fn break_link(&mut self, link: Link, mend_at: Instant) {
        self.registry.set_link(link);
        self.mend_link_at = self.mend_link_at.max(Some(mend_at));
        self.touched = true;
    }

    /// As SIGSTOP: what was sent is carried out, but nothing is noticed until it goes on.
    pub(super) fn pause(&mut self, wake_at: Instant) {
        self.paused.send_replace(true);
        self.wake_at = self.wake_at.max(Some(wake_at));
        self.touched = true;
    }

    /// Undoes what was done to it, if it has lasted long enough.
    pub(super) fn mend(&mut self, everything: bool) {
        let now = Instant::now();
        let due = |at: &mut Option<Instant>| at.take_if(|at| everything || *at <= now).is_some();
        if due(&mut self.mend_link_at) {
            self.registry.set_link(Link::Up);
            self.mended = now;
        }
        if due(&mut self.wake_at) {
            self.paused.send_replace(false);
            self.mended = now;
        }
    }

    /// Whether this very process has been given a reason.
    pub(super) fn may_be_evicted(&self) -> bool {
        self.touched || self.robbed || self.contested && self.healthy_since.is_none()
    }

    /// Checks what must hold now. `calm`: since when the registry has answered, if it does.
    pub(super) fn look(&mut self, cluster: &MemoryCluster, calm: Option<Instant>) -> Found {
        if let Some(end) = self.node.ended().now_or_never() {
            return Found::Ended(end);
        }
        let status = self.node.status().borrow().clone();
        if status.identity != self.identity {
            let found = if self.may_be_evicted() {
                Found::Rejoining
            } else {
                Found::Ended(NodeEnd::Evicted(self.identity.clone()))
            };
            self.identity = status.identity;
            (self.robbed, self.joined, self.healthy_since) = (false, None, None);
            return found;
        }
        if status.lease.is_some() && self.joined.is_none() {
            self.joined = Some(Instant::now());
        }
        let own = cluster.holder(&self.identity.node_id).filter(|(holder, _)| *holder == self.identity);
        self.check(&status, own.as_ref().map(|(_, age)| *age));
        self.judge_health(&status, own.map(|(_, age)| age), calm);
        Found::Running
    }

    /// Nobody acts who may be swept.
    fn check(&self, status: &NodeStatus, age: Option<Duration>) {
        let active = status.is_active();
        let Some(age) = age else {
            assert!(
                !active || self.may_be_evicted(),
                "{} is active without a row: {status:?}",
                self.identity
            );
            return;
        };
        assert!(!active || age <= timing().stale_threshold(), "{} is active, aged {age:?}", self.identity);
        if let Some(believed) = status.heartbeat_age() {
            assert!(believed >= age, "{} believes its heartbeat {believed:?} old: {age:?}", self.identity);
        }
    }

    fn judge_health(&mut self, status: &NodeStatus, age: Option<Duration>, calm: Option<Instant>) {
        let Some(age) = age else { return self.healthy_since = None };
        self.robbed = false;
        let active =
            status.lease == Some(LeaseState::Active) && self.mend_link_at.is_none() && self.wake_at.is_none();
        if active && age < self.mended.elapsed() {
            self.touched = false;
        }
        let calm = calm.map(|calm| calm.max(self.mended));
        // Confirmed to the node, by a renewal that was sent when all was well again.
        let confirmed = |calm: Instant| status.heartbeat_age().is_some_and(|sent| sent < calm.elapsed());
        if active && !self.touched && calm.is_some_and(confirmed) {
            self.healthy_since.get_or_insert_with(Instant::now);
        } else {
            self.healthy_since = None;
        }
    }
}
