//! The adapter passes every conformance suite.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use switchboard_core::ports::{DurableBus, EphemeralBus, Registry};
use switchboard_core::types::{Channel, NodeId};
use switchboard_postgres::Postgres;
use switchboard_testkit::suites::{durable, ephemeral, registry};

use crate::cluster::Cluster;

/// A schema of its own on the shared server, and two nodes' ports to it, whose names no other test uses.
struct OnPostgres {
    cluster: Cluster,
    nodes: [Postgres; 2],
}

impl OnPostgres {
    async fn start() -> Self {
        let cluster = Cluster::new().await;
        let name = |n: usize| format!("{}-{n}", cluster.schema);
        let nodes = [cluster.ports(&name(0)).await, cluster.ports(&name(1)).await];
        Self { cluster, nodes }
    }
}

#[async_trait]
impl registry::Fixture for OnPostgres {
    type Session = Postgres;

    async fn new() -> Self {
        Self::start().await
    }

    async fn session(&self) -> Postgres {
        self.cluster.ports("session").await
    }

    fn registry(session: &Postgres) -> Arc<dyn Registry> {
        session.registry()
    }

    async fn age(&self, node_id: &NodeId, by: Duration) {
        let statement = format!(
            "UPDATE {{schema}}.node_registry SET heartbeat = heartbeat - interval '{} ms' WHERE node_id = '{node_id}'",
            by.as_millis()
        );
        self.cluster.sql(&statement).await;
    }
}

#[async_trait]
impl durable::Fixture for OnPostgres {
    async fn new() -> Self {
        Self::start().await
    }

    fn bus(&self, node: usize) -> Arc<dyn DurableBus> {
        self.nodes[node].durable()
    }

    async fn disturb(&self) {
        self.cluster.terminate(&format!("listener {}", self.cluster.schema)).await;
    }

    async fn prune(&self, channel: &Channel, keep: usize) {
        let statement = format!(
            "DELETE FROM {{schema}}.event_log l USING {{schema}}.channel_head h \
             WHERE l.channel = '{channel}' AND h.channel = l.channel AND l.seq <= h.seq - {keep}"
        );
        self.cluster.sql(&statement).await;
    }

    /// What a server that never saw the tail would show, and a listener that is lost on the way to it. Real failovers are in `failover.rs`.
    async fn fail_over(&self, lost: u64) {
        for statement in [
            format!("DELETE FROM {{schema}}.event_log l USING {{schema}}.channel_head h WHERE l.channel = h.channel AND l.seq > h.seq - {lost}"),
            format!("UPDATE {{schema}}.channel_head SET seq = seq - {lost}"),
            "CREATE OR REPLACE FUNCTION {schema}.epoch() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 2::bigint'".to_owned(),
        ] {
            self.cluster.sql(&statement).await;
        }
        durable::Fixture::disturb(self).await;
    }
}

#[async_trait]
impl ephemeral::Fixture for OnPostgres {
    async fn new() -> Self {
        Self::start().await
    }

    fn bus(&self, node: usize) -> Arc<dyn EphemeralBus> {
        self.nodes[node].ephemeral()
    }
}

mod registry_suite {
    switchboard_testkit::registry_suite!(super::OnPostgres);
}

mod durable_suite {
    switchboard_testkit::durable_suite!(super::OnPostgres);
}

mod ephemeral_suite {
    switchboard_testkit::ephemeral_suite!(super::OnPostgres);
}
