//! A hundred nodes that start at once.

use std::time::{Duration, Instant};

use crate::node::{Cluster, Node};

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_nodes_that_start_at_once_all_register() {
    let cluster = Cluster::alone(&[("max_connections", "700")]).await;
    let names: Vec<String> = (0..100).map(|n| format!("n{n}")).collect();
    let started = Instant::now();
    let start = |name| {
        let mut command = cluster.command(name);
        // As people run it. A hundred unoptimised nodes with heartbeats of half a second are more than two cores can bear.
        command.env_remove("CLUSTER_HEARTBEAT_INTERVAL").env_remove("CLUSTER_STALE_THRESHOLD");
        Node::start(name, command)
    };
    let mut nodes = futures::future::join_all(names.iter().map(|name| start(name))).await;
    for node in &nodes {
        node.sees(100).await;
    }
    assert!(started.elapsed() < Duration::from_mins(2), "{:?}", started.elapsed());
    for node in &mut nodes {
        assert_eq!(node.process.ended(), None, "{}", node.process.output());
    }
    let mut ends = Vec::new();
    for node in &mut nodes {
        ends.push(node.process.terminate());
    }
    for status in futures::future::join_all(ends).await {
        assert_eq!(status.code(), Some(0));
    }
    assert_eq!(cluster.count("SELECT count(*) FROM {schema}.node_registry").await, 0);
}
