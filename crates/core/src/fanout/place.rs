//! What a position means against a log: whether what follows it follows without a gap. Pure; shared by the logs.

use crate::types::{Epoch, Position};

/// What one snapshot shows of a channel's log.
pub struct LogEnds {
    /// The last position that was written; its `seq` is 0 if none was.
    pub head: Position,
    /// The first event that remains after the `seq` that is asked about.
    pub next: Option<Position>,
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
        /// The first event that remains after it, or that will be written next.
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
    let next = log.next.unwrap_or_else(|| log.head.next());
    let follows = next.seq == after.seq + 1;
    let proof =
        if at_head { Some(log.head.epoch) } else { log.anchor.or_else(|| follows.then_some(next.epoch)) };
    // Before the first event a position is the same in every history.
    if after.seq > 0 && proof.is_some_and(|epoch| epoch != after.epoch) {
        return Place::Foreign;
    }
    if at_head || follows { Place::Inside } else { Place::Pruned { oldest: next } }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Epoch = Epoch::from_bits(1);
    const NEW: Epoch = Epoch::from_bits(2);

    fn ends(head: Position, next: Option<Position>, anchor: Option<Epoch>) -> LogEnds {
        LogEnds { head, next, anchor }
    }

    #[test]
    fn a_position_in_the_log_is_inside_and_before_the_first_event_is_so_in_every_epoch() {
        let head = Position::new(OLD, 9);
        let first = Some(Position::new(OLD, 1));
        assert_eq!(
            place(Position::new(OLD, 5), &ends(head, Some(Position::new(OLD, 6)), Some(OLD))),
            Place::Inside
        );
        assert_eq!(place(head, &ends(head, None, Some(OLD))), Place::Inside);
        assert_eq!(place(Position::new(NEW, 0), &ends(head, first, None)), Place::Inside);
        assert_eq!(place(Position::new(OLD, 0), &ends(Position::new(NEW, 0), None, None)), Place::Inside);
    }

    #[test]
    fn pruned_history_names_the_oldest_that_remains_or_comes_next() {
        let sixth = Position::new(OLD, 6);
        let log = ends(Position::new(OLD, 9), Some(sixth), None);
        assert_eq!(place(Position::new(OLD, 3), &log), Place::Pruned { oldest: sixth });
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
    fn a_hole_in_the_middle_of_the_log_is_pruned_history_too() {
        let ninth = Position::new(OLD, 9);
        let log = ends(ninth, Some(Position::new(OLD, 7)), Some(OLD));
        assert_eq!(place(Position::new(OLD, 4), &log), Place::Pruned { oldest: Position::new(OLD, 7) });
        let tail = ends(ninth, None, Some(OLD));
        assert_eq!(place(Position::new(OLD, 4), &tail), Place::Pruned { oldest: Position::new(OLD, 10) });
    }

    #[test]
    fn a_pair_that_is_not_in_the_log_is_foreign_even_if_its_number_is() {
        let log = ends(Position::new(NEW, 9), Some(Position::new(NEW, 9)), Some(NEW));
        assert_eq!(place(Position::new(OLD, 8), &log), Place::Foreign);
        assert_eq!(place(Position::new(OLD, 9), &log), Place::Foreign);
        assert_eq!(place(Position::new(NEW, 10), &log), Place::Foreign);
    }
}
