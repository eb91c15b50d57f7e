//! Sends ephemeral events, on a connection of its own, in batches that form while the one before is on its way.
//!
//! `synchronous_commit = off`: a transaction that only notifies still takes a transaction id and would otherwise wait for
//! an fsync, for events that are never stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::PgConnection;
use switchboard_core::stats::Counter;
use switchboard_core::types::EphemeralEvent;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::wire;
use crate::error::PostgresError;
use crate::line::{Kept, Line, Reach};
use crate::route::{Route, within};
use crate::schema::SchemaName;

/// Most events and bytes that wait; beyond either the oldest are dropped.
const QUEUE: (usize, usize) = (65_536, 16 * 1024 * 1024);
/// Most events of one statement.
const BATCH: usize = 4096;
/// Longest wait for a statement.
const LIMIT: Duration = Duration::from_secs(5);
/// An event that could not leave for so long is dropped: nobody wants to see who was typing then.
const TOO_OLD: Duration = Duration::from_secs(5);
/// A batch that is lost on the way is lost for ever.
const TRUST: Duration = Duration::from_secs(5);
/// Pause after a failure.
const RETRY: Duration = Duration::from_millis(200);

/// What one event costs besides its payload, roughly.
const OVERHEAD: usize = 128;

/// The bounded queue between publishers and the connection.
pub(crate) struct Outbox {
    origin: String,
    waiting: Mutex<Waiting>,
    filled: Notify,
    pub(crate) published: Counter,
    pub(crate) dropped: Counter,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<(Instant, Arc<EphemeralEvent>)>,
    bytes: usize,
    closed: bool,
}

impl Outbox {
    fn new() -> Self {
        Self {
            origin: format!("{:016x}", rand::random::<u64>()),
            waiting: Mutex::default(),
            filled: Notify::new(),
            published: Counter::default(),
            dropped: Counter::default(),
        }
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Queues an event, dropping the oldest where there is no room; false once closed.
    pub(super) fn push(&self, event: Arc<EphemeralEvent>) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.closed {
            return false;
        }
        waiting.bytes += size(&event);
        waiting.events.push_back((Instant::now(), event));
        while waiting.events.len() > QUEUE.0 || waiting.bytes > QUEUE.1 {
            if let Some((_, oldest)) = waiting.events.pop_front() {
                waiting.bytes -= size(&oldest);
                self.dropped.increment();
            }
        }
        drop(waiting);
        self.published.increment();
        self.filled.notify_one();
        true
    }

    /// Events that wait.
    pub(crate) fn backlog(&self) -> usize {
        self.waiting.lock().events.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting.lock().closed
    }

    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.filled.notify_one();
    }

    /// The next batch, without what is too old; empty if nothing waits.
    fn take(&self) -> Vec<Arc<EphemeralEvent>> {
        let mut waiting = self.waiting.lock();
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            let Some((queued, event)) = waiting.events.pop_front() else { break };
            waiting.bytes -= size(&event);
            if queued.elapsed() > TOO_OLD {
                self.dropped.increment();
            } else {
                batch.push(event);
            }
        }
        if waiting.events.is_empty() && waiting.events.capacity() > BATCH {
            waiting.events = VecDeque::new();
        }
        batch
    }
}

fn size(event: &EphemeralEvent) -> usize {
    event.payload.len() + OVERHEAD
}

/// The side that owns the connection.
pub(crate) struct PublisherWorker {
    line: Line,
    outbox: Arc<Outbox>,
    notify_channel: String,
    kept: Option<Kept>,
    number: u64,
}

impl PublisherWorker {
    pub(crate) fn new(route: Route, schema: &SchemaName) -> (Arc<Outbox>, Self) {
        let outbox = Arc::new(Outbox::new());
        let worker = Self {
            line: Line::new(route, "ephemeral", &[], TRUST),
            outbox: Arc::clone(&outbox),
            notify_channel: format!("{schema}.ephemeral"),
            kept: None,
            number: 0,
        };
        (outbox, worker)
    }

    /// Sends until cancelled, and then once more what waits.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.outbox.filled.notified() => self.send_all(&stop).await,
                kept = self.line.mended() => self.kept = Some(kept),
            }
        }
        self.send_all(&stop).await;
    }

    pub(crate) fn reach(&self) -> Reach {
        self.line.reach.clone()
    }

    async fn send_all(&mut self, stop: &CancellationToken) {
        loop {
            // Connect first: what waits while there is no connection may become too old.
            if self.outbox.backlog() == 0 {
                return;
            }
            let sent = match self.line.ready(self.kept.take()).await {
                Ok(mut kept) => {
                    let batch = self.outbox.take();
                    let events = batch.iter().map(AsRef::as_ref);
                    let texts = wire::pack(self.outbox.origin(), &mut self.number, events);
                    match send(&mut kept.connection, &self.notify_channel, texts).await {
                        Ok(()) => {
                            self.kept = Some(kept.rest());
                            continue;
                        }
                        // Perhaps it was committed all the same: sending again could deliver twice.
                        Err(error) => {
                            self.outbox.dropped.add(batch.len() as u64);
                            error
                        }
                    }
                }
                Err(error) => error,
            };
            debug!(error = %sent, "cannot send ephemeral events");
            if stop.run_until_cancelled(sleep(RETRY)).await.is_none() {
                return;
            }
        }
    }
}

/// One statement for all notifications.
async fn send(
    connection: &mut PgConnection,
    notify_channel: &str,
    texts: Vec<String>,
) -> Result<(), PostgresError> {
    // Set for this transaction alone: behind a pooler the session's next transaction may be somebody else's.
    let query = sqlx::query(
        "SELECT pg_catalog.count(pg_catalog.pg_notify($1, text)), pg_catalog.set_config('synchronous_commit', 'off', true) \
         FROM pg_catalog.unnest($2::text[]) text",
    )
        .bind(notify_channel)
        .bind(texts);
    within(LIMIT, query.execute(connection)).await?;
    Ok(())
}
