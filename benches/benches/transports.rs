//! Compares the transports through the ports: what a publisher pays, and how long an event takes to another node.
//!
//! `cargo bench -p switchboard-benches` needs no set-up: it runs a private PostgreSQL, with `fsync` on, since a commit that
//! nobody flushes is not what an application waits for. Figures depend on the disk; compare within one run only.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench stops at the first surprise; criterion's macros make undocumented functions"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::StreamExt;
use switchboard_core::health::HealthRegistry;
use switchboard_core::node::{Node, NodeConfig, OnEviction};
use switchboard_core::ports::{DurableBus, DurableItem, EphemeralBus, EphemeralItem, StartFrom};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{Channel, EventName, NodeId, Payload, Stats};
use switchboard_embedded_postgres::{Options, PrivatePostgres};
use switchboard_memory::MemoryCluster;
use switchboard_mesh::{META_KEY, Mesh, MeshConfig, MeshSocket};
use switchboard_postgres::{Dsn, Postgres, PostgresConfig};
use tokio::runtime::Runtime;
use tokio::time::sleep;

/// Events published at once; a burst lets batching show.
const BURST: usize = 1000;

/// A transport seen from two nodes.
struct Transport {
    name: &'static str,
    publisher: (Arc<dyn DurableBus>, Arc<dyn EphemeralBus>),
    subscriber: (Arc<dyn DurableBus>, Arc<dyn EphemeralBus>),
}

struct Message {
    channel: Channel,
    event: EventName,
    payload: Payload,
}

impl Message {
    /// 60 bytes of payload, the size of a typing indicator.
    fn typical() -> Self {
        Self {
            channel: Channel::parse("room:1").expect("valid"),
            event: EventName::parse("typing").expect("valid"),
            payload: Payload::parse(&format!("{{\"user\":\"{}\"}}", "x".repeat(49))).expect("valid"),
        }
    }
}

async fn postgres_node(url: &str, name: &str) -> Postgres {
    let config = PostgresConfig::new(Dsn::parse(url).expect("valid"), NodeId::parse(name).expect("valid"));
    Postgres::connect(config, &StatsRegistry::default(), &HealthRegistry::default()).await.expect("connects")
}

/// A node with a mesh on loopback; the registry is in memory.
async fn mesh_node(memory: &MemoryCluster, name: &str) -> (Node, Mesh) {
    let (stats, health) = (StatsRegistry::default(), HealthRegistry::default());
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = MeshSocket::bind(&MeshConfig { addr, ..MeshConfig::default() }).expect("binds");
    let mut meta = Stats::default();
    meta.0.insert(META_KEY.to_owned(), socket.facts());
    let config = NodeConfig {
        node_id: NodeId::parse(name).expect("valid"),
        endpoint: socket.local_addr().expect("bound").to_string().parse().expect("valid"),
        meta,
        timing: Timing::default(),
        on_eviction: OnEviction::Stop,
    };
    let node = Node::spawn(memory.registry(), config, stats.clone());
    let mesh = Mesh::start(socket, &node, None, &stats, &health).await.expect("starts");
    (node, mesh)
}

/// Waits until what `from` publishes arrives at `to`.
async fn linked(from: &Mesh, to: &Mesh) {
    let message = Message::typical();
    let mut events = to.ephemeral().subscribe(&message.channel).await.expect("subscribes");
    let publish = async {
        loop {
            let sent = from.ephemeral().publish(&message.channel, &message.event, &message.payload).await;
            sent.expect("publishes");
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = publish => {}
        _ = events.next() => {}
    }
}

fn bench(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("starts");
    let flushed = Options { configuration: vec![("fsync".into(), "on".into())], ..Options::default() };
    let server = runtime.block_on(PrivatePostgres::start(flushed)).expect("starts");
    let nodes = runtime
        .block_on(async { (postgres_node(server.url(), "a").await, postgres_node(server.url(), "b").await) });
    let memory = MemoryCluster::new();
    let meshed = runtime.block_on(async {
        let nodes = (mesh_node(&memory, "a").await, mesh_node(&memory, "b").await);
        linked(&nodes.0.1, &nodes.1.1).await;
        nodes
    });
    let transports = [
        Transport {
            name: "memory",
            publisher: (memory.durable(), memory.ephemeral()),
            subscriber: (memory.durable(), memory.ephemeral()),
        },
        Transport {
            name: "postgres",
            publisher: (nodes.0.durable(), nodes.0.ephemeral()),
            subscriber: (nodes.1.durable(), nodes.1.ephemeral()),
        },
        // Its durable bus is another's.
        Transport {
            name: "mesh",
            publisher: (memory.durable(), meshed.0.1.ephemeral()),
            subscriber: (memory.durable(), meshed.1.1.ephemeral()),
        },
    ];
    ephemeral(criterion, &runtime, &transports);
    durable(criterion, &runtime, &transports[..2]);
    runtime.block_on(async {
        meshed.0.1.close().await;
        meshed.1.1.close().await;
        nodes.0.close().await;
        nodes.1.close().await;
        server.stop().await.expect("stops");
    });
}

fn ephemeral(criterion: &mut Criterion, runtime: &Runtime, transports: &[Transport]) {
    let message = Message::typical();
    let mut group = criterion.benchmark_group("ephemeral");
    for transport in transports {
        for burst in [1, BURST] {
            group.throughput(Throughput::Elements(burst as u64));
            group.bench_function(BenchmarkId::new(transport.name, burst), |bencher| {
                bencher.to_async(runtime).iter_custom(async |rounds| {
                    let mut events =
                        transport.subscriber.1.subscribe(&message.channel).await.expect("subscribes");
                    let mut spent = Duration::ZERO;
                    for _ in 0..rounds {
                        let start = Instant::now();
                        for _ in 0..burst {
                            let sent = transport
                                .publisher
                                .1
                                .publish(&message.channel, &message.event, &message.payload)
                                .await;
                            sent.expect("publishes");
                        }
                        let mut arrived = 0;
                        while arrived < burst {
                            match events.next().await.expect("goes on") {
                                EphemeralItem::Event(_) => arrived += 1,
                                EphemeralItem::Lagged(missed) => {
                                    arrived += usize::try_from(missed).expect("small");
                                }
                            }
                        }
                        spent += start.elapsed();
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}

fn durable(criterion: &mut Criterion, runtime: &Runtime, transports: &[Transport]) {
    let message = Message::typical();
    let mut group = criterion.benchmark_group("durable");
    group.sample_size(20);
    for transport in transports {
        for burst in [1, BURST] {
            group.throughput(Throughput::Elements(burst as u64));
            group.bench_function(BenchmarkId::new(transport.name, burst), |bencher| {
                bencher.to_async(runtime).iter_custom(async |rounds| {
                    let bus = &transport.subscriber.0;
                    let mut events =
                        bus.subscribe(&message.channel, StartFrom::Now).await.expect("subscribes");
                    let mut spent = Duration::ZERO;
                    for _ in 0..rounds {
                        let start = Instant::now();
                        let publish = || {
                            transport.publisher.0.publish(&message.channel, &message.event, &message.payload)
                        };
                        let sent = futures::future::join_all((0..burst).map(|_| publish()));
                        let received = async {
                            for _ in 0..burst {
                                let item = events.next().await.expect("goes on");
                                assert!(matches!(item, DurableItem::Event(_)), "{item:?}");
                            }
                        };
                        futures::join!(sent, received);
                        spent += start.elapsed();
                    }
                    spent
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
