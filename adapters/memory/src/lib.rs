//! All three ports in one process.
//!
//! The reference the conformance suites are calibrated on, and what simulations run on: time is Tokio's, so it can be paused, and
//! whatever may go wrong between a node and its registry can be made to go wrong ([`Link`], [`MemoryCluster::stall`], …).
//! A [`MemoryCluster`] stands for the database; each node takes its own [`MemoryRegistry`] from it, which stands for the node's session.

mod clock;
mod durable;
mod ephemeral;
mod link;
mod registry;
mod table;

use std::sync::Arc;
use std::time::Duration;

use switchboard_core::fanout::{DURABLE_MAILBOX, EPHEMERAL_MAILBOX, EphemeralFanout, Fanout};
use switchboard_core::types::{Channel, Identity, NodeId, PayloadLimits};
use tokio::sync::watch;

use clock::Clock;
pub use durable::MemoryDurable;
pub use ephemeral::MemoryEphemeral;
pub use link::Link;
pub use registry::MemoryRegistry;
use table::Table;

/// What a database is to a cluster: the table of nodes, the event log, and the way events travel. Clones share it.
#[derive(Clone)]
pub struct MemoryCluster {
    table: Arc<Table>,
    link: watch::Sender<Link>,
    durable: Arc<MemoryDurable>,
    ephemeral: EphemeralFanout,
    limits: PayloadLimits,
}

impl MemoryCluster {
    /// An empty cluster. Must be called within a Tokio runtime, whose clock is its clock.
    pub fn new() -> Self {
        Self::with_limits(PayloadLimits::default())
    }

    /// An empty cluster with other limits.
    pub fn with_limits(limits: PayloadLimits) -> Self {
        let clock = Clock::start();
        Self {
            table: Arc::new(Table::new(clock)),
            link: watch::Sender::new(Link::Up),
            durable: Arc::new(MemoryDurable::new(Fanout::new(DURABLE_MAILBOX), limits, clock)),
            ephemeral: EphemeralFanout::new(EPHEMERAL_MAILBOX),
            limits,
        }
    }

    /// A new session of one node; dropping it frees the locks it holds, as the death of its process would.
    pub fn registry(&self) -> Arc<MemoryRegistry> {
        Arc::new(MemoryRegistry::new(Arc::clone(&self.table), self.link.subscribe()))
    }

    /// The durable bus.
    pub fn durable(&self) -> Arc<MemoryDurable> {
        Arc::clone(&self.durable)
    }

    /// The ephemeral bus.
    pub fn ephemeral(&self) -> Arc<MemoryEphemeral> {
        Arc::new(MemoryEphemeral::new(self.ephemeral.clone(), self.limits))
    }

    /// Changes the state of everybody's path to the registry, whatever else their own links do.
    pub fn set_link(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// Freezes the registry, as SIGSTOP freezes a server: calls wait, and are carried out when it is thawed, whether
    /// or not their caller still waits.
    pub fn stall(&self, stalled: bool) {
        self.set_link(if stalled { Link::RequestsHeld } else { Link::Up });
    }

    /// What a crash of the server does to an UNLOGGED table: it is empty, its sequence begins again, sessions are gone.
    pub fn crash(&self) {
        self.table.wipe();
    }

    /// Deletes one row, as a person with `psql` would.
    pub fn delete(&self, node_id: &NodeId) {
        self.table.delete(node_id);
    }

    /// Makes every heartbeat older.
    pub fn age(&self, by: Duration) {
        self.table.age(by, |_| true);
    }

    /// Makes the heartbeat of one node older.
    pub fn age_node(&self, node_id: &NodeId, by: Duration) {
        self.table.age(by, |other| other == node_id);
    }

    /// Age of a node's heartbeat, if it has a row.
    pub fn heartbeat_age(&self, node_id: &NodeId) -> Option<Duration> {
        self.table.heartbeat(node_id).map(|(_, age)| age)
    }

    /// Who has the row of a node id, and how old its heartbeat is.
    pub fn holder(&self, node_id: &NodeId) -> Option<(Identity, Duration)> {
        self.table.heartbeat(node_id)
    }

    /// Removes the oldest events of a channel until `keep` remain.
    pub fn prune(&self, channel: &Channel, keep: usize) {
        self.durable.prune(channel, keep);
    }

    /// A failover to a server that never saw the last `lost` events of each channel: a new epoch begins.
    pub fn fail_over(&self, lost: u64) {
        self.durable.fail_over(lost);
    }
}

impl Default for MemoryCluster {
    fn default() -> Self {
        Self::new()
    }
}
