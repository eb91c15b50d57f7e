//! PostgreSQL, and what the run asks of it behind the nodes' backs: directly, never through a proxy.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Context;
use futures::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use switchboard_core::types::{Channel, Epoch, NodeId, Position};
use switchboard_postgres::{Dsn, PostgresConfig, SchemaName};
use switchboard_testkit::history::Record;
use switchboard_testkit::postgres::{self, PrivatePostgres};
use url::Url;

use crate::payload;
use crate::recording::Recording;

/// A crash must lose nothing that was acknowledged, so commits are flushed although the server is temporary. Deadlocks are part of
/// the load and shall not take up its time.
const SETTINGS: &[(&str, &str)] =
    &[("max_connections", "400"), ("fsync", "on"), ("full_page_writes", "on"), ("deadlock_timeout", "100ms")];

pub(crate) struct Database {
    url: Url,
    schema: SchemaName,
    /// `None` if it is somebody else's.
    server: Option<PrivatePostgres>,
}

impl Database {
    /// A private server, or a schema of its own on the server given.
    pub(crate) async fn open(given: Option<&str>, seed: u64) -> anyhow::Result<Self> {
        if let Some(url) = given {
            let schema = SchemaName::parse(&format!("checker_{seed:x}"))?;
            return Ok(Self { url: url.parse()?, schema, server: None });
        }
        let server = postgres::own(SETTINGS).await;
        Ok(Self { url: server.url().parse()?, schema: SchemaName::default(), server: Some(server) })
    }

    pub(crate) fn schema(&self) -> &SchemaName {
        &self.schema
    }

    /// The server, if it may be stopped.
    pub(crate) fn server(&self) -> Option<&PrivatePostgres> {
        self.server.as_ref()
    }

    pub(crate) async fn address(&self) -> anyhow::Result<SocketAddr> {
        let (host, port) = (self.url.host_str().unwrap_or("localhost"), self.url.port().unwrap_or(5432));
        tokio::net::lookup_host((host, port)).await?.next().context("the server's name has no address")
    }

    /// The URL that leads through a proxy.
    pub(crate) fn url_through(&self, proxy: SocketAddr) -> anyhow::Result<String> {
        let mut url = self.url.clone();
        url.set_host(Some(&proxy.ip().to_string()))?;
        url.set_port(Some(proxy.port())).ok().context("the database URL takes no port")?;
        Ok(url.into())
    }

    /// Makes the schema and answers the epoch in which all positions of the run are.
    pub(crate) async fn prepare(&self) -> anyhow::Result<Epoch> {
        let mut config = PostgresConfig::new(Dsn::parse(self.url.as_str())?, NodeId::parse("checker")?);
        config.schema = self.schema.clone();
        switchboard_postgres::migrate(&config).await?;
        let rows = self.rows("SELECT {schema}.epoch()").await?;
        let epoch: i64 = rows.first().context("no epoch")?.try_get(0)?;
        Ok(Epoch::from_bits(epoch.cast_unsigned()))
    }

    /// Runs a statement; `{schema}` is replaced.
    pub(crate) async fn rows(&self, statement: &str) -> anyhow::Result<Vec<PgRow>> {
        let mut connection = self.connect().await?;
        Ok(sqlx::query(self.statement(statement)).persistent(false).fetch_all(&mut connection).await?)
    }

    /// Where every channel stands.
    pub(crate) async fn heads(&self) -> anyhow::Result<BTreeMap<Channel, Position>> {
        let rows = self.rows("SELECT channel, epoch, seq FROM {schema}.channel_head").await?;
        rows.iter().map(place).collect()
    }

    /// Whether no transaction is under way that may still publish something: those of killed nodes and broken connections end on
    /// their own.
    pub(crate) async fn is_settled(&self) -> anyhow::Result<bool> {
        let working = self
            .rows(
                "SELECT FROM pg_stat_activity WHERE state <> 'idle' AND \
                 application_name ~ '^switchboard (durable|publisher) checker-'",
            )
            .await?;
        Ok(working.is_empty())
    }

    /// Reads the log and the heads into the history.
    pub(crate) async fn read_log(&self, recording: &Recording) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        let statement = self.statement(
            "SELECT channel, epoch, seq, payload::text FROM {schema}.event_log ORDER BY channel, seq",
        );
        let mut rows = sqlx::query(statement).persistent(false).fetch(&mut connection);
        while let Some(row) = rows.try_next().await? {
            let ((channel, position), token) = (place(&row)?, payload::read(row.try_get(3)?));
            recording.push(Record::Stored { channel, position, token })?;
        }
        for (channel, position) in self.heads().await? {
            recording.push(Record::Head { channel, position })?;
        }
        Ok(())
    }

    /// Leaves nothing behind. A private server goes by itself.
    pub(crate) async fn discard(&self) -> anyhow::Result<()> {
        if self.server.is_none() {
            self.rows("DROP SCHEMA {schema} CASCADE").await?;
        }
        Ok(())
    }

    async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(self.url.as_str()).await?)
    }

    fn statement(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(text.replace("{schema}", &format!("\"{}\"", self.schema)))
    }
}

/// `channel, epoch, seq`
fn place(row: &PgRow) -> anyhow::Result<(Channel, Position)> {
    let (epoch, seq): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
    let position = Position::new(Epoch::from_bits(epoch.cast_unsigned()), u64::try_from(seq)?);
    Ok((Channel::parse(row.try_get(0)?)?, position))
}
