//! Nodes on a network of their own find each other.

use std::time::Duration;

use tokio::time::Instant;

use super::network::{Family, Network, apart};
use super::{Ear, meshed, say};

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
        let mut ears = Vec::new();
        for node in &nodes {
            ears.push(Ear::on(node, "room:1").await);
        }
        for (n, node) in nodes.iter().enumerate() {
            say(node, n).await;
            for ear in &mut ears {
                assert_eq!(ear.hears().await, n);
            }
        }
    });
}
