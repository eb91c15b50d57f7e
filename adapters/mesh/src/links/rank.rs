//! Which of two connections of a pair is the better one. Both ends compute the same answer from what the dialler said.
//!
//! A connection is of the generation after the last one that its dialler knew to be established. So whoever has lost a link that the
//! other side still holds comes back with a higher generation and wins: a half-dead connection cannot keep a new one out.
//! Only connections that were dialled at the same time share a generation; then the lesser node id's counts.

use serde::{Deserialize, Serialize};

/// Place of a connection among those of one pair of processes; the greater one is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Rank {
    pub(crate) generation: u64,
    /// Whether the lesser of the two node ids dialled. Known to both, so never taken from the other's word.
    pub(crate) by_lesser: bool,
    /// Counts the attempts of one dialler.
    pub(crate) attempt: u64,
}

impl Rank {
    /// Numbers the connections of a pair that carried anything, in ascending order. A generation has up to two, one from either side; a
    /// dialler's next attempt is of the same only if neither end could use the one before.
    pub(crate) fn era(self) -> u64 {
        self.generation.saturating_mul(2).saturating_add(u64::from(self.by_lesser))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(generation: u64, by_lesser: bool, attempt: u64) -> Rank {
        Rank { generation, by_lesser, attempt }
    }

    #[test]
    fn a_later_generation_wins_then_the_lesser_diallers_then_the_later_attempt() {
        let ascending =
            [rank(1, false, 1), rank(1, false, 2), rank(1, true, 1), rank(1, true, 9), rank(2, false, 1)];
        assert!(ascending.is_sorted());
    }
}
