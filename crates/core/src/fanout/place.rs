//! What a position means against a log: whether what follows it follows without a gap. Pure; shared by the logs.

use crate::types::{Epoch, Position};

/// What one snapshot shows of a channel's log.
pub struct LogEnds {
    /// The last position that was written; its `seq` is 0 if none was.
    pub head: Position,
    /// The first event that remains.
    pub oldest: Option<Position>,
    /// Epoch of the event at the very `seq` that is asked about.
    pub anchor: Option<Epoch>,
}

/// Where a position stands against a log.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// What follows it follows without a gap.
    Inside,
    /// Events between it and `oldest` are gone.
    Pruned {
        /// The first event that remains, or that will be written next.
        oldest: Position,
    },
    /// It names an event of a history that is not this one.
    Foreign,
}

/// Where `after` stands. The pair must be in the log, or follow from what is: where pruning took the event itself away, the one
/// after it must be of the same epoch.
pub fn place(after: Position, log: &LogEnds) -> Place {
    if after.seq > log.head.seq {
        return Place::Foreign;
    }
    let at_head = after.seq == log.head.seq;
    let oldest = log.oldest.unwrap_or_else(|| log.head.next());
    let proof = if at_head {
        Some(log.head.epoch)
    } else {
        log.anchor.or_else(|| (oldest.seq == after.seq + 1).then_some(oldest.epoch))
    };
    // Before the first event a position is the same in every history.
    if after.seq > 0 && proof.is_some_and(|epoch| epoch != after.epoch) {
        return Place::Foreign;
    }
    if !at_head && oldest.seq > after.seq + 1 { Place::Pruned { oldest } } else { Place::Inside }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Epoch = Epoch::from_bits(1);
    const NEW: Epoch = Epoch::from_bits(2);

    fn ends(head: Position, oldest: Option<Position>, anchor: Option<Epoch>) -> LogEnds {
        LogEnds { head, oldest, anchor }
    }

    #[test]
    fn a_position_in_the_log_is_inside_and_before_the_first_event_is_so_in_every_epoch() {
        let log = ends(Position::new(OLD, 9), Some(Position::new(OLD, 1)), Some(OLD));
        assert_eq!(place(Position::new(OLD, 5), &log), Place::Inside);
        assert_eq!(place(Position::new(OLD, 9), &log), Place::Inside);
        let log = ends(Position::new(OLD, 9), Some(Position::new(OLD, 1)), None);
        assert_eq!(place(Position::new(NEW, 0), &log), Place::Inside);
        assert_eq!(place(Position::new(OLD, 0), &ends(Position::new(NEW, 0), None, None)), Place::Inside);
    }

    #[test]
    fn pruned_history_names_the_oldest_that_remains_or_comes_next() {
        let log = ends(Position::new(OLD, 9), Some(Position::new(OLD, 6)), None);
        assert_eq!(place(Position::new(OLD, 3), &log), Place::Pruned { oldest: Position::new(OLD, 6) });
        assert_eq!(place(Position::new(OLD, 5), &log), Place::Inside, "nothing is missing between 5 and 6");
        assert_eq!(
            place(Position::new(NEW, 5), &log),
            Place::Foreign,
            "what follows it is of another history"
        );
        let empty = ends(Position::new(OLD, 9), None, None);
        assert_eq!(place(Position::new(OLD, 3), &empty), Place::Pruned { oldest: Position::new(OLD, 10) });
        assert_eq!(place(Position::new(OLD, 0), &empty), Place::Pruned { oldest: Position::new(OLD, 10) });
        assert_eq!(place(Position::new(OLD, 9), &empty), Place::Inside);
    }

    #[test]
    fn a_pair_that_is_not_in_the_log_is_foreign_even_if_its_number_is() {
        let log = ends(Position::new(NEW, 9), Some(Position::new(OLD, 1)), Some(NEW));
        assert_eq!(place(Position::new(OLD, 8), &log), Place::Foreign);
        assert_eq!(place(Position::new(OLD, 9), &log), Place::Foreign);
        assert_eq!(place(Position::new(NEW, 10), &log), Place::Foreign);
    }
}
