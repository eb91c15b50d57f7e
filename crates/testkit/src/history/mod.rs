//! What happened on a durable bus, as its publishers and subscribers saw it, and whether that may be.
//!
//! In the manner of Jepsen: publishers record what they are about to do before they do it and how it ended after; subscribers
//! record everything they are told; at last the log itself is read. [`History::check`] compares the three. It knows nothing
//! of how the bus works, and needs no clock: a verdict depends on the records alone.
//!
//! A history plays in one epoch: PostgreSQL may crash, but nobody fails over to a server that lost something.

mod check;
mod violation;

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use switchboard_core::types::{Channel, Position};

pub use violation::{Violation, Witness};

/// What tells one event from all others: every event is published with a token of its own. 0 is nobody's.
pub type Token = u64;

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// An operation, which is all or nothing, is about to publish these events. It may say so several times.
    Invoked {
        /// Which operation.
        operation: u64,
        /// What it is about to publish, in order.
        events: Vec<(Channel, Token)>,
    },
    /// The operation was told that its events are committed.
    Committed {
        /// Which operation.
        operation: u64,
        /// Where its events stand, in the order in which they were published.
        positions: Vec<Position>,
    },
    /// The operation was certainly not committed: rolled back, or refused.
    Failed {
        /// Which operation.
        operation: u64,
    },
    /// Nobody knows whether the operation was committed: its answer was lost. The same holds as long as nothing is recorded.
    Unknown {
        /// Which operation.
        operation: u64,
    },
    /// From now on, and from the first event of the channel on, this subscriber must receive everything.
    Joined {
        /// The subscriber.
        by: String,
        /// What it follows.
        channel: Channel,
    },
    /// The subscriber has subscribed, once more, after the last position it was given.
    Subscribed {
        /// The subscriber.
        by: String,
        /// What it follows.
        channel: Channel,
    },
    /// The subscriber was given an event.
    Received {
        /// The subscriber.
        by: String,
        /// What it follows.
        channel: Channel,
        /// Where the event is said to stand.
        position: Position,
        /// The token it carried.
        token: Token,
    },
    /// The subscriber was told that what stands before `oldest` was pruned.
    Pruned {
        /// The subscriber.
        by: String,
        /// What it follows.
        channel: Channel,
        /// The first event that remains.
        oldest: Position,
    },
    /// The subscriber was told that its last position is not part of this history.
    Reset {
        /// The subscriber.
        by: String,
        /// What it follows.
        channel: Channel,
        /// Where it goes on.
        head: Position,
    },
    /// The log was read when all was over: this event is in it.
    Stored {
        /// Its channel.
        channel: Channel,
        /// Where it stands.
        position: Position,
        /// The token it carries.
        token: Token,
    },
    /// The log was read when all was over: this is the last position that was given out.
    Head {
        /// The channel.
        channel: Channel,
        /// Its last position.
        position: Position,
    },
}

/// Everything that was recorded, sorted by who recorded it.
#[derive(Debug, Default)]
pub struct History {
    operations: HashMap<u64, Operation>,
    subscribers: BTreeMap<Subscriber, Told>,
    logs: BTreeMap<Channel, Log>,
}

/// A subscriber follows one channel; its name may occur in several.
type Subscriber = (Channel, String);

#[derive(Debug, Default)]
struct Operation {
    events: Vec<(Channel, Token)>,
    outcome: Outcome,
}

#[derive(Debug, Default)]
enum Outcome {
    Committed(Vec<Position>),
    Failed,
    #[default]
    Unknown,
}

/// All that one subscriber was told.
#[derive(Debug, Default)]
struct Told {
    items: Vec<Item>,
    subscriptions: usize,
}

#[derive(Debug, Clone, Copy)]
enum Item {
    Event(Position, Token),
    Pruned { oldest: Position },
    Reset { head: Position },
}

/// What a channel's log held when all was over.
#[derive(Debug, Default)]
struct Log {
    events: Vec<(Position, Token)>,
    head: u64,
}

