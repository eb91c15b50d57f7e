//! Connects the lease to a registry and to the clock. All waiting is here, no decisions.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Fuse, FusedFuture};
use futures::{FutureExt, StreamExt};
use time::OffsetDateTime;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::{NodeConfig, NodeEnd, NodeStatus, OnEviction};
use crate::lease::{Lease, LeaseAction, LeaseInput, LeaseState};
use crate::membership::{Membership, MembershipChange};
use crate::ports::{Heartbeat, Member, Registration, Registry, RegistryError, Renewed};
use crate::stats::{Counter, Latency, StatsRegistry};
use crate::types::Identity;

/// Hints that come closer together than this cause one look: a hundred nodes that start at once are a hundred hints.
const LOOK_SPACING: Duration = Duration::from_millis(100);

/// Longest wait for one registration, which includes the patience with another holder of the node id.
const REGISTER_LIMIT: Duration = Duration::from_secs(5);

pub(super) struct Driver {
    registry: Arc<dyn Registry>,
    config: NodeConfig,
    stats: StatsRegistry,
    renewals: Renewals,
    status: watch::Sender<NodeStatus>,
    membership: watch::Sender<Arc<Membership>>,
    end: watch::Sender<Option<NodeEnd>>,
    news: Arc<Notify>,
}

/// Shown in stats.
struct Renewals {
    took: Latency,
    failed: Counter,
    /// Peers that this node has swept.
    swept: Counter,
}

impl Renewals {
    fn shown_in(stats: &StatsRegistry) -> Self {
        Self {
            took: stats.latency("renewal_seconds"),
            failed: stats.counter("renewals_failed_total"),
            swept: stats.counter("swept_total"),
        }
    }
}

pub(super) struct Handles {
    pub(super) status: watch::Receiver<NodeStatus>,
    pub(super) membership: watch::Receiver<Arc<Membership>>,
    pub(super) end: watch::Receiver<Option<NodeEnd>>,
    pub(super) news: Arc<Notify>,
}

/// An incarnation at its beginning.
struct Joined {
    identity: Identity,
    lease: Lease,
    witness: OffsetDateTime,
}

/// How one incarnation ended.
enum Incarnate {
    Evicted(Identity),
    Leave(Identity, Duration),
}

/// When the handle is gone, it is asked again and again, and is never ready any more.
type Leave = Fuse<oneshot::Receiver<Duration>>;
type Renewal = Fuse<BoxFuture<'static, Result<Renewed, Option<RegistryError>>>>;
type Look = Fuse<BoxFuture<'static, Result<Vec<Member>, RegistryError>>>;

impl Driver {
    pub(super) fn new(
        registry: Arc<dyn Registry>,
        config: NodeConfig,
        stats: StatsRegistry,
    ) -> (Self, Handles) {
        let identity = Identity::fresh(config.node_id.clone());
        let (membership, membership_seen) = watch::channel(Arc::new(Membership::alone(identity.clone())));
        let (status, status_seen) = watch::channel(NodeStatus {
            identity,
            lease: None,
            valid_until: None,
            last_renewal: None,
            last_error: None,
        });
        let (end, end_seen) = watch::channel(None);
        let news = Arc::<Notify>::default();
        let handles = Handles {
            status: status_seen,
            membership: membership_seen,
            end: end_seen,
            news: Arc::clone(&news),
        };
        let renewals = Renewals::shown_in(&stats);
        (Self { registry, config, stats, renewals, status, membership, end, news }, handles)
    }

    pub(super) async fn run(self, leave: oneshot::Receiver<Duration>) {
        let end = self.live(&mut leave.fuse()).await;
        self.end.send_replace(Some(end));
    }

    async fn live(&self, leave: &mut Leave) -> NodeEnd {
        loop {
            let joined = tokio::select! {
                biased;
                patience = &mut *leave => {
                    // The registration may have reached the registry although its answer has not reached us.
                    let identity = self.status.borrow().identity.clone();
                    self.deregister(&identity, patience.unwrap_or_default()).await;
                    return NodeEnd::Left;
                }
                joined = self.join() => match joined {
                    Ok(joined) => joined,
                    Err(error) => return NodeEnd::Refused(Arc::new(error)),
                },
            };
            match self.incarnate(joined, leave).await {
                Incarnate::Leave(identity, patience) => {
                    self.deregister(&identity, patience).await;
                    return NodeEnd::Left;
                }
                Incarnate::Evicted(identity) if self.config.on_eviction == OnEviction::Stop => {
                    return NodeEnd::Evicted(identity);
                }
                Incarnate::Evicted(_) => self.rebirth(),
            }
        }
    }

