//! The settings that say where PostgreSQL is and how it is used. `serve`, `migrate` and `doctor` share them.

use std::ffi::OsString;

use clap::Args;
use switchboard_core::types::{NodeId, PayloadLimits};
use switchboard_postgres::{Dsn, PostgresConfig, Retention, SchemaName};

use super::retention;
use super::setting::{ConfigError, Setting, integer};

const DATABASE_URL: Setting = Setting::new("DATABASE_URL", "--database-url");
const LISTEN_DATABASE_URL: Setting = Setting::new("LISTEN_DATABASE_URL", "--listen-database-url");
const DATABASE_POOL_SIZE: Setting = Setting::new("DATABASE_POOL_SIZE", "--database-pool-size");
const DURABLE_RETENTION: Setting = Setting::new("DURABLE_RETENTION", "--durable-retention");
const CLUSTER_SCHEMA: Setting = Setting::new("CLUSTER_SCHEMA", "--cluster-schema");

const URL_FORM: &str = "must be postgres://user:password@host:port/database";
const MAX_POOL: usize = 1000;

/// As given.
#[derive(Args)]
#[command(next_help_heading = "Database")]
pub(crate) struct DatabaseArgs {
    /// Where PostgreSQL is (required): `postgres://user:password@host:port/database`.
    ///
    /// Several hosts (`host1:5432,host2:5432`) are tried until one takes writes; after a failover the new primary is
    /// found without a restart. In user, password and database name the characters / ? # @ : % and spaces are
    /// percent-encoded (@ is %40). Parameters: those of the driver (sslmode, sslrootcert …), `connect_timeout`
    /// (seconds, 1 to 300, default 5) and `target_session_attrs`. Without a password PGPASSWORD and ~/.pgpass are asked.
    /// Prefer the variable to the flag, which every user of the machine can read.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<OsString>,

    /// A direct route to the same PostgreSQL, if `DATABASE_URL` goes through a transaction pooler.
    ///
    /// The sessions that LISTEN and that renew the lease use it. Same form as `DATABASE_URL`.
    #[arg(long, env = "LISTEN_DATABASE_URL", hide_env_values = true, value_name = "URL")]
    listen_database_url: Option<OsString>,

    /// Connections for reading history and members, opened when needed: 1 to 1000.
    ///
    /// A node has 4 more: renewals, LISTEN, durable publishing, ephemeral publishing; and for a moment another that proves
    /// LISTEN.
    #[arg(
        long,
        env = "DATABASE_POOL_SIZE",
        hide_env_values = true,
        value_name = "COUNT",
        default_value = "1"
    )]
    database_pool_size: OsString,

    /// The PostgreSQL schema that holds the cluster: 1 to 40 of a-z, 0-9 and _.
    ///
    /// Nodes with the same database and schema form one cluster.
    #[arg(
        long,
        env = "CLUSTER_SCHEMA",
        hide_env_values = true,
        value_name = "NAME",
        default_value = "switchboard"
    )]
    cluster_schema: OsString,

    /// How long durable events are kept: a duration or `forever`, and rules for some channels: `24h,audit:*=forever,room:*=1h/1000`.
    ///
    /// A rule is PATTERN=AGE, PATTERN=AGE/COUNT or PATTERN=/COUNT, where * stands for any text; the first that fits a channel
    /// holds. COUNT keeps only so many of the newest events. Events of the longest age go at nearly no cost; what
    /// goes sooner is deleted row by row. Set the same on every node.
    #[arg(
        long,
        env = "DURABLE_RETENTION",
        hide_env_values = true,
        value_name = "AGE[,RULE...]",
        default_value = "24h"
    )]
    durable_retention: OsString,
}

/// As checked.
#[derive(Debug)]
pub(crate) struct DatabaseConfig {
    pub(crate) dsn: Dsn,
    pub(crate) session_dsn: Option<Dsn>,
    pub(crate) pool_size: u32,
    pub(crate) schema: SchemaName,
    pub(crate) retention: Retention,
}

impl DatabaseArgs {
    pub(crate) fn resolve(self) -> Result<DatabaseConfig, ConfigError> {
        let schema = self.schema()?;
        let url = self.database_url.ok_or_else(|| DATABASE_URL.missing(URL_FORM))?;
        let pool_size =
            DATABASE_POOL_SIZE.parse(&self.database_pool_size, |text| integer(text, 1, MAX_POOL))?;
        Ok(DatabaseConfig {
            dsn: DATABASE_URL.parse_secret(&url, Dsn::parse)?,
            session_dsn: self
                .listen_database_url
                .map(|url| LISTEN_DATABASE_URL.parse_secret(&url, Dsn::parse))
                .transpose()?,
            pool_size: u32::try_from(pool_size).unwrap_or(u32::MAX),
            schema,
            retention: DURABLE_RETENTION.parse(&self.durable_retention, retention::parse)?,
        })
    }

    /// The schema alone, for what needs no database.
    pub(crate) fn schema(&self) -> Result<SchemaName, ConfigError> {
        CLUSTER_SCHEMA.parse(&self.cluster_schema, SchemaName::parse)
    }
}

impl DatabaseConfig {
    /// What the adapter needs to know.
    pub(crate) fn for_node(&self, node_id: NodeId, limits: PayloadLimits) -> PostgresConfig {
        PostgresConfig {
            dsn: self.dsn.clone(),
            session_dsn: self.session_dsn.clone(),
            schema: self.schema.clone(),
            node_id,
            pool_size: self.pool_size,
            limits,
            retention: self.retention.clone(),
        }
    }
}
