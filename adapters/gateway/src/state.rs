//! What every handler sees, and whether the node should get work.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::http::{StatusCode, header};
use parking_lot::Mutex;
use switchboard_core::health::{Condition, HealthRegistry};
use switchboard_core::lease::LeaseState;
use switchboard_core::node::{Node, NodeStatus};
use switchboard_core::ports::{DurableBus, EphemeralBus, Registry};
use switchboard_core::presence::Presence;
use switchboard_core::stats::{Counter, StatsRegistry};
use switchboard_core::timing::Timing;
use switchboard_core::types::{NodeId, PayloadLimits};
use switchboard_protocol::session::{Bucket, Rate};
use tokio_util::sync::CancellationToken;

use crate::admin::Feed;
use crate::auth::Verifier;
use crate::metrics::MetricsAccess;
use crate::millis;
use crate::origin::Origins;
use crate::problem::Problem;
use crate::socket::{Encoded, SocketConfig};

/// How the gateway behaves.
#[derive(Clone)]
pub struct GatewayConfig {
    /// This node, as `/health` names it.
    pub node_id: NodeId,
    /// Opens the admin route, and the channel routes. Without one the former is closed.
    pub admin_token: Option<String>,
    /// Judges the tokens of clients, for the channel routes. Without one those are for the admin token alone.
    pub verifier: Option<Arc<Verifier>>,
    /// The foreign web pages that may use the channel routes.
    pub origins: Origins,
    /// Who may read `/metrics`.
    pub metrics: MetricsAccess,
    /// Lets everybody use the channel routes, for development on one machine.
    pub open_access: bool,
    /// Largest payloads, which bound request bodies.
    pub limits: PayloadLimits,
    /// Shown to those who judge heartbeat ages.
    pub timing: Timing,
    /// How WebSockets are served.
    pub sockets: SocketConfig,
    /// Connections at once, each of which is an open file: what is left of the process's limit is for everything else.
    /// When all are taken, the one that has been idle for longest makes place for a new one.
    pub connections: usize,
}

/// What a request may be larger than its payload.
const ENVELOPE: usize = 16 * 1024;

/// Attempts to sign in, right or wrong. Nobody guesses a token that is any good; this is for the others.
const LOGINS: Rate = Rate { per_second: 1, burst: 10 };

/// Most connections that are kept for short requests.
const ROOM: usize = 100;

impl GatewayConfig {
    /// Streams at once. They are long, so a few connections are not for them: probes come at any time.
    pub(crate) fn streams(&self) -> usize {
        self.connections - (self.connections / 10).min(ROOM)
    }

    /// Largest body of a request.
    pub(crate) fn body_limit(&self) -> usize {
        self.limits.durable.max(self.limits.ephemeral).saturating_add(ENVELOPE)
    }
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
    /// Who is present.
    pub presence: Arc<Presence>,
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
    stats: StatsRegistry,
    counts: Counts,
    encoded: Encoded,
    opening: Mutex<Bucket>,
    logins: Mutex<Bucket>,
    feed: Feed,
}

/// Shown in stats.
pub(crate) struct Counts {
    pub(crate) requests: Counter,
    /// Answers that put the blame on the client.
    pub(crate) rejected: Counter,
    pub(crate) published_durable: Counter,
    pub(crate) published_ephemeral: Counter,
    pub(crate) sse_clients: Arc<AtomicUsize>,
    pub(crate) ws_clients: Arc<AtomicUsize>,
    /// Messages of sockets.
    pub(crate) received: Counter,
    pub(crate) sent: Counter,
    /// Ephemeral events that sockets were too slow for.
    pub(crate) lagged: Counter,
    /// Sockets that were closed because they took nothing.
    pub(crate) slow: Counter,
}

impl Counts {
    fn shown_in(stats: &StatsRegistry) -> Self {
        let clients = |name| {
            let count = Arc::<AtomicUsize>::default();
            let shown = Arc::clone(&count);
            stats.gauge(name, move || shown.load(Ordering::Relaxed));
            count
        };
        Self {
            requests: stats.counter("http_requests_total"),
            rejected: stats.counter("http_rejected_total"),
            published_durable: stats.counter("http_published_durable_total"),
            published_ephemeral: stats.counter("http_published_ephemeral_total"),
            sse_clients: clients("sse_clients"),
            ws_clients: clients("ws_clients"),
            received: stats.counter("ws_received_total"),
            sent: stats.counter("ws_sent_total"),
            lagged: stats.counter("ws_dropped_total"),
            slow: stats.counter("ws_closed_slow_total"),
        }
    }
}

