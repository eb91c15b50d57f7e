//! Registries that break their promises.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use switchboard_core::ports::{
    ChangeHints, Heartbeat, Member, Registered, Registration, Registry, RegistryError, Renewed, SweepScope,
};
use switchboard_core::timing::Timing;
use switchboard_core::types::{Identity, NodeId, Stats};
use switchboard_memory::{MemoryCluster, MemoryRegistry};
use switchboard_testkit::suites::registry;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use super::faults;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    RegistersOnce,
    ForgetsFacts,
    KeepsStatsOfTheDead,
    GivesNewPlaces,
    RemembersTheDead,
    ReplacesTheLiving,
    LetsEverybodyIn,
    DoesNotFence,
    ForgetsStats,
    ListsBackwards,
    SweepsUnasked,
    SweepsWithoutWitness,
    SweepsOutOfOrder,
    SweepsTooEarly,
    ForgetsThresholds,
    SweepsNobody,
    SweepsTheCaller,
    SweepsWhenEverybodyIsStale,
    Deadlocks,
    TellsEveryDeathAgain,
    RefusesToLeaveTwice,
    KeepsChangesToItself,
}

faults! { Cluster,
    a_registration_that_cannot_be_retried: Fault::RegistersOnce => registry::registering_again_changes_nothing_but_the_time;
    facts_that_peers_never_see: Fault::ForgetsFacts => registry::a_registration_tells_where_and_what_and_begins_afresh;
    stats_that_outlive_their_process: Fault::KeepsStatsOfTheDead => registry::a_registration_tells_where_and_what_and_begins_afresh;
    a_successor_at_the_end_of_the_list: Fault::GivesNewPlaces => registry::a_dead_holder_is_replaced_at_once_and_keeps_its_place;
    a_successor_that_waits_for_the_dead: Fault::RemembersTheDead => registry::a_dead_holder_is_replaced_at_once_and_keeps_its_place;
    a_live_holder_that_is_replaced: Fault::ReplacesTheLiving => registry::a_live_holder_is_left_alone_and_named;
    an_id_that_two_get: Fault::LetsEverybodyIn => registry::of_several_that_want_one_id_at_once_one_gets_it;
    a_successor_that_loses_its_id_to_the_sleeper: Fault::ReplacesTheLiving => registry::a_successor_of_a_sleeper_keeps_the_id;
    a_zombie_that_overwrites_its_successor: Fault::DoesNotFence => registry::a_stale_holder_is_replaced_and_finds_itself_evicted;
    a_renewal_of_somebody_elses_row: Fault::DoesNotFence => registry::another_incarnation_can_neither_renew_nor_deregister;
    stats_that_are_lost: Fault::ForgetsStats => registry::a_renewal_tells_stats_and_sees_everybody_in_order;
    members_out_of_order: Fault::ListsBackwards => registry::a_renewal_tells_stats_and_sees_everybody_in_order;
    places_out_of_order: Fault::ListsBackwards => registry::many_may_register_at_once;
    a_sweep_that_nobody_asked_for: Fault::SweepsUnasked => registry::without_evidence_nobody_is_swept;
    a_sweep_right_after_a_stall: Fault::SweepsWithoutWitness => registry::without_evidence_nobody_is_swept;
    a_sweep_by_a_call_that_is_carried_out_late: Fault::SweepsOutOfOrder => registry::a_renewal_that_is_out_of_order_sweeps_nobody;
    a_sweep_before_the_threshold: Fault::SweepsTooEarly => registry::the_stale_are_swept_on_evidence;
    a_sweep_by_a_shorter_threshold: Fault::ForgetsThresholds => registry::of_two_thresholds_the_longer_one_counts;
    the_dead_who_stay: Fault::SweepsNobody => registry::the_stale_are_swept_on_evidence;
    ghosts_who_stay: Fault::SweepsNobody => registry::ghosts_go_with_any_renewal_in_order;
    ghosts_who_stay_with_a_lone_node: Fault::SweepsNobody => registry::a_lone_node_clears_ghosts_with_its_first_renewal;
    a_node_that_sweeps_itself: Fault::SweepsTheCaller => registry::nobody_sweeps_itself;
    a_massacre_after_a_stall: Fault::SweepsWhenEverybodyIsStale => registry::renewals_of_twenty_stale_nodes_at_once_neither_deadlock_nor_sweep;
    renewals_that_lock_each_other_out: Fault::Deadlocks => registry::renewals_of_twenty_stale_nodes_at_once_neither_deadlock_nor_sweep;
    deaths_that_are_told_again: Fault::TellsEveryDeathAgain => registry::the_dead_are_swept_once_however_many_sweep_at_once;
    a_swept_node_that_is_not_told: Fault::DoesNotFence => registry::a_swept_node_is_told_and_may_register_anew;
    a_second_departure_that_fails: Fault::RefusesToLeaveTwice => registry::leaving_is_idempotent;
    changes_that_nobody_hears_of: Fault::KeepsChangesToItself => registry::changes_hint_at_registrations_departures_and_sweeps;
}

