//! The memory adapter passes every suite: it is what they are calibrated on.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod faults;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use switchboard_core::ports::{DurableBus, EphemeralBus, Registry};
use switchboard_core::types::{Channel, NodeId};
use switchboard_memory::{MemoryCluster, MemoryRegistry};
use switchboard_testkit::suites::{durable, ephemeral, registry};

struct Memory(MemoryCluster);

#[async_trait]
impl registry::Fixture for Memory {
    type Session = Arc<MemoryRegistry>;

    async fn new() -> Self {
        Self(MemoryCluster::new())
    }

    async fn session(&self) -> Self::Session {
        self.0.registry()
    }

    fn registry(session: &Self::Session) -> Arc<dyn Registry> {
        session.clone()
    }

    async fn age(&self, node_id: &NodeId, by: Duration) {
        self.0.age_node(node_id, by);
    }
}

#[async_trait]
impl durable::Fixture for Memory {
    async fn new() -> Self {
        Self(MemoryCluster::new())
    }

    fn bus(&self, _node: usize) -> Arc<dyn DurableBus> {
        self.0.durable()
    }

    /// Live events cannot be lost here.
    async fn disturb(&self) {}

    async fn prune(&self, channel: &Channel, keep: usize) {
        self.0.prune(channel, keep);
    }

    async fn fail_over(&self, lost: u64) {
        self.0.fail_over(lost);
    }
}

#[async_trait]
impl ephemeral::Fixture for Memory {
    async fn new() -> Self {
        Self(MemoryCluster::new())
    }

    fn bus(&self, _node: usize) -> Arc<dyn EphemeralBus> {
        self.0.ephemeral()
    }
}

mod registry_suite {
    switchboard_testkit::registry_suite!(super::Memory);
}

mod durable_suite {
    switchboard_testkit::durable_suite!(super::Memory);
}

mod ephemeral_suite {
    switchboard_testkit::ephemeral_suite!(super::Memory);
}
