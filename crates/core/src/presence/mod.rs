//! Who is there: the same set on every node, over any [`EphemeralBus`].
//!
//! [`Presence`] is the handle an application holds. Whoever is there is tracked by the node that it is connected to, in a channel, under a
//! key (usually a user), with a meta (a JSON object):
//!
//! ```
//! # use std::sync::Arc;
//! # use futures::StreamExt;
//! # use switchboard_core::node::{Node, NodeConfig, OnEviction};
//! # use switchboard_core::presence::{Presence, PresenceConfig, PresenceItem};
//! # use switchboard_core::stats::StatsRegistry;
//! # use switchboard_core::timing::Timing;
//! # use switchboard_core::types::{Channel, NodeId, Payload, PresenceKey, Stats};
//! # use switchboard_memory::MemoryCluster;
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! # let (cluster, stats) = (MemoryCluster::new(), StatsRegistry::default());
//! # let config = NodeConfig {
//! #     node_id: NodeId::parse("n1")?,
//! #     endpoint: "127.0.0.1:4000".parse()?,
//! #     meta: Stats::default(),
//! #     timing: Timing::default(),
//! #     on_eviction: OnEviction::Stop,
//! # };
//! # let node = Node::spawn(cluster.registry(), config, stats.clone());
//! let presence = Presence::spawn(cluster.ephemeral(), &node, PresenceConfig::default(), &stats);
//!
//! let (room, alice) = (Channel::parse("room:1")?, PresenceKey::parse("alice")?);
//! let mut seen = presence.subscribe(&room);
//! assert_eq!(seen.next().await, Some(PresenceItem::State(Arc::default())));
//!
//! let mut tracked = presence.track(&room, &alice, &Payload::parse(r#"{"status":"here"}"#)?)?;
//! let Some(PresenceItem::Diff(diff)) = seen.next().await else { panic!("nothing was told") };
//! assert!(diff.joins.contains_key(&alice));
//!
//! tracked.update(&Payload::parse(r#"{"status":"away"}"#)?)?;
//! assert_eq!(presence.list(&room)[&alice][0].payload.as_str(), r#"{"status":"away"}"#);
//! tracked.untrack();
//! assert!(presence.list(&room).is_empty());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # What is promised
//!
//! - What a node tracks is shown on all nodes that hear it; one key on several nodes is one key with several metas.
//! - Whatever was lost on the way, all nodes show the same again within 3 s (the digest interval) and an answer, once they hear each other.
//! - A change is told within 50 ms and the time of the bus; what changes meanwhile is told together. An update is one diff.
//! - Whoever untracks is gone at once. Whoever is cut off ([`Tracked`] was dropped, the node has left or was replaced by its
//!   successor) is shown for [`PresenceConfig::grace`] longer, and is never absent if it is tracked again meanwhile, on whatever node.
//! - Users of a dead node are gone when the registry sweeps it: by the stale threshold and one heartbeat. Presence itself convicts nobody,
//!   since a bus that is down makes everybody silent. Where the bus [suspects](EphemeralBus::suspects) a node, its entries are marked until then.
//! - A node that was evicted and joins again brings its users along, under the same refs.
//!
//! # What it costs
//!
//! Every node holds all entries of the cluster. One that has ever tracked anything sends one small event per 3 s; one that joins asks all, and is
//! sent everything once. Others say nothing.

mod driver;
mod entry;
mod ledger;
mod peer;
mod replica;
mod rooms;
mod subscription;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::node::Node;
use crate::ports::EphemeralBus;
use crate::stats::StatsRegistry;
use crate::types::{Channel, Payload, PresenceKey};
use driver::{Driver, Shared};
pub use entry::{
    PresenceDiff, PresenceError, PresenceItem, PresenceLimits, PresenceMeta, PresenceRef, Presences,
};
pub use subscription::PresenceStream;

/// How presence behaves. The same on every node, except while it is being changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresenceConfig {
    /// How long somebody who was cut off is still shown. Long enough for the first attempt of usual clients to connect again, which
    /// `@supabase/realtime-js` makes after one second.
    pub grace: Duration,
    /// What may be tracked.
    pub limits: PresenceLimits,
}

