//! The LISTEN session: one connection that hears every notification of the cluster, proves that it does, and comes back.
//!
//! It never runs inside a transaction (that would hold the tail of the server's NOTIFY queue) and does nothing else. Any error
//! at all ends the session; a new one is opened with back-off, and the sinks are told, so that they can fill what they
//! missed. A session that hears nothing for a while notifies itself and must hear that: a pooler that swallows LISTEN, a half-open
//! socket or a listener the server forgot is found within [`PROBE_EVERY`] + [`LIMIT`]. The idea is Oban's "sonar". A server that no
//! longer takes writes would pass: its own NOTIFY is heard, but nobody else's comes there any more. So that is asked, too.
//!
//! One thing is not in our hands: the driver's `PgListener`, when dropped, says UNLISTEN in a task of its own, which ends with the
//! socket: on a half-open one that is when TCP gives up.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::{PgArguments, PgListener, PgNotification, PgPoolOptions};
use sqlx::query::Query;
use sqlx::{Connection, Postgres};
use switchboard_core::health::Condition;
use switchboard_core::stats::Counter;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::error::PostgresError;
use crate::route::{Route, ensure_writable, within};
use crate::schema::SchemaName;

/// Silence after which the session must prove itself.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// Longest wait for any one step, the proof included.
const LIMIT: Duration = Duration::from_secs(5);
/// Pauses between attempts to open a session.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Pause after a session that did not live to its first proof: who ended it may do so again, and each costs two connections and a
/// look at all heads.
const DIED_YOUNG: Duration = Duration::from_secs(1);
/// A session, or any other connection, that has been gone for so long makes the node unready: it may serve old news.
pub(crate) const GONE: Duration = Duration::from_secs(15);

/// Who wants the notifications of one NOTIFY channel. Called from the listening task: must not block.
pub(crate) trait Sink: Send + Sync {
    /// The NOTIFY channel.
    fn notify_channel(&self) -> &str;
    /// A notification arrived; its text may come from anybody who can connect.
    fn notified(&self, text: &str);
    /// A new session listens. Whatever was notified before may have been missed.
    fn listening(&self);
}

/// What is known of the session, for health and stats.
#[derive(Clone)]
pub(crate) struct ListenerState {
    inner: Arc<Mutex<Known>>,
    pub(crate) received: Counter,
    pub(crate) sessions: Counter,
}

struct Known {
    heard: Instant,
    error: Option<String>,
}

impl ListenerState {
    pub(crate) fn new() -> Self {
        let known = Known { heard: Instant::now(), error: Some("no session yet".to_owned()) };
        Self {
            inner: Arc::new(Mutex::new(known)),
            received: Counter::default(),
            sessions: Counter::default(),
        }
    }

    /// A session that is coming back is a warning; one that has been gone for long is a failure.
    pub(crate) fn condition(&self) -> Condition {
        let known = self.inner.lock();
        let silent = known.heard.elapsed();
        match &known.error {
            None => Condition::Ok,
            Some(error) if silent < GONE => {
                Condition::Degraded(format!("LISTEN session lost, reconnecting: {error}"))
            }
            Some(error) => {
                Condition::Failed(format!("no LISTEN session for {} s: {error}", silent.as_secs()))
            }
        }
    }

    fn heard(&self) {
        let mut known = self.inner.lock();
        known.heard = Instant::now();
        known.error = None;
    }

    fn lost(&self, error: &PostgresError) {
        self.inner.lock().error = Some(error.to_string());
    }
}

/// Keeps a session open until cancelled.
pub(crate) struct Listener {
    route: Route,
    sinks: Vec<Arc<dyn Sink>>,
    /// A NOTIFY channel of this session alone.
    probe_channel: String,
    state: ListenerState,
}

impl Listener {
    pub(crate) fn new(
        route: Route,
        schema: &SchemaName,
        sinks: Vec<Arc<dyn Sink>>,
        state: ListenerState,
    ) -> Self {
        let probe_channel = format!("{schema}.probe.{:08x}", rand::random::<u32>());
        Self { route, sinks, probe_channel, state }
    }

