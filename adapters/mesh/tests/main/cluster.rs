//! Nodes with a mesh, or without one, that share a registry and a bus to fall back to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use switchboard_core::health::{Condition, HealthRegistry};
use switchboard_core::node::{Node, NodeConfig, OnEviction};
use switchboard_core::ports::{EphemeralBus, EphemeralError, EphemeralItem, EphemeralStream};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{Channel, Endpoint, EventName, NodeId, Payload, PayloadLimits, Stats};
use switchboard_memory::MemoryCluster;
use switchboard_mesh::{ENVELOPE_ROOM, META_KEY, Mesh, MeshConfig, MeshSocket};
use switchboard_testkit::LONG;
use tokio::time::{sleep, timeout};

pub(crate) struct Cluster {
    pub(crate) memory: MemoryCluster,
}

/// A node and its buses.
pub(crate) struct Member {
    pub(crate) node: Node,
    pub(crate) mesh: Option<Mesh>,
    pub(crate) bus: Arc<dyn EphemeralBus>,
    pub(crate) stats: StatsRegistry,
    pub(crate) health: HealthRegistry,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let limits = PayloadLimits::default();
        let room = PayloadLimits { ephemeral: limits.ephemeral + ENVELOPE_ROOM, ..limits };
        Self { memory: MemoryCluster::with_limits(room) }
    }

    /// A node with a mesh at `ip`.
    pub(crate) async fn at(&self, name: &str, ip: IpAddr) -> Member {
        let socket = socket(ip);
        let port = socket.local_addr().unwrap().port();
        self.member(name, socket, Endpoint::from_ip(ip, port).unwrap()).await
    }

    /// A node with a mesh.
    pub(crate) async fn start(&self, name: &str) -> Member {
        self.at(name, Ipv4Addr::LOCALHOST.into()).await
    }

    /// A node with a mesh that says it is elsewhere.
    pub(crate) async fn member(&self, name: &str, socket: MeshSocket, endpoint: Endpoint) -> Member {
        let facts = socket.facts();
        self.with_facts(name, socket, endpoint, facts).await
    }

    /// A node with a mesh that says what is not so.
    pub(crate) async fn with_facts(
        &self,
        name: &str,
        socket: MeshSocket,
        endpoint: Endpoint,
        facts: Value,
    ) -> Member {
        self.with_fallback(name, socket, endpoint, facts, self.memory.ephemeral()).await
    }

    pub(crate) async fn with_fallback(
        &self,
        name: &str,
        socket: MeshSocket,
        endpoint: Endpoint,
        facts: Value,
        fallback: Arc<dyn EphemeralBus>,
    ) -> Member {
        let (stats, health) = (StatsRegistry::default(), HealthRegistry::default());
        let node = self.node(name, endpoint, Some(facts), &stats);
        let mesh = Mesh::start(socket, &node, Some(fallback), &stats, &health).await.unwrap();
        node.joined().await.unwrap();
        let bus = mesh.ephemeral();
        Member { node, mesh: Some(mesh), bus, stats, health }
    }

    /// A node without a mesh, as all were before there was one.
    pub(crate) async fn plain(&self, name: &str) -> Member {
        let (stats, health) = (StatsRegistry::default(), HealthRegistry::default());
        let node = self.node(name, "127.0.0.1:9".parse().unwrap(), None, &stats);
        node.joined().await.unwrap();
        let bus = Arc::new(Limited(self.memory.ephemeral()));
        Member { node, mesh: None, bus, stats, health }
    }

    fn node(&self, name: &str, endpoint: Endpoint, facts: Option<Value>, stats: &StatsRegistry) -> Node {
        let mut meta = Stats::default();
        meta.0.extend(facts.map(|facts| (META_KEY.to_owned(), facts)));
        let config = NodeConfig {
            node_id: NodeId::parse(name).unwrap(),
            endpoint,
            meta,
            timing: Timing::new(Duration::from_millis(200), Duration::from_secs(20)).unwrap(),
            on_eviction: OnEviction::Rejoin,
        };
        Node::spawn(self.memory.registry(), config, stats.clone())
    }
}

