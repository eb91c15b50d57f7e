//! A database that crashes again and again, under a supervisor that waits longer before each restart.
//!
//! Where each exit costs more than the one before, as on Kubernetes, nodes are told to rejoin. What Docker makes of nodes that exit is
//! in `tests/compose.sh`.

use std::time::{Duration, Instant};

use serde_json::json;
use switchboard_testkit::postgres::StopMode;
use switchboard_testkit::{LONG, eventually};
use tokio::time::sleep;

use crate::node::{Cluster, Node};

const CRASHES: u32 = 6;
/// From a server that takes connections to a cluster that is whole.
const SOON: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn b143_nodes_that_rejoin_are_back_soon_after_each_crash_and_need_no_restart() {
    let cluster = Cluster::with_own_server(&[]).await;
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        let mut command = cluster.command(name);
        command.env("CLUSTER_ON_EVICTION", "rejoin");
        nodes.push(Node::start(name, command).await);
    }
    for node in &nodes {
        node.sees(3).await;
    }
    for crash in 0..CRASHES {
        cluster.server().halt(StopMode::Immediate).await.unwrap();
        // Shorter and longer than the stale threshold in turn.
        sleep(Duration::from_secs(if crash % 2 == 0 { 1 } else { 3 })).await;
        cluster.server().resume().await.unwrap();
        let up = Instant::now();
        // The table came back empty. What nodes see may be from before that.
        eventually(LONG, "all rows are back", async || {
            cluster.count("SELECT count(*) FROM {schema}.node_registry").await == 3
        })
        .await;
        for node in &nodes {
            node.sees(3).await;
        }
        assert!(up.elapsed() < SOON, "after crash {crash} it took {:?}", up.elapsed());
        let event = json!({"event": "message", "payload": crash});
        eventually(LONG, "an event is stored", async || nodes[0].publish("room:1", &event).await.0 == 201)
            .await;
    }
    for node in &mut nodes {
        assert_eq!(node.process.ended(), None, "{}", node.process.output());
    }
    let (_, page) = nodes[2].get("/api/channels/room:1/events").await.unwrap();
    let stored: Vec<_> =
        page["data"].as_array().unwrap().iter().map(|event| event["payload"].clone()).collect();
    for crash in 0..CRASHES {
        assert!(stored.contains(&json!(crash)), "the event after crash {crash} is missing: {stored:?}");
    }
}
