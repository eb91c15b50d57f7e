//! Links come, go, and come again, and there is never more than one between two nodes.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use futures::future::join_all;
use switchboard_core::ports::Registry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{Identity, NodeId, Stats};
use switchboard_mesh::META_KEY;
use tokio::time::{Instant, timeout};

use crate::cluster::{Cluster, Member, next, nothing, socket, until};
use crate::wire::Wire;

/// Every member's event reaches every other one, once.
async fn everybody_hears_everybody_once(members: &[Member]) {
    let mut streams = join_all(members.iter().map(|member| member.subscribe("room:1"))).await;
    for (n, member) in members.iter().enumerate() {
        member.say("room:1", n).await;
        for stream in &mut streams {
            assert_eq!(next(stream).await, n.to_string());
        }
    }
    for member in members {
        member.say("room:1", "\"fence\"").await;
    }
    for stream in &mut streams {
        for _ in members {
            assert_eq!(next(stream).await, "\"fence\"");
        }
        nothing(stream);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b097_five_nodes_that_start_at_once_are_meshed_within_two_seconds() {
    let names = ["n0", "n1", "n2", "n3", "n4"];
    for _ in 0..5 {
        let cluster = Cluster::new();
        let began = Instant::now();
        let members = join_all(names.map(|name| cluster.start(name))).await;
        for member in &members {
            let me = member.node.status().borrow().identity.node_id.to_string();
            let peers: Vec<_> = names.into_iter().filter(|name| *name != me).collect();
            member.has_links(&peers).await;
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        everybody_hears_everybody_once(&members).await;
        assert!(members.iter().all(|member| member.count("fallback_sent_total") == 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b019_a_node_that_was_killed_and_comes_back_elsewhere_is_linked_anew_at_once() {
    let cluster = Cluster::new();
    let (stays, goes) = (cluster.start("a").await, cluster.start("b").await);
    stays.has_links(&["b"]).await;
    goes.kill();
    let comes = cluster.start("b").await;
    let began = Instant::now();
    comes.has_links(&["a"]).await;
    stays.has_links(&["b"]).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    everybody_hears_everybody_once(&[stays, comes]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_leaves_says_so_and_is_not_dialled_again() {
    let cluster = Cluster::new();
    let (stays, goes) = (cluster.start("a").await, cluster.start("b").await);
    stays.has_links(&["b"]).await;
    let mut events = stays.subscribe("room:1").await;
    goes.has_links(&["a"]).await;
    for n in 0..1000 {
        goes.say("room:1", n).await;
    }
    goes.leave().await;
    for n in 0..1000 {
        assert_eq!(next(&mut events).await, n.to_string(), "what was said last was lost");
    }
    stays.has_links(&[]).await;
    stays.routed(0).await;
}

/// `a` dials `b`, whose row vanishes and comes back under a new incarnation.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_vanishes_ends_the_link_and_a_new_incarnation_gets_a_new_one() {
    let cluster = Cluster::new();
    for name in ["b", "a"] {
        let members = [cluster.start("a").await, cluster.start("b").await];
        members[0].has_links(&["b"]).await;
        let evicted = NodeId::parse(name).unwrap();
        let before = cluster.memory.holder(&evicted).unwrap().0;
        cluster.memory.delete(&evicted);
        until("it joins again", || cluster.memory.holder(&evicted).is_some_and(|(now, _)| now != before))
            .await;
        let linked = || members[0].linked() == ["b"] && members[1].linked() == ["a"];
        until("they are linked again", linked).await;
        for member in &members {
            member.routed(1).await;
        }
        everybody_hears_everybody_once(&members).await;
        let [a, b] = members;
        a.leave().await;
        b.leave().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b090_b103_peers_are_reached_by_ipv4_ipv6_and_by_name() {
    let cluster = Cluster::new();
    let named = socket(Ipv6Addr::UNSPECIFIED.into());
    let port = named.local_addr().unwrap().port();
    let members = [
        cluster.at("v4", Ipv4Addr::LOCALHOST.into()).await,
        cluster.at("v6", Ipv6Addr::LOCALHOST.into()).await,
        cluster.member("name", named, format!("localhost:{port}").parse().unwrap()).await,
    ];
    for (member, peers) in members.iter().zip([["name", "v6"], ["name", "v4"], ["v4", "v6"]]) {
        member.has_links(&peers).await;
    }
    everybody_hears_everybody_once(&members).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b100_an_address_that_others_cannot_use_is_named_on_both_sides() {
    let cluster = Cluster::new();
    let here = cluster.start("a").await;
    assert_eq!(here.degraded(), None);
    let elsewhere =
        cluster.member("b", socket(Ipv4Addr::LOCALHOST.into()), "192.0.2.7:4433".parse().unwrap()).await;
    until("the one says so", || {
        here.degraded().is_some_and(|why| why.contains("this node says that it is at 127.0.0.1:"))
    })
    .await;
    until("and the other one", || {
        elsewhere.degraded().is_some_and(|why| why.contains("a says that it is at 127.0.0.1:"))
    })
    .await;
    elsewhere.leave().await;
    until("all are here again", || here.degraded().is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_listens_to_elsewhere_is_sent_to_nobody() {
    let cluster = Cluster::new();
    let members = [cluster.start("a").await, cluster.start("b").await];
    members[0].has_links(&["b"]).await;
    members[1].has_links(&["a"]).await;
    let _here = members[0].subscribe("room:1").await;
    let there = members[1].subscribe("room:2").await;
    for n in 0..100 {
        members[0].say("room:1", n).await;
    }
    assert_eq!(members[0].fact("b", "sent_total"), 0);
    members[0].say("room:2", 1).await;
    until("who listens is sent to", || members[0].fact("b", "sent_total") == 1).await;
    drop(there);
    let forgotten = async {
        loop {
            let before = members[0].fact("b", "sent_total");
            members[0].say("room:2", 1).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            if members[0].fact("b", "sent_total") == before {
                return;
            }
        }
    };
    timeout(Duration::from_secs(5), forgotten).await.expect("interest that has ended is never taken back");
}

/// Rows of nodes that died, which nobody has swept yet.
#[tokio::test(flavor = "multi_thread")]
async fn b026_b089_dead_rows_keep_no_live_peer_waiting() {
    let cluster = Cluster::new();
    let mut sessions = Vec::new();
    for n in 0..100 {
        let session = cluster.memory.registry();
        let mut meta = Stats::default();
        // Names that sort before everybody else's.
        let name = NodeId::parse(&format!("!{n}")).unwrap();
        meta.0.insert(META_KEY.to_owned(), socket(Ipv4Addr::LOCALHOST.into()).facts());
        let registration = switchboard_core::ports::Registration {
            identity: Identity::fresh(name),
            endpoint: format!("192.0.2.{n}:4433", n = n + 1).parse().unwrap(),
            meta,
            timing: Timing::default(),
        };
        session.register(&registration).await.unwrap();
        sessions.push(session);
    }
    let began = Instant::now();
    let members = [cluster.start("a").await, cluster.start("b").await];
    members[0].has_links(&["b"]).await;
    members[1].has_links(&["a"]).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let mut events = members[1].subscribe("room:1").await;
    for n in 0..100 {
        members[0].say("room:1", n).await;
        assert_eq!(next(&mut events).await, n.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b086_an_idle_link_survives_lost_packets() {
    let cluster = Cluster::new();
    let socket = socket(Ipv4Addr::LOCALHOST.into());
    let wire = Wire::to(socket.local_addr().unwrap()).await;
    let (dialler, behind) = (cluster.start("a").await, cluster.member("b", socket, wire.endpoint()).await);
    dialler.has_links(&["b"]).await;
    behind.has_links(&["a"]).await;
    wire.lose(20);
    tokio::time::sleep(Duration::from_secs(8)).await;
    let mut events = behind.subscribe("room:1").await;
    for n in 0..1000 {
        dialler.say("room:1", n).await;
        assert_eq!(next(&mut events).await, n.to_string());
    }
    assert_eq!(dialler.fact("b", "sent_total"), 1000, "there was more than one link");
}
