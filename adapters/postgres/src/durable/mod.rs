//! The durable bus: an event log, a head per channel, and a doorbell.
//!
//! Publishing takes the next `seq` under the row lock of the channel's head, so that commit order is `seq` order and there are no gaps
//! to guess about. NOTIFY is only a doorbell: it carries events inline where they fit and positions where not, and every
//! subscription fills what is missing from the log. So neither a lost, repeated nor truncated notification can lose or repeat an event.
//!
//! Heads are looked at when a LISTEN session begins and on a slow tick, which finds what no notification announced.
//!
//! # What limits it
//!
//! Profiled on two cores that also run every publisher and subscriber (`perf`, `cargo bench -p switchboard-benches --bench durable`):
//!
//! - Commits that notify take turns, fsync included, so one event per commit ends at about 3,800/s however many publish. Batches of up
//!   to 2,000 reach 93,000/s from one node and 100,000/s from three, where both cores are busy and no function has more than a
//!   few percent: B-tree insertion, tuple forming and the doorbell's JSON share them.
//! - At 5,000 events/s others notice what batches cost beside their events, half of it context switches, fsync and the start of
//!   executor nodes: fewer and larger ones are the remedy, as far as waiting for them is worth it ([`publisher`]).
//! - Notifications wake every listener of the database; a node's share is one wake-up and one parse per batch.

