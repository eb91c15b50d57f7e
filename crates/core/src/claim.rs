//! Decides whether a node id may be taken from whoever has its row. Pure; shared by the registries.
//!
//! Evidence of life is a session that holds the advisory lock, or a heartbeat that moves while we watch. A lock that was free when we
//! came belongs to nobody; one that became free while we watched may belong to a process that is just reconnecting, so its
//! heartbeat is given a chance to move.

use time::OffsetDateTime;

use crate::types::{Endpoint, Incarnation};

/// Whoever has the row of a node id.
#[derive(Debug, Clone)]
pub struct Holder {
    /// The process that wrote it.
    pub incarnation: Incarnation,
    /// Where that process is.
    pub endpoint: Endpoint,
    /// When it last renewed, by the registry's clock.
    pub heartbeat: OffsetDateTime,
    /// Whether its heartbeat is older than the stale threshold.
    pub stale: bool,
}

/// The advisory lock of the node id, from where we stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Another session has it.
    Held,
    /// Ours, but another session had it when we came.
    Freed,
    /// Ours, and nobody had it.
    Free,
}

impl Lock {
    /// What is known after the first attempt to take it.
    pub fn first(ours: bool) -> Self {
        if ours { Self::Free } else { Self::Held }
    }

    /// What is known after a further attempt.
    #[must_use]
    pub fn again(self, ours: bool) -> Self {
        match (self, ours) {
            (Self::Free, _) => Self::Free,
            (_, true) => Self::Freed,
            (_, false) => Self::Held,
        }
    }
}

/// What to do about a node id.
#[derive(Debug, PartialEq, Eq)]
pub enum Claim {
    /// The row is ours to write.
    Take,
    /// Look again in a moment.
    Wait,
    /// A live process at this endpoint has it.
    Taken(Endpoint),
}

/// `first_seen` is what the first look showed, `waited` whether patience has run out.
pub fn judge(
    me: Incarnation,
    holder: Option<&Holder>,
    first_seen: Option<&Holder>,
    lock: Lock,
    waited: bool,
) -> Claim {
    let Some(holder) = holder else {
        return match lock {
            Lock::Free | Lock::Freed => Claim::Take,
            // Whoever has the lock was about to register, and would have by now. It sleeps, and its row was swept.
            Lock::Held if waited => Claim::Take,
            Lock::Held => Claim::Wait,
        };
    };
    if holder.incarnation == me || holder.stale {
        return Claim::Take;
    }
    let moved =
        |first: &Holder| first.incarnation != holder.incarnation || first.heartbeat != holder.heartbeat;
    if first_seen.is_some_and(moved) {
        return Claim::Taken(holder.endpoint.clone());
    }
    match lock {
        Lock::Free => Claim::Take,
        Lock::Freed if waited => Claim::Take,
        Lock::Held if waited => Claim::Taken(holder.endpoint.clone()),
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
        Holder { incarnation, endpoint: "127.0.0.1:1".parse().unwrap(), heartbeat, stale }
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
        for lock in [Lock::Held, Lock::Freed] {
            assert_eq!(judge(ME, Some(&first), Some(&first), lock, false), Claim::Wait);
            let taken = judge(ME, Some(&later), Some(&first), lock, false);
            assert!(matches!(taken, Claim::Taken(_)), "{lock:?}: its heartbeat moved");
        }
        assert!(matches!(judge(ME, Some(&first), Some(&first), Lock::Held, true), Claim::Taken(_)));
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
    fn our_own_row_is_ours_and_a_lock_without_a_row_is_waited_for_but_not_for_ever() {
        assert_eq!(judge(ME, Some(&holder(ME, 1, false)), None, Lock::Held, false), Claim::Take);
        assert_eq!(judge(ME, None, None, Lock::Held, false), Claim::Wait);
        assert_eq!(judge(ME, None, None, Lock::Held, true), Claim::Take);
        assert_eq!(judge(ME, None, None, Lock::Freed, false), Claim::Take);
    }
}