struct Cluster {
    memory: MemoryCluster,
    fault: Option<Fault>,
    /// Held by faults that renew more than once in a step.
    step: Arc<Mutex<()>>,
    /// Sessions that outlive their processes.
    undead: parking_lot::Mutex<Vec<Arc<MemoryRegistry>>>,
}

impl Cluster {
    fn with(fault: Option<Fault>) -> Self {
        Self {
            memory: MemoryCluster::new(),
            fault,
            step: Arc::default(),
            undead: parking_lot::Mutex::default(),
        }
    }
}

#[async_trait]
impl registry::Fixture for Cluster {
    type Session = Arc<Broken>;

    async fn new() -> Self {
        Self::with(None)
    }

    async fn session(&self) -> Self::Session {
        let inner = self.memory.registry();
        if self.fault == Some(Fault::RemembersTheDead) {
            self.undead.lock().push(Arc::clone(&inner));
        }
        let (memory, step) = (self.memory.clone(), Arc::clone(&self.step));
        Arc::new(Broken { inner, memory, step, fault: self.fault })
    }

    fn registry(session: &Self::Session) -> Arc<dyn Registry> {
        session.clone()
    }

    async fn age(&self, node_id: &NodeId, by: Duration) {
        self.memory.age_node(node_id, by);
    }
}

struct Broken {
    inner: Arc<MemoryRegistry>,
    memory: MemoryCluster,
    step: Arc<Mutex<()>>,
    fault: Option<Fault>,
}

impl Broken {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    async fn holder(&self, node_id: &NodeId) -> Option<Member> {
        let members = self.inner.members().await.unwrap();
        members.into_iter().find(|member| member.identity.node_id == *node_id)
    }

    /// The heartbeat as it reaches the registry.
    async fn bend(&self, heartbeat: &Heartbeat) -> Heartbeat {
        let mut bent = heartbeat.clone();
        let holder = self.holder(&heartbeat.identity.node_id).await;
        match self.fault {
            Some(Fault::DoesNotFence) => bent.identity = holder.map_or(bent.identity, |h| h.identity),
            Some(Fault::ForgetsStats) => bent.stats = Stats::default(),
            Some(Fault::SweepsUnasked) => bent.sweep = SweepScope::Stale,
            Some(Fault::SweepsNobody) => bent.witness -= Duration::from_secs(1),
            Some(Fault::SweepsOutOfOrder) => bent.witness = holder.map_or(bent.witness, |h| h.heartbeat),
            Some(Fault::SweepsTooEarly) => bent.timing = hasty(),
            // Its own heartbeat is fresh by the time it is asked for evidence.
            Some(Fault::SweepsWithoutWitness | Fault::SweepsWhenEverybodyIsStale) => {
                let first = Heartbeat { sweep: SweepScope::Ghosts, ..heartbeat.clone() };
                bent.witness =
                    self.inner.renew(&first).await.map_or(bent.witness, |renewed| renewed.heartbeat);
            }
            _ => {}
        }
        bent
    }
}

