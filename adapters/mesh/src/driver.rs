//! Connects the link table to the registry's view, to sockets and to the clock. All waiting is here, no decisions.
//!
//! It owns every task of the mesh: dials, handshakes and links end with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quinn::Incoming;
use switchboard_core::membership::Membership;
use switchboard_core::types::{Endpoint, Identity, NodeId};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::bus::Shared;
use crate::frame::Hello;
use crate::handshake::{self, Candidate, HandshakeError, close};
use crate::key::KeyPair;
use crate::link::{self, Link};
use crate::links::{Action, CloseReason, Input, LinkId, LinkTable, Rank, Rules, Target};
use crate::members::{Trusted, View};
use crate::places;
use crate::sockets::Sockets;
use crate::state::State;

/// Longest time from a dial, or from a stranger's first packet, to the hello.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// Strangers at once; beyond, each must first prove that it is where it says.
const STRANGERS: usize = 32;
/// Strangers at once, at most: further ones are not answered.
const STRANGERS_MAX: usize = 256;
/// How often interest that has ended is taken back, and troubles are looked at.
const SLOW_TICK: Duration = Duration::from_secs(1);

/// What tasks tell the driver.
enum Report {
    Dialled(LinkId, Result<Candidate, HandshakeError>),
    Received(Candidate, Hello),
    Ended { link: LinkId, left: bool },
}

pub(crate) struct Driver {
    sockets: Arc<Sockets>,
    key: KeyPair,
    trusted: Trusted,
    membership: watch::Receiver<Arc<Membership>>,
    /// Where this node says that it is.
    endpoint: Endpoint,
    shared: Arc<Shared>,
    state: Arc<State>,
    me: Identity,
    table: LinkTable,
    tasks: JoinSet<()>,
    strangers: JoinSet<()>,
    dials: HashMap<LinkId, (AbortHandle, NodeId)>,
    /// Connections that wait for the table's word.
    candidates: HashMap<LinkId, (Candidate, Option<Hello>)>,
    links: HashMap<LinkId, Arc<Link>>,
    reports: (mpsc::Sender<Report>, mpsc::Receiver<Report>),
}

impl Driver {
    pub(crate) fn new(
        sockets: Arc<Sockets>,
        key: KeyPair,
        trusted: Trusted,
        membership: watch::Receiver<Arc<Membership>>,
        endpoint: Endpoint,
        shared: Arc<Shared>,
        state: Arc<State>,
    ) -> Self {
        let me = membership.borrow().me().clone();
        Self {
            sockets,
            key,
            trusted,
            membership,
            endpoint,
            shared,
            state,
            table: LinkTable::new(me.node_id.clone(), Rules::default(), rand::random()),
            me,
            tasks: JoinSet::new(),
            strangers: JoinSet::new(),
            dials: HashMap::new(),
            candidates: HashMap::new(),
            links: HashMap::new(),
            reports: mpsc::channel(256),
        }
    }

