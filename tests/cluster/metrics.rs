//! `GET /metrics` of real nodes: what stands in `docs/metrics.md`, all of it, and nothing that Prometheus's own linter frowns at.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::json;
use switchboard_testkit::{available, on_path};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::node::{Cluster, Node};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");

/// What stands between the table's head and its rows.
const RULE: &str = "|---|---|---|---|\n";

/// Rows of the table, by name.
type Table = BTreeMap<String, String>;

async fn scrape(node: &Node) -> String {
    let (status, body) = node.get("/metrics").await.unwrap();
    assert_eq!(status, 200, "{body}");
    body.as_str().unwrap().to_owned()
}

/// What a node shows, as rows.
fn shown(text: &str) -> Table {
    let mut helps = BTreeMap::new();
    let mut table = Table::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            helps.insert(name, help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let labels = labels(text, name);
            table.insert(name.to_owned(), format!("| `{name}` | {kind} | {labels} | {} |", helps[name]));
        }
    }
    table
}

/// The labels of a family, without the one that histograms have.
fn labels(text: &str, name: &str) -> String {
    let sample = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let pairs = sample.and_then(|rest| rest.split_once('}')).map_or("", |(pairs, _)| pairs);
    let names = pairs.split(',').filter_map(|pair| pair.split_once('=')).map(|(name, _)| format!("`{name}`"));
    names.collect::<Vec<_>>().join(", ")
}

fn documented() -> Table {
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let (_, rows) = document.split_once(RULE).unwrap();
    let rows = rows.lines().take_while(|line| line.starts_with('|'));
    rows.map(|row| (row.split('`').nth(1).unwrap().to_owned(), row.to_owned())).collect()
}

/// Has a node tell of everything that only shows once it has happened.
async fn use_it(node: &Node) {
    let body = json!({"event": "message", "payload": 1});
    assert_eq!(node.publish("room:1", &body).await.0, 201);
}

/// `promtool check metrics` wants a unit, a help, and conventional names.
async fn lint(text: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).await.unwrap();
    let output = promtool.wait_with_output().await.unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{complaints}\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_a_node_is_documented() {
    let cluster = Cluster::new().await;
    let [a, _b] = cluster.nodes(["a", "b"]).await;
    use_it(&a).await;
    let text = scrape(&a).await;
    if available("promtool (Debian package prometheus)", on_path("promtool")) {
        lint(&text).await;
    }
    let documented = documented();
    for (name, row) in shown(&text) {
        assert_eq!(Some(&row), documented.get(&name), "docs/metrics.md should say of {name}");
    }
    for (sample, value) in [
        ("switchboard_cluster_size", "2"),
        ("switchboard_ready", "1"),
        ("switchboard_durable_published_total", "1"),
        ("switchboard_durable_publish_seconds_count", "1"),
    ] {
        assert!(
            text.lines().any(|line| line == format!("{sample} {value}")),
            "{sample} is not {value}:\n{text}"
        );
    }
    assert!(!text.contains("room:1"), "channels are no labels:\n{text}");
}

/// `UPDATE_DOCS=1` has it write the table.
#[cfg(feature = "mesh")]
#[tokio::test(flavor = "multi_thread")]
async fn every_documented_metric_is_shown_by_a_node() {
    use switchboard_testkit::{LONG, eventually};

    let cluster = Cluster::new().await;
    let mut with_mesh = Vec::new();
    for name in ["a", "b"] {
        let mut command = cluster.command(name);
        command.env("CLUSTER_EPHEMERAL", "mesh").env("MESH_ADDR", "127.0.0.1:0");
        with_mesh.push(Node::start(name, command).await);
    }
    let without = cluster.start("c").await;
    eventually(LONG, "a link", async || {
        scrape(&with_mesh[0]).await.contains("switchboard_mesh_peer_ready{peer=\"b\"} 1")
    })
    .await;
    without.sees(3).await;
    let text = scrape(&with_mesh[0]).await;
    if available("promtool (Debian package prometheus)", on_path("promtool")) {
        lint(&text).await;
    }
    let mut all = shown(&text);
    all.extend(shown(&scrape(&without).await));
    for row in all.values() {
        assert!(
            !row.contains("Added to this node"),
            "{row}: the gateway's table of names does not explain it"
        );
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        write(&all);
    }
    assert_eq!(documented(), all, "docs/metrics.md is out of date: UPDATE_DOCS=1 writes it");
}

/// Puts the rows where the rows are.
#[cfg(feature = "mesh")]
fn write(rows: &Table) {
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let (before, rest) = document.split_once(RULE).unwrap();
    let after = rest.lines().skip_while(|line| line.starts_with('|'));
    let lines: Vec<_> = rows.values().map(String::as_str).chain(after).collect();
    std::fs::write(DOCUMENT, format!("{before}{RULE}{}\n", lines.join("\n"))).unwrap();
}
