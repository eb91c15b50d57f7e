//! Puts an event together from its pieces. Pure.
//!
//! Pieces are sent in one transaction, and PostgreSQL delivers the notifications of a transaction together and in order. So at most
//! one event is ever incomplete, and anything that does not continue it replaces it: memory is bounded by one event.

use super::wire::Part;

/// The event that is arriving.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    origin: String,
    number: String,
    next: usize,
    text: String,
}

impl Assembly {
    /// Adds a piece; answers the event's text once it is whole.
    pub(super) fn add(&mut self, origin: &str, number: &str, part: &Part<'_>) -> Option<String> {
        if part.index == 0 {
            *self = Self { origin: origin.to_owned(), number: number.to_owned(), ..Self::default() };
        } else if self.next != part.index || self.origin != origin || self.number != number {
            *self = Self::default();
            return None;
        }
        self.text.push_str(part.text);
        self.next += 1;
        (self.next == part.count).then(|| std::mem::take(self).text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(index: usize, count: usize, text: &str) -> Part<'_> {
        Part { index, count, text }
    }

    #[test]
    fn pieces_in_order_make_a_whole() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.add("a", "1", &part(0, 2, "x")), None);
        assert_eq!(assembly.add("a", "1", &part(1, 2, "y")), Some("xy".to_owned()));
        assert_eq!(assembly.add("a", "2", &part(0, 1, "z")), Some("z".to_owned()));
    }

    #[test]
    fn a_missing_repeated_or_foreign_piece_spoils_only_its_own_event() {
        for spoiler in [
            ("a", "1", part(2, 3, "")),
            ("a", "1", part(0, 3, "")),
            ("b", "1", part(1, 3, "")),
            ("a", "2", part(1, 3, "")),
        ] {
            let mut assembly = Assembly::default();
            assembly.add("a", "1", &part(0, 3, "x"));
            let (origin, number, piece) = spoiler;
            assert_eq!(assembly.add(origin, number, &piece), None);
            assert_eq!(assembly.add("a", "1", &part(2, 3, "z")), None);
            assert_eq!(assembly.add("c", "9", &part(0, 1, "whole")), Some("whole".to_owned()));
        }
    }
}
