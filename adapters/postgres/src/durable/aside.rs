//! Where events wait whose channel is locked, because an application published to it in a transaction that is still open.
//!
//! They have a connection of their own, for as long as it is needed, so that the events of all other channels need not wait with them.
//! Invariant: while an event of a channel waits here, later ones of that channel come here too, so that none overtakes another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_core::ports::DurableError;
use switchboard_core::types::Channel;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::writer::{Locked, Request, Writer, by_channel};

/// Longest wait for a channel's lock; then the server itself says that nothing was stored.
const PATIENCE: Duration = Duration::from_secs(10);
/// A lock that has been waited for in vain gets this much more.
const LEAST: Duration = Duration::from_millis(100);

/// Events that may wait at once; further ones are refused.
const QUEUE: usize = 4096;

/// Events that wait, by channel.
type Waiting = Arc<Mutex<HashMap<Channel, usize>>>;

/// The side that puts events aside.
pub(super) struct Aside {
    queue: mpsc::Sender<(Instant, Request)>,
    waiting: Waiting,
}

/// The side that publishes them.
pub(super) struct Lane {
    queue: mpsc::Receiver<(Instant, Request)>,
    waiting: Waiting,
    writer: Writer,
}

pub(super) fn lane(writer: Writer) -> (Aside, Lane) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let waiting = Waiting::default();
    (Aside { queue: sender, waiting: Arc::clone(&waiting) }, Lane { queue, waiting, writer })
}

impl Aside {
    /// Gives the event back, unless earlier ones of its channel wait here: then it waits, too.
    pub(super) fn unless_waiting(&self, request: Request) -> Option<Request> {
        let waits = self.waiting.lock().contains_key(&request.channel);
        if !waits {
            return Some(request);
        }
        self.wait(request);
        None
    }

    pub(super) fn put(&self, locked: Locked) {
        locked.requests.into_iter().for_each(|request| self.wait(request));
    }

    fn wait(&self, request: Request) {
        let mut waiting = self.waiting.lock();
        let channel = request.channel.clone();
        match self.queue.try_send((Instant::now(), request)) {
            Ok(()) => *waiting.entry(channel).or_default() += 1,
            Err(TrySendError::Full((_, request)) | TrySendError::Closed((_, request))) => {
                let why =
                    format!("open transactions have locked channels for which {QUEUE} events wait already");
                let _ = request.answer.send(Err(DurableError::Unavailable(why.into())));
            }
        }
    }
}

impl Lane {
    /// Publishes what is put aside, until the other side is gone and nothing is left.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::new();
        while self.queue.recv_many(&mut batch, usize::MAX).await > 0 {
            for channel in by_channel(batch.drain(..), |(_, request)| &request.channel) {
                self.publish(channel).await;
            }
            if self.queue.is_empty() {
                self.writer.let_go();
            }
        }
    }

    /// Publishes events of one channel.
    async fn publish(&mut self, events: Vec<(Instant, Request)>) {
        let Some((since, Request { channel, .. })) = events.first() else { return };
        let (channel, count) = (channel.clone(), events.len());
        let patience = PATIENCE.saturating_sub(since.elapsed()).max(LEAST);
        let requests = events.into_iter().map(|(_, request)| request).collect();
        for locked in self.writer.publish(requests, patience).await {
            locked.give_up();
        }
        let mut waiting = self.waiting.lock();
        if let Some(left) = waiting.get_mut(&channel) {
            *left -= count;
            if *left == 0 {
                waiting.remove(&channel);
            }
        }
    }
}
