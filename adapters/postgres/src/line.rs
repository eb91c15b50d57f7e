//! Connections of one purpose: opened when needed, kept, and looked at before they are used after a rest.
//!
//! A connection that rested may lead nowhere: the server was restarted, a firewall forgot it, the host is gone. What is sent on it
//! then is lost or in doubt, so it is asked first, while nothing of value depends on the answer.
//!
//! A line that cannot be had is a matter of health, and mends itself: a node that is not ready gets no work that would show that all is
//! well again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::PgConnection;
use switchboard_core::health::Condition;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::error::PostgresError;
use crate::listener::GONE;
use crate::route::{Route, Settings, ensure_writable, within};

/// Longest wait for a sign of life.
const LOOK: Duration = Duration::from_secs(2);
/// Pause between attempts to have again what was lost, when nobody needs it.
const MEND: Duration = Duration::from_secs(2);

/// How to get connections of one purpose.
#[derive(Debug)]
pub(crate) struct Line {
    route: Route,
    purpose: &'static str,
    settings: Settings<'static>,
    /// How long after its last use a connection is good without a look.
    trust: Duration,
    pub(crate) reach: Reach,
}

/// Whether connections of one purpose can be had, for health. Clones share what they know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reach(Arc<Mutex<Option<Trouble>>>);

#[derive(Debug)]
struct Trouble {
    since: Instant,
    error: String,
}

/// A connection between two uses. Dropped if its use failed.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) connection: PgConnection,
    /// The host it leads to, as the route counts hosts.
    host: usize,
    used: Instant,
}

impl Line {
    pub(crate) fn new(
        route: Route,
        purpose: &'static str,
        settings: Settings<'static>,
        trust: Duration,
    ) -> Self {
        Self { route, purpose, settings, trust, reach: Reach::default() }
    }

    /// `kept` if it is still good, or else a new connection.
    pub(crate) async fn ready(&self, kept: Option<Kept>) -> Result<Kept, PostgresError> {
        let ready = self.open_unless_good(kept).await;
        match &ready {
            Ok(_) => self.works(),
            Err(error) => self.failed(error),
        }
        ready
    }

    /// After a failure: a connection, as soon as there is one again. While nothing has failed: never.
    pub(crate) async fn mended(&self) -> Kept {
        while self.reach.0.lock().is_some() {
            sleep(MEND.mul_f64(rand::random_range(0.5..1.0))).await;
            if let Ok(kept) = self.ready(None).await {
                return kept;
            }
        }
        std::future::pending().await
    }

    /// Notes an error that [`ready`](Self::ready) has not seen.
    pub(crate) fn failed(&self, error: &PostgresError) {
        let (error, mut trouble) = (error.to_string(), self.reach.0.lock());
        if let Some(trouble) = &mut *trouble {
            trouble.error = error;
        } else {
            warn!(purpose = self.purpose, %error, "cannot reach PostgreSQL");
            *trouble = Some(Trouble { since: Instant::now(), error });
        }
    }

    fn works(&self) {
        if self.reach.0.lock().take().is_some() {
            info!(purpose = self.purpose, "reaches PostgreSQL again");
        }
    }

    async fn open_unless_good(&self, kept: Option<Kept>) -> Result<Kept, PostgresError> {
        if let Some(mut kept) = kept
            && self.is_good(&mut kept).await
        {
            return Ok(kept);
        }
        let connection = self.route.session(self.purpose, self.settings).await?;
        Ok(Kept { connection, host: self.route.primary_index(), used: Instant::now() })
    }

    async fn is_good(&self, kept: &mut Kept) -> bool {
        if kept.host != self.route.primary_index() {
            return false;
        }
        let options = self.route.primary_options(self.purpose);
        kept.rested() < self.trust
            || within(LOOK, ensure_writable(&mut kept.connection, &options)).await.is_ok()
    }
}

impl Reach {
    /// A failure is a warning at first; one that lasts is a failure of the node.
    pub(crate) fn condition(&self) -> Condition {
        match &*self.0.lock() {
            None => Condition::Ok,
            Some(Trouble { since, error }) if since.elapsed() < GONE => {
                Condition::Degraded(format!("cannot reach PostgreSQL: {error}"))
            }
            Some(Trouble { since, error }) => Condition::Failed(format!(
                "cannot reach PostgreSQL for {} s: {error}",
                since.elapsed().as_secs()
            )),
        }
    }
}

impl Kept {
    /// After a use that succeeded.
    pub(crate) fn rest(mut self) -> Self {
        self.used = Instant::now();
        self
    }

    pub(crate) fn rested(&self) -> Duration {
        self.used.elapsed()
    }
}
