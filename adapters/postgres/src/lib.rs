//! Switchboard's registry and buses over PostgreSQL.
//!
//! [`Postgres::connect`] migrates the schema, makes sure that LISTEN works on the route it was given, and starts the tasks behind
//! the three ports. It tries once: [`PostgresError::is_transient`] says whether trying again may help.
//!
//! A node has [four connections](PostgresConfig::DEDICATED_CONNECTIONS), one more for the moment in which LISTEN is proven, and
//! up to [`pool_size`](PostgresConfig::pool_size) when needed. Each has one purpose, shown in its `application_name`
//! (`switchboard registry NODE`, `listener`, `durable`, `ephemeral`, `pool`), and none can hold up another's:
//!
//! | connection | used for | when it is lost |
//! |---|---|---|
//! | registry | renewals; holds the advisory lock of the incarnation | reopened with the next renewal, well inside the lease |
//! | listener | LISTEN, nothing else | reopened with back-off; missed events are filled from the log |
//! | durable | publishing durable events | reopened with the next batch |
//! | ephemeral | publishing ephemeral events, `synchronous_commit = off` | reopened; events older than 5 s are dropped and counted |
//! | pool | history, members | reopened when needed |
//!
//! A connection of the last four that cannot be had is reported to the health registry under its name.

mod config;
pub mod doctor;
mod dsn;
mod durable;
mod ephemeral;
mod error;
mod hints;
mod line;
mod listener;
mod pool;
mod registry;
mod route;
pub mod schema;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use switchboard_core::health::HealthRegistry;
use switchboard_core::ports::{DurableBus, DurableError, EphemeralBus, Registry};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::types::{Channel, EventName, IdempotencyKey, Payload, Position};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use config::PostgresConfig;
pub use dsn::Dsn;
pub use durable::{Retention, RetentionRule};
pub use error::PostgresError;
pub use schema::SchemaName;
/// The driver, for the connections of [`Postgres::publish_in`].
pub use sqlx;

use durable::{PostgresDurable, Upkeep};
use ephemeral::PostgresEphemeral;
use hints::Hints;
use listener::{Listener, ListenerState, Sink};
use pool::Pool;
use registry::PostgresRegistry;
use route::{Route, within};

/// Longest wait for the last events to leave when closing.
const FLUSH: Duration = Duration::from_secs(2);

/// One node's connection to PostgreSQL: the three ports and the tasks behind them.
///
/// Dropping it stops the tasks at once; [`close`](Self::close) lets them finish.
pub struct Postgres {
    registry: Arc<PostgresRegistry>,
    durable: Arc<PostgresDurable>,
    ephemeral: Arc<PostgresEphemeral>,
    pool: Pool,
    publishing: Tasks,
    listening: Tasks,
}

impl Postgres {
    /// Connects, creates or upgrades the schema, starts listening. Adds its gauges and checks to `stats` and `health`.
    pub async fn connect(
        config: PostgresConfig,
        stats: &StatsRegistry,
        health: &HealthRegistry,
    ) -> Result<Self, PostgresError> {
        let PostgresConfig { dsn, session_dsn, schema, node_id, pool_size, limits, retention } = config;
        let (route, session_route) = if let Some(direct) = session_dsn {
            (Route::shared(dsn, node_id.clone()), Route::new(direct, node_id))
        } else {
            let route = Route::new(dsn, node_id);
            (route.clone(), route)
        };

        migrate_on(&session_route, &schema).await?;

        let pool = Pool::new(route.clone(), pool_size);
        let (publisher, durable_worker) = durable::Publisher::new(&route, &schema);
        let latency = stats.latency("durable_publish_seconds");
        let durable = Arc::new(PostgresDurable::new(&schema, pool.clone(), publisher, latency, limits));
        let (outbox, ephemeral_worker) = ephemeral::PublisherWorker::new(route, &schema);
        let ephemeral = Arc::new(PostgresEphemeral::new(&schema, outbox, limits));
        let hints = Arc::new(Hints::new(&schema));
        let registry = PostgresRegistry::new(session_route.clone(), pool.clone(), &schema, hints.receiver());

        let lines = [
            ("durable", durable_worker.reach()),
            ("ephemeral", ephemeral_worker.reach()),
            ("pool", pool.reach()),
        ];
        let state = ListenerState::new();
        let sinks: Vec<Arc<dyn Sink>> = vec![hints, durable.clone(), ephemeral.clone()];
        let listener = Listener::new(session_route, &schema, sinks, state.clone());
        let session = listener.open().await?;

        let published = durable_worker.published.clone();
        let upkeep = Arc::new(Upkeep::new(&schema, pool.clone(), retention));
        let postgres = Self {
            registry: Arc::new(registry),
            durable: durable.clone(),
            ephemeral,
            pool,
            publishing: Tasks::start(|tasks, stop| {
                tasks.spawn(durable_worker.run(stop.clone()));
                tasks.spawn(ephemeral_worker.run(stop));
            }),
            listening: Tasks::start(|tasks, stop| {
                tasks.spawn(listener.run(session, stop.clone()));
                tasks.spawn(upkeep.clone().run(stop.clone()));
                tasks.spawn(durable.watch_heads(stop));
            }),
        };
        for (name, reach) in lines {
            health.check(name, move || reach.condition());
        }
        postgres.show(stats, health, state, published, upkeep);
        Ok(postgres)
    }

