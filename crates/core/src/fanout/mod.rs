//! The local end of both buses: from one incoming event to the subscribers of this node.
//!
//! Every adapter delivers through here, so that the promises about slow subscribers are kept in one place: a
//! subscriber has a bounded mailbox, a full mailbox drops its own oldest items and counts them, nobody waits for
//! anybody. An idle channel costs nothing, a subscribed one only what waits in its mailboxes.

mod durable;
mod ephemeral;
mod mailbox;
mod place;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;

pub use durable::{DURABLE_MAILBOX, EventLog, Live, durable_stream};
pub use ephemeral::{EPHEMERAL_MAILBOX, EphemeralFanout};
pub use mailbox::{Delivery, Subscription};
pub use place::{LogEnds, Place, place};

use crate::stats::Counter;
use crate::types::Channel;
use mailbox::Mailbox;

/// Subscribers by channel. Clones share them.
pub struct Fanout<T>(Arc<Shared<T>>);

struct Shared<T> {
    channels: RwLock<Channels<T>>,
    capacity: usize,
    dropped: Counter,
}

/// `None` once closed.
type Channels<T> = Option<HashMap<Channel, Vec<Arc<Mailbox<T>>>>>;

impl<T> Clone for Fanout<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone> Fanout<T> {
    /// A fan-out whose subscribers hold at most `capacity` items each.
    pub fn new(capacity: usize) -> Self {
        let shared =
            Shared { channels: RwLock::new(Some(HashMap::new())), capacity, dropped: Counter::default() };
        Self(Arc::new(shared))
    }

    /// A new subscriber of `channel`; it unsubscribes when dropped. Already ended if the fan-out is closed.
    pub fn subscribe(&self, channel: &Channel) -> Subscription<T> {
        let mailbox = Arc::new(Mailbox::new(self.0.capacity));
        match &mut *self.0.channels.write() {
            Some(channels) => channels.entry(channel.clone()).or_default().push(Arc::clone(&mailbox)),
            None => mailbox.close(),
        }
        Subscription::new(self.clone(), channel.clone(), mailbox)
    }

    /// Hands `item` to every subscriber of `channel`; answers how many there are.
    pub fn deliver(&self, channel: &str, item: &T) -> usize {
        self.deliver_with(channel, || Some(item.clone()))
    }

    /// The same of an item that is made only if somebody listens, and may turn out to be none. Making it must be quick: who subscribes
    /// waits for that.
    pub fn deliver_with(&self, channel: &str, item: impl FnOnce() -> Option<T>) -> usize {
        let channels = self.0.channels.read();
        let Some(subscribers) = channels.as_ref().and_then(|channels| channels.get(channel)) else {
            return 0;
        };
        let Some(item) = item() else { return 0 };
        for mailbox in subscribers {
            self.0.dropped.add(mailbox.push(item.clone()));
        }
        subscribers.len()
    }

    /// Hands `item` to every subscriber of every channel.
    pub fn deliver_to_all(&self, item: &T) {
        for mailbox in self.0.channels.read().iter().flat_map(HashMap::values).flatten() {
            self.0.dropped.add(mailbox.push(item.clone()));
        }
    }

    /// Whether anybody here listens to `channel`.
    pub fn is_wanted(&self, channel: &str) -> bool {
        self.0.channels.read().as_ref().is_some_and(|channels| channels.contains_key(channel))
    }

    /// The channels that have subscribers, in no order.
    pub fn wanted(&self) -> Vec<Channel> {
        self.0.channels.read().iter().flat_map(HashMap::keys).cloned().collect()
    }

    /// Number of subscribers.
    pub fn subscribers(&self) -> usize {
        self.0.channels.read().iter().flat_map(HashMap::values).map(Vec::len).sum()
    }

    /// Items dropped from full mailboxes so far.
    pub fn dropped(&self) -> Counter {
        self.0.dropped.clone()
    }

    /// Ends every subscription once it has yielded what waits in its mailbox. Final.
    pub fn close(&self) {
        for mailbox in self.0.channels.write().take().iter().flat_map(HashMap::values).flatten() {
            mailbox.close();
        }
    }
}

impl<T> Fanout<T> {
    fn unsubscribe(&self, channel: &Channel, mailbox: &Arc<Mailbox<T>>) {
        let mut channels = self.0.channels.write();
        let Some(channels) = channels.as_mut() else { return };
        let Some(subscribers) = channels.get_mut(channel) else { return };
        subscribers.retain(|other| !Arc::ptr_eq(other, mailbox));
        if subscribers.is_empty() {
            channels.remove(channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;

    fn channel(name: &str) -> Channel {
        Channel::parse(name).unwrap()
    }

    #[test]
    fn a_slow_subscriber_loses_its_own_oldest_and_is_told_how_many() {
        let fanout = Fanout::new(2);
        let mut slow = fanout.subscribe(&channel("a"));
        let mut quick = fanout.subscribe(&channel("a"));
        for n in 1..=5 {
            assert_eq!(fanout.deliver("a", &n), 2);
            assert_eq!(quick.next().now_or_never(), Some(Some(Delivery::Item(n))));
        }
        let got: Vec<_> = std::iter::from_fn(|| slow.next().now_or_never().flatten()).collect();
        assert_eq!(got, [Delivery::Dropped(3), Delivery::Item(4), Delivery::Item(5)]);
        assert_eq!(fanout.dropped().get(), 3);
    }

    #[test]
    fn an_item_is_made_once_and_only_if_somebody_listens() {
        let fanout = Fanout::new(2);
        assert_eq!(fanout.deliver_with("a", || unreachable!("nobody listens")), 0);
        let [mut one, mut two] = [(); 2].map(|()| fanout.subscribe(&channel("a")));
        let mut made = 0..;
        assert_eq!(fanout.deliver_with("a", || made.next()), 2);
        for subscriber in [&mut one, &mut two] {
            assert_eq!(subscriber.next().now_or_never(), Some(Some(Delivery::Item(0))));
        }
        assert_eq!(fanout.deliver_with("a", || None), 0);
        assert_eq!(one.next().now_or_never(), None);
    }

    #[test]
    fn a_channel_is_forgotten_with_its_last_subscriber() {
        let fanout = Fanout::<u8>::new(1);
        let (one, two) = (fanout.subscribe(&channel("a")), fanout.subscribe(&channel("a")));
        drop(one);
        assert!(fanout.is_wanted("a"));
        drop(two);
        assert!(!fanout.is_wanted("a") && fanout.wanted().is_empty());
    }

    #[tokio::test]
    async fn closing_ends_subscriptions_after_what_they_hold() {
        let fanout = Fanout::new(4);
        let held = fanout.subscribe(&channel("a"));
        fanout.deliver("a", &1);
        fanout.close();
        assert_eq!(held.collect::<Vec<_>>().await, [Delivery::Item(1)]);
        assert_eq!(fanout.subscribe(&channel("a")).next().await, None);
    }
}
