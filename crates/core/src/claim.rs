//! Decides whether a node id may be taken from whoever has its row. Pure; shared by the registries.
//!
//! Evidence of life is a session that holds the advisory lock of the holder's incarnation: every process takes it before it writes
//! its row, and again with each renewal. A heartbeat that moves without it is the last word of a dead process. A lock that was free
//! when we came belongs to nobody; one that became free while we watched may belong to a process that is just reconnecting, and is
//! given patience. Whatever is decided, the row is written only if it is still as it was seen.
//!
//! The lock is the incarnation's, not the node id's: a successor that took the id of a sleeper must be known for alive although
//! the sleeper's session goes on, and must not lose the id to the sleeper when that wakes up, rejoins or is restarted.

use time::OffsetDateTime;

use crate::types::Incarnation;

/// Whoever has the row of a node id.
#[derive(Debug, Clone)]
pub struct Holder {
    /// The process that wrote it.
    pub incarnation: Incarnation,
    /// Where that process is, for people: a row that nobody can read must not keep its id for ever.
    pub endpoint: String,
    /// When it last renewed, by the registry's clock.
    pub heartbeat: OffsetDateTime,
    /// Whether its heartbeat is older than the stale threshold.
    pub stale: bool,
}

/// The advisory lock of the holder, from where we stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// A session has it.
    Held,
    /// Nobody has it, but a session had it when we came.
    Freed,
    /// Nobody has it, and nobody had it when we came.
    Free,
}

impl Lock {
    /// What a look shows that finds it `free` or not; `before`: what the last look showed, whoever had the row then. A successor whose
    /// lock is free after its predecessor's was held is given patience, too.
    pub fn seen(free: bool, before: Option<Self>) -> Self {
        match (free, before) {
            (false, _) => Self::Held,
            (true, None | Some(Self::Free)) => Self::Free,
            (true, Some(Self::Held | Self::Freed)) => Self::Freed,
        }
    }
}

/// What to do about a node id.
#[derive(Debug, PartialEq, Eq)]
pub enum Claim {
    /// The row is ours to write, if it still is as it was seen.
    Take,
    /// Look again in a moment.
    Wait,
    /// A live process at this endpoint has it.
    Taken(String),
}

/// `first_seen` is what the first look showed, `waited` whether patience has run out.
pub fn judge(
    me: Incarnation,
    holder: Option<&Holder>,
    first_seen: Option<&Holder>,
    lock: Lock,
    waited: bool,
) -> Claim {
    // Of two that see no row, one writes it: the other looks again.
    let Some(holder) = holder else { return Claim::Take };
    if holder.incarnation == me || holder.stale {
        return Claim::Take;
    }
    let moved =
        |first: &Holder| first.incarnation != holder.incarnation || first.heartbeat != holder.heartbeat;
    match lock {
        Lock::Free => Claim::Take,
        Lock::Freed if waited => Claim::Take,
        Lock::Held if waited || first_seen.is_some_and(moved) => Claim::Taken(holder.endpoint.clone()),
        Lock::Freed | Lock::Held => Claim::Wait,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ME: Incarnation = Incarnation::from_bits(1);
    const OTHER: Incarnation = Incarnation::from_bits(2);

    fn holder(incarnation: Incarnation, beats: u64, stale: bool) -> Holder {
        let heartbeat = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(beats);
        Holder { incarnation, endpoint: "127.0.0.1:1".to_owned(), heartbeat, stale }
    }

    #[test]
    fn a_dead_holder_is_replaced_at_once() {
        let dead = holder(OTHER, 1, false);
        assert_eq!(judge(ME, Some(&dead), None, Lock::Free, false), Claim::Take);
        assert_eq!(judge(ME, None, None, Lock::Free, false), Claim::Take);
    }

    #[test]
    fn a_live_holder_is_left_alone() {
        let (first, later) = (holder(OTHER, 1, false), holder(OTHER, 2, false));
        assert_eq!(judge(ME, Some(&first), None, Lock::Held, false), Claim::Wait);
        assert_eq!(judge(ME, Some(&first), Some(&first), Lock::Held, false), Claim::Wait);
        for (seen, waited) in [(&later, false), (&first, true)] {
            assert!(matches!(judge(ME, Some(seen), Some(&first), Lock::Held, waited), Claim::Taken(_)));
        }
    }

    #[test]
    fn the_last_word_of_a_dead_holder_is_no_sign_of_life() {
        let (first, later) = (holder(OTHER, 1, false), holder(OTHER, 2, false));
        assert_eq!(judge(ME, Some(&later), Some(&first), Lock::Free, false), Claim::Take);
    }

    #[test]
    fn a_holder_that_neither_locks_nor_beats_is_replaced_after_patience() {
        let silent = holder(OTHER, 1, false);
        assert_eq!(judge(ME, Some(&silent), Some(&silent), Lock::Freed, true), Claim::Take);
    }

    #[test]
    fn a_stale_holder_is_replaced_whatever_it_still_holds() {
        let stale = holder(OTHER, 1, true);
        assert_eq!(judge(ME, Some(&stale), Some(&stale), Lock::Held, false), Claim::Take);
    }

    #[test]
    fn our_own_row_and_no_row_are_ours() {
        assert_eq!(judge(ME, Some(&holder(ME, 1, false)), None, Lock::Held, false), Claim::Take);
        assert_eq!(judge(ME, None, None, Lock::Free, false), Claim::Take);
    }
}
