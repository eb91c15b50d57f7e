//! Nodes that send ephemeral events to each other over QUIC.

mod conversation;
mod forming;
mod load;
mod loopback;
mod names;
mod network;
mod partition;
mod path;
mod router;
mod size;

use serde_json::{Value, json};
use switchboard_testkit::{LONG, eventually, patient_http_client};
use tokio::process::Command;
use tokio::time::timeout;

use crate::node::{Cluster, Node, TOKEN};

pub(crate) fn command(cluster: &Cluster, name: &str) -> Command {
    let mut command = cluster.command(name);
    command.env("CLUSTER_EPHEMERAL", "mesh").env("MESH_ADDR", "127.0.0.1:0");
    command
}

pub(crate) async fn start(cluster: &Cluster, name: &str) -> Node {
    Node::start(name, command(cluster, name)).await
}

/// The gauges of a node, as the registry has them.
pub(crate) async fn stats(asked: &Node, name: &str) -> Value {
    let Some((200, body)) = asked.get("/api/admin/cluster").await else { return Value::Null };
    let rows = body["data"].as_array().unwrap().iter();
    rows.clone().find(|row| row["node_id"] == name).map_or(Value::Null, |row| row["stats"].clone())
}

/// Waits until `name` shows ready links to exactly `peers`.
pub(crate) async fn linked(asked: &Node, name: &str, peers: &[&str]) {
    eventually(LONG, &format!("{name} is linked to {peers:?}"), async || {
        let stats = stats(asked, name).await;
        let Some(links) = stats["mesh"]["peers"].as_object() else { return false };
        let ready: Vec<_> =
            links.iter().filter(|(_, link)| link["ready"] == true).map(|(peer, _)| peer).collect();
        ready == peers
    })
    .await;
}

/// The events of a channel that a node hears.
pub(crate) struct Ear {
    response: reqwest::Response,
    text: String,
}

impl Ear {
    pub(crate) async fn on(node: &Node, channel: &str) -> Self {
        let request = patient_http_client().get(format!("{}/api/channels/{channel}/events", node.url));
        let response = request.bearer_auth(TOKEN).header("accept", "text/event-stream").send().await.unwrap();
        let mut ear = Self { response, text: String::new() };
        assert!(ear.line("data: ").await.contains("after"));
        ear
    }

    /// What is left when the stream has ended, however it did.
    async fn rest(mut self) -> Vec<String> {
        while let Ok(Some(chunk)) = timeout(LONG, self.response.chunk()).await.expect("it does not end") {
            self.text.push_str(&String::from_utf8_lossy(&chunk));
        }
        self.text.lines().filter(|line| line.starts_with("data: ")).map(str::to_owned).collect()
    }

    async fn line(&mut self, start: &str) -> String {
        loop {
            while let Some(end) = self.text.find('\n') {
                let line = self.text[..end].to_owned();
                self.text.drain(..=end);
                if let Some(data) = line.strip_prefix(start) {
                    return data.to_owned();
                }
            }
            let chunk = timeout(LONG, self.response.chunk()).await.expect("nothing is heard").unwrap();
            self.text.push_str(&String::from_utf8_lossy(&chunk.expect("the stream ended")));
        }
    }

    pub(crate) async fn hears(&mut self) -> Value {
        serde_json::from_str::<Value>(&self.line("data: ").await).unwrap()["payload"].clone()
    }
}

pub(crate) async fn say(node: &Node, payload: impl Into<Value>) {
    let body = json!({ "event": "typing", "payload": payload.into(), "ephemeral": true });
    assert_eq!(node.publish("room:1", &body).await.0, 202);
}

/// Waits until each of `names` has a ready link to every other one, and to nobody else, as the registry has it.
async fn meshed(asked: &Node, names: &[&str]) {
    for name in names {
        let peers: Vec<_> = names.iter().copied().filter(|peer| peer != name).collect();
        linked(asked, name, &peers).await;
    }
}

/// How many events `name` has sent to `peer` over the link that it has now.
async fn over(asked: &Node, name: &str, peer: &str) -> u64 {
    stats(asked, name).await["mesh"]["peers"][peer]["sent_total"].as_u64().unwrap()
}

/// How many links to `peer` the node has had.
fn links_made(node: &Node, peer: &str) -> usize {
    node.process.output().matches(&format!(" linked peer={peer} ")).count()
}

/// Waits until each node has as many links to each other one as it has lost, and one more.
async fn one_link_per_pair(names: &[&str], nodes: &[Node]) {
    for (name, node) in names.iter().zip(nodes) {
        for peer in names.iter().filter(|peer| *peer != name) {
            let ended = || node.process.output().matches(&format!(" link ended peer={peer} ")).count();
            let what = format!("{name} has one link to {peer}");
            eventually(LONG, &what, async || links_made(node, peer) == ended() + 1).await;
        }
    }
}

/// How many events `name` has sent by NOTIFY.
async fn fallback(asked: &Node, name: &str) -> u64 {
    stats(asked, name).await["ephemeral"]["fallback_sent_total"].as_u64().unwrap()
}
