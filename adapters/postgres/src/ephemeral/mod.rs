//! The ephemeral bus over NOTIFY: one NOTIFY channel per cluster, broadcast and discard.
//!
//! Events that arrive while a statement is in flight leave together, packed into as few notifications as fit. A node's own events
//! reach its subscribers directly, and its own notifications are skipped by their origin. When to prefer another transport: NOTIFY
//! costs every listening node the work for every event, and commits that notify are serialised by the server.

mod assembly;
mod publisher;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use switchboard_core::fanout::{EPHEMERAL_MAILBOX, EphemeralFanout};
use switchboard_core::ports::{EphemeralBus, EphemeralError, EphemeralStream};
use switchboard_core::stats::Counter;
use switchboard_core::types::{Channel, EphemeralEvent, EventName, Payload, PayloadLimits};
use tracing::debug;

use crate::listener::Sink;
use crate::schema::SchemaName;
use assembly::Assembly;
use publisher::Outbox;
pub(crate) use publisher::PublisherWorker;
use wire::Message;

/// The `EphemeralBus` of one node.
pub(crate) struct PostgresEphemeral {
    fanout: EphemeralFanout,
    outbox: Arc<Outbox>,
    limits: PayloadLimits,
    origin: String,
    notify_channel: String,
    assembly: Mutex<Assembly>,
    /// Events received from other nodes.
    pub(crate) received: Counter,
    /// Notifications that no node wrote.
    pub(crate) foreign: Counter,
}

impl PostgresEphemeral {
    pub(crate) fn new(schema: &SchemaName, outbox: Arc<Outbox>, limits: PayloadLimits) -> Self {
        Self {
            fanout: EphemeralFanout::new(EPHEMERAL_MAILBOX),
            origin: outbox.origin().to_owned(),
            outbox,
            limits,
            notify_channel: format!("{schema}.ephemeral"),
            assembly: Mutex::default(),
            received: Counter::default(),
            foreign: Counter::default(),
        }
    }

    /// Events dropped from the mailboxes of slow subscribers.
    pub(crate) fn lagged(&self) -> Counter {
        self.fanout.dropped()
    }

    pub(crate) fn subscribers(&self) -> usize {
        self.fanout.subscribers()
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(crate) fn close(&self) {
        self.outbox.close();
        self.fanout.close();
    }

    fn deliver(&self, entry: &wire::Entry<'_>) {
        self.received.increment();
        if !self.fanout.is_wanted(&entry.channel) {
            return;
        }
        match entry.event() {
            Some(event) => drop(self.fanout.deliver(&entry.channel, &Arc::new(event))),
            None => self.foreign.increment(),
        }
    }
}

#[async_trait]
impl EphemeralBus for PostgresEphemeral {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<(), EphemeralError> {
        payload.within(self.limits.ephemeral)?;
        let event = Arc::new(EphemeralEvent {
            channel: channel.clone(),
            event: event.clone(),
            payload: payload.clone(),
        });
        if !self.outbox.push(Arc::clone(&event)) {
            return Err(EphemeralError::Closed);
        }
        self.fanout.deliver(channel.as_str(), &event);
        Ok(())
    }

    async fn subscribe(&self, channel: &Channel) -> Result<EphemeralStream, EphemeralError> {
        if self.outbox.is_closed() {
            return Err(EphemeralError::Closed);
        }
        Ok(self.fanout.stream(channel))
    }
}

impl Sink for PostgresEphemeral {
    fn notify_channel(&self) -> &str {
        &self.notify_channel
    }

    fn notified(&self, text: &str) {
        match wire::read(text) {
            Some(Message { origin, .. }) if origin == self.origin => {}
            Some(Message { events: wire::Body::Events(entries), .. }) => {
                for entry in &entries {
                    self.deliver(entry);
                }
            }
            Some(Message { origin, number, events: wire::Body::Part(part) }) => {
                let whole = self.assembly.lock().add(origin, number, &part);
                match whole.as_deref().map(wire::read_entry) {
                    Some(Some(entry)) => self.deliver(&entry),
                    Some(None) => self.foreign.increment(),
                    None => {}
                }
            }
            None => {
                self.foreign.increment();
                debug!("ignored a notification that no node wrote");
            }
        }
    }

    fn listening(&self) {
        // Whatever was missed is gone: at most once. A half-received event will not be completed.
        *self.assembly.lock() = Assembly::default();
    }
}
