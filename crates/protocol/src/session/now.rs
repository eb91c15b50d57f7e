//! The two clocks, as an argument.

use std::time::Instant;

use time::OffsetDateTime;

/// One moment by both clocks: timers run by the one that never jumps, tokens expire by the one that they were written by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// By the monotonic clock.
    pub instant: Instant,
    /// By the wall clock.
    pub wall: OffsetDateTime,
}

/// The moment at which something is over, by whichever clock gets there first: a wall clock that is set back must not prolong a token,
/// and a process that slept must not overlook that it is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    instant: Option<Instant>,
    wall: OffsetDateTime,
}

impl Deadline {
    pub(super) fn new(wall: OffsetDateTime, now: Now) -> Self {
        let left = (wall - now.wall).try_into().unwrap_or_default();
        Self { instant: now.instant.checked_add(left), wall }
    }

    pub(super) fn has_passed(&self, now: Now) -> bool {
        now.wall >= self.wall || self.instant.is_some_and(|instant| now.instant >= instant)
    }

    /// When to look. `None`: not in a lifetime.
    pub(super) fn instant(&self) -> Option<Instant> {
        self.instant
    }
}
