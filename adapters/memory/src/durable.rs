//! The event log in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use switchboard_core::fanout::{EventLog, Fanout, Live, LogEnds, Place, durable_stream, place};
use switchboard_core::ports::{DurableBus, DurableError, DurableStream, History, StartFrom};
use switchboard_core::types::{
    Channel, DurableEvent, Epoch, EventName, IdempotencyKey, Payload, PayloadLimits, Position,
};

use crate::clock::Clock;

/// The `DurableBus` of every node of a [`MemoryCluster`](crate::MemoryCluster).
pub struct MemoryDurable {
    fanout: Fanout<Live>,
    limits: PayloadLimits,
    clock: Clock,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    epoch: u64,
    channels: HashMap<Channel, Stored>,
}

struct Stored {
    head: Position,
    events: VecDeque<Arc<DurableEvent>>,
    keys: HashMap<IdempotencyKey, Position>,
}

impl MemoryDurable {
    pub(crate) fn new(fanout: Fanout<Live>, limits: PayloadLimits, clock: Clock) -> Self {
        Self { fanout, limits, clock, log: Arc::default() }
    }

    pub(crate) fn prune(&self, channel: &Channel, keep: usize) {
        if let Some(stored) = self.log.0.lock().channels.get_mut(channel) {
            let gone = stored.events.len().saturating_sub(keep);
            stored.events.drain(..gone);
            stored.forget_keys();
        }
    }

    pub(crate) fn fail_over(&self, lost: u64) {
        let mut inner = self.log.0.lock();
        inner.epoch += 1;
        for stored in inner.channels.values_mut() {
            for _ in 0..lost.min(stored.head.seq) {
                stored.events.pop_back();
                stored.head.seq -= 1;
            }
            if let Some(last) = stored.events.back() {
                stored.head = last.position;
            }
            stored.forget_keys();
        }
        drop(inner);
        self.fanout.deliver_to_all(&Live::Verify);
    }

    fn append(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        key: Option<&IdempotencyKey>,
    ) -> Result<Position, DurableError> {
        payload.within(self.limits.durable)?;
        let mut inner = self.log.0.lock();
        let known = key.and_then(|key| inner.channels.get(channel)?.keys.get(key));
        if let Some(position) = known {
            return Ok(*position);
        }
        let position = Position { epoch: inner.epoch(), ..inner.head(channel).next() };
        let event = Arc::new(DurableEvent {
            channel: channel.clone(),
            position,
            event: event.clone(),
            payload: payload.clone(),
            created_at: self.clock.now(),
        });
        let stored = inner.channels.entry(channel.clone());
        let stored = stored.or_insert_with(|| Stored {
            head: position,
            events: VecDeque::new(),
            keys: HashMap::new(),
        });
        stored.head = position;
        stored.keys.extend(key.map(|key| (key.clone(), position)));
        stored.events.push_back(Arc::clone(&event));
        // Still under the lock, so that live events come in order and need no repair.
        self.fanout.deliver(channel.as_str(), &Live::Event(event));
        Ok(position)
    }
}

impl Stored {
    /// Keys go with their events.
    fn forget_keys(&mut self) {
        let Self { events, keys, .. } = self;
        keys.retain(|_, position| events.iter().any(|event| event.position == *position));
    }
}

impl Inner {
    fn epoch(&self) -> Epoch {
        Epoch::from_bits(self.epoch)
    }

    /// Where a channel stands.
    fn head(&self, channel: &Channel) -> Position {
        self.channels.get(channel).map_or(Position::new(self.epoch(), 0), |stored| stored.head)
    }

    fn read(&self, channel: &Channel, after: Option<Position>, limit: usize) -> History {
        let Some(stored) = self.channels.get(channel) else {
            return match after {
                Some(after) if after.seq > 0 => History::Reset { head: self.head(channel) },
                _ => History::Page(Vec::new()),
            };
        };
        let seq = after.map_or(0, |after| after.seq);
        let position = |found: Option<&Arc<DurableEvent>>| found.map(|event| event.position);
        let log = LogEnds {
            head: stored.head,
            next: position(stored.events.iter().find(|event| event.position.seq > seq)),
            anchor: position(stored.events.iter().find(|event| event.position.seq == seq)).map(|at| at.epoch),
        };
        match after.map_or(Place::Inside, |after| place(after, &log)) {
            Place::Inside => {
                let following = stored.events.iter().filter(|event| event.position.seq > seq);
                History::Page(following.take(limit.max(1)).cloned().collect())
            }
            Place::Pruned { oldest } => History::Pruned { oldest },
            Place::Foreign => History::Reset { head: log.head },
        }
    }
}

#[async_trait]
impl EventLog for Log {
    async fn read(
        &self,
        channel: &Channel,
        after: Option<Position>,
        limit: usize,
    ) -> Result<History, DurableError> {
        Ok(self.0.lock().read(channel, after, limit))
    }
}

#[async_trait]
impl DurableBus for MemoryDurable {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<Position, DurableError> {
        self.append(channel, event, payload, None)
    }

    async fn publish_once(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        key: &IdempotencyKey,
    ) -> Result<Position, DurableError> {
        self.append(channel, event, payload, Some(key))
    }

    async fn head(&self, channel: &Channel) -> Result<Position, DurableError> {
        Ok(self.log.0.lock().head(channel))
    }

    async fn subscribe(&self, channel: &Channel, from: StartFrom) -> Result<DurableStream, DurableError> {
        let live = self.fanout.subscribe(channel);
        let (last, verify) = match from {
            StartFrom::Now => (Some(self.log.0.lock().head(channel)), false),
            StartFrom::After(position) => (Some(position), true),
            StartFrom::Oldest => (None, true),
        };
        Ok(durable_stream(self.log.clone(), live, last, verify))
    }

    async fn history(
        &self,
        channel: &Channel,
        after: Option<Position>,
        limit: usize,
    ) -> Result<History, DurableError> {
        Ok(self.log.0.lock().read(channel, after, limit))
    }
}
