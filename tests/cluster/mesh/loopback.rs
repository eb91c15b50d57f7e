//! Nodes that share one address, which is enough for what they do to each other themselves.

use std::time::Duration;

use serde_json::json;
use switchboard_testkit::{LONG, eventually};
use tokio::time::Instant;

use super::{Ear, command, linked, say, start, stats};
use crate::node::{Cluster, Node, SLACK};

#[tokio::test(flavor = "multi_thread")]
async fn ephemeral_events_go_from_node_to_node_and_postgresql_hears_nothing() {
    let cluster = Cluster::new().await;
    let nodes = [start(&cluster, "a").await, start(&cluster, "b").await, start(&cluster, "c").await];
    for (node, peers) in ["a", "b", "c"].iter().zip([["b", "c"], ["a", "c"], ["a", "b"]]) {
        linked(&nodes[0], node, &peers).await;
    }
    // While links were forming, presence had something to say.
    let before = stats(&nodes[0], "a").await["ephemeral"]["fallback_sent_total"].clone();
    let mut ears = Vec::new();
    for node in &nodes {
        ears.push(Ear::on(node, "room:1").await);
    }
    for n in 0..30 {
        say(&nodes[n % 3], n).await;
        for ear in &mut ears {
            assert_eq!(ear.hears().await, n);
        }
    }
    eventually(LONG, "a counts what it sent", async || {
        let stats = stats(&nodes[0], "a").await;
        stats["mesh"]["peers"]["b"]["sent_total"].as_u64().unwrap_or_default() >= 10
    })
    .await;
    let stats = stats(&nodes[0], "a").await;
    assert_eq!(stats["ephemeral"]["transport"], "mesh");
    assert_eq!(stats["ephemeral"]["fallback_sent_total"], before, "{stats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b019_a_node_that_was_killed_and_comes_back_on_another_port_is_heard_at_once() {
    let cluster = Cluster::new().await;
    let (stays, mut goes) = (start(&cluster, "a").await, start(&cluster, "b").await);
    linked(&stays, "a", &["b"]).await;
    let mut ear = Ear::on(&stays, "room:1").await;
    goes.process.kill().await;
    let comes = start(&cluster, "b").await;
    comes.sees(2).await;
    linked(&stays, "a", &["b"]).await;
    linked(&stays, "b", &["a"]).await;
    say(&comes, "back").await;
    assert_eq!(ear.hears().await, "back");
}

#[tokio::test(flavor = "multi_thread")]
async fn b101_a_frozen_node_slows_nobody_and_is_linked_again_within_five_seconds() {
    let cluster = Cluster::new().await;
    let slow = |name| {
        let mut command = command(&cluster, name);
        // It may be frozen for a while without being taken for dead.
        command.env("CLUSTER_STALE_THRESHOLD", "30s");
        command
    };
    let a = Node::start("a", slow("a")).await;
    let b = Node::start("b", slow("b")).await;
    let c = Node::start("c", slow("c")).await;
    for (name, peers) in [("a", ["b", "c"]), ("b", ["a", "c"]), ("c", ["a", "b"])] {
        linked(&a, name, &peers).await;
    }
    let mut frozen_ear = Ear::on(&b, "room:1").await;
    let mut ear = Ear::on(&c, "room:1").await;
    b.process.freeze();
    let frozen = Instant::now();
    let mut said = 0;
    while frozen.elapsed() < Duration::from_secs(5) {
        let began = Instant::now();
        say(&a, said).await;
        assert_eq!(ear.hears().await, said);
        assert!(began.elapsed() < SLACK, "{:?}", began.elapsed());
        said += 1;
    }
    let stats = stats(&a, "a").await;
    assert!(stats["mesh"]["peers"]["b"].is_null(), "it is not suspected: {stats}");
    b.process.thaw();
    let thawed = Instant::now();
    linked(&c, "b", &["a", "c"]).await;
    linked(&c, "a", &["b", "c"]).await;
    assert!(thawed.elapsed() < Duration::from_secs(5) + SLACK, "{:?}", thawed.elapsed());
    say(&a, "end").await;
    while frozen_ear.hears().await != "end" {}
    assert_eq!(ear.hears().await, "end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_changes_from_notify_to_the_mesh_node_by_node() {
    let cluster = Cluster::new().await;
    let [first, second] = cluster.nodes(["a", "b"]).await;
    let mut nodes = [first, second];
    for name in ["a", "b"] {
        let at = usize::from(name == "b");
        let (mut one, mut other) = (Ear::on(&nodes[0], "room:1").await, Ear::on(&nodes[1], "room:1").await);
        for speaker in &nodes {
            say(speaker, name).await;
            assert_eq!(one.hears().await, name);
            assert_eq!(other.hears().await, name);
        }
        assert_eq!(nodes[at].process.terminate().await.code(), Some(0));
        nodes[at] = start(&cluster, name).await;
        nodes[0].sees(2).await;
        nodes[1].sees(2).await;
    }
    linked(&nodes[0], "a", &["b"]).await;
    linked(&nodes[0], "b", &["a"]).await;
    let (mut one, mut other) = (Ear::on(&nodes[0], "room:1").await, Ear::on(&nodes[1], "room:1").await);
    say(&nodes[0], "meshed").await;
    assert_eq!((one.hears().await, other.hears().await), (json!("meshed"), json!("meshed")));
    eventually(LONG, "the mesh was used", async || {
        stats(&nodes[0], "a").await["mesh"]["peers"]["b"]["sent_total"].as_u64().unwrap_or_default() > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mesh_address_that_cannot_be_had_is_reported_by_name() {
    let cluster = Cluster::new().await;
    let holder = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut command = command(&cluster, "a");
    command.env("MESH_ADDR", holder.local_addr().unwrap().to_string());
    let mut node = Node::start("a", command).await;
    assert_ne!(node.process.wait(LONG).await.code(), Some(0));
    assert!(node.process.output().contains("MESH_ADDR"), "{}", node.process.output());
}
