//! The promises of [`Registry`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use switchboard_core::ports::{
    Heartbeat, Registered, Registration, Registry, RegistryError, Renewed, SweepScope,
};
use switchboard_core::timing::Timing;
use switchboard_core::types::{Identity, NodeId, Stats};
use time::OffsetDateTime;
use tokio::time::{sleep, timeout};

use crate::wait::LONG;

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
                registering_again_changes_nothing_but_the_time,
                a_dead_holder_is_replaced_at_once_and_keeps_its_place,
                a_live_holder_is_left_alone_and_named,
                a_stale_holder_is_replaced_and_finds_itself_evicted,
                another_incarnation_can_neither_renew_nor_deregister,
                a_renewal_tells_stats_and_sees_everybody_in_order,
                the_stale_are_swept_on_evidence,
                without_evidence_nobody_is_swept,
                a_renewal_that_is_out_of_order_sweeps_nobody,
                ghosts_go_with_any_renewal_in_order,
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

    async fn renew<F: Fixture<Session = S>>(
        &self,
        sweep: SweepScope,
        witness: OffsetDateTime,
    ) -> Result<Renewed, RegistryError> {
        let heartbeat = Heartbeat {
            identity: self.identity.clone(),
            stats: Stats::default(),
            sweep,
            witness,
            timing: timing(),
        };
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

fn names(renewed: &Renewed) -> Vec<&str> {
    renewed.members.iter().map(|member| member.identity.node_id.as_str()).collect()
}

/// A retry after a lost answer is safe.
pub async fn registering_again_changes_nothing_but_the_time<F: Fixture>(fixture: &F) {
    let a = Node::start(fixture, "a").await;
    let again = F::registry(&a.session).register(&registration(&a.identity)).await.unwrap();
    assert_eq!(again.seq, a.registered.seq);
    let members = F::registry(&a.session).members().await.unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!((&members[0].identity, members[0].heartbeat), (&a.identity, again.heartbeat));
}

/// Killed, crashed, restarted in place: nobody waits for a threshold.
pub async fn a_dead_holder_is_replaced_at_once_and_keeps_its_place<F: Fixture>(fixture: &F) {
    let a = Node::start(fixture, "a").await;
    let b = Node::start(fixture, "b").await;
    let seq = a.registered.seq;
    drop(a.session);
    let successor =
        timeout(Duration::from_secs(10), Node::start(fixture, "a")).await.expect("waits for the dead");
    assert_eq!(successor.registered.seq, seq);
    let renewed = b.renew::<F>(SweepScope::Ghosts, b.registered.heartbeat).await.unwrap();
    assert_eq!(names(&renewed), ["a", "b"]);
    assert_eq!(renewed.members[0].identity, successor.identity);
}

/// Two live processes never share an id, and the second is told where the first is.
pub async fn a_live_holder_is_left_alone_and_named<F: Fixture>(fixture: &F) {
    let holder = Node::start(fixture, "a").await;
    let second = fixture.session().await;
    let identity = Identity::fresh(id("a"));
    match F::registry(&second).register(&registration(&identity)).await {
        Err(RegistryError::NodeIdTaken { node_id, endpoint }) => {
            assert_eq!((node_id.as_str(), endpoint.to_string().as_str()), ("a", "127.0.0.1:4000"));
        }
        other => panic!("{other:?}"),
    }
    holder
        .renew::<F>(SweepScope::Ghosts, holder.registered.heartbeat)
        .await
        .expect("the holder lost its row");
}

/// A paused process whose id was taken by its successor does not overwrite it.
pub async fn a_stale_holder_is_replaced_and_finds_itself_evicted<F: Fixture>(fixture: &F) {
    let paused = Node::start(fixture, "a").await;
    fixture.age(&id("a"), Duration::from_secs(31)).await;
    let successor = Node::start(fixture, "a").await;
    let late = paused.renew::<F>(SweepScope::Stale, paused.registered.heartbeat).await;
    assert!(matches!(&late, Err(RegistryError::Evicted(evicted)) if *evicted == paused.identity), "{late:?}");
    let members = F::registry(&successor.session).members().await.unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!(
        (&members[0].identity, members[0].heartbeat),
        (&successor.identity, successor.registered.heartbeat)
    );
}

/// Every write is fenced.
pub async fn another_incarnation_can_neither_renew_nor_deregister<F: Fixture>(fixture: &F) {
    let a = Node::start(fixture, "a").await;
    let b = Node::start(fixture, "b").await;
    fixture.age(&id("b"), Duration::from_secs(31)).await;
    let foreign = Identity::fresh(id("a"));
    let heartbeat = Heartbeat {
        identity: foreign.clone(),
        stats: Stats::default(),
        sweep: SweepScope::Stale,
        witness: a.registered.heartbeat,
        timing: timing(),
    };
    let renewed = F::registry(&a.session).renew(&heartbeat).await;
    assert!(matches!(renewed, Err(RegistryError::Evicted(_))), "{renewed:?}");
    F::registry(&a.session).deregister(&foreign).await.unwrap();
    let members = F::registry(&a.session).members().await.unwrap();
    assert_eq!(members.len(), 2, "an evicted caller removed or swept somebody");
    assert_eq!((&members[0].identity, members[0].heartbeat), (&a.identity, a.registered.heartbeat));
    drop(b);
}

/// One step: heartbeat, stats, look around.
pub async fn a_renewal_tells_stats_and_sees_everybody_in_order<F: Fixture>(fixture: &F) {
    let (b, a) = (Node::start(fixture, "b").await, Node::start(fixture, "a").await);
    let mut stats = Stats::default();
    stats.0.insert("answer".to_owned(), 42.into());
    let heartbeat = Heartbeat {
        identity: a.identity.clone(),
        stats: stats.clone(),
        sweep: SweepScope::Stale,
        witness: a.registered.heartbeat,
        timing: timing(),
    };
    sleep(Duration::from_millis(20)).await;
    let renewed = F::registry(&a.session).renew(&heartbeat).await.unwrap();
    assert_eq!(names(&renewed), ["b", "a"], "not in the order of registration");
    assert!(renewed.heartbeat > a.registered.heartbeat);
    assert!(
        renewed.gap >= Duration::from_millis(20) && renewed.gap < Duration::from_secs(10),
        "{:?}",
        renewed.gap
    );
    assert_eq!(renewed.members[1].heartbeat, renewed.heartbeat, "a caller sees its own renewal");
    assert_eq!(renewed.members[1].stats, stats);
    let seen = F::registry(&b.session).members().await.unwrap();
    assert_eq!((&seen[1].stats, &seen[1].identity), (&stats, &a.identity));
    assert!(seen[1].age < Duration::from_secs(10));
}

/// Proof of a dead peer: it is stale, and the caller got through all the time.
pub async fn the_stale_are_swept_on_evidence<F: Fixture>(fixture: &F) {
    let (a, b, c) =
        (Node::start(fixture, "a").await, Node::start(fixture, "b").await, Node::start(fixture, "c").await);
    fixture.age(&id("b"), Duration::from_secs(31)).await;
    fixture.age(&id("c"), Duration::from_secs(29)).await;
    let renewed = a.renew::<F>(SweepScope::Stale, a.registered.heartbeat).await.unwrap();
    assert_eq!(names(&renewed), ["a", "c"]);
    assert_eq!(renewed.swept.len(), 1);
    assert_eq!(renewed.swept[0].identity, b.identity);
    assert!(renewed.swept[0].age > Duration::from_secs(30));
    drop(c);
}

/// Not asked to, or not let through itself.
pub async fn without_evidence_nobody_is_swept<F: Fixture>(fixture: &F) {
    let (a, b) = (Node::start(fixture, "a").await, Node::start(fixture, "b").await);
    fixture.age(&id("b"), Duration::from_mins(1)).await;
    let careful = a.renew::<F>(SweepScope::Ghosts, a.registered.heartbeat).await.unwrap();
    assert_eq!(careful.swept, []);
    // The registry stalled: everybody's heartbeat is old, the caller's too.
    fixture.age(&id("a"), Duration::from_mins(1)).await;
    let members = F::registry(&a.session).members().await.unwrap();
    let own = members.iter().find(|member| member.identity == a.identity).unwrap();
    let back = a.renew::<F>(SweepScope::Stale, own.heartbeat).await.unwrap();
    assert_eq!(back.swept, []);
    assert!(back.gap >= Duration::from_mins(1), "the gap is not told: {:?}", back.gap);
    drop(b);
}

/// What was given up and is carried out late knows nothing.
pub async fn a_renewal_that_is_out_of_order_sweeps_nobody<F: Fixture>(fixture: &F) {
    let (a, b) = (Node::start(fixture, "a").await, Node::start(fixture, "b").await);
    a.renew::<F>(SweepScope::Ghosts, a.registered.heartbeat).await.unwrap();
    fixture.age(&id("b"), Duration::from_hours(1)).await;
    let late = a.renew::<F>(SweepScope::Stale, a.registered.heartbeat).await.unwrap();
    assert_eq!(late.swept, []);
    let next = a.renew::<F>(SweepScope::Stale, late.heartbeat).await.unwrap();
    assert_eq!(next.swept.len(), 1);
    drop(b);
}

/// Last month's rows need no threshold of evidence.
pub async fn ghosts_go_with_any_renewal_in_order<F: Fixture>(fixture: &F) {
    let (a, b, c) =
        (Node::start(fixture, "a").await, Node::start(fixture, "b").await, Node::start(fixture, "c").await);
    fixture.age(&id("b"), Duration::from_secs(301)).await;
    fixture.age(&id("c"), Duration::from_secs(290)).await;
    let renewed = a.renew::<F>(SweepScope::Ghosts, a.registered.heartbeat).await.unwrap();
    assert_eq!(names(&renewed), ["a", "c"]);
    drop((b, c));
}

/// The way back is a new registration.
pub async fn a_swept_node_is_told_and_may_register_anew<F: Fixture>(fixture: &F) {
    let (a, b) = (Node::start(fixture, "a").await, Node::start(fixture, "b").await);
    fixture.age(&id("b"), Duration::from_secs(31)).await;
    a.renew::<F>(SweepScope::Stale, a.registered.heartbeat).await.unwrap();
    let told = b.renew::<F>(SweepScope::Stale, b.registered.heartbeat).await;
    assert!(matches!(told, Err(RegistryError::Evicted(_))), "{told:?}");
    let anew = Identity::fresh(id("b"));
    F::registry(&b.session).register(&registration(&anew)).await.unwrap();
    let members = F::registry(&a.session).members().await.unwrap();
    assert_eq!(members[1].identity, anew);
}

/// Leaving twice, or without ever having been there.
pub async fn leaving_is_idempotent<F: Fixture>(fixture: &F) {
    let (a, b) = (Node::start(fixture, "a").await, Node::start(fixture, "b").await);
    for _ in 0..2 {
        F::registry(&a.session).deregister(&a.identity).await.unwrap();
    }
    let members = F::registry(&b.session).members().await.unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].identity, b.identity);
}

/// Peers learn of changes without waiting for a tick.
pub async fn changes_hint_at_registrations_departures_and_sweeps<F: Fixture>(fixture: &F) {
    let a = Node::start(fixture, "a").await;
    let mut hints = F::registry(&a.session).changes();
    let hinted = async |hints: &mut switchboard_core::ports::ChangeHints, what: &str| {
        assert_eq!(
            timeout(LONG, hints.next()).await.unwrap_or_else(|_| panic!("no hint of {what}")),
            Some(())
        );
        // Whatever else belongs to the same change.
        while timeout(Duration::from_millis(200), hints.next()).await.is_ok() {}
    };
    let _ = hints.next().now_or_never();
    let b = Node::start(fixture, "b").await;
    hinted(&mut hints, "a registration").await;
    F::registry(&b.session).deregister(&b.identity).await.unwrap();
    hinted(&mut hints, "a departure").await;
    let c = Node::start(fixture, "c").await;
    hinted(&mut hints, "a registration").await;
    fixture.age(&id("c"), Duration::from_secs(31)).await;
    a.renew::<F>(SweepScope::Stale, a.registered.heartbeat).await.unwrap();
    hinted(&mut hints, "a sweep").await;
    drop(c);
}
