//! Presence of whole nodes over the memory adapter, in virtual time, on a network that can be parted. Named after the reported faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::ready;
use futures::{FutureExt, StreamExt};
use switchboard_core::node::{Node, NodeConfig, OnEviction};
use switchboard_core::ports::{EphemeralBus, EphemeralError, EphemeralItem, EphemeralStream};
use switchboard_core::presence::{
    Presence, PresenceConfig, PresenceDiff, PresenceError, PresenceItem, PresenceRef, PresenceStream,
    Presences, Tracked,
};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{Channel, EventName, NodeId, Payload, PresenceKey, Stats};
use switchboard_memory::{MemoryCluster, MemoryEphemeral};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// A lost message shows with the next digest; then there is an ask and an answer.
const SYNC: Duration = Duration::from_secs(4);
/// A change is told within a window.
const SOON: Duration = Duration::from_millis(60);

/// A node's way to the others, which hears nothing that is sent while it is parted from them; itself it hears.
struct Parted {
    bus: Arc<MemoryEphemeral>,
    parted: watch::Sender<bool>,
}

#[async_trait]
impl EphemeralBus for Parted {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<(), EphemeralError> {
        if *self.parted.borrow() {
            return Ok(());
        }
        self.bus.publish(channel, event, payload).await
    }

    async fn subscribe(&self, channel: &Channel) -> Result<EphemeralStream, EphemeralError> {
        let parted = self.parted.subscribe();
        let events = self.bus.subscribe(channel).await?;
        Ok(events.filter(move |_: &EphemeralItem| ready(!*parted.borrow())).boxed())
    }
}

struct Member {
    node: Node,
    presence: Presence,
    parted: watch::Sender<bool>,
    stats: StatsRegistry,
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

async fn joined(cluster: &MemoryCluster, name: &str) -> Member {
    let stats = StatsRegistry::default();
    let node = Node::spawn(cluster.registry(), config(name, OnEviction::Rejoin), stats.clone());
    let parted = watch::Sender::new(false);
    let bus = Arc::new(Parted { bus: cluster.ephemeral(), parted: parted.clone() });
    let presence = Presence::spawn(bus, &node, PresenceConfig::default(), &stats);
    node.joined().await.unwrap();
    Member { node, presence, parted, stats }
}

/// So many nodes that have seen each other.
async fn cluster_of(nodes: usize) -> (MemoryCluster, Vec<Member>) {
    let cluster = MemoryCluster::new();
    let mut members = Vec::new();
    for n in 0..nodes {
        members.push(joined(&cluster, &format!("n{n}")).await);
    }
    for member in &members {
        member.node.membership().wait_for(|view| view.size() == nodes).await.unwrap();
    }
    sleep(SYNC).await;
    (cluster, members)
}

impl Member {
    fn track(&self, key: &str, meta: &str) -> Tracked {
        self.presence.track(&room(), &user(key), &Payload::parse(meta).unwrap()).unwrap()
    }

    fn list(&self) -> Presences {
        self.presence.list(&room())
    }

    fn keys(&self) -> usize {
        self.list().len()
    }

    async fn watch(&self) -> Watch {
        let mut watch =
            Watch { items: self.presence.subscribe(&room()), known: Presences::new(), left: Vec::new() };
        watch.next().await;
        watch
    }

    fn stat(&self, name: &str) -> u64 {
        self.stats.collect().0[name].as_u64().unwrap()
    }
}

fn room() -> Channel {
    Channel::parse("room:1").unwrap()
}

fn user(key: &str) -> PresenceKey {
    PresenceKey::parse(key).unwrap()
}

/// A subscriber that does what clients do.
struct Watch {
    items: PresenceStream,
    known: Presences,
    /// Every ref that has left.
    left: Vec<PresenceRef>,
}

impl Watch {
    async fn next(&mut self) {
        let item = timeout(SYNC * 10, self.items.next()).await.expect("nothing is told");
        self.take(item.expect("the stream has ended"));
    }

    /// Takes in what waits.
    fn catch_up(&mut self) -> &Presences {
        while let Some(Some(item)) = self.items.next().now_or_never() {
            self.take(item);
        }
        &self.known
    }

    fn take(&mut self, item: PresenceItem) {
        match item {
            PresenceItem::State(state) => self.known = (*state).clone(),
            PresenceItem::Diff(diff) => self.sync(&diff),
        }
    }

