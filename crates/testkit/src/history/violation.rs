//! The ways in which a durable bus can break its promise, told so that one finds the place in the history.

use std::fmt;

use switchboard_core::types::{Channel, Position};

use super::Token;

/// Who saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Witness {
    /// The log, as read from the table when all was over.
    Log,
    /// A subscriber.
    Subscriber(String),
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log => f.write_str("the log"),
            Self::Subscriber(name) => f.write_str(name),
        }
    }
}

/// Something that may not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A committed event is not there, and nobody said that it was pruned.
    #[error("lost: {by} lacks event {token}, number {seq} of {channel}")]
    Lost {
        /// Who lacks it.
        by: Witness,
        /// Where it should be.
        channel: Channel,
        /// Which number it has.
        seq: u64,
        /// The event.
        token: Token,
    },
    /// Somebody ends before the head.
    #[error("stuck: {by} stands at number {at} of {channel}, whose head is {head}")]
    Stuck {
        /// Who got no further.
        by: Witness,
        /// Where.
        channel: Channel,
        /// The last number it got to.
        at: u64,
        /// The last number there is.
        head: u64,
    },
    /// Numbers were skipped, whether or not they came later.
    #[error("gap: {by} has {position} of {channel} right after number {after}")]
    Gap {
        /// Who skipped them.
        by: Witness,
        /// Where.
        channel: Channel,
        /// The number before the gap.
        after: u64,
        /// The position after the gap.
        position: Position,
    },
    /// The same number came again.
    #[error("duplicate: {by} has {position} of {channel} again")]
    Duplicate {
        /// Who got it again.
        by: Witness,
        /// Where.
        channel: Channel,
        /// What came again.
        position: Position,
    },
    /// A number came after a higher one.
    #[error("out of order: {by} has {position} of {channel} after number {after}")]
    OutOfOrder {
        /// Who got it late.
        by: Witness,
        /// Where.
        channel: Channel,
        /// What came late.
        position: Position,
        /// The number before it.
        after: u64,
    },
    /// An event was seen whose operation was rolled back or refused.
    #[error("uncommitted: {by} has event {token} at {position} of {channel}, which was never committed")]
    Uncommitted {
        /// Who saw it.
        by: Witness,
        /// Where.
        channel: Channel,
        /// Where it is said to stand.
        position: Position,
        /// The event.
        token: Token,
    },
    /// An event was seen that nobody published, or not as it was published.
    #[error("made up: {by} has event {token} at {position} of {channel}, which nobody published")]
    MadeUp {
        /// Who saw it.
        by: Witness,
        /// Where.
        channel: Channel,
        /// Where it is said to stand.
        position: Position,
        /// The event.
        token: Token,
    },
    /// An event was seen in a channel to which it was not published.
    #[error("astray: {by} has event {token} at {position} of {channel}, which was published to {to}")]
    Astray {
        /// Who saw it.
        by: Witness,
        /// Where it was seen.
        channel: Channel,
        /// Where it is said to stand.
        position: Position,
        /// The event.
        token: Token,
        /// Where it belongs.
        to: Channel,
    },
    /// One event with two positions: the publisher was told another one, or it was stored twice.
    #[error("misnumbered: {by} has event {token} at {position} of {channel}, and it stands at {other}, too")]
    Misnumbered {
        /// Who saw it.
        by: Witness,
        /// Where.
        channel: Channel,
        /// The event.
        token: Token,
        /// Where it was seen.
        position: Position,
        /// Where its publisher, the log or another subscriber has it.
        other: Position,
    },
    /// One position with two events.
    #[error("disputed: number {seq} of {channel} was given to event {one} and to event {other}")]
    Disputed {
        /// Where.
        channel: Channel,
        /// The number.
        seq: u64,
        /// The event that has it.
        one: Token,
        /// The event that has it, too.
        other: Token,
    },
    /// An operation was told more or fewer positions than it published events.
    #[error("miscounted: operation {operation} published {events} events and was told {positions} positions")]
    Miscounted {
        /// The operation.
        operation: u64,
        /// How many it published.
        events: usize,
        /// How many positions it was told.
        positions: usize,
    },
    /// A subscriber was told that events were pruned which are still there.
    #[error(
        "not pruned: {by} was told to go on with {oldest} of {channel}, and the log begins with number {begins}"
    )]
    NotPruned {
        /// The subscriber.
        by: String,
        /// What it follows.
        channel: Channel,
        /// What it was told.
        oldest: Position,
        /// The oldest number that was there when all was over.
        begins: u64,
    },
    /// A subscriber was told that history was replaced, and it was not.
    #[error("reset: {by} was told to go on after {head} of {channel}, in a history that was never replaced")]
    Reset {
        /// The subscriber.
        by: String,
        /// What it follows.
        channel: Channel,
        /// What it was told.
        head: Position,
    },
}