mod aside;
mod doorbell;
mod log;
mod publisher;
mod retention;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use switchboard_core::fanout::{DURABLE_MAILBOX, EventLog, Fanout, Live, durable_stream};
use switchboard_core::health::Condition;
use switchboard_core::ports::{DurableBus, DurableError, DurableStream, History, StartFrom};
use switchboard_core::stats::{Counter, Latency};
use switchboard_core::types::{Channel, Epoch, EventName, IdempotencyKey, Payload, PayloadLimits, Position};
use tokio::sync::Notify;
use tokio::time::{Instant, interval_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::error::PostgresError;
use crate::listener::Sink;
use crate::pool::Pool;
use crate::schema::SchemaName;
use doorbell::Ring;
use log::Log;
pub(crate) use publisher::Publisher;
pub(crate) use retention::Upkeep;
pub use retention::{Retention, RetentionRule};

/// How often heads are looked at although nothing was announced.
const SAFETY_TICK: Duration = Duration::from_secs(10);

/// From here on a filling NOTIFY queue is worth a warning.
const QUEUE_WARNING: f64 = 0.25;

/// Pause after a look that failed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The `DurableBus` of one node.
pub(crate) struct PostgresDurable {
    fanout: Fanout<Live>,
    log: Arc<Log>,
    publisher: Publisher,
    latency: Latency,
    limits: PayloadLimits,
    publish: SqlStr,
    notify_channel: String,
    listening: Notify,
    queue_usage: Mutex<f64>,
    /// Notifications that no node wrote.
    pub(crate) foreign: Counter,
}

impl PostgresDurable {
    /// Its publishers' waits are counted in `latency`.
    pub(crate) fn new(
        schema: &SchemaName,
        pool: Pool,
        publisher: Publisher,
        latency: Latency,
        limits: PayloadLimits,
    ) -> Self {
        Self {
            fanout: Fanout::new(DURABLE_MAILBOX),
            log: Arc::new(Log::new(schema, pool)),
            publisher,
            latency,
            limits,
            publish: AssertSqlSafe(Arc::<str>::from(format!(
                "SELECT \"{schema}\".publish($1, $2, $3::text::json, $4)"
            )))
            .into_sql_str(),
            notify_channel: format!("{schema}.durable"),
            listening: Notify::new(),
            queue_usage: Mutex::default(),
            foreign: Counter::default(),
        }
    }

    /// Publishes one event within a transaction of the caller's.
    pub(crate) async fn publish_in(
        &self,
        connection: &mut PgConnection,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        key: Option<&IdempotencyKey>,
    ) -> Result<Position, DurableError> {
        payload.within(self.limits.durable)?;
        let query = sqlx::query(self.publish.clone())
            .bind(channel.as_str())
            .bind(event.as_str())
            .bind(payload.as_str())
            .bind(key.map(IdempotencyKey::as_str));
        let row = query.fetch_one(connection).await.map_err(PostgresError::from);
        row.and_then(|row| writer::position(&row)).map_err(|error| writer::failure(&error, payload))
    }

    async fn publish_for(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        key: Option<&IdempotencyKey>,
    ) -> Result<Position, DurableError> {
        payload.within(self.limits.durable)?;
        let (event, payload, key) = (event.clone(), payload.clone(), key.cloned());
        let asked = Instant::now();
        let position = self.publisher.publish(channel.clone(), event, payload, key).await?;
        self.latency.observe(asked.elapsed());
        if self.publisher.is_quiet() {
            self.fanout.deliver(channel.as_str(), &Live::Head(position));
        }
        Ok(position)
    }

    pub(crate) fn subscribers(&self) -> usize {
        self.fanout.subscribers()
    }

    /// Statements that read pages of the log so far.
    pub(crate) fn reads(&self) -> u64 {
        self.log.reads.get()
    }

    pub(crate) fn close(&self) {
        self.fanout.close();
    }

    /// Looks at the heads of all channels somebody listens to, until cancelled.
    pub(crate) async fn watch_heads(self: Arc<Self>, stop: CancellationToken) {
        stop.run_until_cancelled(async {
            let mut tick = interval_at(Instant::now() + SAFETY_TICK, SAFETY_TICK);
            let mut epoch = None;
            loop {
                let new_session = tokio::select! {
                    () = self.listening.notified() => true,
                    _ = tick.tick() => {
                        match self.log.queue_usage().await {
                            Ok(usage) => *self.queue_usage.lock() = usage,
                            Err(error) => debug!(%error, "cannot look at the NOTIFY queue"),
                        }
                        false
                    }
                };
                while let Err(error) = self.look_at_heads(&mut epoch, new_session).await {
                    debug!(%error, "cannot look at channel heads yet");
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
        })
        .await;
    }

    /// A warning while the NOTIFY queue fills up: somebody listens and does not read.
    pub(crate) fn queue_condition(&self) -> Condition {
        let usage = self.queue_usage();
        if usage < QUEUE_WARNING {
            return Condition::Ok;
        }
        Condition::Degraded(format!(
            "PostgreSQL's NOTIFY queue is {:.0} % full: some session executed LISTEN and sits in a transaction",
            usage * 100.0
        ))
    }

    /// As last looked at, from 0 to 1.
    pub(crate) fn queue_usage(&self) -> f64 {
        *self.queue_usage.lock()
    }

    /// With a `new_session` something may have happened to the server, so that heads are also compared with what was seen.
    async fn look_at_heads(&self, epoch: &mut Option<Epoch>, new_session: bool) -> Result<(), PostgresError> {
        let wanted = self.fanout.wanted();
        if wanted.is_empty() && epoch.is_some() {
            return Ok(());
        }
        let (now, heads) = self.log.heads(&wanted).await?;
        let before = epoch.replace(now);
        if before != Some(now) {
            if before.is_some() {
                warn!("PostgreSQL has a new history (failover or restore): every subscription asks the log");
            }
            // Also when it is looked at for the first time: whoever subscribed before may stand in an older one.
            self.fanout.deliver_to_all(&Live::Verify);
        }
        for (channel, head) in heads {
            let live = if new_session { Live::Looked(head) } else { Live::Head(head) };
            self.fanout.deliver(&channel, &live);
        }
        Ok(())
    }
}

#[async_trait]
impl DurableBus for PostgresDurable {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<Position, DurableError> {
        self.publish_for(channel, event, payload, None).await
    }

    async fn publish_once(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        key: &IdempotencyKey,
    ) -> Result<Position, DurableError> {
        self.publish_for(channel, event, payload, Some(key)).await
    }

    async fn head(&self, channel: &Channel) -> Result<Position, DurableError> {
        self.log.head(channel).await.map_err(unavailable)
    }

    async fn subscribe(&self, channel: &Channel, from: StartFrom) -> Result<DurableStream, DurableError> {
        // Before the head is read: what commits in between waits in the mailbox.
        let live = self.fanout.subscribe(channel);
        let (last, verify) = match from {
            StartFrom::Now => (Some(self.log.head(channel).await.map_err(unavailable)?), false),
            StartFrom::After(position) => (Some(position), true),
            StartFrom::Oldest => (None, true),
        };
        Ok(durable_stream(self.log.clone(), live, last, verify))
    }

    async fn history(
        &self,
        channel: &Channel,
        after: Option<Position>,
        limit: usize,
    ) -> Result<History, DurableError> {
        self.log.read(channel, after, limit).await
    }
}

impl Sink for PostgresDurable {
    fn notify_channel(&self) -> &str {
        &self.notify_channel
    }

    fn notified(&self, text: &str) {
        let understood = doorbell::read(text, |channel, ring| {
            if !self.fanout.is_wanted(channel) {
                return;
            }
            match ring {
                Ring::Head(head) => self.fanout.deliver(channel, &Live::Head(head)),
                Ring::Event(event) => match event() {
                    Some(event) => self.fanout.deliver(channel, &Live::Event(Arc::new(event))),
                    None => 0,
                },
            };
        });
        if !understood {
            self.foreign.increment();
            debug!("ignored a notification that is no doorbell");
        }
    }

    fn listening(&self) {
        self.listening.notify_one();
    }
}

fn unavailable(error: PostgresError) -> DurableError {
    DurableError::Unavailable(error.into_cause())
}
