//! The settings that make a process a node: who it is, how it proves that it is alive, how it ends.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use switchboard_core::node::OnEviction;
use switchboard_core::timing::Timing;
use switchboard_core::types::{Endpoint, Invalid, NodeId};

use super::setting::{ConfigError, Setting, one_of};
use super::{duration, node_id};

const CLUSTER_NODE_ID: Setting = Setting::new("CLUSTER_NODE_ID", "--cluster-node-id");
const CLUSTER_ENDPOINT: Setting = Setting::new("CLUSTER_ENDPOINT", "--cluster-endpoint");
const CLUSTER_HEARTBEAT_INTERVAL: Setting =
    Setting::new("CLUSTER_HEARTBEAT_INTERVAL", "--cluster-heartbeat-interval");
const CLUSTER_STALE_THRESHOLD: Setting = Setting::new("CLUSTER_STALE_THRESHOLD", "--cluster-stale-threshold");
const CLUSTER_ON_EVICTION: Setting = Setting::new("CLUSTER_ON_EVICTION", "--cluster-on-eviction");
const CLUSTER_DRAIN_TIMEOUT: Setting = Setting::new("CLUSTER_DRAIN_TIMEOUT", "--cluster-drain-timeout");
const CLUSTER_EPHEMERAL: Setting = Setting::new("CLUSTER_EPHEMERAL", "--cluster-ephemeral");

/// Longer than any supervisor waits.
const MAX_DRAIN: Duration = Duration::from_hours(1);

/// As given.
#[allow(clippy::struct_field_names, reason = "the fields are the flags, and those are the variables")]
#[derive(Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArgs {
    /// The name of this node: 1 to 128 bytes of visible ASCII without quotes. [default: hostname-PID]
    ///
    /// Unique among live processes. Containers often share host name and PID: give each its own.
    #[arg(long, env = "CLUSTER_NODE_ID", hide_env_values = true, value_name = "NAME")]
    cluster_node_id: Option<OsString>,

    /// Where peers reach this node: `host:port` or `[v6]:port`. [default: the local address of the route to
    /// PostgreSQL, with the port of `HTTP_ADDR`]
    #[arg(long, env = "CLUSTER_ENDPOINT", hide_env_values = true, value_name = "HOST:PORT")]
    cluster_endpoint: Option<OsString>,

    /// Longest time between two heartbeats: a duration such as 10s, 500ms or 1m30s, at least 100ms.
    ///
    /// Durations are whole numbers with the units h, m, s and ms, the largest first and without spaces.
    #[arg(
        long,
        env = "CLUSTER_HEARTBEAT_INTERVAL",
        hide_env_values = true,
        value_name = "DURATION",
        default_value = "10s"
    )]
    cluster_heartbeat_interval: OsString,

    /// Age of a heartbeat from which peers take a node for dead: a duration, at least two heartbeats, at most 24h.
    ///
    /// The same for all nodes of a cluster; while it is being changed, the longer one of two nodes counts. A node that could not renew for so long takes no work until it has.
    #[arg(
        long,
        env = "CLUSTER_STALE_THRESHOLD",
        hide_env_values = true,
        value_name = "DURATION",
        default_value = "30s"
    )]
    cluster_stale_threshold: OsString,

    /// What to do when this node is no longer in the registry: `exit` (with code 1, for a supervisor to restart it) or
    /// `rejoin` (in the same process, under a new incarnation).
    #[arg(
        long,
        env = "CLUSTER_ON_EVICTION",
        hide_env_values = true,
        value_name = "exit|rejoin",
        default_value = "exit"
    )]
    cluster_on_eviction: OsString,

    /// Longest time from SIGTERM to the end: a duration up to 1h. Keep it below your supervisor's.
    #[arg(
        long,
        env = "CLUSTER_DRAIN_TIMEOUT",
        hide_env_values = true,
        value_name = "DURATION",
        default_value = "10s"
    )]
    cluster_drain_timeout: OsString,

    #[cfg_attr(
        feature = "mesh",
        doc = "What carries ephemeral events: `pg` (NOTIFY) or `mesh` (QUIC from node to node, and NOTIFY where that does not pass)."
    )]
    #[cfg_attr(
        not(feature = "mesh"),
        doc = "What carries ephemeral events: `pg` (NOTIFY). This build has no mesh."
    )]
    #[arg(
        long,
        env = "CLUSTER_EPHEMERAL",
        hide_env_values = true,
        value_name = TRANSPORTS,
        default_value = "pg"
    )]
    cluster_ephemeral: OsString,
}

