//! Gathers events into batches that form while the one before commits.
//!
//! An idle bus adds no delay: the first event leaves at once, and what arrives meanwhile leaves together. One round trip and one
//! commit per batch, because NOTIFY serialises commits and an fsync costs the same for one event as for hundreds. A busy bus
//! gathers a little longer, since every commit costs whoever else uses the server.

use std::sync::Arc;
use std::time::Duration;

use switchboard_core::ports::{Cause, DurableError};
use switchboard_core::stats::Counter;
use switchboard_core::types::{Channel, EventName, IdempotencyKey, Payload, Position};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::aside::{self, Aside};
use super::writer::{Bell, Request, Writer};
use crate::line::Reach;
use crate::route::Route;
use crate::schema::SchemaName;

/// Publishers that may wait at once; further ones wait for a place.
const QUEUE: usize = 4096;
/// Most events and bytes of one batch.
const BATCH: (usize, usize) = (2000, 4 * 1024 * 1024);
/// After a batch of more events than this the bus is busy, and the next one begins later.
const BUSY: usize = 4;
/// How much later, for each event of the batch before: who publishes less than 4,000 events/s hardly waits for longer than the least.
const GATHER: Duration = Duration::from_micros(250);
/// Least and longest time from batch to batch of a busy bus.
///
/// What a batch costs beside its events is paid by whoever else uses the server. At 5,000 events/s on two cores, writer and listeners take
/// half a core with a batch every 4 ms, two fifths with one every 12 ms, and the rest is spread evenly over executor, planner and
/// context switches. 8 clients of `pgbench -N` keep 1.3 to 1.5 times the transactions/s that the naive way leaves them, and a fifth less
/// without the longer wait (`cargo bench -p switchboard-benches --bench durable -- --only beside`).
const BETWEEN: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(12));
/// How long a batch waits for a head that some open transaction has locked, before its events are kept apart from the others.
const PATIENCE: Duration = Duration::from_millis(200);

/// The side that publishers hold.
pub(crate) struct Publisher {
    queue: mpsc::Sender<Request>,
    bell: Arc<Bell>,
}

impl Publisher {
    pub(crate) fn new(route: &Route, schema: &SchemaName) -> (Self, PublisherWorker) {
        let (queue, requests) = mpsc::channel(QUEUE);
        let bell = Arc::<Bell>::default();
        let published = Counter::default();
        let writer = || Writer::new(route.clone(), schema, Arc::clone(&bell), published.clone());
        let (aside, lane) = aside::lane(writer());
        let worker =
            PublisherWorker { requests, writer: writer(), aside, lane, published: published.clone() };
        (Self { queue, bell }, worker)
    }

    pub(crate) async fn publish(
        &self,
        channel: Channel,
        event: EventName,
        payload: Payload,
        key: Option<IdempotencyKey>,
    ) -> Result<Position, DurableError> {
        let (answer, answered) = oneshot::channel();
        self.queue.send(Request { channel, event, payload, key, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Whether events are stored, but not announced.
    pub(crate) fn is_quiet(&self) -> bool {
        self.bell.is_quiet()
    }
}

/// The side that owns the connections: one, and for a while another if heads are locked.
pub(crate) struct PublisherWorker {
    requests: mpsc::Receiver<Request>,
    writer: Writer,
    aside: Aside,
    lane: aside::Lane,
    pub(crate) published: Counter,
}

impl PublisherWorker {
    pub(crate) fn reach(&self) -> Reach {
        self.writer.reach()
    }

    /// Publishes until cancelled, and then whatever was accepted before that.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { requests, writer, aside, lane, published: _ } = self;
        tokio::join!(gather(requests, writer, aside, stop), lane.run());
    }
}

async fn gather(
    mut requests: mpsc::Receiver<Request>,
    mut writer: Writer,
    aside: Aside,
    stop: CancellationToken,
) {
    let mut batch = Vec::new();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            biased;
            received = requests.recv() => match received {
                Some(request) => batch.extend(aside.unless_waiting(request)),
                None => return,
            },
            () = stop.cancelled(), if !requests.is_closed() => {
                requests.close();
                continue;
            }
            () = writer.mended() => continue,
        }
        tokio::time::sleep_until(next).await;
        let began = Instant::now();
        let mut bytes = 0;
        while batch.len() < BATCH.0 && bytes < BATCH.1 {
            let Ok(request) = requests.try_recv() else { break };
            bytes += request.payload.len();
            batch.extend(aside.unless_waiting(request));
        }
        if batch.is_empty() {
            continue;
        }
        next = began + between(batch.len());
        for locked in writer.publish(std::mem::take(&mut batch), PATIENCE).await {
            aside.put(locked);
        }
    }
}

/// From the beginning of a batch of so many events to that of the next.
fn between(events: usize) -> Duration {
    if events <= BUSY {
        return Duration::ZERO;
    }
    GATHER.saturating_mul(u32::try_from(events).unwrap_or(u32::MAX)).clamp(BETWEEN.0, BETWEEN.1)
}

fn closed() -> DurableError {
    DurableError::Unavailable(Cause::from("the durable bus is closed"))
}
