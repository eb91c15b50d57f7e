//! Writes batches of events, on a connection of its own, and tells each publisher what became of its event.
//!
//! Invariant: an event that the server refuses, or whose channel is locked, fails alone, not its batch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Row, SqlSafeStr, SqlStr};
use switchboard_core::ports::DurableError;
use switchboard_core::stats::Counter;
use switchboard_core::types::{Channel, EventName, IdempotencyKey, Invalid, Payload, Position};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::warn;

use crate::error::PostgresError;
use crate::line::{Kept, Line, Reach};
use crate::route::{Route, within};
use crate::schema::SchemaName;

/// Longest wait for a batch to commit, beyond any wait for locks.
const LIMIT: Duration = Duration::from_secs(20);
/// A batch that is lost on the way is in doubt for ever.
const TRUST: Duration = Duration::from_secs(5);

/// What a commit answers that rings while the server's NOTIFY queue is full.
const QUEUE_FULL: &str = "54000";
/// How long no bell is rung then. Readers look at the heads as often.
const QUIET: Duration = Duration::from_secs(10);

/// An event on its way into the log, and who waits for it.
pub(super) struct Request {
    pub(super) channel: Channel,
    pub(super) event: EventName,
    pub(super) payload: Payload,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) answer: oneshot::Sender<Result<Position, DurableError>>,
}

/// Events of one channel that were not stored because some open transaction has locked its head.
pub(super) struct Locked {
    pub(super) requests: Vec<Request>,
    error: PostgresError,
}

/// Until when the bell is not rung, because it could not be. Shared by all writers of a node.
#[derive(Default)]
pub(super) struct Bell(Mutex<Option<Instant>>);

pub(super) struct Writer {
    line: Line,
    kept: Option<Kept>,
    bell: Arc<Bell>,
    publish: SqlStr,
    publish_batch: SqlStr,
    published: Counter,
}

impl Bell {
    pub(super) fn is_quiet(&self) -> bool {
        self.0.lock().is_some_and(|until| Instant::now() < until)
    }

    fn hush(&self) {
        *self.0.lock() = Some(Instant::now() + QUIET);
    }
}

impl Locked {
    /// Tells the publishers that it was in vain.
    pub(super) fn give_up(self) {
        refuse(self.requests, &self.error);
    }
}

impl Writer {
    pub(super) fn new(route: Route, schema: &SchemaName, bell: Arc<Bell>, published: Counter) -> Self {
        // For this transaction alone: the session may be a pooler's.
        let sql = |call: &str| {
            let text = format!(
                "SELECT \"{schema}\".{call} FROM pg_catalog.set_config('switchboard.quiet', $5, true) quiet, \
                 pg_catalog.set_config('lock_timeout', $6, true) patience"
            );
            AssertSqlSafe(Arc::<str>::from(text)).into_sql_str()
        };
        Self {
            line: Line::new(route, "durable", &[], TRUST),
            kept: None,
            bell,
            publish: sql("publish($1, $2, $3::text::json, $4)"),
            publish_batch: sql("publish_batch($1, $2, $3::text[]::json[], $4)"),
            published,
        }
    }

    pub(super) fn reach(&self) -> Reach {
        self.line.reach.clone()
    }

    /// After a failure: returns when there is a connection again. While nothing has failed: never.
    pub(super) async fn mended(&mut self) {
        self.kept = Some(self.line.mended().await);
    }

    /// Closes the connection; the next batch opens another.
    pub(super) fn let_go(&mut self) {
        self.kept = None;
    }

