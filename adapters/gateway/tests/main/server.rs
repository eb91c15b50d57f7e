//! A node that serves on a free port of the loopback address.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use switchboard_core::health::HealthRegistry;
use switchboard_core::node::{Node, NodeConfig, OnEviction};
use switchboard_core::ports::{DurableBus, EphemeralBus};
use switchboard_core::presence::{Presence, PresenceConfig};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{NodeId, PayloadLimits, Stats};
use switchboard_gateway::{Gateway, GatewayConfig, MetricsAccess, Origins, Services, SocketConfig};
use switchboard_memory::{Link, MemoryCluster, MemoryRegistry};
use switchboard_testkit::http_client;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const TOKEN: &str = "the-admin-token";

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) gateway: Gateway,
    pub(crate) cluster: MemoryCluster,
    pub(crate) registry: Arc<MemoryRegistry>,
    pub(crate) health: HealthRegistry,
    pub(crate) stats: StatsRegistry,
    pub(crate) client: reqwest::Client,
    pub(crate) node: Arc<Node>,
    pub(crate) presence: Arc<Presence>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

pub(crate) fn config() -> GatewayConfig {
    GatewayConfig {
        node_id: NodeId::parse("n1").unwrap(),
        admin_token: Some(TOKEN.to_owned()),
        verifier: None,
        origins: Origins::default(),
        metrics: MetricsAccess::default(),
        open_access: false,
        limits: PayloadLimits::default(),
        timing: Timing::new(Duration::from_millis(200), Duration::from_millis(600)).unwrap(),
        sockets: SocketConfig::default(),
        connections: 1000,
    }
}

impl Server {
    /// A node that has joined and serves.
    pub(crate) async fn start(config: GatewayConfig) -> Self {
        let server = Self::start_empty(config).await;
        server.node.joined().await.unwrap();
        server.attach();
        server
    }

    /// A node that has joined and serves these buses.
    pub(crate) async fn start_with(durable: Arc<dyn DurableBus>, ephemeral: Arc<dyn EphemeralBus>) -> Self {
        let server = Self::start_empty(config()).await;
        server.node.joined().await.unwrap();
        server.attach_buses(durable, ephemeral);
        server
    }

    /// A node that cannot reach its registry, and serves.
    pub(crate) async fn start_cut_off() -> Self {
        let server = Self::start_linked(config(), Link::Down).await;
        server.attach();
        server
    }

    /// A server that has nothing to serve yet.
    pub(crate) async fn start_empty(config: GatewayConfig) -> Self {
        Self::start_linked(config, Link::Up).await
    }

    async fn start_linked(config: GatewayConfig, link: Link) -> Self {
        let (cluster, stats) = (MemoryCluster::new(), StatsRegistry::default());
        let registry = cluster.registry();
        registry.set_link(link);
        let node = NodeConfig {
            node_id: config.node_id.clone(),
            endpoint: "127.0.0.1:4000".parse().unwrap(),
            meta: Stats::default(),
            timing: config.timing,
            on_eviction: OnEviction::Stop,
        };
        let node = Arc::new(Node::spawn(registry.clone(), node, stats.clone()));
        let presence = Presence::spawn(cluster.ephemeral(), &node, PresenceConfig::default(), &stats);
        let gateway = Gateway::new(config, &stats);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (gateway, stop) = (gateway.clone(), stop.clone());
            async move { gateway.serve(listener, stop, Duration::from_secs(5)).await }
        });
        let (health, client) = (HealthRegistry::default(), http_client());
        Self {
            url,
            gateway,
            cluster,
            registry,
            health,
            stats,
            client,
            node,
            presence: Arc::new(presence),
            stop,
            task,
        }
    }

    pub(crate) fn attach(&self) {
        self.attach_buses(self.cluster.durable(), self.cluster.ephemeral());
    }

    fn attach_buses(&self, durable: Arc<dyn DurableBus>, ephemeral: Arc<dyn EphemeralBus>) {
        self.gateway.attach(Services {
            node: self.node.clone(),
            registry: self.registry.clone(),
            durable,
            presence: self.presence.clone(),
            ephemeral,
            health: self.health.clone(),
        });
    }

    pub(crate) fn events(&self, channel: &str) -> String {
        format!("{}/api/channels/{channel}/events", self.url)
    }

    /// Status and body of a GET with the admin token.
    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(TOKEN);
        answer(request.send().await.unwrap()).await
    }

    /// Publishes a body as it is.
    pub(crate) async fn post(&self, channel: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let request = self.client.post(self.events(channel)).bearer_auth(TOKEN);
        answer(request.header("content-type", "application/json").body(body).send().await.unwrap()).await
    }

    /// What this node tells about itself.
    pub(crate) fn stat(&self, name: &str) -> Value {
        self.stats.collect().0[name].clone()
    }

    /// Stops accepting; waits until everything under way is done.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

pub(crate) async fn answer(response: reqwest::Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let problem =
        response.headers().get("content-type").is_some_and(|kind| kind == "application/problem+json");
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    if problem {
        assert_eq!(body["status"], status, "{body}");
        assert!(body["detail"].as_str().unwrap().len() > 5 && body["title"].is_string(), "{body}");
    }
    (status, body)
}
