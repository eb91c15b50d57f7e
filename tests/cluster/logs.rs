//! The log of a node: one line for what is worth one, and silence while nothing happens.

use serde_json::Value;
use switchboard_testkit::{LONG, eventually};
use tokio::time::sleep;

use crate::node::{Cluster, HEARTBEAT, Node, THRESHOLD};

async fn start(cluster: &Cluster, name: &str) -> Node {
    let mut command = cluster.command(name);
    command.env("LOG_FORMAT", "json");
    Node::start(name, command).await
}

/// Every line, each of which must be an object that says when, how grave and what.
fn lines(node: &Node) -> Vec<Value> {
    let output = node.process.output();
    let lines =
        output.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")));
    lines
        .inspect(|line: &Value| {
            for member in ["timestamp", "level", "message", "target"] {
                assert!(line[member].is_string(), "{member} is missing in {line}");
            }
        })
        .collect()
}

/// The lines whose message begins so.
fn about(node: &Node, message: &str) -> Vec<Value> {
    let begins = |line: &Value| line["message"].as_str().unwrap().starts_with(message);
    lines(node).into_iter().filter(begins).collect()
}

/// Waits for the line, of which there must be one alone.
async fn says_once(node: &Node, message: &str, level: &str) -> Value {
    eventually(LONG, &format!("the line {message:?} in\n{}", node.process.output()), async || {
        !about(node, message).is_empty()
    })
    .await;
    let found = about(node, message);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["level"], level, "{}", found[0]);
    found[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn joining_sweeping_and_leaving_are_a_line_each_and_nothing_else_is() {
    let cluster = Cluster::new().await;
    let mut a = start(&cluster, "a").await;
    a.sees(1).await;
    let joined = says_once(&a, "joined the cluster", "INFO").await;
    assert!(joined["node"].as_str().unwrap().starts_with('a') && joined["seq"].is_u64(), "{joined}");

    let mut b = start(&cluster, "b").await;
    a.sees(2).await;
    let peer = says_once(&a, "peer joined", "INFO").await;
    assert!(peer["peer"].as_str().unwrap().starts_with('b') && peer["endpoint"].is_string(), "{peer}");

    // Sweeping wants a threshold of renewals first; so much time without a word shows the silence as well.
    let before = lines(&a).len();
    sleep(THRESHOLD * 2).await;
    assert_eq!(lines(&a).len(), before, "{}", a.process.output());

    b.process.kill().await;
    a.sees(1).await;
    let swept = says_once(&a, "swept a stale node", "INFO").await;
    assert!(swept["node"].as_str().unwrap().starts_with('b') && swept["age"].is_string(), "{swept}");
    says_once(&a, "peer left", "INFO").await;

    assert!(a.process.terminate().await.success());
    says_once(&a, "stopping", "INFO").await;
    says_once(&a, "left the cluster", "INFO").await;
    assert!(lines(&a).iter().all(|line| line["level"] == "INFO"), "{}", a.process.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_is_a_warning_and_its_consequence_an_error() {
    let cluster = Cluster::new().await;
    let mut a = start(&cluster, "a").await;
    a.sees(1).await;
    cluster.sql("DELETE FROM {schema}.node_registry").await;
    assert_eq!(a.process.wait(LONG).await.code(), Some(1));
    says_once(&a, "evicted: the registry no longer knows this node", "WARN").await;
    says_once(&a, "evicted: its row is gone", "ERROR").await;
}

/// However often a node tries meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_told_when_it_begins_suspends_and_ends() {
    let cluster = Cluster::with_own_server(&[]).await;
    let a = start(&cluster, "a").await;
    a.sees(1).await;
    cluster.server().freeze();
    a.unhealthy("suspended").await;
    sleep(THRESHOLD * 2 + HEARTBEAT).await;
    says_once(&a, "heartbeat failed", "WARN").await;
    let suspended = says_once(&a, "suspended", "WARN").await;
    assert!(suspended["error"].is_string(), "{suspended}");
    cluster.server().thaw();
    a.sees(1).await;
    says_once(&a, "active again", "INFO").await;
    says_once(&a, "heartbeat failed", "WARN").await;
}

#[cfg(feature = "mesh")]
#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_told_when_it_is_there_and_when_it_is_gone() {
    let cluster = Cluster::new().await;
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        let mut command = cluster.command(name);
        command.env("LOG_FORMAT", "json").env("CLUSTER_EPHEMERAL", "mesh").env("MESH_ADDR", "127.0.0.1:0");
        nodes.push(Node::start(name, command).await);
    }
    let mut b = nodes.remove(1);
    let a = nodes.remove(0);
    a.sees(2).await;
    let linked = says_once(&a, "linked", "INFO").await;
    assert!(linked["peer"].as_str().unwrap().starts_with('b') && linked["address"].is_string(), "{linked}");
    b.process.kill().await;
    let ended = says_once(&a, "link ended", "INFO").await;
    assert!(ended["peer"].as_str().unwrap().starts_with('b') && ended["reason"].is_string(), "{ended}");
    says_once(&a, "peer left", "INFO").await;
}