    /// Registers, waiting out everything that can be waited out.
    async fn join(&self) -> Result<Joined, RegistryError> {
        let identity = self.status.borrow().identity.clone();
        let registration = Registration {
            identity: identity.clone(),
            endpoint: self.config.endpoint.clone(),
            meta: self.config.meta.clone(),
            timing: self.config.timing,
        };
        let mut attempt = 0;
        loop {
            let sent = Instant::now();
            let registered = match timeout(REGISTER_LIMIT, self.registry.register(&registration)).await {
                Ok(answer) => answer,
                Err(_elapsed) => {
                    Err(RegistryError::Unavailable(format!("no answer within {REGISTER_LIMIT:?}").into()))
                }
            };
            match registered {
                Ok(registered) => {
                    info!(node = %identity, seq = registered.seq, "joined the cluster");
                    let lease = Lease::new(self.config.timing, sent.into_std());
                    self.show_lease(&lease, Some(sent), None);
                    return Ok(Joined { identity, lease, witness: registered.heartbeat });
                }
                Err(error @ RegistryError::Unavailable(_)) => {
                    attempt += 1;
                    let pause = self.config.timing.retry_pause(attempt).min(Duration::from_secs(5));
                    warn!(%error, attempt, "cannot join yet, trying again");
                    self.status.send_modify(|status| status.last_error = Some(error.to_string()));
                    sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Keeps one incarnation alive until it is evicted or asked to leave.
    async fn incarnate(&self, joined: Joined, leave: &mut Leave) -> Incarnate {
        let Joined { identity, mut lease, mut witness } = joined;
        let mut hints = self.registry.changes().fuse();
        let mut renewal: Renewal = Fuse::terminated();
        let mut sent = None;
        let mut look: Look = Fuse::terminated();
        let mut look_due: Option<Instant> = None;
        let mut looked = Instant::now();
        let mut input = LeaseInput::Tick;
        let mut error = None;
        loop {
            // Before the step, which may send the next renewal at once.
            let renewed_at = matches!(input, LeaseInput::Renewed { .. }).then(|| sent.take()).flatten();
            for action in lease.step(Instant::now().into_std(), input) {
                match action {
                    LeaseAction::Renew(sweep) => {
                        let heartbeat = Heartbeat {
                            identity: identity.clone(),
                            stats: self.stats.collect(),
                            sweep,
                            witness,
                            timing: self.config.timing,
                        };
                        sent = Some(Instant::now());
                        // What this renewal will see is newer than a look that is under way.
                        look = Fuse::terminated();
                        renewal = self.renew(heartbeat);
                    }
                    LeaseAction::Announce(state) => announce(&identity, state, error.as_deref()),
                    LeaseAction::Stop => {}
                }
            }
            self.show_lease(&lease, renewed_at, error.clone());
            if lease.state() == LeaseState::Evicted {
                return Incarnate::Evicted(identity);
            }

            input = LeaseInput::Tick;
            tokio::select! {
                // A sender that is gone means a dropped handle, and with it this task: only a message counts.
                Ok(patience) = &mut *leave => {
                    lease.step(Instant::now().into_std(), LeaseInput::Leave);
                    self.show_lease(&lease, None, None);
                    return Incarnate::Leave(identity, patience);
                }
                answer = &mut renewal => match answer {
                    Ok(renewed) => {
                        self.renewals.took.observe(sent.map(|sent| sent.elapsed()).unwrap_or_default());
                        self.renewals.swept.add(renewed.swept.len() as u64);
                        for swept in &renewed.swept {
                            info!(node = %swept.identity, age = ?swept.age, "swept a stale node");
                        }
                        input = LeaseInput::Renewed { gap: renewed.gap };
                        if error.take().is_some() && lease.state() == LeaseState::Active {
                            info!(node = %identity, "heartbeats get through again");
                        }
                        witness = renewed.heartbeat;
                        self.show_members(&identity, renewed.members);
                    }
                    Err(Some(RegistryError::Evicted(_))) => input = LeaseInput::Refused,
                    Err(failure) => {
                        let reason = failure.map_or_else(
                            || format!("no answer within {:?}", self.config.timing.renewal_timeout()),
                            |failure| failure.to_string(),
                        );
                        self.renewals.failed.increment();
                        if error.is_none() {
                            warn!(error = %reason, "heartbeat failed");
                        } else {
                            // One line for an outage; what it grows into is announced.
                            debug!(error = %reason, "heartbeat failed again");
                        }
                        error = Some(reason);
                        input = LeaseInput::Failed { jitter: rand::random() };
                    }
                },
                Some(()) = hints.next() => {
                    look_due.get_or_insert(looked + LOOK_SPACING);
                }
                () = maybe_sleep_until(look_due), if look.is_terminated() && renewal.is_terminated() => {
                    look_due = None;
                    looked = Instant::now();
                    let registry = Arc::clone(&self.registry);
                    look = async move { registry.members().await }.boxed().fuse();
                }
                // A failed look needs no answer: the next heartbeat looks again.
                seen = &mut look => if let Ok(members) = seen {
                    self.show_members(&identity, members);
                },
                () = self.news.notified() => input = LeaseInput::News,
                () = maybe_sleep_until(lease.wake_at().map(Instant::from_std)) => {}
            }
        }
    }

    /// Sends one renewal; the error is `None` if it took too long.
    fn renew(&self, heartbeat: Heartbeat) -> Renewal {
        let registry = Arc::clone(&self.registry);
        let limit = self.config.timing.renewal_timeout();
        async move {
            match timeout(limit, registry.renew(&heartbeat)).await {
                Ok(answer) => answer.map_err(Some),
                Err(_elapsed) => Err(None),
            }
        }
        .boxed()
        .fuse()
    }

    async fn deregister(&self, identity: &Identity, patience: Duration) {
        let attempts = async {
            while let Err(error) = self.registry.deregister(identity).await {
                warn!(%error, "cannot leave yet, trying again");
                sleep(Duration::from_millis(100)).await;
            }
        };
        if timeout(patience, attempts).await.is_ok() {
            info!(node = %identity, "left the cluster");
        } else {
            warn!(node = %identity, ?patience, "could not tell the registry that this node leaves; peers will sweep it");
        }
    }

    /// A new identity for a node that goes on after its eviction.
    fn rebirth(&self) {
        let identity = Identity::fresh(self.config.node_id.clone());
        self.membership.send_replace(Arc::new(Membership::alone(identity.clone())));
        self.status.send_modify(|status| {
            *status = NodeStatus {
                identity,
                lease: None,
                valid_until: None,
                last_renewal: None,
                last_error: status.last_error.take(),
            };
        });
    }

    fn show_lease(&self, lease: &Lease, renewed_at: Option<Instant>, error: Option<String>) {
        self.status.send_modify(|status| {
            status.lease = Some(lease.state());
            status.valid_until = Some(Instant::from_std(lease.valid_until()));
            status.last_renewal = renewed_at.or(status.last_renewal);
            status.last_error = error;
        });
    }

    fn show_members(&self, me: &Identity, members: Vec<Member>) {
        let view = Membership::new(me.clone(), members);
        for change in view.changes_since(&self.membership.borrow()) {
            match change {
                MembershipChange::Joined(peer) => {
                    info!(peer = %peer.identity, endpoint = %peer.endpoint, "peer joined");
                }
                MembershipChange::Restarted { now, .. } => {
                    info!(peer = %now.identity, endpoint = %now.endpoint, "peer restarted");
                }
                MembershipChange::Left(peer) => info!(peer = %peer.identity, "peer left"),
            }
        }
        self.membership.send_replace(Arc::new(view));
    }
}

fn announce(identity: &Identity, state: LeaseState, error: Option<&str>) {
    match state {
        LeaseState::Active => info!(node = %identity, "active again"),
        LeaseState::Suspended => {
            warn!(node = %identity, error, "suspended: no heartbeat got through for the stale threshold");
        }
        LeaseState::Evicted => warn!(node = %identity, "evicted: the registry no longer knows this node"),
        LeaseState::Left => {}
    }
}

async fn maybe_sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
