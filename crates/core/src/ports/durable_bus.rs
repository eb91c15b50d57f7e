//! The port for events that must not be lost: stored, ordered, replayable.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;

use super::Cause;
use crate::types::{Channel, DurableEvent, EventName, IdempotencyKey, Invalid, Payload, Position};

/// Messages and state changes: every subscriber hears every one of them, once and in order.
///
/// The promise: every event committed after a subscription's start is yielded exactly once and in `seq` order,
/// through lost connections, restarts and failovers of the store. If that cannot be done because history was pruned or
/// replaced, the stream says so. Never silence.
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait DurableBus: Send + Sync {
    /// Stores one event and answers its position once it is committed.
    ///
    /// [`DurableError::Rejected`]: the event breaks a limit; nothing was stored; do not retry.
    /// [`DurableError::Unavailable`]: it may or may not have been stored (the answer may have been lost); a retry may
    /// store it twice, unless nothing was sent, which the caller cannot know: [`publish_once`](Self::publish_once) can.
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<Position, DurableError>;

    /// As [`publish`](Self::publish), and safe to retry: if the channel holds an event of this key, nothing is stored and its
    /// position is the answer, whatever the new event says. Keys are forgotten with their events.
    async fn publish_once(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        key: &IdempotencyKey,
    ) -> Result<Position, DurableError>;

    /// The last position of a channel; its `seq` is 0 if nothing was ever written to it.
    ///
    /// Joins state that lives elsewhere to the stream: read the head, then the state, and subscribe after the head. What
    /// changes in between is yielded. Changes nothing; safe to retry.
    async fn head(&self, channel: &Channel) -> Result<Position, DurableError>;

    /// Starts listening to a channel.
    ///
    /// When this returns, the start is fixed: whatever is committed later will be yielded. The stream keeps going
    /// through outages (it waits) and ends only with the bus. A subscriber that falls behind is served from
    /// the store, so it costs bounded memory and slows nobody.
    ///
    /// [`DurableError::Unavailable`]: the start could not be fixed; safe to retry.
    async fn subscribe(&self, channel: &Channel, from: StartFrom) -> Result<DurableStream, DurableError>;

    /// Up to `limit` stored events of a channel that stand after `after` (from the oldest that remains if `None`), in
    /// order. Changes nothing; safe to retry. Adapters may return fewer than `limit` (at least one if there is one);
    /// an empty page means the end was reached.
    async fn history(
        &self,
        channel: &Channel,
        after: Option<Position>,
        limit: usize,
    ) -> Result<History, DurableError>;
}

/// Where a subscription starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    /// With the first event that commits after `subscribe` returned (earlier ones may not be yielded).
    Now,
    /// With the event after this position: history first, then live, without a seam.
    After(Position),
    /// With the oldest event that remains.
    Oldest,
}

/// See [`DurableBus::subscribe`].
pub type DurableStream = BoxStream<'static, DurableItem>;

/// What a durable subscription yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DurableItem {
    /// The next event.
    Event(Arc<DurableEvent>),
    /// Events between the last position and `oldest` were pruned. The stream goes on with `oldest`, the first event
    /// that remains (or will be written next, if none does). Reload state if the missed events matter.
    Pruned {
        /// Position the stream continues with.
        oldest: Position,
    },
    /// The last position is not part of this history: the store failed over and lost its tail, or was restored.
    /// The stream goes on after `head`. Reload state: what was seen may not have happened.
    Reset {
        /// Position the stream continues after.
        head: Position,
    },
}

/// A page of history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum History {
    /// Events without a gap from the position asked for.
    Page(Vec<Arc<DurableEvent>>),
    /// The events that follow the position asked for were pruned; `oldest` is the first that remains (or will be written
    /// next, if none does).
    Pruned {
        /// Ask again after the position before this one.
        oldest: Position,
    },
    /// The position asked for is not part of this history.
    Reset {
        /// The last position of the channel; its `seq` is 0 if nothing was ever written.
        head: Position,
    },
}

/// Why a durable operation failed, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// The store cannot be reached or did not answer in time. Retry with back-off; see each method for what that means.
    #[error("the durable bus is unavailable: {0}")]
    Unavailable(#[source] Cause),
    /// The event breaks a limit. Do not retry.
    #[error(transparent)]
    Rejected(#[from] Invalid),
}