const TRANSPORTS: &str = if cfg!(feature = "mesh") { "pg|mesh" } else { "pg" };

/// What carries ephemeral events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ephemeral {
    Pg,
    #[cfg(feature = "mesh")]
    Mesh,
}

impl Ephemeral {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pg => "pg",
            #[cfg(feature = "mesh")]
            Self::Mesh => "mesh",
        }
    }
}

/// As checked.
#[derive(Debug)]
pub(crate) struct ClusterConfig {
    pub(crate) node_id: NodeId,
    /// `None`: found once PostgreSQL is reached.
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) timing: Timing,
    pub(crate) on_eviction: OnEviction,
    pub(crate) drain_timeout: Duration,
    pub(crate) ephemeral: Ephemeral,
}

impl ClusterArgs {
    pub(crate) fn resolve(self) -> Result<ClusterConfig, ConfigError> {
        let timing = timing(&self)?;
        let ephemeral = CLUSTER_EPHEMERAL.parse(&self.cluster_ephemeral, transport)?;
        Ok(ClusterConfig {
            node_id: match self.cluster_node_id {
                Some(id) => CLUSTER_NODE_ID.parse(&id, NodeId::parse)?,
                None => {
                    node_id::default().map_err(|invalid| CLUSTER_NODE_ID.missing(&invalid.to_string()))?
                }
            },
            endpoint: self
                .cluster_endpoint
                .map(|endpoint| CLUSTER_ENDPOINT.parse(&endpoint, Endpoint::parse))
                .transpose()?,
            timing,
            ephemeral,
            on_eviction: CLUSTER_ON_EVICTION.parse(&self.cluster_on_eviction, |text| {
                one_of(text, &[("exit", OnEviction::Stop), ("rejoin", OnEviction::Rejoin)])
            })?,
            drain_timeout: CLUSTER_DRAIN_TIMEOUT
                .parse(&self.cluster_drain_timeout, |text| duration::parse_at_most(text, MAX_DRAIN))?,
        })
    }
}

/// Each duration by itself, then the two against each other.
fn timing(args: &ClusterArgs) -> Result<Timing, ConfigError> {
    let interval = CLUSTER_HEARTBEAT_INTERVAL.parse(&args.cluster_heartbeat_interval, duration::parse)?;
    let threshold = CLUSTER_STALE_THRESHOLD.parse(&args.cluster_stale_threshold, duration::parse)?;
    Timing::new(interval, threshold).map_err(|invalid| {
        let interval_text = args.cluster_heartbeat_interval.to_string_lossy();
        if invalid.what() == "heartbeat interval" {
            return CLUSTER_HEARTBEAT_INTERVAL.refuse(&interval_text, invalid.rule());
        }
        let rule = format!("{}; CLUSTER_HEARTBEAT_INTERVAL is {interval_text:?}", invalid.rule());
        CLUSTER_STALE_THRESHOLD.refuse(&args.cluster_stale_threshold.to_string_lossy(), &rule)
    })
}

#[cfg(feature = "mesh")]
fn transport(text: &str) -> Result<Ephemeral, Invalid> {
    one_of(text, &[("pg", Ephemeral::Pg), ("mesh", Ephemeral::Mesh)])
}

#[cfg(not(feature = "mesh"))]
fn transport(text: &str) -> Result<Ephemeral, Invalid> {
    if text == "mesh" {
        return Err(Invalid::new("transport", text, "must be pg: this build has no mesh"));
    }
    one_of(text, &[("pg", Ephemeral::Pg)])
}
