//! What waits for one peer: changes of interest, which are state and never dropped, and events, of which the oldest are.
//!
//! Events lie one behind the other in chunks, as they will be written, so that those that wait together leave in one write and a chunk is
//! what is dropped at a time. Publishers never wait; the writer takes what there is.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use switchboard_core::stats::Counter;
use switchboard_core::types::Channel;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::frame::{self, Hello, Interest};

/// Most bytes of events that wait; beyond, the oldest are dropped.
const QUEUE: usize = 8 * 1024 * 1024;
/// Events that leave and are dropped together, in bytes. A larger event is a chunk of its own.
const CHUNK: usize = 16 * 1024;
/// Most bytes of one write.
const BATCH: usize = 256 * 1024;
/// An event that could not leave for so long is dropped: nobody wants to see who was typing then.
const TOO_OLD: Duration = Duration::from_secs(5);
/// Channels in one frame of interest: with the longest names a quarter of the largest frame.
const CHANNELS: usize = 128;

pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    filled: Notify,
    /// Told by the writer when all has left after [`finish`](Self::finish).
    pub(crate) flushed: Notify,
    pub(crate) sent: Counter,
    pub(crate) dropped: Counter,
}

#[derive(Default)]
struct Waiting {
    /// Goes before everything else.
    hello: Option<Hello>,
    /// Whether each of these channels is wanted from now on, as of the version.
    interest: HashMap<Channel, bool>,
    version: Option<u64>,
    /// What we have seen of the peer's interest.
    seen: Option<u64>,
    /// How many events have come from it.
    arrived: Option<u64>,
    chunks: VecDeque<Chunk>,
    bytes: usize,
    finished: bool,
    told_dropped: u64,
}

struct Chunk {
    bytes: Vec<u8>,
    events: u64,
    since: Instant,
}

impl Outbox {
    pub(crate) fn new(hello: Option<Hello>) -> Self {
        let waiting = Waiting { hello, ..Waiting::default() };
        Self {
            waiting: Mutex::new(waiting),
            filled: Notify::new(),
            flushed: Notify::new(),
            sent: Counter::default(),
            dropped: Counter::default(),
        }
    }

    /// Queues the frame of one event.
    pub(crate) fn push(&self, frame: &[u8]) {
        let mut waiting = self.waiting.lock();
        // Otherwise the writer was told before, and looks again before it waits.
        let news = waiting.chunks.is_empty();
        let room = |chunk: &&mut Chunk| chunk.bytes.len() + frame.len() <= CHUNK;
        if let Some(chunk) = waiting.chunks.back_mut().filter(room) {
            chunk.bytes.extend_from_slice(frame);
            chunk.events += 1;
        } else {
            waiting.chunks.push_back(Chunk { bytes: frame.to_vec(), events: 1, since: Instant::now() });
        }
        waiting.bytes += frame.len();
        while waiting.bytes > QUEUE && self.drop_oldest(&mut waiting) {}
        drop(waiting);
        if news {
            self.filled.notify_one();
        }
    }

    /// Queues a change of interest; `version` is the state that it leads to.
    pub(crate) fn interest(&self, changes: impl IntoIterator<Item = (Channel, bool)>, version: u64) {
        let mut waiting = self.waiting.lock();
        waiting.interest.extend(changes);
        waiting.version = Some(version);
        drop(waiting);
        self.filled.notify_one();
    }

    /// Lets the peer know which state of its interest is known here.
    pub(crate) fn seen(&self, version: u64) {
        self.waiting.lock().seen = Some(version);
        self.filled.notify_one();
    }

    /// Lets the peer know how many events have come from it.
    pub(crate) fn arrived(&self, events: u64) {
        self.waiting.lock().arrived = Some(events);
        self.filled.notify_one();
    }

    /// Bytes of events that wait.
    pub(crate) fn backlog(&self) -> usize {
        self.waiting.lock().bytes
    }

    /// Drops and counts what waits: the link has ended.
    pub(crate) fn discard(&self) {
        let mut waiting = self.waiting.lock();
        while self.drop_oldest(&mut waiting) {}
    }

    /// How many were dropped since this was last asked.
    pub(crate) fn forget_dropped(&self) -> u64 {
        let mut waiting = self.waiting.lock();
        let dropped = self.dropped.get();
        dropped - std::mem::replace(&mut waiting.told_dropped, dropped)
    }

    /// How many were dropped since then.
    pub(crate) fn dropped_untold(&self) -> u64 {
        self.dropped.get() - self.waiting.lock().told_dropped
    }

    /// Nothing more is to come.
    pub(crate) fn finish(&self) {
        self.waiting.lock().finished = true;
        self.filled.notify_one();
    }

