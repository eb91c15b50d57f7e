//! The port for events that are not worth storing: typing, presence, cursors.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::watch;

use crate::types::{Channel, EphemeralEvent, EventName, Incarnation, Invalid, Payload};

/// Fast events that are gone when nobody listens.
///
/// The promise: at most once; in order per publisher and channel; never stored; what was dropped is counted. A slow subscriber loses its
/// own oldest events and is told how many; it never slows anybody else.
#[cfg_attr(feature = "mock", mockall::automock)]
#[async_trait]
pub trait EphemeralBus: Send + Sync {
    /// Sends one event to every subscriber on every node, this one included, once each.
    ///
    /// Answers when the event is queued, not when it is delivered. Never waits for the transport: a full queue drops the
    /// oldest event and counts it. [`EphemeralError::Rejected`]: the event breaks a limit; do not retry.
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<(), EphemeralError>;

    /// Starts listening to a channel. Events that local publishers publish after this returned are yielded; those of other
    /// nodes as soon as their next event is on its way. The stream ends only with the bus.
    async fn subscribe(&self, channel: &Channel) -> Result<EphemeralStream, EphemeralError>;

    /// Members that this node heard directly and does not hear any more: perhaps dead, perhaps behind a broken path. A hint that comes
    /// sooner than the registry's word; nobody is evicted by it. Never any on a bus that has no direct way to its peers.
    fn suspects(&self) -> Suspects {
        watch::channel(Arc::default()).1
    }
}

/// See [`EphemeralBus::suspects`]. Its sender may be gone: then it does not change any more.
pub type Suspects = watch::Receiver<Arc<HashSet<Incarnation>>>;

/// See [`EphemeralBus::subscribe`].
pub type EphemeralStream = BoxStream<'static, EphemeralItem>;

/// What an ephemeral subscription yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EphemeralItem {
    /// The next event.
    Event(Arc<EphemeralEvent>),
    /// This subscriber was too slow: so many events were dropped before the next one.
    Lagged(u64),
}

/// Why an ephemeral operation failed.
#[derive(Debug, thiserror::Error)]
pub enum EphemeralError {
    /// The event breaks a limit. Do not retry.
    #[error(transparent)]
    Rejected(#[from] Invalid),
    /// The bus was closed. Do not retry.
    #[error("the ephemeral bus is closed")]
    Closed,
}
