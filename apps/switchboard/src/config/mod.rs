//! The configuration: environment variables, each of which is also the flag of the same name. `switchboard serve --help`
//! is the reference.
//!
//! Clap only collects the raw values. They are checked here, so that a message names the variable and never holds a secret:
//! each group of settings is one file with the form they are given in (`…Args`) and the form they are used in (`…Config`).

mod auth;
mod cluster;
mod database;
pub(crate) mod duration;
mod http;
mod http_addr;
mod logs;
#[cfg(feature = "mesh")]
mod mesh;
mod metrics;
mod node_id;
mod retention;
mod setting;
mod sockets;
#[cfg(feature = "otlp")]
mod traces;
mod typos;

use clap::Args;
use switchboard_core::node::OnEviction;
use switchboard_core::types::PayloadLimits;
use switchboard_gateway::SocketConfig;
use switchboard_postgres::PostgresConfig;
use tracing::{info, warn};

pub(crate) use auth::{AUTH_JWT_SECRET, AuthArgs, AuthConfig, claim};
#[cfg(feature = "mesh")]
pub(crate) use cluster::Ephemeral;
pub(crate) use cluster::{ClusterArgs, ClusterConfig};
pub(crate) use database::{DatabaseArgs, DatabaseConfig};
pub(crate) use http::{ADMIN_TOKEN, AdminToken, HTTP_ADDR, HttpArgs, HttpConfig};
pub(crate) use http_addr::HttpAddr;
pub(crate) use logs::{LogArgs, LogConfig, LogFormat};
#[cfg(feature = "mesh")]
pub(crate) use mesh::{MESH_ADDR, MeshArgs, MeshSettings};
use metrics::{MetricsArgs, MetricsConfig};
pub(crate) use setting::{ConfigError, Setting};
use sockets::SocketArgs;
#[cfg(feature = "otlp")]
pub(crate) use traces::TraceConfig;

/// What `serve` is given.
#[derive(Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[cfg(feature = "mesh")]
    #[command(flatten)]
    mesh: MeshArgs,
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    auth: AuthArgs,
    #[command(flatten)]
    sockets: SocketArgs,
    #[command(flatten)]
    logs: LogArgs,

    /// Stop when standard input ends: whoever holds the other end of the pipe is gone.
    #[arg(long, hide = true)]
    exit_with_stdin: bool,

    /// Let clients in without a token. For `switchboard dev` alone.
    #[arg(long, hide = true)]
    dev_open_access: bool,
}

/// What `serve` works with.
#[derive(Debug)]
pub(crate) struct ServeConfig {
    pub(crate) database: DatabaseConfig,
    pub(crate) cluster: ClusterConfig,
    #[cfg(feature = "mesh")]
    pub(crate) mesh: MeshSettings,
    pub(crate) http: HttpConfig,
    pub(crate) metrics: MetricsConfig,
    pub(crate) auth: AuthConfig,
    pub(crate) sockets: SocketConfig,
    /// `None` if they are not switched on.
    #[cfg(feature = "otlp")]
    pub(crate) traces: Option<TraceConfig>,
    pub(crate) exit_with_stdin: bool,
    pub(crate) dev_open_access: bool,
}

impl ServeArgs {
    /// Checks every setting; the error is about the first that is wrong.
    pub(crate) fn resolve(self) -> Result<(ServeConfig, LogConfig), ConfigError> {
        let (database, cluster) = (self.database.resolve()?, self.cluster.resolve()?);
        let config = ServeConfig {
            #[cfg(feature = "mesh")]
            mesh: self.mesh.resolve(cluster.endpoint.as_ref())?,
            http: self.http.resolve()?,
            metrics: self.metrics.resolve()?,
            auth: self.auth.resolve()?,
            sockets: self.sockets.resolve(cluster.drain_timeout)?,
            #[cfg(feature = "otlp")]
            traces: TraceConfig::resolve(std::env::var_os)?,
            database,
            cluster,
            exit_with_stdin: self.exit_with_stdin,
            dev_open_access: self.dev_open_access,
        };
        Ok((config, self.logs.resolve()?))
    }
}

impl ServeConfig {
    /// What the PostgreSQL adapter needs to know.
    pub(crate) fn postgres(&self) -> PostgresConfig {
        self.database.for_node(self.cluster.node_id.clone(), self.transport_limits())
    }

    /// What PostgreSQL must take: for the mesh, envelopes around events of the largest size.
    #[cfg(feature = "mesh")]
    fn transport_limits(&self) -> PayloadLimits {
        let limits = self.http.limits;
        match self.cluster.ephemeral {
            Ephemeral::Pg => limits,
            Ephemeral::Mesh => {
                PayloadLimits { ephemeral: limits.ephemeral + switchboard_mesh::ENVELOPE_ROOM, ..limits }
            }
        }
    }

    #[cfg(not(feature = "mesh"))]
    fn transport_limits(&self) -> PayloadLimits {
        self.http.limits
    }

    /// Says once what is in effect, without secrets, and what looks like a mistake.
    pub(crate) fn log(&self) {
        let Self { database, cluster, http, auth, .. } = self;
        info!(
            version = env!("CARGO_PKG_VERSION"),
            node_id = %cluster.node_id,
            endpoint = cluster.endpoint.as_ref().map_or_else(|| "auto".to_owned(), ToString::to_string),
            database = %database.dsn,
            listen_database = database.session_dsn.as_ref().map(tracing::field::display),
            pool_size = database.pool_size,
            max_connections = self.postgres().max_connections(),
            schema = %database.schema,
            durable_retention = %retention::Shown(&database.retention),
            heartbeat_interval = ?cluster.timing.heartbeat_interval(),
            stale_threshold = ?cluster.timing.stale_threshold(),
            on_eviction = match cluster.on_eviction {
                OnEviction::Stop => "exit",
                OnEviction::Rejoin => "rejoin",
            },
            drain_timeout = ?cluster.drain_timeout,
            ephemeral = cluster.ephemeral.name(),
            http_addr = %http.addr,
            admin_token = if http.admin_token.is_some() { "set" } else { "not set" },
            tokens = auth.tokens.as_ref().map(tracing::field::debug),
            origins = ?auth.origins,
            durable_max_bytes = http.limits.durable,
            open_access = self.dev_open_access,
            "configuration"
        );
        for warning in typos::find(std::env::vars_os().map(|(name, _)| name)) {
            warn!("{warning}");
        }
        if !self.dev_open_access && http.admin_token.as_ref().is_some_and(AdminToken::is_short) {
            warn!("ADMIN_TOKEN is short enough to be guessed; use 16 characters or more");
        }
        if self.dev_open_access && auth.origins.are_all() {
            warn!("AUTH_ORIGINS lets every web page use this node, which needs no tokens");
        }
    }
}

#[cfg(all(test, feature = "mesh"))]
mod reference;
#[cfg(test)]
mod tests;