impl Gateway {
    /// A gateway that has nothing to serve yet; adds its gauges to `stats`.
    pub fn new(config: GatewayConfig, stats: &StatsRegistry) -> Self {
        let opening = Mutex::new(Bucket::new(config.sockets.opening, Instant::now()));
        let draining = CancellationToken::new();
        // For whoever looks at the cluster; there is nothing to say before.
        let shown = draining.clone();
        stats.gauge("draining", move || shown.is_cancelled().then_some(true));
        Self(Arc::new(Inner {
            config,
            services: OnceLock::new(),
            starting: Mutex::new("the process has just begun".to_owned()),
            draining,
            stats: stats.clone(),
            counts: Counts::shown_in(stats),
            encoded: Encoded::default(),
            opening,
            logins: Mutex::new(Bucket::new(LOGINS, Instant::now())),
            feed: Feed::default(),
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
        // The end may come before the next heartbeat, and those who watch should know why.
        if let Some(services) = self.services() {
            services.node.renew_soon();
        }
    }

    pub(crate) fn config(&self) -> &GatewayConfig {
        &self.0.config
    }

    /// What this node tells about itself.
    pub(crate) fn stats(&self) -> &StatsRegistry {
        &self.0.stats
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    pub(crate) fn encoded(&self) -> &Encoded {
        &self.0.encoded
    }

    /// Lets another socket in, unless too many came at once.
    pub(crate) fn admit_socket(&self) -> Result<(), Problem> {
        let admitted = self.0.opening.lock().take(Instant::now());
        admitted.map_err(|_too_many| Problem::unavailable("too many sockets are being opened at once"))
    }

    /// Lets somebody try to sign in, unless that happens too often.
    pub(crate) fn admit_login(&self) -> Result<(), Problem> {
        let admitted = self.0.logins.lock().take(Instant::now());
        admitted.map_err(|_too_many| {
            let detail = "too many attempts to sign in; wait for ten seconds";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).with_header(header::RETRY_AFTER, "10")
        })
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.0.feed
    }

    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.0.draining
    }

    /// The ports, whatever the node's state.
    pub(crate) fn services(&self) -> Option<&Services> {
        self.0.services.get()
    }

    /// What there is to say as long as there are no ports.
    pub(crate) fn starting_reason(&self) -> String {
        format!("starting: {}", self.0.starting.lock())
    }

    /// The ports, if the node should get work right now, and otherwise why not.
    pub(crate) fn ready(&self) -> Result<&Services, String> {
        if self.0.draining.is_cancelled() {
            return Err("draining: this node is about to stop".to_owned());
        }
        let services = self.services().ok_or_else(|| self.starting_reason())?;
        entitled(&services.node.status().borrow())?;
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
        let keys = self.0.config.verifier.as_ref().and_then(|verifier| verifier.warning());
        report.into_iter().filter_map(warning).chain(keys).collect()
    }
}

/// Whether a node of this status may act, by the clock and not only by what was announced last.
fn entitled(status: &NodeStatus) -> Result<(), String> {
    if status.is_active() {
        return Ok(());
    }
    let because = status.last_error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    Err(match status.lease {
        None if because.is_empty() => "joining: the registry has not answered yet".to_owned(),
        None => format!("joining{because}"),
        Some(LeaseState::Active | LeaseState::Suspended) => {
            let age = status.heartbeat_age().unwrap_or_default();
            // To the millisecond; nobody is helped by more.
            let age = Duration::from_millis(millis(age));
            format!("suspended: no heartbeat got through for {age:?}{because}")
        }
        Some(LeaseState::Evicted) => "evicted: the registry no longer knows this node".to_owned(),
        Some(LeaseState::Left) => "left: this node is no longer in the cluster".to_owned(),
    })
}
