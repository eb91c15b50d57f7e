//! The port to the table of nodes: join, stay, look around, leave.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use time::OffsetDateTime;

use super::Cause;
use crate::timing::Timing;
use crate::types::{Endpoint, Identity, NodeId, Stats};

/// Who is in the cluster, by the clock of the registry alone.
///
/// One row per node id. A row is fenced by its incarnation: every write names the incarnation it belongs to and
/// touches nothing if another one holds the row. The registry never compares a node's clock with anything.
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait Registry: Send + Sync {
    /// Enters this node, with a fresh heartbeat and empty stats.
    ///
    /// Idempotent: the same identity may register again. Replaces a dead holder of the node id at once, and a holder
    /// whose heartbeat is older than the stale threshold whatever it does; the replaced process finds itself evicted.
    /// A live holder (see the adapter for how it tells) is left alone: [`RegistryError::NodeIdTaken`].
    /// A row that is replaced keeps its `seq`. Peers are told through [`changes`](Self::changes).
    ///
    /// Safe to retry after [`RegistryError::Unavailable`].
    async fn register(&self, registration: &Registration) -> Result<Registered, RegistryError>;

    /// Proves that this node is alive, sweeps the dead, and looks around, in one step.
    ///
    /// Order within the step: write the heartbeat and stats; if that found the row, and it showed [`Heartbeat::witness`], delete the
    /// rows that [`Heartbeat::sweep`] gives evidence against; read who is left. Never sweeps the caller's own row, skips rows
    /// that somebody else has locked, announces what it swept through [`changes`](Self::changes).
    ///
    /// [`RegistryError::Evicted`] if there is no row with this identity: nothing was written or swept. Do not retry.
    /// Safe to retry after [`RegistryError::Unavailable`], whether or not the lost answer was a success.
    async fn renew(&self, heartbeat: &Heartbeat) -> Result<Renewed, RegistryError>;

    /// Everybody in the registry, ordered by `seq`. Changes nothing; safe to retry.
    ///
    /// Served without delaying renewals, so it may fail while renewals succeed.
    async fn members(&self) -> Result<Vec<Member>, RegistryError>;

    /// Leaves: removes the row with this identity, if it is there, and tells peers. Idempotent, safe to retry.
    async fn deregister(&self, identity: &Identity) -> Result<(), RegistryError>;

    /// A stream that yields whenever membership may have moved: somebody registered, left or was swept, or hints
    /// may have been lost. Lossy and coalesced by contract; the next heartbeat is the truth. Ends with the registry.
    fn changes(&self) -> ChangeHints;
}

/// See [`Registry::changes`].
pub type ChangeHints = BoxStream<'static, ()>;

/// What a node says of itself when it registers.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// Who it is.
    pub identity: Identity,
    /// Where peers reach it.
    pub endpoint: Endpoint,
    /// Static facts: version, HTTP address, key fingerprint, start time. Never changes during an incarnation.
    pub meta: Stats,
    /// Its timing, whose stale threshold decides when another holder of the node id may be replaced, and before when nobody may
    /// take this node for dead: of two nodes' thresholds the longer one counts, so that they need not be changed everywhere at once.
    pub timing: Timing,
}

/// Answer to [`Registry::register`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Place of the node in the order of members.
    pub seq: i64,
    /// The heartbeat that was written: the witness of the first renewal.
    pub heartbeat: OffsetDateTime,
}

/// What [`Registry::renew`] needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Heartbeat {
    /// Who renews.
    pub identity: Identity,
    /// What it tells about itself.
    pub stats: Stats,
    /// Whom it may sweep.
    pub sweep: SweepScope,
    /// The heartbeat that the caller last had confirmed. If the row shows another one, this very call is out of order (it
    /// hung while a later one got through) or an answer was lost: what it knows is old, and it sweeps nobody.
    pub witness: OffsetDateTime,
    /// The durations that `sweep` refers to.
    pub timing: Timing,
}

/// Whom a renewal may sweep.
///
/// A stale row proves a dead peer only if the registry was writable the whole time: after a stall of the registry
/// every row is stale and nobody is dead. The caller's own row is the witness. Before it is overwritten it shows, by
/// the registry's own clock, when the caller last got through. A call that shows up late, after another one of the same caller, has no
/// witness and sweeps nobody: when a frozen server wakes up, statements that were given up long ago are carried out
/// in any order. (Found by the simulation in `tests/main/simulation`.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepScope {
    /// Only ghosts: rows that were older than [`Timing::ghost_threshold`] already when the caller last got through.
    /// Safe even right after a start, or after any outage that is shorter than that.
    Ghosts,
    /// Ghosts, and rows older than the stale threshold, the caller's and their own; the latter only if the caller itself got through within the last
    /// [`Timing::proof_window`]. To be asked for by a node whose renewals have succeeded without a gap for a full
    /// stale threshold.
    Stale,
}

/// Answer to [`Registry::renew`].
#[derive(Debug, Clone, PartialEq)]
pub struct Renewed {
    /// The heartbeat that was written: the witness of the next renewal.
    pub heartbeat: OffsetDateTime,
    /// Everybody who is left, the caller included, ordered by `seq`.
    pub members: Vec<Member>,
    /// Who was removed by this very call.
    pub swept: Vec<Swept>,
    /// How old the caller's own heartbeat was before this call, by the registry's clock. More than
    /// [`Timing::proof_window`] means that renewals had a gap, however the caller saw it.
    pub gap: Duration,
}

/// A node that was removed for its stale heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// Who it was.
    pub identity: Identity,
    /// How old its heartbeat was.
    pub age: Duration,
}

/// A row of the registry.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Who it is.
    pub identity: Identity,
    /// Where to reach it.
    pub endpoint: Endpoint,
    /// Place in the order of members; kept when a node id registers again.
    pub seq: i64,
    /// When this incarnation registered, by the registry's clock.
    pub registered_at: OffsetDateTime,
    /// When it last renewed, by the registry's clock.
    pub heartbeat: OffsetDateTime,
    /// How old `heartbeat` was when the row was read, by the registry's clock. Compare this, not the timestamps.
    pub age: Duration,
    /// What it told with its last heartbeat.
    pub stats: Stats,
    /// What it told when it registered.
    pub meta: Stats,
}

/// Why the registry did not do what was asked, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry cannot be reached, did not answer in time, or is read-only. Retry with back-off.
    #[error("the registry is unavailable: {0}")]
    Unavailable(#[source] Cause),
    /// No row has this identity: it was swept, deleted, or replaced by another incarnation. Stop, or register anew.
    #[error("node {0} is not in the registry: swept, deleted or replaced by another process")]
    Evicted(Identity),
    /// A live process holds the node id. Do not retry with the same id.
    #[error(
        "node id {node_id} is in use by a live process at {endpoint}; give each process its own CLUSTER_NODE_ID \
         (containers often share host name and process id)"
    )]
    NodeIdTaken {
        /// The id asked for.
        node_id: NodeId,
        /// Where its holder says it is.
        endpoint: String,
    },
    /// The registry refuses and will refuse again: missing rights, missing schema, unusable connection. Do not retry.
    #[error("the registry refuses: {0}")]
    Rejected(#[source] Cause),
}
