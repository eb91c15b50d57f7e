//! Death, sleep and successors: what the registry says about them, and what the processes do.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use switchboard_testkit::process::Process;
use switchboard_testkit::{LONG, eventually};
use tokio::time::sleep;

use crate::node::{CROWDED, Cluster, HEARTBEAT, Node, THRESHOLD};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_is_gone_by_threshold_and_tick_and_not_before_the_threshold() {
    let cluster = Cluster::new().await;
    let [a, b, mut c] = cluster.nodes(["a", "b", "c"]).await;
    // Long enough for the survivors to have evidence.
    sleep(THRESHOLD + HEARTBEAT * 2).await;
    c.process.kill().await;
    let killed = Instant::now();
    a.sees(2).await;
    let first = killed.elapsed();
    b.sees(2).await;
    // The last heartbeat was up to one interval before the end.
    assert!(first >= THRESHOLD.checked_sub(HEARTBEAT).unwrap(), "{first:?}");
    assert!(killed.elapsed() < THRESHOLD + HEARTBEAT + CROWDED, "{:?}", killed.elapsed());
    assert_eq!(cluster.rows("c").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_slept_past_the_threshold_leaves_its_successor_alone_and_exits() {
    let cluster = Cluster::new().await;
    let [other, mut sleeper] = cluster.nodes(["other", "app"]).await;
    sleeper.process.signal(Signal::SIGSTOP);
    sleep(THRESHOLD + HEARTBEAT).await;
    let successor = cluster.start("app").await;
    successor.sees(2).await;
    let incarnation =
        "SELECT incarnation::text || registered_at::text FROM {schema}.node_registry WHERE node_id = 'app'";
    let before: String = sqlx::Row::get(&cluster.sql(incarnation).await[0], 0);
    sleeper.process.signal(Signal::SIGCONT);
    let status = sleeper.process.wait(LONG).await;
    assert_eq!(status.code(), Some(1), "{}", sleeper.process.output());
    let after: String = sqlx::Row::get(&cluster.sql(incarnation).await[0], 0);
    assert_eq!(before, after, "the sleeper touched its successor's row");
    successor.sees(2).await;
    other.sees(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_node_without_successor_is_swept_and_exits_when_it_wakes() {
    let cluster = Cluster::new().await;
    let [a, mut b] = cluster.nodes(["a", "b"]).await;
    sleep(THRESHOLD + HEARTBEAT).await;
    b.process.signal(Signal::SIGSTOP);
    a.sees(1).await;
    b.process.signal(Signal::SIGCONT);
    assert_eq!(b.process.wait(LONG).await.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn b016_a_node_whose_row_is_deleted_exits_or_rejoins_as_configured() {
    let cluster = Cluster::new().await;
    let mut command = cluster.command("rejoins");
    command.env("CLUSTER_ON_EVICTION", "rejoin");
    let rejoins = Node::start("rejoins", command).await;
    let mut exits = cluster.start("exits").await;
    rejoins.sees(2).await;
    exits.sees(2).await;
    cluster.sql("DELETE FROM {schema}.node_registry").await;
    assert_eq!(exits.process.wait(HEARTBEAT + CROWDED).await.code(), Some(1));
    eventually(LONG, "the other one is back", async || cluster.rows("rejoins").await == 1).await;
    rejoins.sees(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b017_a_second_live_process_with_the_same_id_exits_with_a_message_that_helps() {
    let cluster = Cluster::new().await;
    let first = cluster.start("app").await;
    first.sees(1).await;
    let mut second = Process::start("second", cluster.command("app"));
    let status = second.wait(LONG).await;
    assert_eq!(status.code(), Some(1));
    let said = second.output();
    for part in ["app", "in use by a live process", "CLUSTER_NODE_ID"] {
        assert!(said.contains(part), "{part:?} is missing in\n{said}");
    }
    first.sees(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b019_a_node_that_comes_back_at_another_address_replaces_itself_everywhere() {
    let cluster = Cluster::new().await;
    let [mut a, b] = cluster.nodes(["a", "b"]).await;
    let old = a.url.clone();
    a.process.kill().await;
    let again = cluster.start("a").await;
    again.sees(2).await;
    assert_ne!(old, again.url);
    let endpoint = again.url.strip_prefix("http://").unwrap();
    eventually(HEARTBEAT + CROWDED, "the peer knows the new endpoint", async || {
        let (status, list) = b.get("/api/admin/cluster").await.unwrap();
        let members = list["data"].as_array().unwrap();
        assert_eq!((status, members.len()), (200, 2), "{list}");
        members.iter().any(|member| member["node_id"] == "a" && member["endpoint"] == endpoint)
    })
    .await;
    b.sees(2).await;
}

/// A cluster of one is a cluster: nothing is special about it.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_node_behaves_as_a_cluster_of_one() {
    let cluster = Cluster::new().await;
    let [node] = cluster.nodes(["only"]).await;
    let (_, health) = node.health().await.unwrap();
    assert_eq!((&health["status"], &health["node_id"]), (&json!("healthy"), &json!("only")));
    assert_eq!(health["cluster"]["peers"], json!([]));
    assert!(health["cluster"]["heartbeat_age_ms"].as_u64().unwrap() < 1_000 + 1_500);
    let (status, published) = node.publish("room:1", &json!({"event": "message", "payload": {"n": 1}})).await;
    assert_eq!(status, 201);
    let (_, page) = node.get("/api/channels/room:1/events").await.unwrap();
    assert_eq!(page["data"].as_array().unwrap().len(), 1);
    assert_eq!(page["data"][0]["position"], published["position"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn b026_rows_of_unreachable_peers_do_not_delay_a_start() {
    let cluster = Cluster::new().await;
    let [first] = cluster.nodes(["first"]).await;
    cluster
        .sql("INSERT INTO {schema}.node_registry (node_id, endpoint) SELECT 'ghost-' || n, '192.0.2.1:4433' FROM generate_series(1, 100) n")
        .await;
    let started = Instant::now();
    let second = cluster.start("second").await;
    second.sees(102).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    first.sees(2).await;
}
