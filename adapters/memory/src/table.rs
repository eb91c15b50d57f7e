//! The table of nodes and the locks of their incarnations, under one mutex: what a database does in one statement is done in one hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use switchboard_core::claim::Holder;
use switchboard_core::ports::{Heartbeat, Member, Registered, Registration, Renewed, SweepScope, Swept};
use switchboard_core::types::{Identity, Incarnation, NodeId, Stats};
use time::OffsetDateTime;
use tokio::sync::watch;

use crate::clock::Clock;

/// Tells sessions apart.
pub(crate) type SessionId = u64;

pub(crate) struct Table {
    inner: Mutex<Inner>,
    moved: watch::Sender<()>,
    clock: Clock,
}

#[derive(Default)]
struct Inner {
    rows: BTreeMap<NodeId, Row>,
    locks: BTreeMap<Incarnation, SessionId>,
    ended: BTreeSet<SessionId>,
    last_seq: i64,
}

struct Row {
    registration: Registration,
    seq: i64,
    registered_at: OffsetDateTime,
    heartbeat: OffsetDateTime,
    stats: Stats,
}

impl Row {
    /// By the longer of two thresholds: another node's and its own.
    fn is_stale(&self, now: OffsetDateTime, threshold: Duration) -> bool {
        age(now, self.heartbeat) > threshold.max(self.registration.timing.stale_threshold())
    }
}

impl Table {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { inner: Mutex::default(), moved: watch::Sender::new(()), clock }
    }

    pub(crate) fn moved(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }

    /// Takes the lock of an incarnation, whose process has the session.
    pub(crate) fn lock(&self, incarnation: Incarnation, session: SessionId) {
        let mut inner = self.inner.lock();
        if !inner.ended.contains(&session) {
            inner.locks.insert(incarnation, session);
        }
    }

    /// Whether no session has the lock of an incarnation.
    pub(crate) fn is_free(&self, incarnation: Incarnation) -> bool {
        !self.inner.lock().locks.contains_key(&incarnation)
    }

    pub(crate) fn unlock(&self, session: SessionId) {
        self.inner.lock().locks.retain(|_, holder| *holder != session);
    }

    /// Frees what the session holds; what it sent and is carried out only now takes no lock any more.
    pub(crate) fn end_session(&self, session: SessionId) {
        self.unlock(session);
        self.inner.lock().ended.insert(session);
    }

    pub(crate) fn holder(&self, node_id: &NodeId, stale_threshold: Duration) -> Option<Holder> {
        let now = self.clock.now();
        let inner = self.inner.lock();
        let row = inner.rows.get(node_id)?;
        Some(Holder {
            incarnation: row.registration.identity.incarnation,
            endpoint: row.registration.endpoint.to_string(),
            heartbeat: row.heartbeat,
            stale: row.is_stale(now, stale_threshold),
        })
    }

    /// Writes the row if it still is as it was `seen`, or the caller's own.
    pub(crate) fn take_row(&self, registration: &Registration, seen: Option<&Holder>) -> Option<Registered> {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let identity = &registration.identity;
        let held = inner.rows.get(&identity.node_id);
        let as_seen = |row: &Row| {
            let found = row.registration.identity.incarnation;
            let unchanged = |seen: &Holder| seen.incarnation == found && seen.heartbeat == row.heartbeat;
            found == identity.incarnation || seen.is_some_and(unchanged)
        };
        if held.is_some_and(|row| !as_seen(row)) {
            return None;
        }
        let seq = if let Some(row) = held {
            row.seq
        } else {
            inner.last_seq += 1;
            inner.last_seq
        };
        let row = Row {
            registration: registration.clone(),
            seq,
            registered_at: now,
            heartbeat: now,
            stats: Stats::default(),
        };
        inner.rows.insert(identity.node_id.clone(), row);
        drop(inner);
        self.moved.send_replace(());
        Some(Registered { seq, heartbeat: now })
    }

    /// Heartbeat, sweep and look around; `None` if the caller has no row.
    pub(crate) fn renew(&self, heartbeat: &Heartbeat) -> Option<Renewed> {
        let now = self.clock.now();
        let timing = &heartbeat.timing;
        let mut inner = self.inner.lock();
        let row = inner.rows.get_mut(&heartbeat.identity.node_id)?;
        if row.registration.identity != heartbeat.identity {
            return None;
        }
        let previous = row.heartbeat;
        let gap = age(now, previous);
        row.heartbeat = now;
        row.stats = heartbeat.stats.clone();

        let in_order = previous == heartbeat.witness;
        let witnessed = heartbeat.sweep == SweepScope::Stale && gap <= timing.proof_window();
        let dead = |row: &Row| {
            let ghost = previous - row.heartbeat > timing.ghost_threshold();
            let stale = witnessed && row.is_stale(now, timing.stale_threshold());
            in_order && row.registration.identity != heartbeat.identity && (ghost || stale)
        };
        let mut swept = Vec::new();
        inner.rows.retain(|_, row| {
            let dead = dead(row);
            if dead {
                swept.push(Swept {
                    identity: row.registration.identity.clone(),
                    age: age(now, row.heartbeat),
                });
            }
            !dead
        });
        let members = inner.members(now);
        drop(inner);
        if !swept.is_empty() {
            self.moved.send_replace(());
        }
        Some(Renewed { heartbeat: now, members, swept, gap })
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        self.inner.lock().members(self.clock.now())
    }

    pub(crate) fn remove(&self, identity: &Identity) {
        let mut inner = self.inner.lock();
        if inner.rows.get(&identity.node_id).is_some_and(|row| row.registration.identity == *identity) {
            inner.rows.remove(&identity.node_id);
            drop(inner);
            self.moved.send_replace(());
        }
    }

    pub(crate) fn delete(&self, node_id: &NodeId) {
        self.inner.lock().rows.remove(node_id);
    }

    pub(crate) fn wipe(&self) {
        let mut inner = self.inner.lock();
        *inner = Inner { ended: std::mem::take(&mut inner.ended), ..Inner::default() };
    }

    pub(crate) fn age(&self, by: Duration, whose: impl Fn(&NodeId) -> bool) {
        for (node_id, row) in &mut self.inner.lock().rows {
            if whose(node_id) {
                row.heartbeat -= by;
            }
        }
    }

    /// Who has the row of a node id, and how old its heartbeat is.
    pub(crate) fn heartbeat(&self, node_id: &NodeId) -> Option<(Identity, Duration)> {
        let now = self.clock.now();
        let inner = self.inner.lock();
        let row = inner.rows.get(node_id)?;
        Some((row.registration.identity.clone(), age(now, row.heartbeat)))
    }
}

impl Inner {
    fn members(&self, now: OffsetDateTime) -> Vec<Member> {
        let member = |row: &Row| Member {
            identity: row.registration.identity.clone(),
            endpoint: row.registration.endpoint.clone(),
            seq: row.seq,
            registered_at: row.registered_at,
            heartbeat: row.heartbeat,
            age: age(now, row.heartbeat),
            stats: row.stats.clone(),
            meta: row.registration.meta.clone(),
        };
        let mut members: Vec<Member> = self.rows.values().map(member).collect();
        members.sort_by_key(|member| member.seq);
        members
    }
}

fn age(now: OffsetDateTime, heartbeat: OffsetDateTime) -> Duration {
    Duration::try_from(now - heartbeat).unwrap_or_default()
}