    /// Opens a session and has it proven by a NOTIFY from another connection on the same route.
    ///
    /// From another one, because a transaction pooler hands a session its own NOTIFY back within the same transaction, and loses
    /// everybody else's.
    pub(crate) async fn open(&self) -> Result<PgListener, PostgresError> {
        let (mut other, options) = self.route.find_primary("listener").await?;
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(LIMIT);
        let mut session = within(LIMIT, PgListener::connect_with(&pool.connect_lazy_with(options))).await?;
        session.ignore_pool_close_event(true);
        session.eager_reconnect(false);
        let channels =
            self.sinks.iter().map(|sink| sink.notify_channel()).chain([self.probe_channel.as_str()]);
        within(LIMIT, session.listen_all(channels)).await?;

        within(LIMIT, self.probe().execute(&mut other)).await?;
        self.echo(&mut session).await?;
        // Its work is done; a server that does not say goodbye changes nothing.
        let _ = within(LIMIT, other.close()).await;
        self.state.sessions.increment();
        self.state.heard();
        Ok(session)
    }

    /// Listens on `session` and its successors.
    pub(crate) async fn run(self, session: PgListener, stop: CancellationToken) {
        stop.run_until_cancelled(async {
            let mut session = Some(session);
            let mut pause = RETRY.0;
            loop {
                let open = match session.take() {
                    Some(open) => Ok(open),
                    None => self.open().await,
                };
                let error = match open {
                    Ok(mut open) => {
                        let opened = Instant::now();
                        self.sinks.iter().for_each(|sink| sink.listening());
                        let error = self.listen(&mut open).await;
                        pause = if opened.elapsed() < PROBE_EVERY { DIED_YOUNG } else { RETRY.0 };
                        warn!(%error, "lost the LISTEN session, opening a new one");
                        error
                    }
                    Err(error) => {
                        debug!(%error, ?pause, "cannot open a LISTEN session yet");
                        error
                    }
                };
                self.state.lost(&error);
                sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
                pause = (pause * 2).min(RETRY.1);
            }
        })
        .await;
    }

    /// Dispatches until something is wrong with the session.
    async fn listen(&self, session: &mut PgListener) -> PostgresError {
        info!("listening for notifications");
        let mut probe_at = Instant::now() + PROBE_EVERY;
        loop {
            tokio::select! {
                received = session.try_recv() => match received {
                    Ok(Some(notification)) => {
                        probe_at = Instant::now() + PROBE_EVERY;
                        self.state.heard();
                        self.dispatch(&notification);
                    }
                    Ok(None) => return disconnected(),
                    Err(error) => return error.into(),
                },
                () = sleep_until(probe_at) => {
                    if let Err(error) = self.prove(session).await {
                        return error;
                    }
                    self.state.heard();
                    probe_at = Instant::now() + PROBE_EVERY;
                }
            }
        }
    }

    /// Has the session say that its server takes writes, notify itself and hear it.
    async fn prove(&self, session: &mut PgListener) -> Result<(), PostgresError> {
        let options = self.route.primary_options("listener");
        within(LIMIT, ensure_writable(&mut *session, &options)).await?;
        within(LIMIT, self.probe().execute(&mut *session)).await?;
        self.echo(session).await
    }

    fn probe(&self) -> Query<'_, Postgres, PgArguments> {
        sqlx::query("SELECT pg_notify($1, '')").bind(&self.probe_channel).persistent(false)
    }

    /// Waits for the probe; whatever else arrives meanwhile is dispatched.
    async fn echo(&self, session: &mut PgListener) -> Result<(), PostgresError> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match timeout_at(deadline, session.try_recv()).await {
                Ok(Ok(Some(notification))) if notification.channel() == self.probe_channel => return Ok(()),
                Ok(Ok(Some(notification))) => self.dispatch(&notification),
                Ok(Ok(None)) => return Err(disconnected()),
                Ok(Err(error)) => return Err(error.into()),
                Err(_elapsed) => return Err(PostgresError::Pooled),
            }
        }
    }

    fn dispatch(&self, notification: &PgNotification) {
        self.state.received.increment();
        if let Some(sink) = self.sinks.iter().find(|sink| sink.notify_channel() == notification.channel()) {
            sink.notified(notification.payload());
        }
    }
}

fn disconnected() -> PostgresError {
    sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into()).into()
}
