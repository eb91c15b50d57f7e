//! Finds the server that takes writes and opens connections to it, each named for its purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Row};
use switchboard_core::types::NodeId;
use tokio::time::timeout;

use crate::dsn::Dsn;
use crate::error::PostgresError;

/// PostgreSQL cuts longer application names.
const APPLICATION_NAME_MAX: usize = 63;

/// Names and values, as `SET` takes them.
pub(crate) type Settings<'a> = &'a [(&'a str, &'a str)];

/// What our statements rely on, whatever the role, the database or the server prefer. Nobody else's function or operator may
/// stand in for one of PostgreSQL's own, and a row that moved while a statement waited for its lock is looked at again.
const OURS: Settings<'static> =
    &[("search_path", "pg_catalog, pg_temp"), ("default_transaction_isolation", "read committed")];

/// A route to the primary among the hosts of a [`Dsn`]. Clones share what they learn.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    dsn: Dsn,
    node_id: NodeId,
    /// Whether a pooler may lend our sessions to other clients between two statements.
    shared: bool,
    /// The host that took writes last.
    primary: Arc<AtomicUsize>,
    /// The host to try first: the primary, or the one after a host whose attempt was given up by the caller. A host that
    /// swallows connections must not use up every caller's patience.
    next: Arc<AtomicUsize>,
}

impl Route {
    pub(crate) fn new(dsn: Dsn, node_id: NodeId) -> Self {
        Self { dsn, node_id, shared: false, primary: Arc::default(), next: Arc::default() }
    }

    /// A route through what may be a transaction pooler: the settings of a session would be those of all its clients.
    pub(crate) fn shared(dsn: Dsn, node_id: NodeId) -> Self {
        Self { shared: true, ..Self::new(dsn, node_id) }
    }

    /// Opens a connection to the host that takes writes, and changes nothing about its session.
    pub(crate) async fn connect(&self, purpose: &str) -> Result<PgConnection, PostgresError> {
        Ok(self.find_primary(purpose).await?.0)
    }

    /// As [`connect`](Self::connect), with a session set up for our statements and with `more`, unless it may be somebody
    /// else's, too. Only for routes on which LISTEN has proven that no pooler is in the way.
    pub(crate) async fn session(
        &self,
        purpose: &str,
        more: Settings<'_>,
    ) -> Result<PgConnection, PostgresError> {
        if self.shared {
            return self.connect(purpose).await;
        }
        Ok(self.find(purpose, &[OURS, more].concat()).await?.0)
    }

    /// A connection to the host that takes writes, and the options that lead there. Tries every host once; the error is the
    /// most telling one.
    pub(crate) async fn find_primary(
        &self,
        purpose: &str,
    ) -> Result<(PgConnection, PgConnectOptions), PostgresError> {
        self.find(purpose, &[]).await
    }

    async fn find(
        &self,
        purpose: &str,
        settings: Settings<'_>,
    ) -> Result<(PgConnection, PgConnectOptions), PostgresError> {
        let count = self.dsn.hosts().len();
        let first = self.next.load(Ordering::Relaxed);
        let mut failure: Option<PostgresError> = None;
        for index in (0..count).map(|step| (first + step) % count) {
            let options = self.options(index, purpose);
            self.next.store((index + 1) % count, Ordering::Relaxed);
            match verified(&options, settings, self.dsn.connect_timeout()).await {
                Ok(connection) => {
                    self.primary.store(index, Ordering::Relaxed);
                    self.next.store(index, Ordering::Relaxed);
                    return Ok((connection, options));
                }
                // While one host may come back by itself, waiting may help, whatever a person must mend about the others.
                Err(error) => match &failure {
                    Some(first) if first.is_transient() || !error.is_transient() => {}
                    _ => failure = Some(error),
                },
            }
        }
        Err(failure.unwrap_or_else(|| PostgresError::Unsuitable("the database URL names no host".to_owned())))
    }

    /// The options for the host that took writes last.
    pub(crate) fn primary_options(&self, purpose: &str) -> PgConnectOptions {
        self.options(self.primary.load(Ordering::Relaxed), purpose)
    }

    /// A number that changes when another host takes over.
    pub(crate) fn primary_index(&self) -> usize {
        self.primary.load(Ordering::Relaxed)
    }

    fn options(&self, index: usize, purpose: &str) -> PgConnectOptions {
        let name: String =
            format!("switchboard {purpose} {}", self.node_id).chars().take(APPLICATION_NAME_MAX).collect();
        self.dsn.hosts()[index].clone().application_name(&name)
    }
}

/// Opens a connection to one host, makes sure that it takes writes, and sets it up.
async fn verified(
    options: &PgConnectOptions,
    settings: Settings<'_>,
    limit: Duration,
) -> Result<PgConnection, PostgresError> {
    let mut connection = within(limit, PgConnection::connect_with(options)).await?;
    within(limit, set_up(&mut connection, options, settings)).await?;
    Ok(connection)
}

/// Waits for a driver call, but not for ever: a black hole answers nothing.
pub(crate) async fn within<T, E: Into<PostgresError>>(
    limit: Duration,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, PostgresError> {
    match timeout(limit, call).await {
        Ok(result) => result.map_err(Into::into),
        Err(_elapsed) => Err(PostgresError::Timeout(limit)),
    }
}

/// A standby accepts connections and even LISTEN-less reads; only asking tells.
pub(crate) async fn ensure_writable(
    executor: impl sqlx::PgExecutor<'_>,
    options: &PgConnectOptions,
) -> Result<(), PostgresError> {
    set_up(executor, options, &[]).await
}

/// [`ensure_writable`] and `settings` in one round trip.
async fn set_up(
    executor: impl sqlx::PgExecutor<'_>,
    options: &PgConnectOptions,
    settings: Settings<'_>,
) -> Result<(), PostgresError> {
    let set =
        settings.iter().map(|(name, value)| format!(", pg_catalog.set_config('{name}', '{value}', false)"));
    let query = format!(
        "SELECT pg_catalog.pg_is_in_recovery() OR pg_catalog.current_setting('default_transaction_read_only')::boolean{}",
        set.collect::<String>()
    );
    let read_only = sqlx::query(AssertSqlSafe(query))
        .persistent(false)
        .fetch_one(executor)
        .await?
        .try_get::<bool, _>(0)?;
    if read_only {
        let (host, port) = (options.get_host(), options.get_port());
        let host = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        return Err(PostgresError::ReadOnly { host });
    }
    Ok(())
}
