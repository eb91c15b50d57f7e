//! The verdict. First the truth of each channel is put together: which event stands at which number, and where each event
//! stands. Then every witness, the log among them, is held against it.
//!
//! The truth is what publishers were told, then what the log holds, then what any subscriber was given: an event whose
//! publisher never learned its fate may be there or not, but if one has it, everybody must.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use switchboard_core::types::{Channel, Position};

use super::{History, Item, Log, Outcome, Token, Violation, Witness};

impl History {
    /// Everything that may not be; empty for a bus that keeps its promise.
    pub fn check(&self) -> Vec<Violation> {
        let mut check = Check::default();
        check.publishers(self);
        for (channel, log) in &self.logs {
            check.learn(channel, log.events.iter().copied());
        }
        for ((channel, _), told) in &self.subscribers {
            check.learn(channel, events(&told.items));
        }
        let nothing = Log::default();
        for channel in self.channels() {
            check.log(&channel, self.logs.get(&channel).unwrap_or(&nothing));
        }
        for ((channel, by), told) in &self.subscribers {
            check.subscriber(by, channel, &told.items, self.logs.get(channel).unwrap_or(&nothing));
        }
        check.violations
    }

    /// Every channel that somebody published to or read from.
    fn channels(&self) -> BTreeSet<Channel> {
        let published = self.operations.values().flat_map(|operation| &operation.events);
        let channels = published.map(|(channel, _)| channel).chain(self.logs.keys());
        channels.chain(self.subscribers.keys().map(|(channel, _)| channel)).cloned().collect()
    }
}

fn events(items: &[Item]) -> impl Iterator<Item = (Position, Token)> {
    items.iter().filter_map(|item| match *item {
        Item::Event(position, token) => Some((position, token)),
        Item::Pruned { .. } | Item::Reset { .. } => None,
    })
}

#[derive(Default)]
struct Check<'a> {
    fates: HashMap<Token, Fate<'a>>,
    /// The events that are certainly there, by channel and number.
    truth: HashMap<Channel, BTreeMap<u64, Token>>,
    violations: Vec<Violation>,
}

/// What is known of a published event.
struct Fate<'a> {
    channel: &'a Channel,
    failed: bool,
    /// Where it stands, as far as anybody was told.
    position: Option<Position>,
}

impl<'a> Check<'a> {
    fn publishers(&mut self, history: &'a History) {
        for (&id, operation) in &history.operations {
            let positions = match &operation.outcome {
                Outcome::Committed(positions) => positions.as_slice(),
                Outcome::Failed | Outcome::Unknown => &[],
            };
            if matches!(operation.outcome, Outcome::Committed(_)) && positions.len() != operation.events.len()
            {
                let (events, positions) = (operation.events.len(), positions.len());
                self.violations.push(Violation::Miscounted { operation: id, events, positions });
            }
            let failed = matches!(operation.outcome, Outcome::Failed);
            for (index, (channel, token)) in operation.events.iter().enumerate() {
                let position = positions.get(index).copied();
                self.fates.insert(*token, Fate { channel, failed, position });
                if let Some(position) = position {
                    self.settle(channel, position.seq, *token);
                }
            }
        }
    }

    /// Takes in where events stand whose publishers were told nothing.
    fn learn(&mut self, channel: &Channel, events: impl Iterator<Item = (Position, Token)>) {
        for (position, token) in events {
            if let Some(fate) = self.fates.get_mut(&token)
                && fate.position.is_none()
                && !fate.failed
                && fate.channel == channel
            {
                fate.position = Some(position);
                self.settle(channel, position.seq, token);
            }
        }
    }

    fn settle(&mut self, channel: &Channel, seq: u64, token: Token) {
        let numbers = self.truth.entry(channel.clone()).or_default();
        match numbers.entry(seq) {
            Entry::Vacant(free) => {
                free.insert(token);
            }
            Entry::Occupied(taken) => {
                let (channel, one) = (channel.clone(), *taken.get());
                self.violations.push(Violation::Disputed { channel, seq, one, other: token });
            }
        }
    }

    /// What stands before the log's first event was pruned; from there to the head nothing may be missing.
    fn log(&mut self, channel: &Channel, log: &Log) {
        let mut reader = Reader::new(Witness::Log, channel);
        reader.skip_to(log.begins());
        for (position, token) in &log.events {
            self.sighting(&mut reader, *position, *token);
        }
        self.missing(&reader, u64::MAX);
        self.stuck(&reader, log.head);
    }