/// Shorter than asked for.
fn hasty() -> Timing {
    Timing::new(Duration::from_secs(10), Duration::from_secs(25)).unwrap()
}

#[async_trait]
impl Registry for Broken {
    async fn register(&self, registration: &Registration) -> Result<Registered, RegistryError> {
        let mut registration = registration.clone();
        let node_id = registration.identity.node_id.clone();
        let holder = self.holder(&node_id).await;
        match (self.fault, &holder) {
            (Some(Fault::RegistersOnce), Some(holder)) => {
                let endpoint = holder.endpoint.to_string();
                return Err(RegistryError::NodeIdTaken { node_id, endpoint });
            }
            (Some(Fault::ReplacesTheLiving), Some(_)) => {
                self.memory.age_node(&node_id, Duration::from_mins(1));
            }
            (Some(Fault::GivesNewPlaces), Some(holder)) => self.inner.deregister(&holder.identity).await?,
            (Some(Fault::ForgetsFacts), _) => registration.meta = Stats::default(),
            (Some(Fault::SweepsTooEarly), _) => registration.timing = hasty(),
            (Some(Fault::ForgetsThresholds), _) => registration.timing = Timing::default(),
            _ => {}
        }
        let registered = match self.inner.register(&registration).await {
            Err(RegistryError::NodeIdTaken { .. }) if self.has(Fault::LetsEverybodyIn) => {
                Registered { seq: 1, heartbeat: OffsetDateTime::UNIX_EPOCH }
            }
            answer => answer?,
        };
        if self.has(Fault::KeepsStatsOfTheDead)
            && let Some(holder) = holder
        {
            let heartbeat = Heartbeat {
                identity: registration.identity,
                stats: holder.stats,
                sweep: SweepScope::Ghosts,
                witness: registered.heartbeat,
                timing: registration.timing,
            };
            self.inner.renew(&heartbeat).await?;
        }
        Ok(registered)
    }

    async fn renew(&self, heartbeat: &Heartbeat) -> Result<Renewed, RegistryError> {
        let step = match self.fault {
            Some(Fault::Deadlocks) if self.step.try_lock().is_err() => std::future::pending().await,
            Some(Fault::Deadlocks | Fault::SweepsWhenEverybodyIsStale) => Some(self.step.lock().await),
            _ => None,
        };
        let mut renewed = match self.inner.renew(&self.bend(heartbeat).await).await {
            // Swept long ago, and nobody says so.
            Err(RegistryError::Evicted(_)) if self.has(Fault::DoesNotFence) => Renewed {
                heartbeat: heartbeat.witness,
                members: self.inner.members().await?,
                swept: Vec::new(),
                gap: Duration::ZERO,
            },
            answer => answer?,
        };
        drop(step);
        if self.has(Fault::ListsBackwards) {
            renewed.members.reverse();
        }
        if self.has(Fault::SweepsTheCaller) && renewed.gap > heartbeat.timing.stale_threshold() {
            self.inner.deregister(&heartbeat.identity).await?;
            renewed.members.retain(|member| member.identity != heartbeat.identity);
        }
        if self.has(Fault::TellsEveryDeathAgain) {
            renewed.swept.extend(renewed.swept.clone());
        }
        Ok(renewed)
    }

    async fn members(&self) -> Result<Vec<Member>, RegistryError> {
        let mut members = self.inner.members().await?;
        if self.has(Fault::ListsBackwards) {
            members.reverse();
        }
        Ok(members)
    }

    async fn deregister(&self, identity: &Identity) -> Result<(), RegistryError> {
        let there = self.holder(&identity.node_id).await.is_some();
        if self.has(Fault::RefusesToLeaveTwice) && !there {
            return Err(RegistryError::Evicted(identity.clone()));
        }
        self.inner.deregister(identity).await
    }

    fn changes(&self) -> ChangeHints {
        if self.has(Fault::KeepsChangesToItself) {
            return futures::stream::pending().boxed();
        }
        self.inner.changes()
    }
}