    fn sync(&mut self, diff: &PresenceDiff) {
        for (key, metas) in &diff.joins {
            let known = self.known.entry(key.clone()).or_default();
            for meta in metas {
                assert!(!self.left.contains(&meta.reference), "a leave overtook its join");
                assert!(
                    !known.iter().any(|other| other.reference == meta.reference),
                    "joins twice: {meta:?}"
                );
                known.push(meta.clone());
            }
            known.sort_by_key(|meta| meta.reference);
        }
        for (key, metas) in &diff.leaves {
            let known = self.known.get_mut(key).expect("leaves without having joined");
            for meta in metas {
                self.left.push(meta.reference);
                let at = known.iter().position(|other| other.reference == meta.reference);
                known.remove(at.expect("leaves without having joined"));
            }
            if known.is_empty() {
                self.known.remove(key);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn b117_users_of_a_killed_node_are_gone_by_threshold_and_tick_on_all_others() {
    let (_cluster, mut members) = cluster_of(3).await;
    let dead = members.remove(0);
    let tracked: Vec<_> = (0..20).map(|n| dead.track(&format!("u{n}"), "{}")).collect();
    sleep(SOON).await;
    let mut watches = Vec::new();
    for member in &members {
        watches.push(member.watch().await);
        assert_eq!(member.keys(), 20);
    }
    let killed = Instant::now();
    drop(dead.presence);
    drop(dead.node);
    drop(tracked);
    for (member, watch) in members.iter().zip(&mut watches) {
        while !watch.known.is_empty() {
            watch.next().await;
        }
        let latest = Timing::default().stale_threshold() + Timing::default().heartbeat_interval();
        assert!(killed.elapsed() <= latest + Duration::from_millis(200), "{:?}", killed.elapsed());
        assert_eq!((member.keys(), watch.left.len()), (0, 20));
    }
}

#[tokio::test(start_paused = true)]
async fn b117_a_node_that_is_started_again_before_the_sweep_has_its_new_users_alone() {
    let (cluster, mut members) = cluster_of(2).await;
    let dead = members.remove(0);
    let tracked: Vec<_> = (0..20).map(|n| dead.track(&format!("u{n}"), "{}")).collect();
    sleep(SOON).await;
    let mut watch = members[0].watch().await;
    drop(dead.presence);
    drop(dead.node);
    drop(tracked);
    sleep(Duration::from_secs(2)).await;
    let again = joined(&cluster, "n0").await;
    let _back = again.track("u7", r#"{"back":true}"#);
    members[0].node.membership().wait_for(|view| view.size() == 2).await.unwrap();
    sleep(PresenceConfig::default().grace + SYNC).await;
    assert_eq!(watch.catch_up(), &members[0].list());
    assert_eq!(members[0].list(), again.list());
    assert_eq!((again.keys(), again.list()[&user("u7")].len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn b118_two_nodes_that_already_hold_presences_show_all_of_them_when_they_meet() {
    for each in [51, 5_000] {
        let (_cluster, members) = cluster_of(2).await;
        members[0].parted.send_replace(true);
        let mut tracked = Vec::new();
        for (side, member) in members.iter().enumerate() {
            tracked
                .extend((1..each).map(|n| member.track(&format!("u{side}-{n}"), r#"{"name":"somebody"}"#)));
            tracked.push(member.track("both", "{}"));
        }
        sleep(SYNC).await;
        assert_eq!((members[0].keys(), members[1].keys()), (each, each));
        let mut watch = members[0].watch().await;
        members[0].parted.send_replace(false);
        sleep(SYNC).await;
        for member in &members {
            let listed = member.list();
            assert_eq!(listed.values().map(Vec::len).sum::<usize>(), 2 * each);
            assert_eq!(listed[&user("both")].len(), 2);
            assert_eq!(member.stat("presence_entries"), 2 * each as u64);
        }
        assert_eq!(members[0].list(), members[1].list());
        assert_eq!(watch.catch_up(), &members[0].list());
    }
}

#[tokio::test(start_paused = true)]
async fn b121_a_user_who_updates_a_hundred_times_a_second_is_never_seen_absent() {
    let (_cluster, members) = cluster_of(3).await;
    let mut tracked = members[0].track("alice", r#"{"n":0}"#);
    sleep(SOON).await;
    let mut watch = members[2].watch().await;
    for n in 1..=300 {
        tracked.update(&Payload::parse(&format!("{{\"n\":{n}}}")).unwrap()).unwrap();
        sleep(Duration::from_millis(10)).await;
        let known = watch.catch_up();
        assert_eq!(known[&user("alice")].len(), 1, "after update {n}");
    }
    sleep(SOON).await;
    for member in &members {
        let metas = &member.list()[&user("alice")];
        assert_eq!((metas.len(), metas[0].payload.as_str()), (1, r#"{"n":300}"#));
    }
    assert_eq!(watch.catch_up(), &members[2].list());
}

#[tokio::test(start_paused = true)]
async fn b121_a_user_who_moves_to_another_node_is_never_seen_absent() {
    let (_cluster, members) = cluster_of(3).await;
    let mut tracked = members[0].track("alice", "{}");
    sleep(SOON).await;
    let mut watch = members[2].watch().await;
    for round in 0..20 {
        drop(tracked);
        sleep(Duration::from_millis(round * 10)).await;
        tracked =
            members[usize::try_from(round).unwrap() % 2].track("alice", &format!("{{\"round\":{round}}}"));
        for _ in 0..100 {
            sleep(Duration::from_millis(5)).await;
            assert_eq!(watch.catch_up()[&user("alice")].len(), 1, "in round {round}");
        }
    }
    for member in &members {
        assert_eq!(member.list()[&user("alice")][0].payload.as_str(), r#"{"round":19}"#);
    }
    assert_eq!(watch.left.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_takes_its_users_along_at_once_unless_they_come_back() {
    let (_cluster, mut members) = cluster_of(3).await;
    let leaving = members.remove(0);
    let gone = leaving.track("gone", "{}");
    let moved = leaving.track("moved", "{}");
    sleep(SOON).await;
    let mut watch = members[0].watch().await;
    leaving.presence.stop().await;
    leaving.node.leave(Duration::from_secs(1)).await;
    assert!(matches!(
        leaving.presence.track(&room(), &user("late"), &Payload::parse("{}").unwrap()),
        Err(PresenceError::Stopped)
    ));
    drop((gone, moved));
    let _again = members[1].track("moved", "{}");
    sleep(SOON).await;
    assert_eq!(watch.catch_up().len(), 2);
    sleep(PresenceConfig::default().grace).await;
    assert_eq!(watch.catch_up().keys().collect::<Vec<_>>(), [&user("moved")]);
    assert_eq!(watch.left.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_evicted_node_that_joins_again_brings_its_users_along() {
    let (cluster, members) = cluster_of(3).await;
    let _tracked: Vec<_> = members.iter().map(|member| member.track("alice", "{}")).collect();
    let own = members[0].track("bob", "{}");
    sleep(SOON).await;
    let mut watches = Vec::new();
    for member in &members {
        watches.push(member.watch().await);
    }
    let before = members[0].node.status().borrow().identity.clone();
    cluster.delete(&NodeId::parse("n0").unwrap());
    for _ in 0..200 {
        sleep(Duration::from_millis(100)).await;
        for watch in &mut watches {
            assert!(watch.catch_up().contains_key(&user("alice")));
            // What was out of sight may come back.
            watch.left.clear();
        }
        assert!(watches[0].known.contains_key(&user("bob")), "a node loses sight of its own users");
    }
    assert_ne!(members[0].node.status().borrow().identity, before);
    for (member, watch) in members.iter().zip(&watches) {
        assert_eq!(&member.list(), &watch.known);
        assert_eq!(member.list()[&user("alice")].len(), 3);
        assert_eq!(member.list()[&user("bob")][0].reference, own.reference());
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_is_too_slow_for_diffs_gets_a_state() {
    let (_cluster, members) = cluster_of(2).await;
    let mut watch = members[1].watch().await;
    let mut tracked = BTreeMap::new();
    for n in 0..500 {
        tracked.insert(n, members[0].track(&format!("u{n}"), "{}"));
        if n % 3 == 0 {
            tracked.remove(&(n / 2)).unwrap().untrack();
        }
        sleep(SOON).await;
    }
    let told = members[1].stat("presence_diffs_total");
    assert!(told > 400, "{told}");
    let Some(PresenceItem::State(state)) = watch.items.next().await else { panic!("no state") };
    watch.known = (*state).clone();
    assert_eq!(&watch.known, &members[1].list());
    // What still waited in its mailbox is not told again.
    assert!(watch.items.next().now_or_never().is_none());
    drop(tracked);
    sleep(PresenceConfig::default().grace + SOON).await;
    assert!(watch.catch_up().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_when_presence_is_stopped() {
    let (_cluster, members) = cluster_of(1).await;
    let mut watch = members[0].watch().await;
    members[0].presence.stop().await;
    members[0].presence.stop().await;
    assert_eq!(watch.items.next().await, None);
}
