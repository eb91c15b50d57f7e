//! The small pool for everything that is not dedicated: reading members and history.
//!
//! sqlx's pool, with two additions: a bound on every call, and a switch to the new primary after a failover.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgPool, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres};

use crate::error::PostgresError;
use crate::route::{Route, ensure_writable, within};

/// Longest wait for a free connection and for an answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Connections that nobody used for so long are given back to PostgreSQL.
const IDLE: Duration = Duration::from_mins(5);

#[derive(Clone)]
pub(crate) struct Pool {
    inner: PgPool,
    route: Route,
    /// The host the pool connects to, as the route counts hosts.
    host: Arc<AtomicUsize>,
}

impl Pool {
    pub(crate) fn new(route: Route, size: u32) -> Self {
        let options = PgPoolOptions::new()
            .max_connections(size.max(1))
            .acquire_timeout(LIMIT)
            .idle_timeout(IDLE)
            .test_before_acquire(true);
        let inner = options.connect_lazy_with(route.primary_options("pool"));
        let host = Arc::new(AtomicUsize::new(route.primary_index()));
        Self { inner, route, host }
    }

    /// Runs one query on any connection to the primary.
    pub(crate) async fn fetch_all(
        &self,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, PostgresError> {
        self.follow_primary();
        within(LIMIT, async {
            let mut borrowed = Borrowed { connection: self.inner.acquire().await?, good: false };
            let rows = Self::read(&mut borrowed.connection, &self.route, query).await?;
            borrowed.good = true;
            Ok::<_, PostgresError>(rows)
        })
        .await
    }

    /// Reads from a standby would be answered too, with yesterday's news.
    async fn read(
        connection: &mut PgConnection,
        route: &Route,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, PostgresError> {
        ensure_writable(&mut *connection, &route.primary_options("pool")).await?;
        Ok(query.fetch_all(connection).await?)
    }

    /// Connections in use and idle.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let idle = self.inner.num_idle();
        ((self.inner.size() as usize).saturating_sub(idle), idle)
    }

    pub(crate) async fn close(&self) {
        // A connection that is stuck in a call must not hold up the end of the process.
        let _ = tokio::time::timeout(Duration::from_millis(500), self.inner.close()).await;
    }

    fn follow_primary(&self) {
        let primary = self.route.primary_index();
        if self.host.swap(primary, Ordering::Relaxed) != primary {
            self.inner.set_connect_options(self.route.primary_options("pool"));
        }
    }
}

/// A connection that goes back to the pool only if its call succeeded. After an error it may lead to a server that became a
/// standby, after a call that was given up to nowhere at all: waiting for it would take its place in the pool for ever.
struct Borrowed {
    connection: PoolConnection<Postgres>,
    good: bool,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if !self.good {
            self.connection.close_on_drop();
        }
    }
}
