//! Connections of one purpose: opened when needed, kept, and looked at before they are used after a rest.
//!
//! A connection that rested may lead nowhere: the server was restarted, a firewall forgot it, the host is gone. What is sent on it
//! then is lost or in doubt, so it is asked first, while nothing of value depends on the answer.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use tokio::time::Instant;

use crate::error::PostgresError;
use crate::route::{Route, Settings, ensure_writable, within};

/// Longest wait for a sign of life.
const LOOK: Duration = Duration::from_secs(2);

/// How to get connections of one purpose.
#[derive(Debug)]
pub(crate) struct Line {
    route: Route,
    purpose: &'static str,
    settings: Settings<'static>,
    /// How long after its last use a connection is good without a look.
    trust: Duration,
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
        Self { route, purpose, settings, trust }
    }

    /// `kept` if it is still good, or else a new connection.
    pub(crate) async fn ready(&self, kept: Option<Kept>) -> Result<Kept, PostgresError> {
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
