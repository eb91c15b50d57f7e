//! Which links there should be, and what to do about it. Pure: time, views of the cluster and news of connections come in as
//! arguments, [`Action`]s come out.
//!
//! Invariant: both ends of a pair choose the same connection, because they choose by its [`Rank`] and know the same ranks.
//! Whatever was lost before, a pair that can reach each other has exactly one link in the end.

mod backoff;
mod peer;
mod rank;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod stories;
mod table;

use std::time::Duration;

use switchboard_core::types::{Endpoint, Identity};

use crate::key::Fingerprint;
pub(crate) use rank::Rank;
pub(crate) use table::LinkTable;

/// A connection of this process, from the decision to dial, or from the first word of the other side, to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId(pub(crate) u64);

/// A peer that has a mesh, as the registry lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) identity: Identity,
    pub(crate) endpoint: Endpoint,
    pub(crate) key: Fingerprint,
}

/// What happened.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// The registry lists these peers, and no others.
    Members(Vec<Target>),
    /// A peer has dialled and said who it is.
    Offered { link: LinkId, from: Identity, rank: Rank },
    /// The peer has taken the connection that was dialled.
    Answered { link: LinkId },
    /// A dial came to nothing.
    DialFailed { link: LinkId, duplicate: bool },
    /// A link has ended; `left` if the peer said good-bye.
    Closed { link: LinkId, left: bool },
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Dial, and report [`Input::Answered`] or [`Input::DialFailed`], once.
    Dial { link: LinkId, target: Target, rank: Rank },
    /// Stop dialling; nothing more is to be reported of it.
    Abandon { link: LinkId },
    /// The link is the one to use: to be answered if it was offered. Whatever was used before is closed by an action of its own.
    Use { link: LinkId, peer: Identity, era: u64 },
    /// Close this connection; nothing more is to be reported of it.
    Close { link: LinkId, reason: CloseReason },
}

/// Why a connection is closed, as told to the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// This node leaves the cluster.
    Leaving,
    /// There is a better one for this pair.
    Duplicate,
    /// The registry does not list the peer, or lists another process under its name.
    NotAMember,
    /// It said something that no version of this code says.
    Protocol,
    /// The path loses what this node sends.
    Losing,
}

impl CloseReason {
    const ALL: [(Self, u32, &str); 5] = [
        // Not 0: that is what a connection says that was merely dropped.
        (Self::Leaving, 1, "leaving the cluster"),
        (Self::Duplicate, 2, "another connection is in use"),
        (Self::NotAMember, 3, "not a member of the cluster"),
        (Self::Protocol, 4, "broke the protocol"),
        (Self::Losing, 5, "packets are lost and nothing arrives"),
    ];

    /// Code and text, for the wire.
    pub(crate) fn told(self) -> (u32, &'static str) {
        let (_, code, text) =
            Self::ALL.into_iter().find(|(reason, ..)| *reason == self).unwrap_or(Self::ALL[3]);
        (code, text)
    }

    /// Reads a code; a newer version may know more of them.
    pub(crate) fn of(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known, _)| u64::from(*known) == code).map(|(reason, ..)| reason)
    }
}

/// Durations and bounds of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Most dials at once.
    pub(crate) dials: usize,
    /// How long the greater of two node ids waits for the lesser to dial.
    pub(crate) head_start: Duration,
    /// Pause after a first failure; doubles with each further one.
    pub(crate) first_pause: Duration,
    /// Longest pause, before jitter makes it up to half as long.
    pub(crate) longest_pause: Duration,
    /// How long a dial of higher rank keeps others of the pair away: it should be answered by then.
    pub(crate) trust: Duration,
    /// How long to wait for the connection that the peer preferred.
    pub(crate) patience: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            dials: 32,
            head_start: Duration::from_millis(400),
            first_pause: Duration::from_millis(50),
            longest_pause: Duration::from_secs(4),
            trust: Duration::from_millis(500),
            patience: Duration::from_millis(500),
        }
    }
}
