//! A connection of a publisher that is no node: plain SQL, as any program would write it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgSeverity};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, SqlSafeStr, SqlStr};
use switchboard_core::types::{Channel, Position};
use switchboard_testkit::history::Token;
use tokio::time::timeout;

use crate::payload;

/// Longest wait for one answer. A connection that took longer is given up.
const LIMIT: Duration = Duration::from_secs(30);

/// Why a statement did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server refused it and rolled back; the session goes on.
    Refused,
    /// The connection broke, or was given up: it may have been carried out.
    Lost,
}

pub(crate) struct Session {
    options: PgConnectOptions,
    connection: Option<PgConnection>,
    publish: SqlStr,
}

impl Session {
    pub(crate) fn new(options: PgConnectOptions, schema: &str) -> Self {
        let publish = format!("SELECT \"{schema}\".publish_batch($1, $2, $3::text[]::json[])");
        let publish = AssertSqlSafe(Arc::<str>::from(publish)).into_sql_str();
        Self { options, connection: None, publish }
    }

    /// Makes sure that there is a connection, as far as one can know.
    pub(crate) async fn open(&mut self) -> Result<(), Failure> {
        if self.connection.is_none() {
            let connected = timeout(LIMIT, PgConnection::connect_with(&self.options)).await;
            self.connection = connected.ok().and_then(Result::ok);
        }
        self.connection.as_ref().map(|_| ()).ok_or(Failure::Lost)
    }

    /// `BEGIN`, `COMMIT` and the like.
    pub(crate) async fn execute(&mut self, statement: &'static str) -> Result<(), Failure> {
        let mut connection = self.connection.take().ok_or(Failure::Lost)?;
        let answer = answered(connection.execute(statement)).await;
        self.keep(connection, answer).map(|_| ())
    }

    /// Publishes one event to each of the channels.
    pub(crate) async fn publish(
        &mut self,
        channels: &[Channel],
        tokens: &[Token],
    ) -> Result<Vec<Position>, Failure> {
        let mut connection = self.connection.take().ok_or(Failure::Lost)?;
        let names: Vec<&str> = channels.iter().map(Channel::as_str).collect();
        let payloads: Vec<String> = tokens.iter().map(|token| payload::write(*token)).collect();
        let query = sqlx::query(self.publish.clone()).bind(names).bind(vec!["message"; tokens.len()]);
        let answer = answered(query.bind(payloads).fetch_all(&mut connection)).await;
        let rows = self.keep(connection, answer)?;
        let position =
            |row: &sqlx::postgres::PgRow| -> Option<Position> { Position::parse(row.try_get(0).ok()?).ok() };
        // A row that is no position is left out, and the checker counts.
        Ok(rows.iter().filter_map(position).collect())
    }

    fn keep<T>(&mut self, connection: PgConnection, answer: Result<T, Failure>) -> Result<T, Failure> {
        if !matches!(answer, Err(Failure::Lost)) {
            self.connection = Some(connection);
        }
        answer
    }
}

async fn answered<T>(call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, Failure> {
    match timeout(LIMIT, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if is_refusal(&error) => Err(Failure::Refused),
        Ok(Err(_)) | Err(_) => Err(Failure::Lost),
    }
}

/// FATAL and worse come from a server that is shutting down and may have committed before it said so.
fn is_refusal(error: &sqlx::Error) -> bool {
    let database = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    database.is_some_and(|error| error.severity() == PgSeverity::Error)
}
