//! Reads the stored events: pages after a position, and heads.
//!
//! One statement per page, so that head, anchor and events come from one snapshot. What a position means against them is
//! decided by [`place`], a pure function of the core. Subscribers of one channel mostly stand at the same place and want the same page
//! at the same time; those who ask before its statement is sent share it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryFutureExt};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row, SqlSafeStr, SqlStr};
use switchboard_core::fanout::{EventLog, LogEnds, Place, place};
use switchboard_core::ports::{DurableError, History};
use switchboard_core::stats::Counter;
use switchboard_core::types::{Channel, DurableEvent, Epoch, EventName, Payload, Position};

use crate::error::PostgresError;
use crate::pool::Pool;
use crate::schema::SchemaName;

/// A page ends after so many bytes of payload, whatever its limit: a subscriber costs bounded memory.
const PAGE_BYTES: i64 = 4 * 1024 * 1024;

/// Most events of one page.
const PAGE_MAX: usize = 10_000;

#[derive(Clone)]
pub(super) struct Log {
    pool: Pool,
    page: SqlStr,
    heads: SqlStr,
    /// Pages that were asked for and whose statements are not sent yet.
    waiting: Arc<Mutex<HashMap<PageKey, Page>>>,
    /// Statements that read pages.
    pub(super) reads: Counter,
}

/// Channel, position and limit.
type PageKey = (Channel, Option<Position>, usize);

type Page = Shared<BoxFuture<'static, Result<History, Arc<str>>>>;

/// Nobody may join any more once this is dropped.
struct Joinable {
    waiting: Arc<Mutex<HashMap<PageKey, Page>>>,
    key: PageKey,
}

impl Drop for Joinable {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.key);
    }
}

