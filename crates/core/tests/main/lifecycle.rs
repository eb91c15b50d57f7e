//! The life of a node, event by event, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use switchboard_core::lease::LeaseState;
use switchboard_core::membership::MembershipChange;
use switchboard_core::node::{Node, NodeConfig, NodeEnd, OnEviction};
use switchboard_core::ports::Registry;
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{NodeId, Stats};
use switchboard_memory::{Link, MemoryCluster, MemoryRegistry};
use tokio::time::{Instant, sleep};

struct Member {
    node: Node,
    registry: Arc<MemoryRegistry>,
}

impl Member {
    async fn sees(&self, size: usize) {
        self.node.membership().wait_for(|view| view.size() == size).await.unwrap();
    }
}

fn config(name: &str, on_eviction: OnEviction) -> NodeConfig {
    NodeConfig {
        node_id: NodeId::parse(name).unwrap(),
        endpoint: "127.0.0.1:4000".parse().unwrap(),
        meta: Stats::default(),
        timing: Timing::default(),
        on_eviction,
    }
}

fn start(cluster: &MemoryCluster, name: &str, on_eviction: OnEviction) -> Member {
    let registry = cluster.registry();
    let node = Node::spawn(registry.clone(), config(name, on_eviction), StatsRegistry::default());
    Member { node, registry }
}

async fn joined(cluster: &MemoryCluster, name: &str) -> Member {
    let member = start(cluster, name, OnEviction::Stop);
    member.node.joined().await.unwrap();
    member
}

