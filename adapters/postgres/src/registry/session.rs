//! The connection that renewals own, and the advisory lock it holds for the incarnation.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Uuid;
use sqlx::{Connection, Row};
use switchboard_core::claim::Holder;
use switchboard_core::ports::{Heartbeat, Registered, Registration, SweepScope};
use switchboard_core::types::{Identity, Incarnation, Stats};

use super::rows;
use super::statements::Statements;
use crate::error::PostgresError;
use crate::route::{Route, within};

pub(super) struct Session {
    connection: PgConnection,
    identity: Identity,
    locked: bool,
    statements: Arc<Statements>,
}

impl Session {
    /// Opens the connection, whose statements the server itself cancels after `limit`.
    pub(super) async fn open(
        route: &Route,
        statements: &Arc<Statements>,
        identity: &Identity,
        limit: Duration,
    ) -> Result<Self, PostgresError> {
        let limit = limit.as_millis().to_string();
        let connection = route.session("registry", &[("statement_timeout", &limit)]).await?;
        Ok(Self { connection, identity: identity.clone(), locked: false, statements: Arc::clone(statements) })
    }

    /// Whether this session was opened for this very process start.
    pub(super) fn serves(&self, identity: &Identity) -> bool {
        self.identity == *identity
    }

    /// Takes the lock of the incarnation, unless the remains of an earlier session still hold it.
    pub(super) async fn lock(&mut self) -> Result<(), PostgresError> {
        if !self.locked {
            let query = sqlx::query(self.statements.lock.clone()).bind(uuid(self.identity.incarnation));
            self.locked = query.fetch_one(&mut self.connection).await?.try_get(0)?;
        }
        Ok(())
    }

    /// Whether no session has the lock of an incarnation.
    pub(super) async fn is_free(&mut self, incarnation: Incarnation) -> Result<bool, PostgresError> {
        let query = sqlx::query(self.statements.is_free.clone()).bind(uuid(incarnation));
        Ok(query.fetch_one(&mut self.connection).await?.try_get(0)?)
    }

    /// Who holds the row of the node id.
    pub(super) async fn holder(
        &mut self,
        stale_threshold: Duration,
    ) -> Result<Option<Holder>, PostgresError> {
        let query = sqlx::query(self.statements.holder.clone())
            .bind(self.identity.node_id.as_str())
            .bind(micros(stale_threshold));
        let row = query.fetch_optional(&mut self.connection).await?;
        row.as_ref().map(rows::holder).transpose()
    }

    /// Writes the row, if there is none, or it still is as it was `seen`, or it is our own.
    pub(super) async fn take_row(
        &mut self,
        registration: &Registration,
        seen: Option<&Holder>,
    ) -> Result<Option<Registered>, PostgresError> {
        let identity = &registration.identity;
        let row = sqlx::query(self.statements.take_row.clone())
            .bind(identity.node_id.as_str())
            .bind(uuid(identity.incarnation))
            .bind(registration.endpoint.to_string())
            .bind(json(&registration.meta))
            .bind(seen.map(|holder| uuid(holder.incarnation)))
            .bind(seen.map(|holder| holder.heartbeat))
            .bind(micros(registration.timing.stale_threshold()))
            .fetch_optional(&mut self.connection)
            .await?;
        self.identity = identity.clone();
        row.map(|row| Ok(Registered { seq: row.try_get("seq")?, heartbeat: row.try_get("heartbeat")? }))
            .transpose()
    }

    pub(super) async fn renew(&mut self, heartbeat: &Heartbeat) -> Result<Vec<PgRow>, PostgresError> {
        let timing = &heartbeat.timing;
        let rows = sqlx::query(self.statements.renew.clone())
            .bind(heartbeat.identity.node_id.as_str())
            .bind(uuid(heartbeat.identity.incarnation))
            .bind(json(&heartbeat.stats))
            .bind(micros(timing.ghost_threshold()))
            .bind(heartbeat.sweep == SweepScope::Stale)
            .bind(micros(timing.proof_window()))
            .bind(micros(timing.stale_threshold()))
            .bind(heartbeat.witness)
            .fetch_all(&mut self.connection)
            .await?;
        Ok(rows)
    }

    pub(super) async fn leave(&mut self, identity: &Identity) -> Result<(), PostgresError> {
        sqlx::query(self.statements.leave.clone())
            .bind(identity.node_id.as_str())
            .bind(uuid(identity.incarnation))
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    pub(super) async fn close(self) {
        // A server that does not answer must not hold up the end of the process.
        let _ = within(Duration::from_millis(500), self.connection.close()).await;
    }
}

fn uuid(incarnation: Incarnation) -> Uuid {
    Uuid::from_u128(incarnation.bits())
}

/// As text for `jsonb`, which cannot hold U+0000: a gauge that says it must not cost the node its heartbeat.
fn json(stats: &Stats) -> String {
    serde_json::Value::Object(stats.0.clone()).to_string().replace("\\u0000", "\\ufffd")
}

#[allow(
    clippy::cast_precision_loss,
    reason = "intervals are multiplied as double precision; days are exact to the microsecond"
)]
fn micros(duration: Duration) -> f64 {
    duration.as_micros() as f64
}
