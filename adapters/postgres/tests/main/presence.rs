//! Presence over NOTIFY. What it decides is tested in the core; here is shown that it gets through.

use std::time::Duration;

use switchboard_core::presence::{Presence, PresenceConfig, Tracked};
use switchboard_core::types::{Channel, Payload, PresenceKey};
use switchboard_testkit::suites::channel;
use switchboard_testkit::{LONG, eventually};

use crate::cluster::{Cluster, Member};

fn presence(member: &Member) -> Presence {
    Presence::spawn(member.ports.ephemeral(), &member.node, PresenceConfig::default(), &member.stats)
}

fn track(presence: &Presence, room: &Channel, key: &str) -> Tracked {
    let meta = format!("{{\"name\":\"{}\"}}", key.repeat(20));
    presence.track(room, &PresenceKey::parse(key).unwrap(), &Payload::parse(&meta).unwrap()).unwrap()
}

async fn all_show(all: &[&Presence], room: &Channel, keys: usize) {
    eventually(LONG, "all show the same", async || {
        let lists: Vec<_> = all.iter().map(|presence| presence.list(room)).collect();
        lists.iter().all(|list| list.len() == keys && *list == lists[0])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_show_the_same_people_and_a_third_that_comes_later_too() {
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let (on_a, on_b) = (presence(&a), presence(&b));
    let room = channel("room:1");
    // More than one notification holds, and more than one event.
    let mut tracked: Vec<_> = (0..400).map(|n| track(&on_a, &room, &format!("a{n}"))).collect();
    tracked.extend((0..400).map(|n| track(&on_b, &room, &format!("b{n}"))));
    let both = [track(&on_a, &room, "both"), track(&on_b, &room, "both")];
    all_show(&[&on_a, &on_b], &room, 801).await;
    assert_eq!(on_a.list(&room)[&PresenceKey::parse("both").unwrap()].len(), 2);

    let c = cluster.node("c").await;
    let on_c = presence(&c);
    all_show(&[&on_a, &on_b, &on_c], &room, 801).await;

    for tracked in both {
        tracked.untrack();
    }
    all_show(&[&on_a, &on_b, &on_c], &room, 800).await;
    assert_eq!(c.stats.collect().0["presence_garbage_total"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b117_users_of_a_node_that_was_killed_or_has_left_are_gone_everywhere() {
    let cluster = Cluster::new().await;
    let (a, b, c) = (cluster.node("a").await, cluster.node("b").await, cluster.node("c").await);
    let (on_a, on_b, on_c) = (presence(&a), presence(&b), presence(&c));
    let room = channel("room:1");
    let tracked: Vec<_> = (0..20).map(|n| track(&on_b, &room, &format!("b{n}"))).collect();
    let _stays = track(&on_a, &room, "a");
    all_show(&[&on_a, &on_b, &on_c], &room, 21).await;
    drop(on_b);
    drop(tracked);
    b.kill();
    all_show(&[&on_a, &on_c], &room, 1).await;

    let leaves = track(&on_c, &room, "c");
    all_show(&[&on_a, &on_c], &room, 2).await;
    on_c.stop().await;
    c.node.leave(Duration::from_secs(5)).await;
    drop(leaves);
    all_show(&[&on_a], &room, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_lost_with_a_listener_is_found() {
    let cluster = Cluster::with_own_server(&[]).await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let (on_a, on_b) = (presence(&a), presence(&b));
    let room = channel("room:1");
    let first = track(&on_a, &room, "first");
    all_show(&[&on_a, &on_b], &room, 1).await;
    let mut tracked = Vec::new();
    for n in 0..5 {
        cluster.terminate("listener").await;
        tracked.push(track(&on_a, &room, &format!("a{n}")));
        tracked.push(track(&on_b, &room, &format!("b{n}")));
    }
    first.untrack();
    all_show(&[&on_a, &on_b], &room, 10).await;
}
