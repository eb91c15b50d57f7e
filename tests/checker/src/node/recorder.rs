//! Writes the history of one node to its standard output, line by line, each out before the next thing happens.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use switchboard_core::types::{Channel, Position};
use switchboard_testkit::history::{Record, Token};

use crate::wire::Said;

/// What happens, or is about to.
pub(crate) fn record(record: Record) {
    say(&Said::Record(record));
}

/// No publisher is at work any more.
pub(crate) fn quiet() {
    say(&Said::Quiet);
}

/// Gives out operations. Clones share their numbers.
#[derive(Clone)]
pub(crate) struct Operations {
    next: Arc<AtomicU64>,
}

impl Operations {
    /// `number` is this process's own in the run.
    pub(crate) fn new(number: u32) -> Self {
        Self { next: Arc::new(AtomicU64::new((u64::from(number) << 40) + 1)) }
    }

    /// Begins one that has published nothing yet.
    pub(crate) fn begin(&self) -> Operation {
        Operation { id: self.unique(), operations: self.clone() }
    }

    fn unique(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

/// All or nothing. Dropped without an outcome, its outcome is unknown.
pub(crate) struct Operation {
    id: u64,
    operations: Operations,
}

impl Operation {
    /// Announces one event for each of these channels and answers their tokens.
    pub(crate) fn invoke(&self, channels: &[Channel]) -> Vec<Token> {
        let tokens: Vec<Token> = channels.iter().map(|_| self.operations.unique()).collect();
        let events = channels.iter().cloned().zip(tokens.iter().copied()).collect();
        record(Record::Invoked { operation: self.id, events });
        tokens
    }

    pub(crate) fn committed(self, positions: Vec<Position>) {
        record(Record::Committed { operation: self.id, positions });
    }

    pub(crate) fn failed(self) {
        record(Record::Failed { operation: self.id });
    }

    pub(crate) fn unknown(self) {
        record(Record::Unknown { operation: self.id });
    }
}

/// One write, so that lines never mix. It waits for a reader that is slow, as the whole node then must.
fn say(said: &Said) {
    let Ok(mut line) = serde_json::to_vec(said) else { return };
    line.push(b'\n');
    let mut out = stdout().lock();
    // If nobody reads any more, our input has ended, too, and ends us.
    let _ = out.write_all(&line).and_then(|()| out.flush());
}
