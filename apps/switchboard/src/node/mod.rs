//! The life of one node's process, apart from what the core decides: its parts are started in order, and stopped in order
//! whenever and however the end comes.
//!
//! Invariant: nothing is registered before HTTP is bound, and nothing is registered any more when HTTP is gone.

mod connect;
mod endpoint;
mod files;
mod http;
mod meta;
mod transport;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use switchboard_core::health::HealthRegistry;
use switchboard_core::node::{Node, NodeConfig, NodeEnd};
use switchboard_core::presence::{Presence, PresenceConfig};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::types::Endpoint;
use switchboard_gateway::Services;
use switchboard_postgres::Postgres;
use tokio::time::{Instant, timeout_at};
use tracing::{error, info, warn};

use crate::config::ServeConfig;
use crate::stop::{Reason, Stop};
use crate::telemetry;
use crate::traces::Traces;
use http::Http;
use transport::{Bound, Transport};

/// An orphan has nobody to hand its clients to, and its PostgreSQL is probably going, too.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(1);

/// An evicted node has no business in the cluster any more, but what is under way may finish.
const EVICTED_PATIENCE: Duration = Duration::from_secs(2);

/// Traces are worth less than a restart that is quick.
const TRACES_PATIENCE: Duration = Duration::from_secs(1);

/// Runs a node until it is asked to stop, or can go on no more.
pub(crate) async fn run(config: ServeConfig, stop: &Stop) -> anyhow::Result<ExitCode> {
    let stats = StatsRegistry::default();
    let health = HealthRegistry::default();
    let _measuring = telemetry::watch_process(&stats);
    let traces = Traces::start(&config)?;
    let http = Http::start(&config, &stats).await?;

    let (postgres, node, transport, presence) = tokio::select! {
        started = start(&config, &http, &stats, &health) => started?,
        reason = stop.asked() => {
            info!(%reason, "stopping before the start was complete");
            http.stop(patience(&config, reason)).await;
            return Ok(ExitCode::SUCCESS);
        }
    };
    http.attach(Services {
        node: Arc::clone(&node),
        registry: postgres.registry(),
        durable: traces.of(postgres.durable()),
        ephemeral: transport.bus(),
        presence: Arc::clone(&presence),
        health,
    });

    let code = tokio::select! {
        end = node.ended() => {
            close(http, &transport, postgres, Instant::now() + EVICTED_PATIENCE).await;
            explain(end)
        }
        reason = stop.asked() => {
            info!(%reason, "stopping");
            let deadline = Instant::now() + patience(&config, reason);
            leave(&node, &presence, &transport, http, postgres, deadline).await;
            Ok(ExitCode::SUCCESS)
        }
    };
    traces.finish(TRACES_PATIENCE).await;
    code
}

/// Everything that takes time before the node can join, which goes on in the background.
async fn start(
    config: &ServeConfig,
    http: &Http,
    stats: &StatsRegistry,
    health: &HealthRegistry,
) -> anyhow::Result<(Postgres, Arc<Node>, Transport, Arc<Presence>)> {
    let bound = Bound::bind(config)?;
    let postgres = connect::connect(&config.postgres(), stats, health, |why| http.starting(why))
        .await
        // Its message says all; the causes would say it again.
        .map_err(|error| anyhow!("cannot use PostgreSQL: {error}"))?;
    let node = join(config, &postgres, http.port(), &bound, stats.clone()).await?;
    let transport = bound.start(&node, &postgres, stats, health).await?;
    let presence = Presence::spawn(transport.bus(), &node, PresenceConfig::default(), stats);
    Ok((postgres, Arc::new(node), transport, Arc::new(presence)))
}

/// Starts to join.
async fn join(
    config: &ServeConfig,
    postgres: &Postgres,
    http_port: u16,
    bound: &Bound,
    stats: StatsRegistry,
) -> anyhow::Result<Node> {
    let (ip, port) = bound.address()?.unwrap_or((None, http_port));
    let endpoint = match (&config.cluster.endpoint, ip) {
        (Some(endpoint), _) => endpoint.clone(),
        (None, Some(ip)) => Endpoint::from_ip(ip, port)?,
        (None, None) => endpoint::detect(&config.database.dsn, port)
            .await
            .ok_or_else(|| anyhow!("found no address for peers to reach this node; set CLUSTER_ENDPOINT"))?,
    };
    info!(node_id = %config.cluster.node_id, %endpoint, "joining the cluster");
    let mut meta = meta::describe(&config.http.addr, &endpoint, http_port);
    bound.describe(&mut meta);
    let node = NodeConfig {
        node_id: config.cluster.node_id.clone(),
        meta,
        endpoint,
        timing: config.cluster.timing,
        on_eviction: config.cluster.on_eviction,
    };
    Ok(Node::spawn(postgres.registry(), node, stats))
}

/// The orderly end, by `deadline` at the latest: clients first, so that nobody is served by a node that is not in the cluster.
async fn leave(
    node: &Node,
    presence: &Presence,
    transport: &Transport,
    http: Http,
    postgres: Postgres,
    deadline: Instant,
) {
    let left = |share: u32| deadline.saturating_duration_since(Instant::now()) / share;
    // Clients that do not let go must not cost us the farewell.
    http.stop(left(2)).await;
    let _ = timeout_at(deadline, presence.stop()).await;
    let _ = timeout_at(deadline, transport.close()).await;
    node.leave(left(1)).await;
    if timeout_at(deadline, postgres.close()).await.is_err() {
        warn!("stopped before everything was closed: CLUSTER_DRAIN_TIMEOUT is over");
    }
}

async fn close(http: Http, transport: &Transport, postgres: Postgres, deadline: Instant) {
    http.stop(deadline.saturating_duration_since(Instant::now()) / 2).await;
    let _ = timeout_at(deadline, transport.close()).await;
    // What is left open closes with the process.
    let _ = timeout_at(deadline, postgres.close()).await;
}

/// Why a node's life ended although nobody asked it to.
fn explain(end: NodeEnd) -> anyhow::Result<ExitCode> {
    match end {
        NodeEnd::Left => Ok(ExitCode::SUCCESS),
        NodeEnd::Evicted(identity) => {
            error!(node = %identity, "evicted: its row is gone from the registry (swept as stale, deleted, or taken by a successor); \
                exiting, so that a supervisor can start it afresh");
            Ok(ExitCode::FAILURE)
        }
        NodeEnd::Refused(error) => Err(anyhow!("cannot join the cluster: {error}")),
        NodeEnd::Broken => Err(anyhow!(
            "the task that renews has ended without a word, which is a bug (a panic is reported above); exiting, so that a supervisor can start afresh"
        )),
    }
}

fn patience(config: &ServeConfig, reason: Reason) -> Duration {
    match reason {
        Reason::Signal { .. } => config.cluster.drain_timeout,
        Reason::ParentGone => config.cluster.drain_timeout.min(ORPHAN_PATIENCE),
    }
}
