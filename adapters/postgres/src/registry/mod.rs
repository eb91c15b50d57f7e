//! The registry: one row per node, fenced by its incarnation, on a session of its own.
//!
//! Renewals have a connection that nothing else uses, so that no busy pool, slow query or large transaction can delay a heartbeat. The
//! same session holds the advisory lock of the incarnation: it is free as soon as the process is gone, which tells a dead holder of
//! the node id from a live one. The server cancels a statement that outlives its time, so that given-up renewals do not pile up behind a lock.

mod rows;
mod session;
mod statements;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use switchboard_core::claim::{Claim, Lock, judge};
use switchboard_core::ports::{
    ChangeHints, Heartbeat, Member, Registered, Registration, Registry, RegistryError, Renewed,
};
use switchboard_core::types::Identity;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::WatchStream;

use crate::error::PostgresError;
use crate::pool::Pool;
use crate::route::{Route, within};
use crate::schema::SchemaName;
use session::Session;
use statements::Statements;

/// How long a live holder of the node id is given to show itself or go away: a killed process's lock is free within
/// milliseconds, unless its server process is still busy.
const HOLDER_PATIENCE: Duration = Duration::from_secs(2);
const HOLDER_POLL: Duration = Duration::from_millis(50);

/// The `Registry` of one node.
pub(crate) struct PostgresRegistry {
    route: Route,
    pool: Pool,
    statements: Arc<Statements>,
    /// `None` while disconnected, and while a caller has it: a call that is given up drops its connection with it.
    session: Mutex<Option<Session>>,
    hints: watch::Receiver<()>,
}

impl PostgresRegistry {
    pub(crate) fn new(route: Route, pool: Pool, schema: &SchemaName, hints: watch::Receiver<()>) -> Self {
        Self { route, pool, statements: Arc::new(Statements::new(schema)), session: Mutex::new(None), hints }
    }

    /// Closes the session; the lock goes with it.
    pub(crate) async fn close(&self) {
        if let Some(session) = self.session.lock().await.take() {
            session.close().await;
        }
    }

    /// Runs `work` on the session, opening one first if there is none. A session that failed is not used again.
    async fn on_session<T>(
        &self,
        identity: &Identity,
        limit: Duration,
        work: impl AsyncFnOnce(&mut Session) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let mut slot = self.session.lock().await;
        let mut session = match slot.take() {
            Some(session) if session.serves(identity) => session,
            _ => Session::open(&self.route, &self.statements, identity, limit).await.map_err(unavailable)?,
        };
        let result = within_registry(limit, work(&mut session)).await;
        if !matches!(result, Err(RegistryError::Unavailable(_) | RegistryError::Rejected(_))) {
            *slot = Some(session);
        }
        result
    }
}

#[async_trait]
impl Registry for PostgresRegistry {
    async fn register(&self, registration: &Registration) -> Result<Registered, RegistryError> {
        let identity = &registration.identity;
        let limit = HOLDER_PATIENCE + registration.timing.renewal_timeout();
        self.on_session(identity, limit, async |session| {
            let (started, threshold) = (Instant::now(), registration.timing.stale_threshold());
            // Before the row is written: whoever reads it finds the lock held.
            session.lock().await.map_err(unavailable)?;
            let (mut lock, mut first_seen) = (None, None);
            loop {
                let holder = session.holder(threshold).await.map_err(unavailable)?;
                let free = match &holder {
                    Some(holder) => session.is_free(holder.incarnation).await.map_err(unavailable)?,
                    None => true,
                };
                let now = Lock::seen(free, lock);
                let waited = started.elapsed() >= HOLDER_PATIENCE;
                match judge(identity.incarnation, holder.as_ref(), first_seen.as_ref(), now, waited) {
                    Claim::Take => {
                        if let Some(registered) =
                            session.take_row(registration, holder.as_ref()).await.map_err(unavailable)?
                        {
                            return Ok(registered);
                        }
                        // Somebody else took the row between the look and the write: look again.
                    }
                    Claim::Taken(endpoint) => {
                        return Err(RegistryError::NodeIdTaken {
                            node_id: identity.node_id.clone(),
                            endpoint,
                        });
                    }
                    Claim::Wait => sleep(HOLDER_POLL).await,
                }
                lock = holder.is_some().then_some(now);
                first_seen = first_seen.or(holder);
            }
        })
        .await
    }

    async fn renew(&self, heartbeat: &Heartbeat) -> Result<Renewed, RegistryError> {
        let identity = &heartbeat.identity;
        self.on_session(identity, heartbeat.timing.renewal_timeout(), async |session| {
            // Lost with an earlier session, perhaps still held by its remains. Fencing does not depend on it.
            session.lock().await.map_err(unavailable)?;
            let rows = session.renew(heartbeat).await.map_err(unavailable)?;
            rows::renewed(rows).map_err(unavailable)?.ok_or_else(|| RegistryError::Evicted(identity.clone()))
        })
        .await
    }

    async fn members(&self) -> Result<Vec<Member>, RegistryError> {
        let rows =
            self.pool.fetch_all(sqlx::query(self.statements.members.clone())).await.map_err(unavailable)?;
        Ok(rows::members(&rows))
    }

    async fn deregister(&self, identity: &Identity) -> Result<(), RegistryError> {
        self.on_session(identity, HOLDER_PATIENCE, async |session| {
            session.leave(identity).await.map_err(unavailable)
        })
        .await
    }

    fn changes(&self) -> ChangeHints {
        WatchStream::from_changes(self.hints.clone()).boxed()
    }
}

fn unavailable(error: impl Into<PostgresError>) -> RegistryError {
    let error = error.into();
    if error.is_transient() {
        RegistryError::Unavailable(error.into_cause())
    } else {
        RegistryError::Rejected(error.into_cause())
    }
}

async fn within_registry<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, RegistryError>>,
) -> Result<T, RegistryError> {
    match within(limit, async { Ok::<_, PostgresError>(work.await) }).await {
        Ok(result) => result,
        Err(timeout) => Err(unavailable(timeout)),
    }
}
