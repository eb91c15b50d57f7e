//! Writes events, on a connection of its own, in batches that form while the one before commits.
//!
//! An idle bus adds no delay: the first event leaves at once, and what arrives meanwhile leaves together. One round trip and one
//! commit per batch, because NOTIFY serialises commits and an fsync costs the same for one event as for hundreds. A busy bus
//! gathers a little longer, since every commit costs whoever else uses the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Row, SqlSafeStr, SqlStr};
use switchboard_core::ports::{Cause, DurableError};
use switchboard_core::stats::Counter;
use switchboard_core::types::{Channel, EventName, IdempotencyKey, Invalid, Payload, Position};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::error::PostgresError;
use crate::line::{Kept, Line, Reach};
use crate::route::{Route, Settings, within};
use crate::schema::SchemaName;

/// Publishers that may wait at once; further ones wait for a place.
const QUEUE: usize = 4096;
/// Most events and bytes of one batch.
const BATCH: (usize, usize) = (2000, 4 * 1024 * 1024);
/// After a batch of more events than this the bus is busy, and the next one begins no sooner than so much later.
///
/// Measured beside 8 clients of `pgbench -N` on two cores (`cargo bench -p switchboard-benches --bench durable -- --only beside`): at 5,000
/// events/s others keep 1.2 to 1.6 times the transactions/s that the naive way leaves them, instead of 1.1 times. Below
/// about a thousand events/s, and where commits take longer anyway, nothing waits.
const BUSY: (usize, Duration) = (4, Duration::from_millis(4));
/// Longest wait for a batch to commit.
const LIMIT: Duration = Duration::from_secs(30);
/// Well inside the limit: of a batch that waits for a head which some open transaction has locked, the server itself says that
/// nothing was stored.
const SETTINGS: Settings<'static> = &[("lock_timeout", "10s")];
/// A batch that is lost on the way is in doubt for ever.
const TRUST: Duration = Duration::from_secs(5);

/// What a commit answers that rings while the server's NOTIFY queue is full.
const QUEUE_FULL: &str = "54000";
/// How long no bell is rung then. Readers look at the heads as often.
const QUIET: Duration = Duration::from_secs(10);

/// The side that publishers hold.
pub(crate) struct Publisher {
    queue: mpsc::Sender<Request>,
    quiet: Arc<AtomicBool>,
}

struct Request {
    channel: Channel,
    event: EventName,
    payload: Payload,
    key: Option<IdempotencyKey>,
    answer: oneshot::Sender<Result<Position, DurableError>>,
}

impl Publisher {
    pub(crate) fn new(route: Route, schema: &SchemaName) -> (Self, PublisherWorker) {
        let (queue, requests) = mpsc::channel(QUEUE);
        // For this transaction alone: the session may be a pooler's.
        let sql = |call: &str| {
            let text = format!(
                "SELECT \"{schema}\".{call} FROM pg_catalog.set_config('switchboard.quiet', $5, true)"
            );
            AssertSqlSafe(Arc::<str>::from(text)).into_sql_str()
        };
        let quiet = Arc::<AtomicBool>::default();
        let worker = PublisherWorker {
            line: Line::new(route, "durable", SETTINGS, TRUST),
            requests,
            kept: None,
            quiet: quiet.clone(),
            ring_again: None,
            publish: sql("publish($1, $2, $3::text::json, $4)"),
            publish_batch: sql("publish_batch($1, $2, $3::text[]::json[], $4)"),
            published: Counter::default(),
        };
        (Self { queue, quiet }, worker)
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
}

impl Publisher {
    /// Whether events are stored, but not announced.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }
}

/// The side that owns the connection.
pub(crate) struct PublisherWorker {
    line: Line,
    requests: mpsc::Receiver<Request>,
    kept: Option<Kept>,
    quiet: Arc<AtomicBool>,
    /// When the bell is to be tried again after it could not be rung.
    ring_again: Option<Instant>,
    publish: SqlStr,
    publish_batch: SqlStr,
    pub(crate) published: Counter,
}

impl PublisherWorker {
    pub(crate) fn reach(&self) -> Reach {
        self.line.reach.clone()
    }

    /// Publishes until cancelled, and then whatever was accepted before that.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::new();
        let mut next = Instant::now();
        loop {
            tokio::select! {
                biased;
                received = self.requests.recv() => match received {
                    Some(request) => batch.push(request),
                    None => return,
                },
                () = stop.cancelled(), if !self.requests.is_closed() => {
                    self.requests.close();
                    continue;
                }
                kept = self.line.mended() => {
                    self.kept = Some(kept);
                    continue;
                }
            }
            tokio::time::sleep_until(next).await;
            let began = Instant::now();
            let mut bytes = 0;
            while batch.len() < BATCH.0 && bytes < BATCH.1 {
                let Ok(request) = self.requests.try_recv() else { break };
                bytes += request.payload.len();
                batch.push(request);
            }
            next = if batch.len() > BUSY.0 { began + BUSY.1 } else { began };
            self.publish(std::mem::take(&mut batch)).await;
        }
    }