impl Default for PresenceConfig {
    /// 2 s of grace.
    fn default() -> Self {
        Self { grace: Duration::from_secs(2), limits: PresenceLimits::default() }
    }
}

/// Presence on one node. Dropping it stops it without a farewell; peers then keep its entries until they sweep the node.
pub struct Presence {
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Presence {
    /// Starts to exchange presence with the members that `node` sees, over `bus`. One for each node.
    ///
    /// Adds `presence_entries`, `presence_own_entries`, `presence_suspect_entries`, `presence_diffs_total`, `presence_syncs_total`,
    /// `presence_answers_total` and `presence_garbage_total` to `stats`. Must be called within a Tokio runtime.
    pub fn spawn(
        bus: Arc<dyn EphemeralBus>,
        node: &Node,
        config: PresenceConfig,
        stats: &StatsRegistry,
    ) -> Self {
        let membership = node.membership();
        let shared = Shared::new(membership.borrow().me().clone(), config, bus.suspects(), stats);
        let stop = CancellationToken::new();
        let driver = Driver::new(bus, membership, Arc::clone(&shared), stop.clone());
        Self { shared, stop, task: Mutex::new(Some(tokio::spawn(driver.run()))) }
    }

    /// Shows `key` in `channel`, with `meta`, which must be a JSON object, until the guard is dropped or told otherwise. A key may be
    /// tracked any number of times.
    ///
    /// Answers at once; [`list`](Self::list) shows it from now on, subscribers and peers are told in a moment.
    pub fn track(
        &self,
        channel: &Channel,
        key: &PresenceKey,
        meta: &Payload,
    ) -> Result<Tracked, PresenceError> {
        let reference = self.shared.change(|replica, _| replica.track(channel, key, meta.clone()))??;
        Ok(Tracked { shared: Arc::clone(&self.shared), reference })
    }

    /// Returns when this node knows whom its peers tracked when it joined, at the latest half a second after it has joined. Whoever shows
    /// presence before makes those who come from another node believe that everybody has left.
    pub async fn settled(&self) {
        self.shared.settled().await;
    }

    /// Who is there now, as far as this node knows.
    pub fn list(&self, channel: &Channel) -> Presences {
        self.shared.list(channel)
    }

    /// Those of [`list`](Self::list) whose node is [suspect](EphemeralBus::suspects): they are there until the registry sweeps it, and may be
    /// gone already.
    pub fn list_suspect(&self, channel: &Channel) -> Presences {
        self.shared.list_suspect(channel)
    }

    /// Who is there, and every change from then on, without a seam. A subscriber that is too slow for the diffs gets a new state instead.
    /// Ends when presence is stopped.
    pub fn subscribe(&self, channel: &Channel) -> PresenceStream {
        PresenceStream::new(Arc::clone(&self.shared), channel)
    }

    /// Says good-bye, so that peers need not wait for the sweep, and stops. To be called before the node leaves. Idempotent.
    pub async fn stop(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            // It panicked or was aborted: then it has stopped as well.
            let _ = task.await;
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        self.shared.close();
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presence").field("stopped", &self.shared.has_stopped()).finish_non_exhaustive()
    }
}

/// Something that is tracked. Dropping it means that its user was cut off: it is shown for the grace longer.
#[must_use = "it is cut off when dropped"]
pub struct Tracked {
    shared: Arc<Shared>,
    reference: PresenceRef,
}

impl Tracked {
    /// Its ref now; an update gives it another one.
    pub fn reference(&self) -> PresenceRef {
        self.reference
    }

    /// Shows another meta from now on. If it is refused, the one before stays.
    pub fn update(&mut self, meta: &Payload) -> Result<(), PresenceError> {
        let reference = self.reference;
        self.reference = self.shared.change(|replica, _| replica.update(reference, meta.clone()))??;
        Ok(())
    }

    /// Shows it no more, at once: its user has said so.
    pub fn untrack(self) {
        // If presence has stopped, peers have been told already. What is dropped afterwards is no longer there.
        let _ = self.shared.change(|replica, _| replica.untrack(self.reference));
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        let _ = self.shared.change(|replica, now| replica.cut(self.reference, now));
    }
}

impl fmt::Debug for Tracked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracked").field("reference", &self.reference).finish_non_exhaustive()
    }
}