    /// Until it is stopped.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut slow = interval(SLOW_TICK);
        slow.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut there_is_a_node = true;
        self.look_around();
        loop {
            let wake = self.table.wake_at().map(Instant::from_std);
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.membership.changed(), if there_is_a_node => match changed {
                    Ok(()) => self.look_around(),
                    // The node has ended; what it knew stays until the mesh is closed.
                    Err(_) => there_is_a_node = false,
                },
                Some(report) = self.reports.1.recv() => self.hear(report),
                Some(incoming) = self.sockets.accept() => self.receive(incoming),
                Some(_) = self.strangers.join_next() => {}
                Some(_) = self.tasks.join_next() => {}
                _ = slow.tick() => {
                    self.shared.interest.forget(|channel| self.shared.fanout.is_wanted(channel));
                    self.state.unlinked(self.table.unlinked().map(|target| &target.identity.node_id));
                }
                () = maybe_sleep_until(wake) => self.step(Input::Tick),
            }
        }
    }

    fn look_around(&mut self) {
        let membership = Arc::clone(&self.membership.borrow_and_update());
        if *membership.me() != self.me {
            self.begin_anew(membership.me().clone());
        }
        let view = View::of(&membership);
        self.trusted.replace(&view.targets);
        self.shared.routes.write().members(self.me.clone(), &view);
        self.shared
            .remember(&view.targets.iter().map(|target| target.identity.incarnation).collect::<Vec<_>>());
        self.state.others(&view.others);
        let places = view.targets.iter().map(|target| (&target.identity.node_id, &target.endpoint));
        self.state.doubts(places::doubts(&self.endpoint, places));
        self.step(Input::Members(view.targets));
    }

    /// This node was evicted and has joined under a new incarnation: no link of the old one counts.
    fn begin_anew(&mut self, me: Identity) {
        info!(node = %me, "the mesh begins anew");
        for link in std::mem::take(&mut self.links).into_values() {
            self.close(&link, CloseReason::NotAMember);
        }
        for (dial, _) in std::mem::take(&mut self.dials).into_values() {
            dial.abort();
        }
        self.strangers.abort_all();
        self.table.reset();
        self.shared.begin_anew();
        self.me = me;
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Dialled(link, Ok(candidate)) => {
                if self.dials.remove(&link).is_none() {
                    return candidate.close(CloseReason::Duplicate);
                }
                self.candidates.insert(link, (candidate, None));
                self.step(Input::Answered { link });
            }
            Report::Dialled(link, Err(error)) => {
                let Some((_, peer)) = self.dials.remove(&link) else { return };
                debug!(%peer, %error, "cannot dial");
                if !error.is_duplicate() {
                    self.state.failed(peer, error.to_string());
                }
                self.step(Input::DialFailed { link, duplicate: error.is_duplicate() });
            }
            Report::Received(candidate, hello) => {
                if hello.to != self.me {
                    return candidate.close(CloseReason::NotAMember);
                }
                let link = self.table.next_id();
                let by_lesser = !self.table.is_lesser(&hello.from.node_id);
                let rank = Rank { generation: hello.generation, by_lesser, attempt: hello.attempt };
                let from = hello.from.clone();
                self.candidates.insert(link, (candidate, Some(handshake::answer(hello))));
                self.step(Input::Offered { link, from, rank });
            }
            Report::Ended { link, left } => {
                if self.links.remove(&link).is_some() {
                    self.step(Input::Closed { link, left });
                }
            }
        }
    }

    fn step(&mut self, input: Input) {
        for action in self.table.step(Instant::now().into_std(), input) {
            match action {
                Action::Dial { link, target, rank } => self.dial(link, target, rank),
                Action::Abandon { link } => {
                    if let Some((dial, _)) = self.dials.remove(&link) {
                        dial.abort();
                    }
                }
                Action::Use { link, peer, era } => self.use_link(link, peer, era),
                Action::Close { link, reason } => {
                    if let Some(used) = self.links.remove(&link) {
                        self.close(&used, reason);
                    } else if let Some((candidate, _)) = self.candidates.remove(&link) {
                        candidate.close(reason);
                    }
                }
            }
        }
    }

    fn dial(&mut self, link: LinkId, target: Target, rank: Rank) {
        let peer = target.identity.node_id.clone();
        let (sockets, key, trusted) = (Arc::clone(&self.sockets), self.key.clone(), self.trusted.clone());
        let (me, reports) = (self.me.clone(), self.reports.0.clone());
        let task = self.tasks.spawn(async move {
            let dialled =
                timeout(HANDSHAKE, handshake::dial(&sockets, &key, &trusted, me, &target, rank)).await;
            let dialled = dialled.unwrap_or(Err(HandshakeError::Timeout));
            // Nobody hears it when the mesh is closed.
            let _ = reports.send(Report::Dialled(link, dialled)).await;
        });
        self.dials.insert(link, (task, peer));
    }

    /// How many take up room of this node that it does not know, those included that it has refused: QUIC keeps the state of a
    /// connection for a few round trips after its end, longer than it takes to refuse it.
    fn strangers(&self) -> usize {
        let known = self.links.len() + self.candidates.len() + self.dials.len();
        // Those whose task has not begun yet have no connection.
        self.sockets.connections().saturating_sub(known).max(self.strangers.len())
    }

    fn receive(&mut self, incoming: Incoming) {
        let strangers = self.strangers();
        if strangers >= STRANGERS_MAX {
            return incoming.ignore();
        }
        if strangers >= STRANGERS && !incoming.remote_address_validated() {
            // It may not be where it says; nothing is kept of it until it has answered.
            let _ = incoming.retry();
            return;
        }
        let (trusted, me, reports) = (self.trusted.clone(), self.me.clone(), self.reports.0.clone());
        let address = incoming.remote_address();
        self.strangers.spawn(async move {
            let received = timeout(HANDSHAKE, handshake::receive(incoming, &trusted, &me)).await;
            match received.unwrap_or(Err(HandshakeError::Timeout)) {
                Ok((candidate, hello)) => drop(reports.send(Report::Received(candidate, hello)).await),
                Err(error) => debug!(%address, %error, "refused a connection"),
            }
        });
    }

    fn use_link(&mut self, id: LinkId, peer: Identity, era: u64) {
        let Some((candidate, answer)) = self.candidates.remove(&id) else { return };
        info!(%peer, address = %candidate.connection.remote_address(), "linked");
        self.state.linked(&peer.node_id);
        let link = Link::new(id, peer, era, candidate.connection.clone(), answer);
        self.shared.link(&link);
        self.links.insert(id, Arc::clone(&link));
        let (shared, reports) = (Arc::clone(&self.shared), self.reports.0.clone());
        self.tasks.spawn(async move {
            let left = link::run(link, candidate, shared).await;
            let _ = reports.send(Report::Ended { link: id, left }).await;
        });
    }

    fn close(&self, link: &Link, reason: CloseReason) {
        self.shared.unlink(link);
        close(&link.connection, reason);
    }
}

async fn maybe_sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
