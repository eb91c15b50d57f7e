//! What every handler sees, and whether the node should get work.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use switchboard_core::health::{Condition, HealthRegistry};
use switchboard_core::lease::LeaseState;
use switchboard_core::node::Node;
use switchboard_core::ports::{DurableBus, EphemeralBus, Registry};
use switchboard_core::stats::{Counter, StatsRegistry};
use switchboard_core::timing::Timing;
use switchboard_core::types::{NodeId, PayloadLimits};
use tokio_util::sync::CancellationToken;

/// How the gateway behaves.
#[derive(Clone)]
pub struct GatewayConfig {
    /// This node, as `/health` names it.
    pub node_id: NodeId,
    /// Opens the admin route, and the channel routes. Without one they are closed.
    pub admin_token: Option<String>,
    /// Lets everybody use the channel routes, for development.
    pub open_access: bool,
    /// Largest payloads, which bound request bodies.
    pub limits: PayloadLimits,
    /// Shown to those who judge heartbeat ages.
    pub timing: Timing,
}

/// The ports the gateway serves.
pub struct Services {
    /// This node.
    pub node: Arc<Node>,
    /// The registry.
    pub registry: Arc<dyn Registry>,
    /// The durable bus.
    pub durable: Arc<dyn DurableBus>,
    /// The ephemeral bus.
    pub ephemeral: Arc<dyn EphemeralBus>,
    /// What else must work for the node to be healthy.
    pub health: HealthRegistry,
}

/// The HTTP surface of one node. Clones share everything.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    config: GatewayConfig,
    services: OnceLock<Services>,
    starting: Mutex<String>,
    draining: CancellationToken,
    counts: Counts,
}

/// Shown in stats.
#[derive(Clone, Default)]
pub(crate) struct Counts {
    pub(crate) requests: Counter,
    pub(crate) refused: Counter,
    pub(crate) published: Counter,
    pub(crate) sse_clients: Arc<AtomicUsize>,
}

impl Gateway {
    /// A gateway that has nothing to serve yet; adds its gauges to `stats`.
    pub fn new(config: GatewayConfig, stats: &StatsRegistry) -> Self {
        let counts = Counts::default();
        let shown = counts.clone();
        stats.gauge("http", move || {
            serde_json::json!({
                "requests_total": shown.requests.get(),
                "refused_total": shown.refused.get(),
                "published_total": shown.published.get(),
            })
        });
        let clients = Arc::clone(&counts.sse_clients);
        stats.gauge("sse_clients", move || clients.load(std::sync::atomic::Ordering::Relaxed));
        Self(Arc::new(Inner {
            config,
            services: OnceLock::new(),
            starting: Mutex::new("the process has just begun".to_owned()),
            draining: CancellationToken::new(),
            counts,
        }))
    }

    /// Says what the start is waiting for, as a clause for people.
    pub fn starting(&self, waiting_for: impl Into<String>) {
        *self.0.starting.lock() = waiting_for.into();
    }

    /// Gives the gateway what it serves. Only the first call counts.
    pub fn attach(&self, services: Services) {
        // A second set of ports would be a mistake of the caller; the first stays, as documented.
        let _ = self.0.services.set(services);
    }

    /// Takes no more work: not ready, no new streams, open streams end. What is under way is finished. Final.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    pub(crate) fn config(&self) -> &GatewayConfig {
        &self.0.config
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// The ports, whatever the node's state.
    pub(crate) fn services(&self) -> Option<&Services> {
        self.0.services.get()
    }

    /// The ports, if the node should get work, and otherwise why not.
    pub(crate) fn ready(&self) -> Result<&Services, String> {
        if self.0.draining.is_cancelled() {
            return Err("draining: this node is about to stop".to_owned());
        }
        let Some(services) = self.services() else {
            return Err(format!("starting: {}", self.0.starting.lock()));
        };
        let status = services.node.status();
        let status = status.borrow();
        let because = status.last_error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        match status.lease {
            None => return Err(format!("joining the cluster{because}")),
            Some(LeaseState::Evicted) => {
                return Err("evicted: the registry no longer knows this node".to_owned());
            }
            Some(LeaseState::Left) => return Err("this node has left the cluster".to_owned()),
            Some(LeaseState::Active) if status.is_active() => {}
            Some(LeaseState::Active | LeaseState::Suspended) => {
                let threshold = self.config().timing.stale_threshold();
                return Err(format!("suspended: no heartbeat got through for {threshold:?}{because}"));
            }
        }
        for (name, condition) in services.health.report() {
            if let Condition::Failed(reason) = condition {
                return Err(format!("{name}: {reason}"));
            }
        }
        Ok(services)
    }

    /// What somebody should look at although the node works.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let report = self.services().map(|services| services.health.report()).unwrap_or_default();
        let warning = |(name, condition)| match condition {
            Condition::Degraded(reason) => Some(format!("{name}: {reason}")),
            Condition::Ok | Condition::Failed(_) => None,
        };
        report.into_iter().filter_map(warning).collect()
    }
}
