//! The two kinds of event.

use time::OffsetDateTime;

use super::{Channel, EventName, Payload, Position};

/// An event of the durable bus: stored, ordered, replayable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurableEvent {
    /// The channel it was published to.
    pub channel: Channel,
    /// Where it stands in that channel.
    pub position: Position,
    /// What kind of event it is.
    pub event: EventName,
    /// What it says.
    pub payload: Payload,
    /// When it was written, by the store's clock. For people; order is by position alone.
    pub created_at: OffsetDateTime,
}

/// An event of the ephemeral bus: fast, never stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EphemeralEvent {
    /// The channel it was published to.
    pub channel: Channel,
    /// What kind of event it is.
    pub event: EventName,
    /// What it says.
    pub payload: Payload,
}