impl Log {
    pub(super) fn new(schema: &SchemaName, pool: Pool) -> Self {
        let sql = |template: &str| {
            AssertSqlSafe(Arc::<str>::from(template.replace("{schema}", schema.as_str()))).into_sql_str()
        };
        Self {
            pool,
            page: sql(r#"WITH head AS (SELECT epoch, seq FROM "{schema}".channel_head WHERE channel = $1),
                   anchor AS (SELECT epoch FROM "{schema}".event_log WHERE channel = $1 AND seq = $2),
                   candidates AS (
                       SELECT seq, epoch, event, payload, created_at, sum(size) OVER (ORDER BY seq) - size AS before
                       FROM (SELECT * FROM "{schema}".event_log WHERE channel = $1 AND seq > $2 ORDER BY seq LIMIT $3) e
                   ),
                   page AS (
                       SELECT seq, epoch, event, payload::text AS payload, created_at FROM candidates WHERE before < $4
                   )
                   SELECT head.epoch AS head_epoch, head.seq AS head_seq, anchor.epoch AS anchor,
                          CASE WHEN head IS NULL THEN "{schema}".epoch() END AS now,
                          page.seq, page.epoch, page.event, page.payload, page.created_at
                   FROM (SELECT) one LEFT JOIN head ON true LEFT JOIN anchor ON true LEFT JOIN page ON true
                   ORDER BY page.seq"#),
            heads: sql(r#"SELECT "{schema}".epoch() AS now, h.channel, h.epoch, h.seq
                   FROM (SELECT) one LEFT JOIN "{schema}".channel_head h ON h.channel = ANY($1)"#),
            waiting: Arc::default(),
            reads: Counter::default(),
        }
    }

    /// Where a channel stands: seq 0 of the current epoch if nothing was ever written to it.
    pub(super) async fn head(&self, channel: &Channel) -> Result<Position, PostgresError> {
        let (now, mut heads) = self.heads(std::slice::from_ref(channel)).await?;
        Ok(heads.pop().map_or(Position::new(now, 0), |(_, head)| head))
    }

    /// The current epoch, and where those of `channels` stand that were ever written to.
    pub(super) async fn heads(
        &self,
        channels: &[Channel],
    ) -> Result<(Epoch, Vec<(String, Position)>), PostgresError> {
        let names: Vec<&str> = channels.iter().map(Channel::as_str).collect();
        let rows = self.pool.fetch_all(sqlx::query(self.heads.clone()).bind(names)).await?;
        let now = rows.first().map(|row| row.try_get("now")).transpose()?.unwrap_or_default();
        let mut heads = Vec::with_capacity(rows.len());
        for row in &rows {
            if let Some(head) = position(row, "epoch", "seq")? {
                heads.push((row.try_get("channel")?, head));
            }
        }
        Ok((epoch(now), heads))
    }

    /// How full the server's NOTIFY queue is, from 0 to 1. When it is full, every commit that notifies fails.
    pub(super) async fn queue_usage(&self) -> Result<f64, PostgresError> {
        let rows = self.pool.fetch_all(sqlx::query("SELECT pg_notification_queue_usage()")).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
    }

    async fn page(&self, joinable: Joinable) -> Result<History, PostgresError> {
        let (channel, after, limit) = &joinable.key.clone();
        let (after, limit) = (*after, *limit);
        let seq = after.map_or(0, |after| after.seq.min(Position::MAX_SEQ));
        let query = sqlx::query(self.page.clone())
            .bind(channel.as_str())
            .bind(i64::try_from(seq).unwrap_or(i64::MAX))
            .bind(i64::try_from(limit.clamp(1, PAGE_MAX)).unwrap_or(i64::MAX))
            .bind(PAGE_BYTES);
        self.reads.increment();
        let rows = self.pool.fetch_all_telling(|| drop(joinable), query).await?;
        let Some(first) = rows.first() else { return Ok(History::Page(Vec::new())) };
        let head = match position(first, "head_epoch", "head_seq")? {
            Some(head) => head,
            None => Position::new(epoch(first.try_get("now")?), 0),
        };
        let log = LogEnds {
            head,
            next: position(first, "epoch", "seq")?,
            anchor: first.try_get::<Option<i64>, _>("anchor")?.map(epoch),
        };
        match after.map_or(Place::Inside, |after| place(after, &log)) {
            Place::Inside => {}
            Place::Pruned { oldest } => return Ok(History::Pruned { oldest }),
            Place::Foreign => return Ok(History::Reset { head: log.head }),
        }
        let mut events: Vec<Arc<DurableEvent>> = Vec::with_capacity(rows.len());
        for row in &rows {
            let Some(position) = position(row, "epoch", "seq")? else { break };
            // Retention may leave holes; the reader is told with the page that begins at one.
            if events.last().is_some_and(|last| last.position.seq + 1 != position.seq) {
                break;
            }
            events.push(Arc::new(event(channel, position, row)?));
        }
        Ok(History::Page(events))
    }
}

#[async_trait]
impl EventLog for Log {
    async fn read(
        &self,
        channel: &Channel,
        after: Option<Position>,
        limit: usize,
    ) -> Result<History, DurableError> {
        let key = (channel.clone(), after, limit);
        let page = match self.waiting.lock().entry(key.clone()) {
            Entry::Occupied(page) => page.get().clone(),
            Entry::Vacant(place) => {
                // A task of its own: a reader that stops polling in the middle, as a slow client makes it, must not keep a connection of
                // the small pool from everybody else. It ends by itself, within the pool's limit.
                let (log, joinable) = (self.clone(), Joinable { waiting: Arc::clone(&self.waiting), key });
                let task = tokio::spawn(async move { log.page(joinable).await });
                let page = async {
                    let page = task.await.map_err(|error| error.to_string())?;
                    page.map_err(|error| error.to_string())
                };
                place.insert(page.map_err(Arc::from).boxed().shared()).clone()
            }
        };
        page.await.map_err(|error| DurableError::Unavailable(error.to_string().into()))
    }
}

fn event(channel: &Channel, position: Position, row: &PgRow) -> Result<DurableEvent, PostgresError> {
    let payload: &str = row.try_get("payload")?;
    let raw: &RawValue = serde_json::from_str(payload).map_err(foreign)?;
    Ok(DurableEvent {
        channel: channel.clone(),
        position,
        event: EventName::parse(row.try_get("event")?).map_err(foreign)?,
        payload: Payload::from_raw(raw),
        created_at: row.try_get("created_at")?,
    })
}

fn position(row: &PgRow, epoch_column: &str, seq_column: &str) -> Result<Option<Position>, PostgresError> {
    let bits: Option<i64> = row.try_get(epoch_column)?;
    let seq: Option<i64> = row.try_get(seq_column)?;
    Ok(bits.zip(seq).and_then(|(bits, seq)| Some(Position::new(epoch(bits), u64::try_from(seq).ok()?))))
}

/// The same 64 bits, signed in PostgreSQL.
fn epoch(bits: i64) -> Epoch {
    Epoch::from_bits(bits.cast_unsigned())
}

/// The table's own checks should have refused it.
fn foreign(error: impl std::fmt::Display) -> PostgresError {
    PostgresError::Unsuitable(format!("event_log holds an event that cannot be read: {error}"))
}
