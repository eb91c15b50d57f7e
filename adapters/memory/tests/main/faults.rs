//! What the cluster can be made to suffer, each as documented: simulations believe in it.

use std::sync::Arc;
use std::time::Duration;

use switchboard_core::ports::{DurableBus, Heartbeat, Registration, Registry, RegistryError, SweepScope};
use switchboard_core::timing::Timing;
use switchboard_core::types::{Identity, NodeId, Stats};
use switchboard_memory::{Link, MemoryCluster, MemoryRegistry};
use switchboard_testkit::suites::{channel, event, payload};
use tokio::time::{Instant, sleep, timeout};

const MOMENT: Duration = Duration::from_millis(10);

fn id(name: &str) -> NodeId {
    NodeId::parse(name).unwrap()
}

fn registration(identity: &Identity) -> Registration {
    Registration {
        identity: identity.clone(),
        endpoint: "127.0.0.1:4000".parse().unwrap(),
        meta: Stats::default(),
        timing: Timing::default(),
    }
}

/// A process that has registered, and its first renewal.
async fn join(cluster: &MemoryCluster, name: &str) -> (Arc<MemoryRegistry>, Heartbeat) {
    let (registry, identity) = (cluster.registry(), Identity::fresh(id(name)));
    let registered = registry.register(&registration(&identity)).await.unwrap();
    let heartbeat = Heartbeat {
        identity,
        stats: Stats::default(),
        sweep: SweepScope::Ghosts,
        witness: registered.heartbeat,
        timing: Timing::default(),
    };
    (registry, heartbeat)
}

#[tokio::test(start_paused = true)]
async fn a_stalled_registry_carries_out_later_what_nobody_waits_for_any_more() {
    let cluster = MemoryCluster::new();
    let (registry, heartbeat) = join(&cluster, "a").await;
    sleep(Duration::from_secs(9)).await;
    cluster.stall(true);
    assert!(timeout(MOMENT, registry.renew(&heartbeat)).await.is_err(), "a stalled registry answered");
    assert!(cluster.heartbeat_age(&id("a")).unwrap() > Duration::from_secs(9));
    cluster.stall(false);
    sleep(MOMENT).await;
    assert!(cluster.heartbeat_age(&id("a")).unwrap() <= MOMENT);
}

#[tokio::test(start_paused = true)]
async fn each_link_fault_fails_in_its_own_way() {
    let cluster = MemoryCluster::new();
    let (registry, heartbeat) = join(&cluster, "a").await;
    sleep(Duration::from_secs(9)).await;

    registry.set_link(Link::Down);
    assert!(matches!(registry.renew(&heartbeat).await, Err(RegistryError::Unavailable(_))));

    registry.set_link(Link::RequestsLost);
    assert!(timeout(MOMENT, registry.renew(&heartbeat)).await.is_err());
    registry.set_link(Link::Up);
    sleep(MOMENT).await;
    assert!(cluster.heartbeat_age(&id("a")).unwrap() > Duration::from_secs(9), "a lost request arrived");

    registry.set_link(Link::RequestsHeld);
    assert!(timeout(MOMENT, registry.renew(&heartbeat)).await.is_err());
    assert!(cluster.heartbeat_age(&id("a")).unwrap() > Duration::from_secs(9));
    registry.set_link(Link::Up);
    sleep(MOMENT).await;
    assert!(cluster.heartbeat_age(&id("a")).unwrap() <= MOMENT, "a request that was held did not arrive");

    sleep(Duration::from_secs(9)).await;
    registry.set_link(Link::AnswersLost);
    assert!(timeout(MOMENT, registry.renew(&heartbeat)).await.is_err());
    assert!(cluster.heartbeat_age(&id("a")).unwrap() <= MOMENT, "only the answer should be lost");
}

#[tokio::test(start_paused = true)]
async fn a_crash_empties_the_table_and_begins_its_numbers_again() {
    let cluster = MemoryCluster::new();
    let (a, heartbeat) = join(&cluster, "a").await;
    let (_b, _) = join(&cluster, "b").await;
    cluster.crash();
    assert_eq!(a.members().await.unwrap(), []);
    assert!(matches!(a.renew(&heartbeat).await, Err(RegistryError::Evicted(_))));
    let anew = Identity::fresh(id("c"));
    assert_eq!(a.register(&registration(&anew)).await.unwrap().seq, 1);
}

/// Or a successor would wait for a process that is no more.
#[tokio::test(start_paused = true)]
async fn a_dead_process_takes_no_lock_with_what_it_still_had_on_its_way() {
    let cluster = MemoryCluster::new();
    let (dead, heartbeat) = join(&cluster, "a").await;
    cluster.stall(true);
    assert!(timeout(MOMENT, dead.renew(&heartbeat)).await.is_err());
    drop(dead);
    cluster.crash();
    cluster.stall(false);
    sleep(MOMENT).await;
    let asked = Instant::now();
    join(&cluster, "a").await;
    assert_eq!(asked.elapsed(), Duration::ZERO, "the successor had to wait");
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_frees_its_node_id_until_the_next_renewal() {
    let cluster = MemoryCluster::new();
    let (holder, heartbeat) = join(&cluster, "a").await;
    holder.lose_session();
    holder.renew(&heartbeat).await.unwrap();
    let second = cluster.registry().register(&registration(&Identity::fresh(id("a")))).await;
    assert!(matches!(second, Err(RegistryError::NodeIdTaken { .. })), "{second:?}");
    holder.lose_session();
    join(&cluster, "a").await;
    assert!(matches!(holder.renew(&heartbeat).await, Err(RegistryError::Evicted(_))));
}

#[tokio::test(start_paused = true)]
async fn times_of_rows_and_events_are_those_of_one_paused_clock() {
    let cluster = MemoryCluster::new();
    let (registry, heartbeat) = join(&cluster, "a").await;
    sleep(Duration::from_secs(100)).await;
    let renewed = registry.renew(&heartbeat).await.unwrap();
    assert_eq!(renewed.gap, Duration::from_secs(100));
    let room = channel("room:1");
    cluster.durable().publish(&room, &event(), &payload("1")).await.unwrap();
    let switchboard_core::ports::History::Page(page) =
        cluster.durable().history(&room, None, 1).await.unwrap()
    else {
        panic!("no page")
    };
    assert_eq!(page[0].created_at, renewed.heartbeat);
}