/// The size of a history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events that operations were about to publish.
    pub published: usize,
    /// Those that were acknowledged.
    pub committed: usize,
    /// Those that were rolled back or refused.
    pub failed: usize,
    /// Those whose fate the publisher never learned.
    pub unknown: usize,
    /// Events that subscribers were given.
    pub delivered: usize,
    /// How often subscribers were told that history was pruned.
    pub pruned: usize,
    /// How often subscribers subscribed.
    pub subscriptions: usize,
}

impl History {
    /// Adds what happened next. Records of one operation or subscriber come in order; how those of different ones mix
    /// changes nothing.
    pub fn push(&mut self, record: Record) {
        match record {
            Record::Invoked { operation, events } => self.operation(operation).events.extend(events),
            Record::Committed { operation, positions } => {
                self.operation(operation).outcome = Outcome::Committed(positions);
            }
            Record::Failed { operation } => self.operation(operation).outcome = Outcome::Failed,
            Record::Unknown { operation } => self.operation(operation).outcome = Outcome::Unknown,
            Record::Joined { by, channel } => {
                self.told(by, channel);
            }
            Record::Subscribed { by, channel } => self.told(by, channel).subscriptions += 1,
            Record::Received { by, channel, position, token } => {
                self.told(by, channel).items.push(Item::Event(position, token));
            }
            Record::Pruned { by, channel, oldest } => {
                self.told(by, channel).items.push(Item::Pruned { oldest });
            }
            Record::Reset { by, channel, head } => self.told(by, channel).items.push(Item::Reset { head }),
            Record::Stored { channel, position, token } => {
                self.logs.entry(channel).or_default().events.push((position, token));
            }
            Record::Head { channel, position } => self.logs.entry(channel).or_default().head = position.seq,
        }
    }

    /// After which position a subscriber goes on; `None` if it was told nothing yet.
    pub fn last(&self, by: &str, channel: &Channel) -> Option<Position> {
        self.subscribers.get(&(channel.clone(), by.to_owned()))?.last()
    }

    /// The subscribers that have not got as far as the head of their channel.
    pub fn behind<'a>(
        &'a self,
        heads: &'a BTreeMap<Channel, Position>,
    ) -> impl Iterator<Item = Violation> + 'a {
        self.subscribers.iter().filter_map(|((channel, by), told)| {
            let (at, head) = (told.last().map_or(0, |last| last.seq), heads.get(channel)?.seq);
            let by = Witness::Subscriber(by.clone());
            let stuck = Violation::Stuck { by, channel: channel.clone(), at, head };
            (at < head).then_some(stuck)
        })
    }

    /// Counts.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for operation in self.operations.values() {
            let events = operation.events.len();
            summary.published += events;
            match operation.outcome {
                Outcome::Committed(_) => summary.committed += events,
                Outcome::Failed => summary.failed += events,
                Outcome::Unknown => summary.unknown += events,
            }
        }
        for told in self.subscribers.values() {
            summary.subscriptions += told.subscriptions;
            for item in &told.items {
                match item {
                    Item::Event(..) => summary.delivered += 1,
                    Item::Pruned { .. } => summary.pruned += 1,
                    Item::Reset { .. } => {}
                }
            }
        }
        summary
    }

    fn operation(&mut self, operation: u64) -> &mut Operation {
        self.operations.entry(operation).or_default()
    }

    fn told(&mut self, by: String, channel: Channel) -> &mut Told {
        self.subscribers.entry((channel, by)).or_default()
    }
}

impl Told {
    fn last(&self) -> Option<Position> {
        Some(match *self.items.last()? {
            Item::Event(position, _) => position,
            Item::Pruned { oldest } => Position { seq: oldest.seq.saturating_sub(1), ..oldest },
            Item::Reset { head } => head,
        })
    }
}

impl Extend<Record> for History {
    fn extend<T: IntoIterator<Item = Record>>(&mut self, records: T) {
        records.into_iter().for_each(|record| self.push(record));
    }
}
