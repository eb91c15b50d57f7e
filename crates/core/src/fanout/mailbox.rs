//! A bounded queue from one producer side to one subscriber that drops its oldest items when full.
//!
//! Not `tokio::sync::broadcast`, which reserves its whole capacity per channel: ten thousand quiet channels must cost
//! next to nothing. This one allocates when something waits, and gives the memory back when it is empty.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::Stream;
use parking_lot::Mutex;

use super::Fanout;
use crate::types::Channel;

/// What a subscription yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery<T> {
    /// The next item.
    Item(T),
    /// So many items were dropped before the next one.
    Dropped(u64),
}

/// A mailbox that keeps its memory beyond this many items gives it back once empty.
const KEEP: usize = 16;

pub(super) struct Mailbox<T> {
    capacity: usize,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    waiting: VecDeque<T>,
    dropped: u64,
    closed: bool,
    reader: Option<Waker>,
}

impl<T> Mailbox<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let inner = Inner { waiting: VecDeque::new(), dropped: 0, closed: false, reader: None };
        Self { capacity: capacity.max(1), inner: Mutex::new(inner) }
    }

    /// Adds an item; answers how many were dropped to make room.
    pub(super) fn push(&self, item: T) -> u64 {
        let mut inner = self.inner.lock();
        let full = inner.waiting.len() >= self.capacity;
        if full {
            inner.waiting.pop_front();
            inner.dropped += 1;
        }
        inner.waiting.push_back(item);
        let reader = inner.reader.take();
        // Woken outside the lock: the reader may run at once on another thread.
        drop(inner);
        if let Some(reader) = reader {
            reader.wake();
        }
        u64::from(full)
    }

    pub(super) fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        if let Some(reader) = inner.reader.take() {
            reader.wake();
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Delivery<T>>> {
        let mut inner = self.inner.lock();
        if inner.dropped > 0 {
            return Poll::Ready(Some(Delivery::Dropped(std::mem::take(&mut inner.dropped))));
        }
        if let Some(item) = inner.waiting.pop_front() {
            if inner.waiting.is_empty() && inner.waiting.capacity() > KEEP {
                inner.waiting = VecDeque::new();
            }
            return Poll::Ready(Some(Delivery::Item(item)));
        }
        if inner.closed {
            return Poll::Ready(None);
        }
        match &mut inner.reader {
            Some(reader) => reader.clone_from(context.waker()),
            None => inner.reader = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

/// One subscriber: a stream of [`Delivery`] that unsubscribes when dropped.
pub struct Subscription<T> {
    fanout: Fanout<T>,
    channel: Channel,
    mailbox: Arc<Mailbox<T>>,
}

impl<T> Subscription<T> {
    pub(super) fn new(fanout: Fanout<T>, channel: Channel, mailbox: Arc<Mailbox<T>>) -> Self {
        Self { fanout, channel, mailbox }
    }

    /// The channel it listens to.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }
}

impl<T> Stream for Subscription<T> {
    type Item = Delivery<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.mailbox.poll(context)
    }
}

impl<T> Drop for Subscription<T> {
    fn drop(&mut self) {
        self.fanout.unsubscribe(&self.channel, &self.mailbox);
    }
}
