//! What a session asks of the I/O layer, and how it is answered.

use std::fmt;

use serde::Deserialize;
use switchboard_core::access::{AuthError, Grant};
use switchboard_core::types::{Channel, EventName, IdempotencyKey, Payload, Position};
use time::OffsetDateTime;

use super::refusal::Refusal;
use crate::codec::Frame;

/// Names one join of one topic for as long as the socket lives. Never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionId(pub(super) u64);

/// Names one request that is answered later. Never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(super) u64);

/// Something to be done, in the order in which it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send this to the client.
    Send(Frame),
    /// Check this token. Answer with [`Answer::Authorized`].
    Authorize {
        /// Comes back with the answer.
        request: RequestId,
        /// What the client sent.
        token: Token,
    },
    /// Begin to deliver what happens in a channel. Answer with [`Session::handle_subscribed`](super::Session::handle_subscribed), then deliver.
    Subscribe(Subscribe),
    /// Stop delivering, or stop beginning to.
    Unsubscribe {
        /// Which.
        subscription: SubscriptionId,
        /// The client left of its own will: what it tracks is gone at once. Otherwise it may come back within a moment, and whatever it
        /// tracked should not flicker.
        left: bool,
    },
    /// Publish to the ephemeral bus. Answer with [`Answer::Published`] as soon as it is queued.
    PublishEphemeral {
        /// Comes back with the answer.
        request: RequestId,
        /// Whose event it is: see `own` of [`Session::handle_event`](super::Session::handle_event).
        subscription: SubscriptionId,
        /// Where to.
        channel: Channel,
        /// What kind.
        event: EventName,
        /// What it says.
        payload: Payload,
    },
    /// Publish to the durable bus. Answer with [`Answer::Published`] when it is committed.
    PublishDurable {
        /// Comes back with the answer.
        request: RequestId,
        /// Whose event it is. The sender receives it like everybody else: its position is how it knows what it has seen.
        subscription: SubscriptionId,
        /// Where to.
        channel: Channel,
        /// What kind.
        event: EventName,
        /// What it says.
        payload: Payload,
        /// Makes a repetition harmless.
        key: Option<IdempotencyKey>,
    },
    /// Show the client among those who are present, or replace what it shows. Answer with [`Answer::Tracked`].
    Track {
        /// Comes back with the answer.
        request: RequestId,
        /// Who tracks: one meta per subscription.
        subscription: SubscriptionId,
        /// Where.
        channel: Channel,
        /// Under which key.
        key: String,
        /// What it shows: a JSON object.
        meta: Payload,
    },
    /// Stop showing it, at once. Is not answered.
    Untrack {
        /// Who tracked.
        subscription: SubscriptionId,
    },
    /// Send a WebSocket ping, and report the pong with [`Session::handle_pong`](super::Session::handle_pong).
    Ping,
    /// Flush what was to be sent, then close. Always the last action; whatever is still subscribed or tracked ends with the socket.
    Close {
        /// The close code: see [`close`](super::close).
        code: u16,
        /// Why, in at most 123 bytes.
        reason: String,
    },
}

/// What [`Action::Subscribe`] asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// Names the subscription in everything that follows.
    pub subscription: SubscriptionId,
    /// Which channel.
    pub channel: Channel,
    /// Where durable events start; ephemeral ones start now.
    pub start: Start,
    /// The client's own ephemeral events come back to it.
    pub echo: bool,
    /// The client wants to know who is present: its state first, then diffs.
    pub presence: bool,
}

/// Where durable events start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the next one.
    Now,
    /// After this position.
    After(Position),
    /// With the oldest that remains.
    Oldest,
    /// With the last `limit` of those that were written at or after `since`.
    Since {
        /// By the store's clock.
        since: OffsetDateTime,
        /// How many at most.
        limit: usize,
    },
}

/// Answer to an [`Action`] with a [`RequestId`].
#[derive(Debug)]
pub enum Answer {
    /// To [`Action::Authorize`].
    Authorized(Result<Grant, AuthError>),
    /// To [`Action::PublishEphemeral`] (no position) and [`Action::PublishDurable`].
    Published(Result<Option<Position>, Refusal>),
    /// To [`Action::Track`].
    Tracked(Result<(), Refusal>),
}

/// What happened to a subscription between two events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Durable events before this position were pruned; it goes on with it.
    Pruned {
        /// See [`DurableItem::Pruned`](switchboard_core::ports::DurableItem::Pruned).
        oldest: Position,
    },
    /// The history that was seen is not the channel's any more; it goes on after this position.
    Reset {
        /// See [`DurableItem::Reset`](switchboard_core::ports::DurableItem::Reset).
        head: Position,
    },
    /// So many ephemeral events were dropped, because the client was too slow.
    Lagged {
        /// How many.
        missed: u64,
    },
}

/// A token as a client sent it. Shows itself to nobody who does not ask.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// The token. Never to be logged.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