/// What nodes without a mesh publish through: no more than the usual limit.
struct Limited(Arc<dyn EphemeralBus>);

#[async_trait]
impl EphemeralBus for Limited {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<(), EphemeralError> {
        payload.within(PayloadLimits::default().ephemeral)?;
        self.0.publish(channel, event, payload).await
    }

    async fn subscribe(&self, channel: &Channel) -> Result<EphemeralStream, EphemeralError> {
        self.0.subscribe(channel).await
    }
}

pub(crate) fn socket(ip: IpAddr) -> MeshSocket {
    MeshSocket::bind(&MeshConfig { addr: SocketAddr::new(ip, 0), ..MeshConfig::default() }).unwrap()
}

impl Member {
    pub(crate) fn gauge(&self, name: &str) -> Value {
        self.stats.collect().0.remove(name).unwrap_or_default()
    }

    /// The peers that events go to by mesh, in order.
    pub(crate) fn linked(&self) -> Vec<String> {
        let mesh = self.gauge("mesh");
        let Some(peers) = mesh["peers"].as_object() else { return Vec::new() };
        peers.iter().filter(|(_, facts)| facts["ready"] == true).map(|(peer, _)| peer.clone()).collect()
    }

    /// Waits until the routes are as the membership is: each peer is linked, to be written to, or has no mesh.
    pub(crate) async fn routed(&self, peers: usize) {
        until("the routes follow", || {
            let mesh = self.gauge("mesh");
            let others = mesh["without_mesh"].as_u64().unwrap();
            let unreached = mesh["unreached"].as_u64().unwrap();
            self.linked().len() as u64 + unreached + others == peers as u64
        })
        .await;
    }

    /// A counter of the gauge `ephemeral`.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.gauge("ephemeral")[name].as_u64().unwrap()
    }

    /// A fact about the link to `peer`.
    pub(crate) fn fact(&self, peer: &str, name: &str) -> Value {
        self.gauge("mesh")["peers"][peer][name].clone()
    }

    /// Waits until this node has links to exactly `peers`.
    pub(crate) async fn has_links(&self, peers: &[&str]) {
        let what = format!("links to {peers:?}");
        until(&what, || self.linked() == peers).await;
    }

    pub(crate) async fn subscribe(&self, name: &str) -> EphemeralStream {
        self.bus.subscribe(&channel(name)).await.unwrap()
    }

    pub(crate) async fn say(&self, name: &str, text: impl std::fmt::Display) {
        let payload = Payload::parse(&text.to_string()).unwrap();
        self.bus.publish(&channel(name), &EventName::parse("said").unwrap(), &payload).await.unwrap();
    }

    pub(crate) fn degraded(&self) -> Option<String> {
        let report = self.health.report();
        match report.into_iter().find(|(name, _)| *name == "mesh") {
            Some((_, Condition::Degraded(why))) => Some(why),
            _ => None,
        }
    }

    /// As if the process was killed: nothing is said to anybody.
    pub(crate) fn kill(self) {
        drop(self);
    }

    pub(crate) async fn leave(self) {
        self.node.leave(LONG).await;
        if let Some(mesh) = &self.mesh {
            mesh.close().await;
        }
    }
}

/// Waits for a condition, in a way that a fixture can.
pub(crate) async fn until(what: &str, check: impl Fn() -> bool) {
    let comes_true = async {
        while !check() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(timeout(LONG, comes_true).await.is_ok(), "not within {LONG:?}: {what}");
}

pub(crate) fn channel(name: &str) -> Channel {
    Channel::parse(name).unwrap()
}

/// The next event's payload.
pub(crate) async fn next(events: &mut EphemeralStream) -> String {
    match timeout(LONG, events.next()).await.expect("nothing arrives").expect("the stream ended") {
        EphemeralItem::Event(event) => event.payload.as_str().to_owned(),
        EphemeralItem::Lagged(missed) => panic!("{missed} events were dropped"),
    }
}

/// That nothing has arrived.
pub(crate) fn nothing(events: &mut EphemeralStream) {
    assert_eq!(events.next().now_or_never(), None);
}
