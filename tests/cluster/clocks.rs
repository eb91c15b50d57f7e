//! Clocks that are wrong. Only PostgreSQL's is ever compared with a heartbeat.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use switchboard_testkit::available;
use tokio::time::sleep;

use crate::node::{Cluster, HEARTBEAT, Node, THRESHOLD};

/// Where libfaketime is on Debian, on any architecture, and on Fedora.
fn libfaketime() -> Option<PathBuf> {
    let places = ["/usr/lib", "/usr/lib64"].into_iter().filter_map(|place| std::fs::read_dir(place).ok());
    let found = places.flatten().flatten().map(|entry| entry.path());
    found
        .flat_map(|path| [path.join("libfaketimeMT.so.1"), path.join("faketime/libfaketimeMT.so.1")])
        .find(|path| path.exists())
}

#[tokio::test(flavor = "multi_thread")]
async fn b007_nodes_whose_clocks_are_hours_apart_stay_together() {
    let library = libfaketime();
    if !available("libfaketime", library.is_some()) {
        return;
    }
    let library = library.unwrap_or_default();
    let cluster = Cluster::new().await;
    let mut nodes = Vec::new();
    for (name, offset) in [("ahead", "+3h"), ("behind", "-3h"), ("right", "+0s")] {
        let mut command = cluster.command(name);
        // The wall clock alone: the monotonic one is never wrong by hours.
        command.env("LD_PRELOAD", &library).env("FAKETIME", offset).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        nodes.push(Node::start(name, command).await);
    }
    for node in &nodes {
        node.sees(3).await;
    }
    for _ in 0..20 {
        sleep(THRESHOLD / 4).await;
        for node in &nodes {
            let (status, health) = node.health().await.unwrap();
            assert_eq!((status, &health["cluster"]["size"]), (200, &3.into()), "{health}");
            let age = Duration::from_millis(health["cluster"]["heartbeat_age_ms"].as_u64().unwrap());
            assert!(age < HEARTBEAT * 3, "{age:?}");
        }
    }
    let (_, list) = nodes[0].get("/api/admin/cluster").await.unwrap();
    for member in list["data"].as_array().unwrap() {
        assert!(member["heartbeat_age_ms"].as_u64().unwrap() < 1_500, "{member}");
        assert!(member["heartbeat"].as_str().unwrap().ends_with('Z'), "{member}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b010_time_zones_of_nodes_and_database_change_no_age() {
    let cluster = Cluster::with_own_server(&[("timezone", "Asia/Kolkata")]).await;
    let mut command = cluster.command("a");
    command.env("TZ", "America/St_Johns");
    let a = Node::start("a", command).await;
    let mut command = cluster.command("b");
    command.env("TZ", "Pacific/Kiritimati");
    let b = Node::start("b", command).await;
    a.sees(2).await;
    b.sees(2).await;
    sleep(THRESHOLD * 2).await;
    let (_, list) = a.get("/api/admin/cluster").await.unwrap();
    assert_eq!(list["data"].as_array().unwrap().len(), 2);
    for member in list["data"].as_array().unwrap() {
        assert!(member["heartbeat_age_ms"].as_u64().unwrap() < 1_500, "{member}");
    }
    assert_eq!(list["timing"]["stale_threshold_ms"], 2_000);
}

/// A cursor that was a time would skip what a node with a slow clock writes.
#[tokio::test(flavor = "multi_thread")]
async fn b082_the_order_is_that_of_the_log_whatever_the_clocks_say() {
    let library = libfaketime();
    if !available("libfaketime", library.is_some()) {
        return;
    }
    let library = library.unwrap_or_default();
    let cluster = Cluster::new().await;
    let mut nodes = Vec::new();
    for (name, offset) in [("ahead", "+5m"), ("behind", "-5m")] {
        let mut command = cluster.command(name);
        command.env("LD_PRELOAD", &library).env("FAKETIME", offset).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        nodes.push(Node::start(name, command).await);
    }
    for node in &nodes {
        node.sees(2).await;
    }
    let mut after = "oldest".to_owned();
    let mut seen = Vec::new();
    for round in 0..20 {
        for n in 0..50 {
            let number = round * 50 + n;
            let body = json!({"event": "message", "payload": number});
            assert_eq!(nodes[number % 2].publish("room:1", &body).await.0, 201);
        }
        // A reader comes back to the other node, with the position it saw last.
        let path = format!("/api/channels/room:1/events?after={after}&limit=1000");
        let (status, page) = nodes[round % 2].get(&path).await.unwrap();
        assert_eq!(status, 200, "{page}");
        seen.extend(page["data"].as_array().unwrap().iter().map(|event| event["payload"].as_u64().unwrap()));
        page["next"].as_str().unwrap().clone_into(&mut after);
    }
    assert_eq!(seen, (0..1000).collect::<Vec<_>>());
}
