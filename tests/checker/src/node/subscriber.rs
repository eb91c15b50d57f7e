//! A subscriber of one channel. It tells everything it is given, and goes on after the last position whenever it begins anew.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use rand::RngExt;
use rand::rngs::StdRng;
use switchboard_core::ports::{DurableBus, DurableItem, DurableStream, StartFrom};
use switchboard_core::types::Position;
use switchboard_testkit::history::Record;
use tokio::time::{Instant, sleep, sleep_until};

use super::RETRY;
use super::recorder::record;
use crate::payload;
use crate::wire::Following;

/// How often a restless subscriber stops reading for a while, so that events pile up.
const DAWDLES: f64 = 0.01;
/// Longest pause of a restless subscriber: within a subscription, and between two.
const PAUSE: Duration = Duration::from_millis(300);
/// Longest subscription of a restless subscriber.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Subscriber {
    following: Following,
    bus: Arc<dyn DurableBus>,
    rng: StdRng,
}

impl Subscriber {
    pub(crate) fn new(following: Following, bus: Arc<dyn DurableBus>, rng: StdRng) -> Self {
        Self { following, bus, rng }
    }

    /// Reads for ever. Answers who it was if its stream ended, which no stream may before its bus.
    pub(crate) async fn run(mut self) -> String {
        loop {
            let from = StartFrom::After(self.following.after);
            let Ok(mut events) = self.bus.subscribe(&self.following.channel, from).await else {
                sleep(RETRY).await;
                continue;
            };
            let (by, channel) = (self.following.by.clone(), self.following.channel.clone());
            record(Record::Subscribed { by, channel });
            if self.following.restless {
                let until = Instant::now() + self.random(PATIENCE);
                tokio::select! {
                    () = self.read(&mut events) => return self.following.by,
                    () = sleep_until(until) => {}
                }
                drop(events);
                sleep(self.random(PAUSE)).await;
            } else {
                self.read(&mut events).await;
                return self.following.by;
            }
        }
    }

    /// Reads to the end of the stream. May be dropped at any moment: what was taken from the stream has been recorded.
    async fn read(&mut self, events: &mut DurableStream) {
        while let Some(item) = events.next().await {
            self.took(item);
            if self.following.restless && self.rng.random_bool(DAWDLES) {
                sleep(self.random(PAUSE)).await;
            }
        }
    }

    fn took(&mut self, item: DurableItem) {
        let (by, channel) = (self.following.by.clone(), self.following.channel.clone());
        let (after, told) = match item {
            DurableItem::Event(event) => {
                // An event of another channel is recorded as nobody's.
                let token = if event.channel == channel { payload::read(event.payload.as_str()) } else { 0 };
                let position = event.position;
                (position, Record::Received { by, channel, position, token })
            }
            DurableItem::Pruned { oldest } => {
                let before = Position { seq: oldest.seq.saturating_sub(1), ..oldest };
                (before, Record::Pruned { by, channel, oldest })
            }
            DurableItem::Reset { head } => (head, Record::Reset { by, channel, head }),
        };
        record(told);
        self.following.after = after;
    }

    fn random(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.rng.random())
    }
}