    /// The registry.
    pub fn registry(&self) -> Arc<dyn Registry> {
        self.registry.clone()
    }

    /// The durable bus.
    pub fn durable(&self) -> Arc<dyn DurableBus> {
        self.durable.clone()
    }

    /// Publishes one event in a transaction of the caller's, on any connection to the same database: subscribers hear of it after
    /// the commit, and never if it rolls back.
    ///
    /// The channel's head stays locked until the transaction ends: other publishers of this channel wait, so publish last.
    /// As with any statement, an error ends the transaction; [`DurableError::Unavailable`] holds what the server said. Until the
    /// commit the position is a promise. With a `key` the whole transaction can be repeated if the answer to the commit is lost.
    ///
    /// ```no_run
    /// use switchboard_postgres::{Postgres, sqlx::{Connection, PgConnection, query}};
    ///
    /// async fn order(postgres: &Postgres, connection: &mut PgConnection) -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut transaction = connection.begin().await?;
    ///     query("INSERT INTO orders (id) VALUES (7)").execute(&mut *transaction).await?;
    ///     let (channel, event, payload) = ("orders:1".parse()?, "order".parse()?, "{\"id\": 7}".parse()?);
    ///     postgres.publish_in(&mut transaction, &channel, &event, &payload, None).await?;
    ///     transaction.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn publish_in(
        &self,
        transaction: &mut PgConnection,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        key: Option<&IdempotencyKey>,
    ) -> Result<Position, DurableError> {
        self.durable.publish_in(transaction, channel, event, payload, key).await
    }

    /// The ephemeral bus.
    pub fn ephemeral(&self) -> Arc<dyn EphemeralBus> {
        self.ephemeral.clone()
    }

    /// Sends what was accepted, ends all subscriptions, closes all connections. Takes a few seconds at most, whatever
    /// the server does. The node must have left before: its lock goes with the registry's session.
    pub async fn close(mut self) {
        self.ephemeral.close();
        self.publishing.finish(FLUSH).await;
        self.listening.finish(Duration::from_millis(500)).await;
        self.durable.close();
        self.registry.close().await;
        self.pool.close();
    }

    fn show(
        &self,
        stats: &StatsRegistry,
        health: &HealthRegistry,
        listener: ListenerState,
        published: switchboard_core::stats::Counter,
        upkeep: Arc<Upkeep>,
    ) {
        let durable = Arc::clone(&self.durable);
        stats.gauge("durable", move || {
            json!({
                "published_total": published.get(),
                "subscribers": durable.subscribers(),
                "foreign_notifications_total": durable.foreign.get(),
                "log_reads_total": durable.reads(),
                "pruned_total": upkeep.pruned.get(),
                "segments_emptied_total": upkeep.emptied.get(),
            })
        });
        let ephemeral = Arc::clone(&self.ephemeral);
        stats.gauge("ephemeral", move || {
            let outbox = ephemeral.outbox();
            json!({
                "transport": "pg",
                "published_total": outbox.published.get(),
                "received_total": ephemeral.received.get(),
                "dropped_total": outbox.dropped.get(),
                "lagged_total": ephemeral.lagged().get(),
                "backlog": outbox.backlog(),
                "subscribers": ephemeral.subscribers(),
                "foreign_notifications_total": ephemeral.foreign.get(),
            })
        });
        let (pool, state) = (self.pool.clone(), listener.clone());
        let durable = Arc::clone(&self.durable);
        stats.gauge("postgres", move || {
            let (in_use, idle) = pool.usage();
            json!({
                "pool_in_use": in_use,
                "pool_idle": idle,
                "notifications_total": state.received.get(),
                "listener_sessions_total": state.sessions.get(),
                "notify_queue_usage": durable.queue_usage(),
            })
        });
        health.check("listener", move || listener.condition());
        let durable = Arc::clone(&self.durable);
        health.check("notify_queue", move || durable.queue_condition());
    }
}

/// Creates or upgrades the schema, as every node does at its start; answers the version found before, 0 if there was none.
///
/// Needs no rights to change anything if the version is right. Any number of callers may do it at once; safe to retry.
pub async fn migrate(config: &PostgresConfig) -> Result<i32, PostgresError> {
    let dsn = config.session_dsn.as_ref().unwrap_or(&config.dsn);
    migrate_on(&Route::new(dsn.clone(), config.node_id.clone()), &config.schema).await
}

async fn migrate_on(route: &Route, schema: &SchemaName) -> Result<i32, PostgresError> {
    let mut connection = route.connect("migrate").await?;
    let found = within(schema::LIMIT, schema::migrate(&mut connection, schema)).await?;
    // The work is done; how the connection ends changes nothing.
    let _ = within(FLUSH, connection.close()).await;
    Ok(found)
}

/// Tasks that stop together.
struct Tasks {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Tasks {
    fn start(spawn: impl FnOnce(&mut JoinSet<()>, CancellationToken)) -> Self {
        let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
        spawn(&mut tasks, stop.clone());
        Self { stop, tasks }
    }

    /// Asks the tasks to stop and waits; what is not done by then is aborted.
    async fn finish(&mut self, patience: Duration) {
        self.stop.cancel();
        let _ = timeout(patience, async { while self.tasks.join_next().await.is_some() {} }).await;
        self.tasks.shutdown().await;
    }
}
