//! The promises of [`Registry`].

mod joining;
mod renewing;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use switchboard_core::ports::{
    Heartbeat, Registered, Registration, Registry, RegistryError, Renewed, SweepScope,
};
use switchboard_core::timing::Timing;
use switchboard_core::types::{Identity, NodeId, Stats};
use time::OffsetDateTime;

pub use joining::*;
pub use renewing::*;

/// A cluster whose table can be tampered with.
#[async_trait]
pub trait Fixture: Send + Sync + Sized {
    /// What a process has of the registry; dropping it is the death of the process.
    type Session: Send + Sync;

    /// A cluster that nobody else uses.
    async fn new() -> Self;

    /// The session of a new process.
    async fn session(&self) -> Self::Session;

    /// The registry as seen by that process.
    fn registry(session: &Self::Session) -> Arc<dyn Registry>;

    /// Makes the heartbeat of a node older.
    async fn age(&self, node_id: &NodeId, by: Duration);
}

/// Makes one test of each promise of [`Registry`], for the [`Fixture`] given.
#[macro_export]
macro_rules! registry_suite {
    ($fixture:ty) => {
        $crate::suite_tests!(
            registry,
            $fixture,
            [
                a_registration_tells_where_and_what_and_begins_afresh,
                registering_again_changes_nothing_but_the_time,
                a_dead_holder_is_replaced_at_once_and_keeps_its_place,
                a_live_holder_is_left_alone_and_named,
                of_several_that_want_one_id_at_once_one_gets_it,
                many_may_register_at_once,
                a_stale_holder_is_replaced_and_finds_itself_evicted,
                a_successor_of_a_sleeper_keeps_the_id,
                another_incarnation_can_neither_renew_nor_deregister,
                a_renewal_tells_stats_and_sees_everybody_in_order,
                the_stale_are_swept_on_evidence,
                without_evidence_nobody_is_swept,
                of_two_thresholds_the_longer_one_counts,
                a_renewal_that_is_out_of_order_sweeps_nobody,
                ghosts_go_with_any_renewal_in_order,
                a_lone_node_clears_ghosts_with_its_first_renewal,
                nobody_sweeps_itself,
                renewals_of_twenty_stale_nodes_at_once_neither_deadlock_nor_sweep,
                the_dead_are_swept_once_however_many_sweep_at_once,
                a_swept_node_is_told_and_may_register_anew,
                leaving_is_idempotent,
                changes_hint_at_registrations_departures_and_sweeps,
            ]
        );
    };
}

fn timing() -> Timing {
    Timing::new(Duration::from_secs(10), Duration::from_secs(30)).unwrap()
}

/// A process that has registered, and the witness of its next renewal.
struct Node<S> {
    session: S,
    identity: Identity,
    registered: Registered,
}

impl<S> Node<S> {
    async fn start<F: Fixture<Session = S>>(fixture: &F, name: &str) -> Self {
        let session = fixture.session().await;
        let identity = Identity::fresh(id(name));
        let registered = F::registry(&session).register(&registration(&identity)).await.unwrap();
        Self { session, identity, registered }
    }

    /// As many nodes as a deployment starts together, called `prefix-0`, `prefix-1` …
    async fn start_many<F: Fixture<Session = S>>(fixture: &F, prefix: &str, count: usize) -> Vec<Self> {
        let names: Vec<_> = (0..count).map(|n| format!("{prefix}-{n}")).collect();
        join_all(names.iter().map(|name| Self::start(fixture, name))).await
    }

    /// The first renewal after registration.
    fn heartbeat(&self, sweep: SweepScope) -> Heartbeat {
        Heartbeat {
            identity: self.identity.clone(),
            stats: Stats::default(),
            sweep,
            witness: self.registered.heartbeat,
            timing: timing(),
        }
    }

    async fn renew<F: Fixture<Session = S>>(
        &self,
        sweep: SweepScope,
        witness: OffsetDateTime,
    ) -> Result<Renewed, RegistryError> {
        let heartbeat = Heartbeat { witness, ..self.heartbeat(sweep) };
        F::registry(&self.session).renew(&heartbeat).await
    }
}

fn id(name: &str) -> NodeId {
    NodeId::parse(name).unwrap()
}

fn registration(identity: &Identity) -> Registration {
    Registration {
        identity: identity.clone(),
        endpoint: "127.0.0.1:4000".parse().unwrap(),
        meta: Stats::default(),
        timing: timing(),
    }
}

fn told(key: &str, value: serde_json::Value) -> Stats {
    Stats(serde_json::Map::from_iter([(key.to_owned(), value)]))
}

fn names(renewed: &Renewed) -> Vec<&str> {
    renewed.members.iter().map(|member| member.identity.node_id.as_str()).collect()
}
