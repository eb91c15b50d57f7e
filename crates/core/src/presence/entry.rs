//! What is tracked, how it is named, and what subscribers are told.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::{Channel, Invalid, Payload, PresenceKey};

/// Names one tracked meta, once and for all: an update has another one. What Phoenix calls `phx_ref`.
///
/// It consists of a random number of the [`Presence`](super::Presence) that tracks and a count. It is not the node's incarnation, so that
/// whoever is present stays the same when a node was evicted and has joined again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PresenceRef {
    pub(super) origin: u64,
    pub(super) number: u64,
}

impl PresenceRef {
    /// Reads what [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let number = |digits: &str, radix| {
            let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
            u64::from_str_radix(digits, radix).ok().filter(|_| plain)
        };
        text.split_once('-')
            .and_then(|(origin, count)| {
                Some(Self { origin: number(origin, 16)?, number: number(count, 10)? })
            })
            .ok_or_else(|| {
                Invalid::new("presence ref", text, "must be a hexadecimal number, a hyphen and a number")
            })
    }
}

impl fmt::Display for PresenceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.origin, self.number)
    }
}

impl TryFrom<String> for PresenceRef {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        Self::parse(&text)
    }
}

impl From<PresenceRef> for String {
    fn from(reference: PresenceRef) -> Self {
        reference.to_string()
    }
}

/// One thing that is tracked: usually one socket of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceMeta {
    /// Its name.
    pub reference: PresenceRef,
    /// The ref that it replaced, if it is an update. What Phoenix calls `phx_ref_prev`.
    pub previous: Option<PresenceRef>,
    /// What is told of it: a JSON object.
    pub payload: Payload,
}

/// Who is there: never a key without metas; metas in the order of their refs.
pub type Presences = BTreeMap<PresenceKey, Vec<PresenceMeta>>;

/// What a subscription yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresenceItem {
    /// Who is there now. Comes first, and again whenever the subscriber was too slow for diffs: forget what you knew.
    State(Arc<Presences>),
    /// What changed since the item before.
    Diff(Arc<PresenceDiff>),
}

/// A change of who is present in a channel.
///
/// Take in joins before leaves: an update, and a move from one node to another, is a join and a leave under the same key, and who does it in
/// this order never sees the key absent. A ref that has joined and left never joins again, unless its node was out of sight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresenceDiff {
    /// Where.
    pub channel: Channel,
    /// What is there now and was not.
    pub joins: Presences,
    /// What was there and is no more.
    pub leaves: Presences,
    /// Counts what has been shown on this node, so that a state and a diff can be told apart in time.
    pub(super) serial: u64,
}

/// What one node accepts to be tracked. Bounds in memory and on the wire; only local calls are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresenceLimits {
    /// Most metas in one channel, over all nodes as far as this one sees. Nodes that track at the same moment may pass it together.
    pub metas_per_channel: usize,
    /// Largest payload of a meta, in bytes; never more than [`Self::MAX_META_BYTES`].
    pub meta_bytes: usize,
}

impl PresenceLimits {
    /// Largest payload of a meta that can be allowed: it must fit into one ephemeral event together with its names.
    pub const MAX_META_BYTES: usize = 32 * 1024;
}

impl Default for PresenceLimits {
    /// 20,000 metas in a channel, 4 KiB each.
    fn default() -> Self {
        Self { metas_per_channel: 20_000, meta_bytes: 4 * 1024 }
    }
}

/// Why something is not tracked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PresenceError {
    /// The meta breaks a limit. Do not retry.
    #[error(transparent)]
    Rejected(#[from] Invalid),
    /// The channel holds as many metas as it may. Retry when somebody has left.
    #[error("channel {channel} is full: at most {limit} presences")]
    Full {
        /// Which.
        channel: Channel,
        /// The limit.
        limit: usize,
    },
    /// [`Presence`](super::Presence) was stopped. Do not retry.
    #[error("presence has stopped on this node")]
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refs_survive_their_text_form() {
        let reference = PresenceRef { origin: 7, number: u64::MAX };
        assert_eq!(PresenceRef::parse(&reference.to_string()), Ok(reference));
        for bad in ["", "-", "7", "7-", "-7", "+7-7", "7-+7", "7-7-7", "g-7", "7-a", "11111111111111111-1"] {
            assert!(PresenceRef::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
