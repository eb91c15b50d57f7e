//! Heartbeats, and whom they may sweep.

use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use switchboard_core::ports::{ChangeHints, Heartbeat, Registration, RegistryError, SweepScope};
use switchboard_core::timing::Timing;
use switchboard_core::types::Identity;
use tokio::time::{sleep, timeout};

use super::{Fixture, Node, id, names, registration, timing, told};
use crate::wait::LONG;

/// One step: heartbeat, stats, look around.
pub async fn a_renewal_tells_stats_and_sees_everybody_in_order<F: Fixture>(fixture: &F) {
    let (b, a) = (Node::start(fixture, "b").await, Node::start(fixture, "a").await);
    let stats = told("answer", 42.into());
    let heartbeat = Heartbeat { stats: stats.clone(), ..a.heartbeat(SweepScope::Stale) };
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

/// A threshold that is being raised node by node costs nobody its place.
pub async fn of_two_thresholds_the_longer_one_counts<F: Fixture>(fixture: &F) {
    let a = Node::start(fixture, "a").await;
    let session = fixture.session().await;
    let patient = Timing::new(Duration::from_secs(40), Duration::from_mins(2)).unwrap();
    let b = Registration { timing: patient, ..registration(&Identity::fresh(id("b"))) };
    F::registry(&session).register(&b).await.unwrap();

    fixture.age(&id("b"), Duration::from_mins(1)).await;
    let early = a.renew::<F>(SweepScope::Stale, a.registered.heartbeat).await.unwrap();
    assert_eq!(early.swept, []);
    let second = fixture.session().await;
    let claim = F::registry(&second).register(&registration(&Identity::fresh(id("b")))).await;
    assert!(matches!(claim, Err(RegistryError::NodeIdTaken { .. })), "{claim:?}");

    fixture.age(&id("b"), Duration::from_mins(1)).await;
    let due = a.renew::<F>(SweepScope::Stale, early.heartbeat).await.unwrap();
    assert_eq!(due.swept.len(), 1);
    assert_eq!(due.swept[0].identity, b.identity);
}

/// What was given up and is carried out late knows nothing.
pub async fn a_renewal_that_is_out_of_order_sweeps_nobody<F: Fixture>(fixture: &F) {
    let (a, b) = (Node::start(fixture, "a").await, Node::start(fixture, "b").await);
    // No two heartbeats are of the same moment.
    sleep(Duration::from_millis(5)).await;
    a.renew::<F>(SweepScope::Ghosts, a.registered.heartbeat).await.unwrap();
    fixture.age(&id("b"), Duration::from_hours(25)).await;
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
    fixture.age(&id("b"), timing().ghost_threshold() + Duration::from_secs(1)).await;
    fixture.age(&id("c"), Duration::from_hours(23)).await;
    let renewed = a.renew::<F>(SweepScope::Ghosts, a.registered.heartbeat).await.unwrap();
    assert_eq!(names(&renewed), ["a", "c"]);
    drop((b, c));
}

/// A cluster of one does not wait for evidence that nobody else can give.
pub async fn a_lone_node_clears_ghosts_with_its_first_renewal<F: Fixture>(fixture: &F) {
    for name in ["last-month-1", "last-month-2"] {
        drop(Node::start(fixture, name).await);
        fixture.age(&id(name), Duration::from_hours(24 * 30)).await;
    }
    let lone = Node::start(fixture, "a").await;
    let renewed = lone.renew::<F>(SweepScope::Ghosts, lone.registered.heartbeat).await.unwrap();
    assert_eq!(names(&renewed), ["a"]);
    assert_eq!(renewed.swept.len(), 2);
}

/// However old its own row is.
pub async fn nobody_sweeps_itself<F: Fixture>(fixture: &F) {
    let a = Node::start(fixture, "a").await;
    for scope in [SweepScope::Ghosts, SweepScope::Stale] {
        for age in [Duration::from_secs(31), Duration::from_hours(48)] {
            fixture.age(&id("a"), age).await;
            let members = F::registry(&a.session).members().await.unwrap();
            let renewed = a.renew::<F>(scope, members[0].heartbeat).await.unwrap();
            assert_eq!(names(&renewed), ["a"], "{scope:?} after {age:?}");
            assert_eq!(renewed.swept, []);
        }
    }
}

/// After a stall everybody is stale and comes back at once.
pub async fn renewals_of_twenty_stale_nodes_at_once_neither_deadlock_nor_sweep<F: Fixture>(fixture: &F) {
    let nodes = Node::start_many(fixture, "n", 20).await;
    for _ in 0..5 {
        for node in &nodes {
            fixture.age(&node.identity.node_id, Duration::from_mins(1)).await;
        }
        let members = F::registry(&nodes[0].session).members().await.unwrap();
        let renewals = nodes.iter().map(async |node| {
            let own = members.iter().find(|member| member.identity == node.identity).expect("swept");
            node.renew::<F>(SweepScope::Stale, own.heartbeat).await
        });
        let answers = timeout(LONG, join_all(renewals)).await.expect("renewals block each other");
        for renewed in answers {
            assert_eq!(renewed.unwrap().swept, []);
        }
    }
    assert_eq!(F::registry(&nodes[0].session).members().await.unwrap().len(), 20);
}

/// Sweepers neither wait for each other nor announce the same death twice.
pub async fn the_dead_are_swept_once_however_many_sweep_at_once<F: Fixture>(fixture: &F) {
    let (live, dead) =
        (Node::start_many(fixture, "live", 10).await, Node::start_many(fixture, "dead", 10).await);
    for node in &dead {
        fixture.age(&node.identity.node_id, Duration::from_secs(31)).await;
    }
    let renewals = live.iter().map(async |node| {
        let first = node.renew::<F>(SweepScope::Stale, node.registered.heartbeat).await.unwrap();
        // Rows that somebody else had locked are left to the next tick.
        let second = node.renew::<F>(SweepScope::Stale, first.heartbeat).await.unwrap();
        assert_eq!(second.members.iter().filter(|member| member.identity == node.identity).count(), 1);
        [first.swept, second.swept].concat()
    });
    let mut swept: Vec<_> =
        join_all(renewals).await.concat().into_iter().map(|swept| swept.identity).collect();
    swept.sort();
    let mut expected: Vec<_> = dead.iter().map(|node| node.identity.clone()).collect();
    expected.sort();
    assert_eq!(swept, expected);
    assert_eq!(F::registry(&live[0].session).members().await.unwrap().len(), 10);
}

/// Peers learn of changes without waiting for a tick.
pub async fn changes_hint_at_registrations_departures_and_sweeps<F: Fixture>(fixture: &F) {
    let a = Node::start(fixture, "a").await;
    let mut hints = F::registry(&a.session).changes();
    let hinted = async |hints: &mut ChangeHints, what: &str| {
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