    async fn publish(&mut self, batch: Vec<Request>) {
        let mut stored = self.store(&batch).await;
        if stored.as_ref().is_err_and(is_conflict) {
            stored = self.store(&batch).await;
        }
        match stored {
            Ok(positions) => {
                self.published.add(positions.len() as u64);
                for (request, position) in batch.into_iter().zip(positions) {
                    // A publisher that no longer waits has its event all the same.
                    let _ = request.answer.send(Ok(position));
                }
            }
            Err(error) if error.sqlstate().as_deref() == Some(QUEUE_FULL) && self.ring_again.is_none() => {
                warn!(%error, "events are stored without announcing them; every node finds them within seconds");
                self.ring_again = Some(Instant::now() + QUIET);
                Box::pin(self.publish(batch)).await;
            }
            // The server refused the statement as a whole and nothing was stored. The event that is to blame fails alone.
            Err(error) if batch.len() > 1 && is_fault_of_an_event(&error) => {
                warn!(%error, events = batch.len(), "a batch failed, publishing its events one by one");
                for request in batch {
                    Box::pin(self.publish(vec![request])).await;
                }
            }
            Err(error) => {
                for request in batch {
                    let _ = request.answer.send(Err(failure(&error, &request.payload)));
                }
            }
        }
    }

    async fn store(&mut self, batch: &[Request]) -> Result<Vec<Position>, PostgresError> {
        let mut kept = self.line.ready(self.kept.take()).await?;
        self.ring_again = self.ring_again.filter(|at| *at > Instant::now());
        let quiet = self.ring_again.is_some();
        self.quiet.store(quiet, Ordering::Relaxed);
        let query = match batch {
            [request] => sqlx::query(self.publish.clone())
                .bind(request.channel.as_str())
                .bind(request.event.as_str())
                .bind(request.payload.as_str())
                .bind(request.key.as_ref().map(IdempotencyKey::as_str)),
            _ => self.batched(batch),
        };
        let query = query.bind(if quiet { "on" } else { "off" });
        let result = within(LIMIT, query.fetch_all(&mut kept.connection)).await;
        // Anything else may have to do with the session: a server that became a standby, a plan that a migration made invalid.
        if result.as_ref().err().is_none_or(|error| is_fault_of_an_event(error) || is_conflict(error)) {
            self.kept = Some(kept.rest());
        }
        result?.iter().map(position).collect()
    }

    fn batched<'a>(&self, batch: &'a [Request]) -> Query<'a, Postgres, PgArguments> {
        let channels: Vec<&str> = batch.iter().map(|request| request.channel.as_str()).collect();
        let events: Vec<&str> = batch.iter().map(|request| request.event.as_str()).collect();
        let payloads: Vec<&str> = batch.iter().map(|request| request.payload.as_str()).collect();
        let keys: Vec<Option<&str>> =
            batch.iter().map(|request| request.key.as_ref().map(IdempotencyKey::as_str)).collect();
        // Events without keys need not be looked up.
        let keys = keys.iter().any(Option::is_some).then_some(keys);
        sqlx::query(self.publish_batch.clone()).bind(channels).bind(events).bind(payloads).bind(keys)
    }
}

/// The position in the first column.
pub(super) fn position(row: &PgRow) -> Result<Position, PostgresError> {
    let text: &str = row.try_get(0)?;
    Position::parse(text).map_err(|error| PostgresError::Unsuitable(error.to_string()))
}

/// Whether one event of the batch will never be stored, by itself or by others: its data (22), a check (23514), or a trigger that
/// raises an exception (P0001) refuse it.
fn is_fault_of_an_event(error: &PostgresError) -> bool {
    error.sqlstate().is_some_and(|code| code.starts_with("22") || matches!(code.as_str(), "23514" | "P0001"))
}

/// Whether transactions met in an order in which the server had to end one (40001, 40P01): nothing was stored, so that it is safe to
/// try again, and worth it.
fn is_conflict(error: &PostgresError) -> bool {
    error.sqlstate().is_some_and(|code| matches!(code.as_str(), "40001" | "40P01"))
}

pub(super) fn failure(error: &PostgresError, payload: &Payload) -> DurableError {
    if is_fault_of_an_event(error) {
        let rule = format!("PostgreSQL refuses it: {error}");
        return DurableError::Rejected(Invalid::new("event", payload.as_str(), rule));
    }
    DurableError::Unavailable(error.to_string().into())
}

fn closed() -> DurableError {
    DurableError::Unavailable(Cause::from("the durable bus is closed"))
}
