//! Nodes on a network of their own find each other.

use std::time::Duration;

use switchboard_testkit::{LONG, eventually};
use tokio::time::Instant;

use super::network::{Family, Network, apart};
use super::{Ear, meshed, one_link_per_pair, say};
use crate::node::{HEARTBEAT, Node, SLACK};

/// Measured from the moment the last process serves HTTP, which is before it joins, to the moment the registry shows each link ready at
/// both ends, which is up to a heartbeat (0.5 s) after it is.
#[test]
fn a_full_mesh_of_five_forms_within_two_seconds() {
    apart(async || {
        let network = Network::new(5, Family::V4, 1500).await;
        let nodes = network.start_all().await;
        let serving = Instant::now();
        meshed(&nodes[0], network.names()).await;
        let took = serving.elapsed();
        assert!(took < Duration::from_secs(2), "{took:?}");
        everybody_hears_everybody_once(nodes).await;
    });
}

/// Everything but the processes stays from round to round.
#[test]
fn b097_five_nodes_that_start_in_the_same_millisecond_have_one_link_per_pair_fifty_times() {
    apart(async || {
        let network = Network::new(5, Family::V4, 1500).await;
        for round in 0..50 {
            let nodes = network.start_together().await;
            let serving = Instant::now();
            meshed(&nodes[0], network.names()).await;
            assert!(serving.elapsed() < Duration::from_secs(5), "round {round}: {:?}", serving.elapsed());
            one_link_per_pair(network.names(), &nodes).await;
            everybody_hears_everybody_once(nodes).await;
            network.cluster.sql("DELETE FROM {schema}.node_registry").await;
        }
    });
}

#[test]
fn b019_a_node_that_was_killed_and_comes_back_on_another_port_is_linked_anew_at_once() {
    apart(async || {
        let network = Network::new(3, Family::V4, 1500).await;
        let mut nodes = network.start_all().await;
        meshed(&nodes[0], network.names()).await;
        let old = endpoint(&nodes[0], "b").await;
        nodes[1].process.kill().await;
        nodes[1] = network.start("b").await;
        let serving = Instant::now();
        eventually(LONG, "the new one is seen", async || {
            assert!(nodes[0].peers().await.len() <= 2, "it is there twice");
            endpoint(&nodes[0], "b").await != old
        })
        .await;
        meshed(&nodes[0], network.names()).await;
        let took = serving.elapsed();
        assert!(took < HEARTBEAT * 2 + SLACK, "{took:?}");
        let port = old.rsplit_once(':').unwrap().1;
        network.rules(&[format!("{} udp dport {port} counter drop", network.between("a", "b"))]);
        everybody_hears_everybody_once(nodes).await;
        assert!(network.has_rule("counter packets 0 "), "the old address is still sent to");
    });
}

/// Everybody says something and hears what everybody says, in the order in which it is said. Then all are killed, and nobody has heard
/// anything else.
async fn everybody_hears_everybody_once(mut nodes: Vec<Node>) {
    let mut ears = Vec::new();
    for node in &nodes {
        ears.push(Ear::on(node, "room:1").await);
    }
    for turn in 0..2 * nodes.len() {
        say(&nodes[turn % nodes.len()], turn).await;
        for ear in &mut ears {
            assert_eq!(ear.hears().await, turn);
        }
    }
    for node in &mut nodes {
        node.process.kill().await;
    }
    for ear in ears {
        assert_eq!(ear.rest().await, Vec::<String>::new());
    }
}

async fn endpoint(asked: &Node, name: &str) -> String {
    let (_, list) = asked.get("/api/admin/cluster").await.unwrap();
    let rows = list["data"].as_array().unwrap();
    let row =
        rows.iter().find(|row| row["node_id"] == name).unwrap_or_else(|| panic!("{name} is not in {list}"));
    row["endpoint"].as_str().unwrap().to_owned()
}