fn id(name: &str) -> NodeId {
    NodeId::parse(name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_killed_node_is_gone_by_threshold_and_tick_and_not_before_the_threshold() {
    let cluster = MemoryCluster::new();
    let (a, b, c) = (joined(&cluster, "a").await, joined(&cluster, "b").await, joined(&cluster, "c").await);
    a.sees(3).await;
    sleep(Duration::from_secs(65)).await;
    let last_heartbeat = cluster.heartbeat_age(&id("c")).unwrap();
    let killed = Instant::now() - last_heartbeat;
    drop(c);
    a.sees(2).await;
    b.sees(2).await;
    let timing = Timing::default();
    assert!(killed.elapsed() > timing.stale_threshold(), "{:?}", killed.elapsed());
    let latest = timing.stale_threshold() + timing.heartbeat_interval() + Duration::from_millis(200);
    assert!(killed.elapsed() < latest, "{:?}", killed.elapsed());
}

/// Whoever starts the task may keep it beyond the handle.
#[tokio::test(start_paused = true)]
async fn a_node_whose_handle_is_gone_goes_on_until_its_task_is_stopped() {
    let cluster = MemoryCluster::new();
    let config = config("a", OnEviction::Stop);
    let mut task = None;
    let node = Node::spawn_by(cluster.registry(), config, StatsRegistry::default(), |life| {
        task = Some(tokio::spawn(life));
        tokio::spawn(async {})
    });
    node.joined().await.unwrap();
    drop(node);
    sleep(Timing::default().heartbeat_interval() * 5).await;
    assert!(cluster.heartbeat_age(&id("a")).unwrap() <= Timing::default().heartbeat_interval());
    task.unwrap().abort();
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_task_panics_says_so_and_may_act_no_longer_than_its_lease() {
    let cluster = MemoryCluster::new();
    let stats = StatsRegistry::default();
    let node = Node::spawn(cluster.registry(), config("a", OnEviction::Rejoin), stats.clone());
    node.joined().await.unwrap();
    stats.gauge("shelf", || -> u64 { panic!("the application's own mistake") });
    assert!(matches!(node.ended().await, NodeEnd::Broken));
    assert!(matches!(node.leave(Duration::from_secs(1)).await, NodeEnd::Broken));
    sleep(Timing::default().stale_threshold()).await;
    assert!(!node.status().borrow().is_active());
}

#[tokio::test(start_paused = true)]
async fn a_leaving_node_is_gone_at_once_and_its_peers_hear_of_it() {
    let cluster = MemoryCluster::new();
    let (a, b) = (joined(&cluster, "a").await, joined(&cluster, "b").await);
    a.sees(2).await;
    let mut changes = std::pin::pin!(a.node.changes());
    let left = Instant::now();
    assert!(matches!(b.node.leave(Duration::from_secs(1)).await, NodeEnd::Left));
    let change = changes.next().await.unwrap();
    assert!(
        matches!(&change, MembershipChange::Left(peer) if peer.identity.node_id == id("b")),
        "{change:?}"
    );
    assert!(left.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn leaving_while_the_registry_is_down_takes_no_longer_than_patience() {
    let cluster = MemoryCluster::new();
    let a = joined(&cluster, "a").await;
    a.registry.set_link(Link::RequestsLost);
    let asked = Instant::now();
    assert!(matches!(a.node.leave(Duration::from_secs(3)).await, NodeEnd::Left));
    assert!(asked.elapsed() <= Duration::from_millis(3100), "{:?}", asked.elapsed());
}

/// B020: a heartbeat that is under way when the node leaves does not bring its row back.
#[tokio::test(start_paused = true)]
async fn b020_a_late_heartbeat_does_not_resurrect_a_node_that_left() {
    for phase in 0..200_u64 {
        let cluster = MemoryCluster::new();
        let a = joined(&cluster, "a").await;
        // Around the moment of a tick, with the heartbeat hanging in a stalled registry.
        sleep(Duration::from_millis(9_900 + phase)).await;
        cluster.stall(true);
        sleep(Duration::from_millis(100)).await;
        let leave = a.node.leave(Duration::from_secs(5));
        let thaw = async {
            sleep(Duration::from_millis(50)).await;
            cluster.stall(false);
        };
        let (end, ()) = tokio::join!(leave, thaw);
        assert!(matches!(end, NodeEnd::Left), "{end:?}");
        sleep(Duration::from_secs(2)).await;
        assert_eq!(cluster.heartbeat_age(&id("a")), None, "phase {phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_evicted_node_that_may_rejoin_does_so_under_a_new_incarnation() {
    let cluster = MemoryCluster::new();
    let a = start(&cluster, "a", OnEviction::Rejoin);
    a.node.joined().await.unwrap();
    let b = joined(&cluster, "b").await;
    b.sees(2).await;
    let before = a.node.status().borrow().identity.clone();
    let mut changes = std::pin::pin!(b.node.changes());
    cluster.delete(&id("a"));
    a.node.status().wait_for(|status| status.identity != before && status.is_active()).await.unwrap();
    let change = changes.next().await.unwrap();
    let rejoined = matches!(&change, MembershipChange::Restarted { was, now } if was.identity == before && now.identity != before);
    assert!(rejoined || matches!(change, MembershipChange::Left(_)), "{change:?}");
    b.sees(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_before_its_registry_waits_for_it() {
    let cluster = MemoryCluster::new();
    cluster.stall(true);
    let a = start(&cluster, "a", OnEviction::Stop);
    a.registry.set_link(Link::Down);
    sleep(Duration::from_secs(40)).await;
    assert_eq!(a.node.status().borrow().lease, None);
    assert!(a.node.status().borrow().last_error.is_some());
    cluster.stall(false);
    a.registry.set_link(Link::Up);
    let up = Instant::now();
    a.node.joined().await.unwrap();
    assert!(up.elapsed() <= Duration::from_secs(5), "{:?}", up.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_can_leave_before_it_has_joined() {
    let cluster = MemoryCluster::new();
    let a = start(&cluster, "a", OnEviction::Stop);
    a.registry.set_link(Link::Down);
    sleep(Duration::from_secs(3)).await;
    let asked = Instant::now();
    assert!(matches!(a.node.leave(Duration::from_secs(1)).await, NodeEnd::Left));
    assert!(asked.elapsed() <= Duration::from_secs(2));
}

/// B005: one short outage, at any phase, costs nobody their membership.
#[tokio::test(start_paused = true)]
async fn b005_an_outage_shorter_than_what_is_left_of_the_window_evicts_nobody() {
    let cluster = MemoryCluster::new();
    let (a, b) = (joined(&cluster, "a").await, joined(&cluster, "b").await);
    b.sees(2).await;
    sleep(Duration::from_mins(1)).await;
    for phase in 0..20 {
        sleep(Duration::from_millis(9_500 + phase * 137)).await;
        a.registry.set_link(if phase % 2 == 0 { Link::Down } else { Link::RequestsLost });
        sleep(Duration::from_secs(8)).await;
        a.registry.set_link(Link::Up);
        assert!(a.node.status().borrow().is_active(), "phase {phase}");
        let recovered = Instant::now();
        a.node.status().wait_for(|status| status.last_error.is_none()).await.unwrap();
        // A request that was lost just before the end of the outage is waited for, once.
        assert!(recovered.elapsed() < Duration::from_secs(8), "phase {phase}: {:?}", recovered.elapsed());
    }
    assert_eq!(a.node.status().borrow().lease, Some(LeaseState::Active));
    assert_eq!(b.registry.members().await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_hints_cause_one_look() {
    let cluster = MemoryCluster::new();
    let a = joined(&cluster, "a").await;
    let peers: Vec<_> = (0..100).map(|n| start(&cluster, &format!("n{n}"), OnEviction::Stop)).collect();
    for peer in &peers {
        peer.node.joined().await.unwrap();
    }
    let told = Instant::now();
    a.sees(101).await;
    assert!(told.elapsed() <= Duration::from_millis(250), "{:?}", told.elapsed());
}

#[tokio::test(start_paused = true)]
async fn news_reach_peers_before_the_next_heartbeat() {
    let cluster = MemoryCluster::new();
    let stats = StatsRegistry::default();
    let a = Node::spawn(cluster.registry(), config("a", OnEviction::Stop), stats.clone());
    a.joined().await.unwrap();
    sleep(Duration::from_secs(3)).await;
    stats.gauge("draining", || true);
    a.renew_soon();
    sleep(Duration::from_millis(10)).await;
    let seen = cluster.registry().members().await.unwrap();
    assert_eq!(seen[0].stats.0["draining"], true);
    assert!(seen[0].age < Duration::from_secs(1), "{:?}", seen[0].age);
}
