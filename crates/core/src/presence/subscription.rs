//! A subscriber of one channel's presence.
//!
//! Invariant: a diff follows the state or the diff that was yielded before it, without a gap and without a repetition.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::{Stream, StreamExt};

use super::driver::Shared;
use super::entry::{PresenceDiff, PresenceItem};
use crate::fanout::{Delivery, Subscription};
use crate::types::Channel;

/// See [`Presence::subscribe`](super::Presence::subscribe).
pub struct PresenceStream {
    shared: Arc<Shared>,
    diffs: Subscription<Arc<PresenceDiff>>,
    /// The last diff that the last state holds; `None` if a state is due.
    known: Option<u64>,
}

impl PresenceStream {
    pub(super) fn new(shared: Arc<Shared>, channel: &Channel) -> Self {
        let diffs = shared.fanout.subscribe(channel);
        Self { shared, diffs, known: None }
    }
}

impl Stream for PresenceStream {
    type Item = PresenceItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<PresenceItem>> {
        loop {
            let Some(known) = self.known else {
                let (state, serial) = self.shared.shown(self.diffs.channel());
                self.known = Some(serial);
                return Poll::Ready(Some(PresenceItem::State(state)));
            };
            match ready!(self.diffs.poll_next_unpin(context)) {
                Some(Delivery::Item(diff)) if diff.serial > known => {
                    return Poll::Ready(Some(PresenceItem::Diff(diff)));
                }
                Some(Delivery::Item(_)) => {}
                Some(Delivery::Dropped(_)) => self.known = None,
                None => return Poll::Ready(None),
            }
        }
    }
}
