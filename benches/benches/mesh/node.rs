//! A node with a mesh on loopback, a registry in PostgreSQL, and NOTIFY to fall back to: what the application makes, without its HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use switchboard_core::health::HealthRegistry;
use switchboard_core::node::{Node, NodeConfig, OnEviction};
use switchboard_core::ports::EphemeralBus;
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{NodeId, Stats};
use switchboard_mesh::{META_KEY, Mesh, MeshConfig, MeshSocket};
use switchboard_postgres::{Dsn, Postgres, PostgresConfig};
use tokio::time::sleep;

pub(crate) struct MeshNode {
    pub(crate) bus: Arc<dyn EphemeralBus>,
    stats: StatsRegistry,
    /// They end with the node.
    _parts: (Postgres, Node, Mesh),
}

impl MeshNode {
    pub(crate) async fn start(url: &str, name: &str) -> Self {
        let (stats, health) = (StatsRegistry::default(), HealthRegistry::default());
        let node_id = NodeId::parse(name).expect("valid");
        let config = PostgresConfig::new(Dsn::parse(url).expect("valid"), node_id.clone());
        let postgres = Postgres::connect(config, &stats, &health).await.expect("connects");
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = MeshSocket::bind(&MeshConfig { addr, ..MeshConfig::default() }).expect("binds");
        let mut meta = Stats::default();
        meta.0.insert(META_KEY.to_owned(), socket.facts());
        let endpoint = socket.local_addr().expect("bound").to_string().parse().expect("valid");
        let timing = Timing::default();
        let config = NodeConfig { node_id, endpoint, meta, timing, on_eviction: OnEviction::Stop };
        let node = Node::spawn(postgres.registry(), config, stats.clone());
        let fallback = Some(postgres.ephemeral());
        let mesh = Mesh::start(socket, &node, fallback, &stats, &health).await.expect("starts");
        node.joined().await.expect("joins");
        Self { bus: mesh.ephemeral(), stats, _parts: (postgres, node, mesh) }
    }

    pub(crate) async fn has_links(&self, others: usize) {
        while self.links().iter().filter(|link| link["ready"] == true).count() < others {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Events that went over links.
    pub(crate) fn sent(&self) -> u64 {
        self.links().iter().filter_map(|link| link["sent_total"].as_u64()).sum()
    }

    fn links(&self) -> Vec<serde_json::Value> {
        let mesh = self.stats.collect().0.remove("mesh").unwrap_or_default();
        mesh["peers"].as_object().map(|peers| peers.values().cloned().collect()).unwrap_or_default()
    }
}
