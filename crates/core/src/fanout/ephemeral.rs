//! Fan-out of ephemeral events.

use std::sync::Arc;

use futures::StreamExt;

use super::{Delivery, Fanout};
use crate::ports::{EphemeralItem, EphemeralStream};
use crate::types::{Channel, EphemeralEvent};

/// Ephemeral events that may wait for one subscriber: a second of a busy room.
pub const EPHEMERAL_MAILBOX: usize = 1024;

/// A [`Fanout`] of ephemeral events.
pub type EphemeralFanout = Fanout<Arc<EphemeralEvent>>;

impl EphemeralFanout {
    /// Subscribes as [`EphemeralBus::subscribe`](crate::ports::EphemeralBus::subscribe) promises.
    pub fn stream(&self, channel: &Channel) -> EphemeralStream {
        self.subscribe(channel)
            .map(|delivery| match delivery {
                Delivery::Item(event) => EphemeralItem::Event(event),
                Delivery::Dropped(count) => EphemeralItem::Lagged(count),
            })
            .boxed()
    }
}
