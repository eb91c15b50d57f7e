//! The life of one node in the cluster: join, renew, follow membership, leave.
//!
//! [`Node`] is the handle an application holds. The decisions are [`Lease`](crate::lease::Lease)'s and
//! [`Membership`]'s; the `driver` connects them to a [`Registry`] and to the clock.

mod driver;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;

use crate::lease::LeaseState;
use crate::membership::{Membership, MembershipChange};
use crate::ports::{Registry, RegistryError};
use crate::stats::StatsRegistry;
use crate::timing::Timing;
use crate::types::{Endpoint, Identity, NodeId, Stats};

/// What a node needs to know to join.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Its name.
    pub node_id: NodeId,
    /// Where peers reach it.
    pub endpoint: Endpoint,
    /// Static facts for peers and dashboards.
    pub meta: Stats,
    /// Heartbeat interval and stale threshold.
    pub timing: Timing,
    /// What to do when the registry says that the node is gone.
    pub on_eviction: OnEviction,
}

/// What a node does when it was evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnEviction {
    /// End; the supervisor restarts the process, which joins afresh. The seed's choice: no state survives that
    /// could be wrong.
    #[default]
    Stop,
    /// Join again under a new incarnation, in the same process.
    Rejoin,
}

/// Where a node stands.
#[derive(Debug, Clone)]
pub struct NodeStatus {
    /// Who it is; the incarnation changes when it rejoins.
    pub identity: Identity,
    /// What its lease allows; `None` until it has joined.
    pub lease: Option<LeaseState>,
    /// Until when the lease holds if nothing more is heard.
    valid_until: Option<Instant>,
    /// When the last successful registration or renewal was sent.
    last_renewal: Option<Instant>,
    /// Why the last attempt to join or renew failed, while it is the last word.
    pub last_error: Option<String>,
}

impl NodeStatus {
    /// Whether the node may act right now, by the clock and not only by the last state that was announced.
    pub fn is_active(&self) -> bool {
        self.lease == Some(LeaseState::Active) && self.valid_until.is_some_and(|end| Instant::now() < end)
    }

    /// Age of the last heartbeat that got through, by the monotonic clock.
    pub fn heartbeat_age(&self) -> Option<Duration> {
        self.last_renewal.map(|at| at.elapsed())
    }
}

/// How a node's life ended.
#[derive(Debug, Clone)]
pub enum NodeEnd {
    /// It left when asked to.
    Left,
    /// The registry no longer knew it.
    Evicted(Identity),
    /// It could not join, and trying again would not help.
    Refused(Arc<RegistryError>),
    /// Its task was aborted, or panicked, as it does with a gauge of the application that panics. Nobody renews any more: the row is
    /// swept, and the process should exit as after an eviction.
    Broken,
}

/// A node of the cluster. Dropping it aborts its task without leaving; peers then sweep it.
#[derive(Debug)]
pub struct Node {
    endpoint: Endpoint,
    status: watch::Receiver<NodeStatus>,
    membership: watch::Receiver<Arc<Membership>>,
    end: watch::Receiver<Option<NodeEnd>>,
    news: Arc<Notify>,
    leave: parking_lot::Mutex<Option<oneshot::Sender<Duration>>>,
    task: JoinHandle<()>,
}

impl Node {
    /// Starts joining in the background: retries while the registry is unavailable, ends if it refuses.
    ///
    /// Must be called within a Tokio runtime.
    pub fn spawn(registry: Arc<dyn Registry>, config: NodeConfig, stats: StatsRegistry) -> Self {
        Self::spawn_by(registry, config, stats, tokio::spawn)
    }

    /// As [`spawn`](Self::spawn), but the caller starts the task: on a runtime that a busy application cannot starve, say, or
    /// under a simulation that pauses it.
    pub fn spawn_by(
        registry: Arc<dyn Registry>,
        config: NodeConfig,
        stats: StatsRegistry,
        spawn: impl FnOnce(BoxFuture<'static, ()>) -> JoinHandle<()>,
    ) -> Self {
        let (leave, leave_asked) = oneshot::channel();
        let endpoint = config.endpoint.clone();
        let (driver, handles) = driver::Driver::new(registry, config, stats);
        Self {
            endpoint,
            status: handles.status,
            membership: handles.membership,
            end: handles.end,
            news: handles.news,
            leave: parking_lot::Mutex::new(Some(leave)),
            task: spawn(driver.run(leave_asked).boxed()),
        }
    }

    /// Where it says that peers reach it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Where the node stands, now and as it changes.
    pub fn status(&self) -> watch::Receiver<NodeStatus> {
        self.status.clone()
    }

    /// The view of the cluster, now and as it changes.
    pub fn membership(&self) -> watch::Receiver<Arc<Membership>> {
        self.membership.clone()
    }

    /// Every change of membership from the current view on, in order. A slow reader loses nothing that matters:
    /// changes are derived from the views, so what it missed comes in one step.
    pub fn changes(&self) -> impl Stream<Item = MembershipChange> + Send + use<> {
        let mut seen = self.membership.borrow().clone();
        WatchStream::from_changes(self.membership.clone()).flat_map(move |view| {
            let changes = view.changes_since(&seen);
            seen = view;
            stream::iter(changes)
        })
    }

    /// Waits until the node has joined, or its life has ended before that.
    pub async fn joined(&self) -> Result<(), NodeEnd> {
        let mut status = self.status.clone();
        tokio::select! {
            // An error means that the driver is gone: then the end says why.
            Ok(_) = status.wait_for(|status| status.lease == Some(LeaseState::Active)) => Ok(()),
            end = self.ended() => Err(end),
        }
    }

    /// Waits for the end of the node's life.
    pub async fn ended(&self) -> NodeEnd {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
        // The sender is gone without a word.
        ended.unwrap_or(NodeEnd::Broken)
    }

    /// Sends the next heartbeat at once, for stats that have just changed and that peers should not have to wait for. Does nothing
    /// more for a node that has not joined, or cannot reach its registry.
    pub fn renew_soon(&self) {
        self.news.notify_one();
    }

    /// Leaves the cluster: stops renewing, removes the row, tells peers. Takes at most `patience`; if the registry cannot be
    /// reached within it, peers sweep the row later. Idempotent.
    pub async fn leave(&self, patience: Duration) -> NodeEnd {
        if let Some(leave) = self.leave.lock().take() {
            // If the driver has ended already there is nothing to leave.
            let _ = leave.send(patience);
        }
        self.ended().await
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}
