//! Who may have a node id, and how it is given up.

use std::time::Duration;

use futures::future::join_all;
use switchboard_core::ports::{Heartbeat, Registration, RegistryError, SweepScope};
use switchboard_core::types::{Identity, Stats};
use tokio::time::timeout;

use super::{Fixture, Node, id, names, registration, told};

/// What peers need to know is there at once; what the previous process told is not taken for its successor's.
pub async fn a_registration_tells_where_and_what_and_begins_afresh<F: Fixture>(fixture: &F) {
    let a = Node::start(fixture, "a").await;
    let heartbeat = Heartbeat { stats: told("clients", 7.into()), ..a.heartbeat(SweepScope::Ghosts) };
    F::registry(&a.session).renew(&heartbeat).await.unwrap();
    drop(a.session);

    let successor = Registration {
        endpoint: "[2001:db8::1]:4001".parse().unwrap(),
        meta: told("version", "2 \"β\"".into()),
        ..registration(&Identity::fresh(id("a")))
    };
    let session = fixture.session().await;
    let registered = F::registry(&session).register(&successor).await.unwrap();
    let members = F::registry(&session).members().await.unwrap();
    let [member] = &members[..] else { panic!("{members:?}") };
    assert_eq!((&member.identity, &member.endpoint), (&successor.identity, &successor.endpoint));
    assert_eq!((&member.meta, &member.stats), (&successor.meta, &Stats::default()));
    assert_eq!((member.registered_at, member.heartbeat), (registered.heartbeat, registered.heartbeat));
    assert!(member.age < Duration::from_secs(10), "{:?}", member.age);
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
            assert_eq!((node_id.as_str(), endpoint.as_str()), ("a", "127.0.0.1:4000"));
        }
        other => panic!("{other:?}"),
    }
    holder
        .renew::<F>(SweepScope::Ghosts, holder.registered.heartbeat)
        .await
        .expect("the holder lost its row");
}

/// Containers that share a name and start together: no two of them run.
pub async fn of_several_that_want_one_id_at_once_one_gets_it<F: Fixture>(fixture: &F) {
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(fixture.session().await);
    }
    let claims = sessions.iter().map(async |session| {
        let identity = Identity::fresh(id("a"));
        (F::registry(session).register(&registration(&identity)).await, identity)
    });
    let (won, lost): (Vec<_>, Vec<_>) =
        join_all(claims).await.into_iter().partition(|(answer, _)| answer.is_ok());
    assert_eq!(won.len(), 1, "{won:?}");
    for (answer, _) in lost {
        assert!(matches!(answer, Err(RegistryError::NodeIdTaken { .. })), "{answer:?}");
    }
    let members = F::registry(&sessions[0]).members().await.unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].identity, won[0].1);
}

/// A deployment starts everybody together; each gets a place of its own.
pub async fn many_may_register_at_once<F: Fixture>(fixture: &F) {
    let nodes = Node::start_many(fixture, "n", 20).await;
    let members = F::registry(&nodes[0].session).members().await.unwrap();
    assert_eq!(members.len(), 20);
    assert!(members.is_sorted_by(|one, next| one.seq < next.seq), "not in the order of seq: {members:?}");
    for node in &nodes {
        assert!(members.iter().any(|m| m.identity == node.identity && m.seq == node.registered.seq));
    }
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

/// The successor of a sleeper is a live holder like any other: the sleeper, woken, restarted or rejoining, does not get its id back.
pub async fn a_successor_of_a_sleeper_keeps_the_id<F: Fixture>(fixture: &F) {
    let sleeper = Node::start(fixture, "a").await;
    fixture.age(&id("a"), Duration::from_secs(31)).await;
    let successor = Node::start(fixture, "a").await;
    let rejoining = F::registry(&sleeper.session).register(&registration(&Identity::fresh(id("a")))).await;
    assert!(matches!(rejoining, Err(RegistryError::NodeIdTaken { .. })), "{rejoining:?}");

    drop(sleeper);
    let restarted = fixture.session().await;
    let restart = F::registry(&restarted).register(&registration(&Identity::fresh(id("a")))).await;
    assert!(matches!(restart, Err(RegistryError::NodeIdTaken { .. })), "{restart:?}");
    successor.renew::<F>(SweepScope::Ghosts, successor.registered.heartbeat).await.expect("replaced");
}

/// Every write is fenced.
pub async fn another_incarnation_can_neither_renew_nor_deregister<F: Fixture>(fixture: &F) {
    let a = Node::start(fixture, "a").await;
    let b = Node::start(fixture, "b").await;
    fixture.age(&id("b"), Duration::from_secs(31)).await;
    let foreign = Identity::fresh(id("a"));
    let heartbeat = Heartbeat { identity: foreign.clone(), ..a.heartbeat(SweepScope::Stale) };
    let renewed = F::registry(&a.session).renew(&heartbeat).await;
    assert!(matches!(renewed, Err(RegistryError::Evicted(_))), "{renewed:?}");
    F::registry(&a.session).deregister(&foreign).await.unwrap();
    let members = F::registry(&a.session).members().await.unwrap();
    assert_eq!(members.len(), 2, "an evicted caller removed or swept somebody");
    assert_eq!((&members[0].identity, members[0].heartbeat), (&a.identity, a.registered.heartbeat));
    drop(b);
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
