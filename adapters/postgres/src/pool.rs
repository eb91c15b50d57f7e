//! The small pool for everything that is not dedicated: reading members and history.
//!
//! Not sqlx's, which knows one host: here a connection that is missing is looked for wherever the primary may be, as for every other
//! purpose. Each call is bounded, and a connection whose call failed or was given up is not used again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use tokio::sync::Semaphore;

use crate::error::PostgresError;
use crate::line::{Kept, Line, Reach};
use crate::route::{Route, within};

/// Longest wait for a free connection and for an answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Connections that nobody used for so long are given back to PostgreSQL.
const IDLE: Duration = Duration::from_mins(5);

/// Reads from a server that became a standby would be answered too, with yesterday's news: every call looks first.
const TRUST: Duration = Duration::ZERO;

#[derive(Clone)]
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    line: Line,
    size: usize,
    /// One for each call that may be under way.
    places: Semaphore,
    /// The one that was used last is the last.
    idle: Mutex<Vec<Kept>>,
}

impl Pool {
    pub(crate) fn new(route: Route, size: u32) -> Self {
        let size = size.max(1) as usize;
        let line = Line::new(route, "pool", &[], TRUST);
        let inner = Inner { line, size, places: Semaphore::new(size), idle: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Runs one query on any connection to the primary.
    pub(crate) async fn fetch_all(
        &self,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, PostgresError> {
        self.fetch_all_telling(|| (), query).await
    }

    /// The same, and tells just before the query is sent: it may not see what commits from then on.
    pub(crate) async fn fetch_all_telling(
        &self,
        begins: impl FnOnce(),
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, PostgresError> {
        let Inner { line, places, idle, .. } = &*self.inner;
        let answer = within(LIMIT, async {
            let _place = places.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
            let kept = idle.lock().pop();
            let mut kept = line.ready(kept).await?;
            begins();
            let rows = query.fetch_all(&mut kept.connection).await?;
            let mut idle = idle.lock();
            // The nodes' own looks at the heads come by every few seconds.
            idle.retain(|kept| kept.rested() < IDLE);
            idle.push(kept.rest());
            Ok::<_, PostgresError>(rows)
        })
        .await;
        if let Err(error @ PostgresError::Timeout(_)) = &answer {
            line.failed(error);
        }
        answer
    }

    pub(crate) fn reach(&self) -> Reach {
        self.inner.line.reach.clone()
    }

    /// Connections in use and idle.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let Inner { size, places, idle, .. } = &*self.inner;
        (size - places.available_permits(), idle.lock().len())
    }

    /// Takes no more calls; those that are under way end by themselves.
    pub(crate) fn close(&self) {
        self.inner.places.close();
        self.inner.idle.lock().clear();
    }
}