    /// Waits until there is something, and takes as much of it as one write should be. Nothing once finished and empty.
    pub(crate) async fn next(&self) -> Vec<Bytes> {
        loop {
            let batch = self.take();
            if !batch.is_empty() || self.waiting.lock().finished {
                return batch;
            }
            self.filled.notified().await;
        }
    }

    fn take(&self) -> Vec<Bytes> {
        let mut waiting = self.waiting.lock();
        let mut control = Vec::new();
        if let Some(hello) = waiting.hello.take() {
            frame::write_hello(&hello, &mut control);
        }
        if let Some(seen) = waiting.seen.take() {
            frame::write_seen(seen, &mut control);
        }
        if let Some(arrived) = waiting.arrived.take() {
            frame::write_arrived(arrived, &mut control);
        }
        if let Some(version) = waiting.version.take() {
            write_interest(std::mem::take(&mut waiting.interest), version, &mut control);
        }
        let mut batch: Vec<_> = (!control.is_empty()).then(|| Bytes::from(control)).into_iter().collect();
        let mut taken = 0;
        while taken < BATCH {
            let Some(chunk) = waiting.chunks.front() else { break };
            if chunk.since.elapsed() > TOO_OLD {
                self.drop_oldest(&mut waiting);
                continue;
            }
            let Some(chunk) = waiting.chunks.pop_front() else { break };
            waiting.bytes -= chunk.bytes.len();
            taken += chunk.bytes.len();
            self.sent.add(chunk.events);
            batch.push(Bytes::from(chunk.bytes));
        }
        batch
    }

    fn drop_oldest(&self, waiting: &mut Waiting) -> bool {
        let Some(chunk) = waiting.chunks.pop_front() else { return false };
        waiting.bytes -= chunk.bytes.len();
        self.dropped.add(chunk.events);
        true
    }
}

/// As many frames as it takes; only the last one says that the state is complete.
fn write_interest(changes: HashMap<Channel, bool>, version: u64, into: &mut Vec<u8>) {
    let mut changes: Vec<_> = changes.into_iter().collect();
    loop {
        let rest = changes.split_off(changes.len().min(CHANNELS));
        let (add, remove): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(_, wanted)| *wanted);
        let names = |changes: Vec<(Channel, bool)>| changes.into_iter().map(|(channel, _)| channel).collect();
        let version = if rest.is_empty() { version } else { 0 };
        frame::write_interest(&Interest { version, add: names(add), remove: names(remove) }, into);
        if rest.is_empty() {
            return;
        }
        changes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Reader};

    fn channel(number: usize) -> Channel {
        Channel::parse(&format!("{number:0255}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn b095_the_queue_is_bounded_and_the_oldest_go_first() {
        let outbox = Outbox::new(None);
        let total = 3 * QUEUE / 1024;
        for number in 0..total {
            let mut frame = vec![0; 1024];
            frame[..8].copy_from_slice(&(number as u64).to_be_bytes());
            outbox.push(&frame);
            assert!(outbox.backlog() <= QUEUE);
        }
        let mut got = Vec::new();
        while outbox.backlog() > 0 {
            for bytes in outbox.next().await {
                got.extend(
                    bytes.chunks(1024).map(|frame| u64::from_be_bytes(frame[..8].try_into().unwrap())),
                );
            }
        }
        assert!(got.is_sorted());
        assert_eq!(got.last(), Some(&(total as u64 - 1)));
        assert_eq!(got.len() as u64 + outbox.dropped.get(), total as u64);
        assert_eq!(got.len() as u64, outbox.sent.get());
    }

    #[tokio::test(start_paused = true)]
    async fn what_waited_too_long_is_dropped_and_counted() {
        let outbox = Outbox::new(None);
        outbox.push(&[1; 10]);
        tokio::time::advance(TOO_OLD * 2).await;
        outbox.push(&[2; CHUNK]);
        assert_eq!(outbox.next().await, [vec![2; CHUNK]]);
        assert_eq!((outbox.dropped.get(), outbox.backlog()), (1, 0));
    }

    #[tokio::test]
    async fn a_large_interest_is_complete_only_with_its_last_frame() {
        let outbox = Outbox::new(None);
        outbox.interest((0..1000).map(|number| (channel(number), true)), 7);
        outbox.interest([(channel(3), false)], 8);
        let (mut reader, mut versions, mut wanted) = (Reader::default(), Vec::new(), 0);
        for bytes in outbox.next().await {
            reader
                .feed(&bytes, |frame| {
                    let Frame::Interest(interest) = frame else { panic!("{frame:?}") };
                    versions.push(interest.version);
                    wanted += interest.add.len();
                })
                .unwrap();
        }
        assert_eq!((versions.pop(), wanted), (Some(8), 999));
        assert!(versions.len() > 5 && versions.iter().all(|version| *version == 0));
    }
}
