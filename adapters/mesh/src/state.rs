//! What the mesh tells about itself: gauges for `stats`, a check for health. Nobody decides by it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use switchboard_core::health::{Condition, HealthRegistry};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::types::{Identity, NodeId};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::bus::Shared;

/// A peer without a link is worth a warning after this time: dials that cross or come too early settle sooner.
const TROUBLE: Duration = Duration::from_secs(5);

/// Peers that are not reached by mesh.
#[derive(Default)]
pub(crate) struct State {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    unlinked: HashMap<NodeId, Trouble>,
    others: Vec<NodeId>,
    errors: HashMap<NodeId, String>,
    /// What is wrong with addresses.
    doubts: Vec<String>,
}

struct Trouble {
    since: Instant,
    warned: bool,
}

impl State {
    /// A dial has failed.
    pub(crate) fn failed(&self, peer: NodeId, error: String) {
        self.known.lock().errors.insert(peer, error);
    }

    /// There is a link.
    pub(crate) fn linked(&self, peer: &NodeId) {
        let mut known = self.known.lock();
        known.errors.remove(peer);
        if known.unlinked.remove(peer).is_some_and(|trouble| trouble.warned) {
            info!(%peer, "reached by mesh again");
        }
    }

    /// Who has no link now.
    pub(crate) fn unlinked<'a>(&self, peers: impl Iterator<Item = &'a NodeId>) {
        let mut known = self.known.lock();
        let mut before = std::mem::take(&mut known.unlinked);
        for peer in peers {
            let fresh = Trouble { since: Instant::now(), warned: false };
            let mut trouble = before.remove(peer).unwrap_or(fresh);
            if trouble.since.elapsed() > TROUBLE && !std::mem::replace(&mut trouble.warned, true) {
                let error = known.errors.get(peer);
                warn!(%peer, error, "not reached by mesh; ephemeral events for it take the fallback");
            }
            known.unlinked.insert(peer.clone(), trouble);
        }
        let Known { unlinked, errors, .. } = &mut *known;
        errors.retain(|peer, _| unlinked.contains_key(peer));
    }

    /// Who has no mesh at all.
    pub(crate) fn others(&self, others: &[Identity]) {
        self.known.lock().others = others.iter().map(|other| other.node_id.clone()).collect();
    }

    /// What is wrong with the addresses that nodes say they are at.
    pub(crate) fn doubts(&self, doubts: Vec<String>) {
        let mut known = self.known.lock();
        for doubt in doubts.iter().filter(|doubt| !known.doubts.contains(doubt)) {
            warn!("{doubt}");
        }
        known.doubts = doubts;
    }

    fn condition(&self) -> Condition {
        let known = self.known.lock();
        let troubled = known.unlinked.iter().filter(|(_, trouble)| trouble.warned);
        let mut parts: Vec<_> = troubled
            .map(|(peer, _)| match known.errors.get(peer) {
                Some(error) => format!("{peer} is not reached by mesh ({error})"),
                None => format!("{peer} is not reached by mesh"),
            })
            .chain(known.others.iter().map(|other| format!("{other} has no mesh")))
            .collect();
        parts.sort();
        let fallback =
            (!parts.is_empty()).then(|| format!("{}: ephemeral events take the fallback", parts.join(", ")));
        let all: Vec<_> = known.doubts.iter().cloned().chain(fallback).collect();
        if all.is_empty() { Condition::Ok } else { Condition::Degraded(all.join("; ")) }
    }
}

/// Adds the gauges and the check.
pub(crate) fn show(state: &Arc<State>, shared: &Arc<Shared>, stats: &StatsRegistry, health: &HealthRegistry) {
    let weak = Arc::downgrade(shared);
    stats.gauge("ephemeral", move || weak.upgrade().map_or(Value::Null, |shared| totals(&shared)));
    let weak: Weak<Shared> = Arc::downgrade(shared);
    stats.gauge("mesh", move || weak.upgrade().map_or(Value::Null, |shared| peers(&shared)));
    let state = Arc::clone(state);
    health.check("mesh", move || state.condition());
}

fn totals(shared: &Shared) -> Value {
    let counts = &shared.counts;
    let routes = shared.routes.read();
    let backlog: usize = routes.links().map(|link| link.outbox.backlog()).sum();
    let dropped: u64 = routes.links().map(|link| link.outbox.dropped_untold()).sum();
    json!({
        "transport": "mesh",
        "published_total": counts.published.get(),
        "received_total": counts.received.get() + counts.fallback_received.get(),
        "dropped_total": counts.dropped.get() + dropped,
        "lagged_total": shared.fanout.dropped().get(),
        "late_total": counts.late.get(),
        "backlog_bytes": backlog,
        "subscribers": shared.fanout.subscribers(),
        "fallback_sent_total": counts.fallback_sent.get(),
        "fallback_received_total": counts.fallback_received.get(),
        "foreign_total": counts.foreign.get(),
    })
}

/// Each link by its peer's node id.
fn peers(shared: &Shared) -> Value {
    let routes = shared.routes.read();
    let peers: Map<_, _> = routes
        .links()
        .map(|link| {
            let path = link.connection.stats().path;
            let facts = json!({
                "ready": link.is_ready(),
                "rtt_us": u64::try_from(link.connection.rtt().as_micros()).unwrap_or(u64::MAX),
                "sent_total": link.outbox.sent.get(),
                "received_total": link.received.get(),
                "dropped_total": link.outbox.dropped.get(),
                "queue_bytes": link.outbox.backlog(),
                "lost_packets_total": path.lost_packets,
                "mtu": path.current_mtu,
            });
            (link.peer.node_id.to_string(), facts)
        })
        .collect();
    json!({ "unreached": routes.unreached(), "without_mesh": routes.others(), "peers": peers })
}