    /// Publishes, waiting at most `patience` for each lock, and answers everybody but those whose channels are locked.
    pub(super) async fn publish(&mut self, batch: Vec<Request>, patience: Duration) -> Vec<Locked> {
        let mut stored = self.store(&batch, patience).await;
        if stored.as_ref().is_err_and(is_conflict) {
            stored = self.store(&batch, patience).await;
        }
        let error = match stored {
            Ok(positions) => {
                self.published.add(positions.len() as u64);
                for (request, position) in batch.into_iter().zip(positions) {
                    // A publisher that no longer waits has its event all the same.
                    let _ = request.answer.send(Ok(position));
                }
                return Vec::new();
            }
            Err(error) => error,
        };
        // In all these cases the server refused the statement as a whole and nothing was stored.
        let again: Vec<Vec<Request>> = if is(QUEUE_FULL, &error) && !self.bell.is_quiet() {
            warn!(%error, "events are stored without announcing them; every node finds them within seconds");
            self.bell.hush();
            vec![batch]
        } else if is_locked(&error) {
            let channels = by_channel(batch, |request| &request.channel);
            match <[_; 1]>::try_from(channels) {
                Ok([requests]) => return vec![Locked { requests, error }],
                Err(channels) => channels,
            }
        } else if batch.len() > 1 && is_fault_of_an_event(&error) {
            warn!(%error, events = batch.len(), "a batch failed, publishing its events one by one");
            batch.into_iter().map(|request| vec![request]).collect()
        } else {
            refuse(batch, &error);
            return Vec::new();
        };
        let mut locked = Vec::new();
        for batch in again {
            locked.extend(Box::pin(self.publish(batch, patience)).await);
        }
        locked
    }

    async fn store(&mut self, batch: &[Request], patience: Duration) -> Result<Vec<Position>, PostgresError> {
        let mut kept = self.line.ready(self.kept.take()).await?;
        let query = match batch {
            [request] => sqlx::query(self.publish.clone())
                .bind(request.channel.as_str())
                .bind(request.event.as_str())
                .bind(request.payload.as_str())
                .bind(request.key.as_ref().map(IdempotencyKey::as_str)),
            _ => self.batched(batch),
        };
        let query = query
            .bind(if self.bell.is_quiet() { "on" } else { "off" })
            .bind(format!("{}ms", patience.as_millis()));
        let result = within(patience + LIMIT, query.fetch_all(&mut kept.connection)).await;
        // Anything else may have to do with the session: a server that became a standby, a plan that a migration made invalid.
        if result
            .as_ref()
            .err()
            .is_none_or(|error| is_fault_of_an_event(error) || is_conflict(error) || is_locked(error))
        {
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

/// One batch per channel; the order within each stays.
pub(super) fn by_channel<T>(
    batch: impl IntoIterator<Item = T>,
    channel: impl Fn(&T) -> &Channel,
) -> Vec<Vec<T>> {
    let (mut channels, mut places) = (Vec::<Vec<T>>::new(), HashMap::new());
    for item in batch {
        let place = *places.entry(channel(&item).clone()).or_insert(channels.len());
        match channels.get_mut(place) {
            Some(channel) => channel.push(item),
            None => channels.push(vec![item]),
        }
    }
    channels
}

/// The position in the first column.
pub(super) fn position(row: &PgRow) -> Result<Position, PostgresError> {
    let text: &str = row.try_get(0)?;
    Position::parse(text).map_err(|error| PostgresError::Unsuitable(error.to_string()))
}

fn refuse(requests: Vec<Request>, error: &PostgresError) {
    for request in requests {
        let _ = request.answer.send(Err(failure(error, &request.payload)));
    }
}

fn is(code: &str, error: &PostgresError) -> bool {
    error.sqlstate().as_deref() == Some(code)
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

/// Whether the wait for a lock took too long.
fn is_locked(error: &PostgresError) -> bool {
    is("55P03", error)
}

pub(super) fn failure(error: &PostgresError, payload: &Payload) -> DurableError {
    if is_fault_of_an_event(error) {
        let rule = format!("PostgreSQL refuses it: {error}");
        return DurableError::Rejected(Invalid::new("event", payload.as_str(), rule));
    }
    DurableError::Unavailable(error.to_string().into())
}