    fn subscriber(&mut self, by: &str, channel: &Channel, items: &[Item], log: &Log) {
        let mut reader = Reader::new(Witness::Subscriber(by.to_owned()), channel);
        for item in items {
            match *item {
                Item::Event(position, token) => self.sighting(&mut reader, position, token),
                Item::Pruned { oldest } => {
                    reader.skip_to(oldest.seq);
                    let (by, channel, begins) = (by.to_owned(), channel.clone(), log.begins());
                    // Pruning goes on, so the log begins now at what was the oldest then, or later.
                    if oldest.seq > begins {
                        self.violations.push(Violation::NotPruned { by, channel, oldest, begins });
                    }
                }
                Item::Reset { head } => {
                    reader.at = head.seq;
                    self.violations.push(Violation::Reset {
                        by: by.to_owned(),
                        channel: channel.clone(),
                        head,
                    });
                }
            }
        }
        self.missing(&reader, reader.at);
        let last = self.truth.get(channel).and_then(BTreeMap::last_key_value);
        let head = last.map_or(0, |(seq, _)| *seq);
        self.stuck(&reader, head);
    }

    /// One event at one place: may it be there, and does it follow?
    fn sighting(&mut self, reader: &mut Reader<'_>, position: Position, token: Token) {
        let seen = || (reader.by.clone(), reader.channel.clone());
        let wrong = match self.fates.get(&token) {
            None => {
                let (by, channel) = seen();
                Some(Violation::MadeUp { by, channel, position, token })
            }
            Some(fate) if fate.channel != reader.channel => {
                let (by, channel) = seen();
                Some(Violation::Astray { by, channel, position, token, to: fate.channel.clone() })
            }
            Some(Fate { failed: true, .. }) => {
                let (by, channel) = seen();
                Some(Violation::Uncommitted { by, channel, position, token })
            }
            Some(Fate { position: Some(other), .. }) if *other != position => {
                let (by, channel) = seen();
                Some(Violation::Misnumbered { by, channel, token, position, other: *other })
            }
            Some(_) => None,
        };
        self.violations.extend(wrong);
        self.violations.extend(reader.step(position));
    }

    /// What is certainly there, up to `end`, and was neither seen nor excused.
    fn missing(&mut self, reader: &Reader<'_>, end: u64) {
        let Some(numbers) = self.truth.get(reader.channel) else { return };
        let missing = numbers.range(..=end).filter(|(seq, _)| !reader.has(**seq));
        self.violations.extend(missing.map(|(&seq, &token)| Violation::Lost {
            by: reader.by.clone(),
            channel: reader.channel.clone(),
            seq,
            token,
        }));
    }

    fn stuck(&mut self, reader: &Reader<'_>, head: u64) {
        if reader.at < head {
            let (by, channel) = (reader.by.clone(), reader.channel.clone());
            self.violations.push(Violation::Stuck { by, channel, at: reader.at, head });
        }
    }
}

impl Log {
    /// The first number that remains, or the one that is written next if none does.
    fn begins(&self) -> u64 {
        self.events.first().map_or(self.head + 1, |(position, _)| position.seq)
    }
}

/// A witness on its way through a channel.
struct Reader<'a> {
    by: Witness,
    channel: &'a Channel,
    /// The highest number so far.
    at: u64,
    seen: HashSet<u64>,
    /// What was pruned need not be seen: everything below this number.
    excused: u64,
}

impl<'a> Reader<'a> {
    fn new(by: Witness, channel: &'a Channel) -> Self {
        Self { by, channel, at: 0, seen: HashSet::new(), excused: 1 }
    }

    fn skip_to(&mut self, oldest: u64) {
        self.excused = self.excused.max(oldest);
        self.at = self.at.max(oldest.saturating_sub(1));
    }

    fn step(&mut self, position: Position) -> Option<Violation> {
        let (after, seq) = (self.at, position.seq);
        let is_new = self.seen.insert(seq);
        self.at = after.max(seq);
        if is_new && seq == after + 1 {
            return None;
        }
        let (by, channel) = (self.by.clone(), self.channel.clone());
        Some(if !is_new {
            Violation::Duplicate { by, channel, position }
        } else if seq <= after {
            Violation::OutOfOrder { by, channel, position, after }
        } else {
            Violation::Gap { by, channel, after, position }
        })
    }

    fn has(&self, seq: u64) -> bool {
        seq < self.excused || self.seen.contains(&seq)
    }
}
