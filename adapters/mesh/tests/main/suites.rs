//! The mesh keeps every promise of the port: over links, by its fallback alone, and beside nodes that have no mesh.

use std::net::Ipv4Addr;
use std::sync::Arc;

use async_trait::async_trait;
use switchboard_core::ports::EphemeralBus;
use switchboard_testkit::suites::ephemeral::Fixture;

use crate::cluster::{Cluster, Member, socket};

/// Three nodes with links to each other.
struct Linked([Member; 3]);

#[async_trait]
impl Fixture for Linked {
    async fn new() -> Self {
        let cluster = Cluster::new();
        let members = [cluster.start("n0").await, cluster.start("n1").await, cluster.start("n2").await];
        for (member, peers) in members.iter().zip([["n1", "n2"], ["n0", "n2"], ["n0", "n1"]]) {
            member.has_links(&peers).await;
        }
        Self(members)
    }

    fn bus(&self, node: usize) -> Arc<dyn EphemeralBus> {
        Arc::clone(&self.0[node].bus)
    }
}

mod by_links {
    switchboard_testkit::ephemeral_suite!(super::Linked);
}

/// Two nodes that do not reach each other.
struct Unlinked([Member; 2]);

#[async_trait]
impl Fixture for Unlinked {
    async fn new() -> Self {
        let cluster = Cluster::new();
        // Nobody answers there.
        let nowhere = || "127.0.0.1:9".parse().unwrap();
        let ip = Ipv4Addr::LOCALHOST.into();
        let members = [
            cluster.member("n0", socket(ip), nowhere()).await,
            cluster.member("n1", socket(ip), nowhere()).await,
        ];
        see_each_other(&members).await;
        Self(members)
    }

    fn bus(&self, node: usize) -> Arc<dyn EphemeralBus> {
        Arc::clone(&self.0[node].bus)
    }
}

mod by_the_fallback {
    switchboard_testkit::ephemeral_suite!(super::Unlinked);
}

/// A node with a mesh and one without.
struct Mixed([Member; 2]);

#[async_trait]
impl Fixture for Mixed {
    async fn new() -> Self {
        let cluster = Cluster::new();
        let members = [cluster.start("n0").await, cluster.plain("n1").await];
        see_each_other(&members).await;
        Self(members)
    }

    fn bus(&self, node: usize) -> Arc<dyn EphemeralBus> {
        Arc::clone(&self.0[node].bus)
    }
}

mod beside_nodes_without_a_mesh {
    switchboard_testkit::ephemeral_suite!(super::Mixed);
}

/// The same, seen from the other one.
struct MixedTheOtherWay([Member; 2]);

#[async_trait]
impl Fixture for MixedTheOtherWay {
    async fn new() -> Self {
        let Mixed([meshed, plain]) = Mixed::new().await;
        Self([plain, meshed])
    }

    fn bus(&self, node: usize) -> Arc<dyn EphemeralBus> {
        Arc::clone(&self.0[node].bus)
    }
}

mod from_nodes_without_a_mesh {
    switchboard_testkit::ephemeral_suite!(super::MixedTheOtherWay);
}

async fn see_each_other(members: &[Member]) {
    for member in members {
        let mut membership = member.node.membership();
        membership.wait_for(|view| view.size() == members.len()).await.unwrap();
    }
    // A publisher's routes follow its view in a moment; what they say is in its health or its stats.
    for member in members.iter().filter(|member| member.mesh.is_some()) {
        member.routed(members.len() - 1).await;
    }
}
