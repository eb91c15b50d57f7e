//! Members whose keys are good and who do not behave: what they send is no frame, or they do not read what they are sent.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use switchboard_core::health::HealthRegistry;
use switchboard_core::membership::Membership;
use switchboard_core::node::{Node, NodeConfig, OnEviction};
use switchboard_core::ports::{EphemeralBus, EphemeralItem, EphemeralStream, Registration, Registry};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::timing::Timing;
use switchboard_core::types::{Channel, Endpoint, EventName, NodeId, Payload, Stats};
use switchboard_memory::MemoryCluster;
use switchboard_testkit::{LONG, eventually};
use tokio::time::{Instant, sleep, timeout};

use crate::frame::{self, Event, Frame, Interest, MAX_BODY, Reader};
use crate::handshake::{self, Candidate};
use crate::links::{CloseReason, Rank};
use crate::members::{META_KEY, View};
use crate::{Mesh, MeshConfig, MeshSocket};

fn socket() -> MeshSocket {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    MeshSocket::bind(&MeshConfig { addr, ..MeshConfig::default() }).unwrap()
}

async fn member(cluster: &MemoryCluster, name: &str, socket: &MeshSocket, stats: &StatsRegistry) -> Node {
    let mut meta = Stats::default();
    meta.0.insert(META_KEY.to_owned(), socket.facts());
    let port = socket.local_addr().unwrap().port();
    let config = NodeConfig {
        node_id: NodeId::parse(name).unwrap(),
        endpoint: Endpoint::from_ip(Ipv4Addr::LOCALHOST.into(), port).unwrap(),
        meta,
        timing: Timing::new(Duration::from_millis(200), Duration::from_secs(20)).unwrap(),
        on_eviction: OnEviction::Rejoin,
    };
    let node = Node::spawn(cluster.registry(), config, stats.clone());
    node.joined().await.unwrap();
    node
}

/// A node that does as it should.
struct Honest {
    _node: Node,
    _mesh: Mesh,
    bus: Arc<dyn EphemeralBus>,
    stats: StatsRegistry,
}

impl Honest {
    async fn start(cluster: &MemoryCluster, name: &str) -> Self {
        let (socket, stats) = (socket(), StatsRegistry::default());
        let node = member(cluster, name, &socket, &stats).await;
        let mesh = Mesh::start(socket, &node, None, &stats, &HealthRegistry::default()).await.unwrap();
        let bus = mesh.ephemeral();
        Self { _node: node, _mesh: mesh, bus, stats }
    }

    fn fact(&self, peer: &str, name: &str) -> Value {
        self.stats.collect().0["mesh"]["peers"][peer][name].clone()
    }

    async fn is_linked_to(&self, peer: &str) {
        eventually(LONG, "it is linked", async || self.fact(peer, "ready") == true).await;
    }

    async fn say(&self, n: usize) {
        let payload = Payload::parse(&format!("\"{n} {}\"", "x".repeat(1000))).unwrap();
        self.bus.publish(&room(), &EventName::parse("said").unwrap(), &payload).await.unwrap();
    }
}

/// A node that is in the registry, and has no mesh but the one below.
struct Rogue {
    node: Node,
    socket: MeshSocket,
    attempt: u64,
}

impl Rogue {
    /// Its name sorts before those of the others, so that they leave it to it to dial.
    async fn start(cluster: &MemoryCluster) -> Self {
        let socket = socket();
        let node = member(cluster, "!", &socket, &StatsRegistry::default()).await;
        Self { node, socket, attempt: 0 }
    }

    async fn view(&self, size: usize) -> (Arc<Membership>, View) {
        let membership = self.node.membership().wait_for(|view| view.size() == size).await.unwrap().clone();
        let view = View::of(&membership);
        self.socket.trusted.replace(&view.targets);
        (membership, view)
    }

    /// A connection like any other.
    async fn dial(&mut self, name: &str, size: usize) -> Candidate {
        let (membership, view) = self.view(size).await;
        let target = view.targets.iter().find(|target| target.identity.node_id.as_str() == name).unwrap();
        self.attempt += 1;
        // Each is later than the one before, so it is taken.
        let rank = Rank { generation: self.attempt, by_lesser: true, attempt: self.attempt };
        let MeshSocket { sockets, key, trusted, .. } = &self.socket;
        let dialled = handshake::dial(sockets, key, trusted, membership.me().clone(), target, rank);
        timeout(LONG, dialled).await.unwrap().unwrap()
    }
}

fn room() -> Channel {
    Channel::parse("room:1").unwrap()
}

async fn next(events: &mut EphemeralStream) -> String {
    match timeout(LONG, events.next()).await.expect("nothing arrives").expect("the stream ended") {
        EphemeralItem::Event(event) => event.payload.as_str().to_owned(),
        EphemeralItem::Lagged(missed) => panic!("{missed} events were dropped"),
    }
}

/// Bytes that are no frames, or almost.
fn rubbish(round: usize) -> Vec<u8> {
    let noise: Vec<u8> = (0..rand::random_range(1..3000)).map(|_| rand::random()).collect();
    let mut bytes = Vec::new();
    match round % 4 {
        0 => return noise,
        // A body that is none of its kind.
        1 => bytes.extend([rand::random_range(1..6), 200, 0, 0, 0]),
        // A length that nothing has.
        2 => bytes.extend([2, 0, 0, 0, 255]),
        // One wrong bit in what is right otherwise.
        _ => {
            let room = room();
            let event = Event { channel: room.as_str(), name: "said", payload: "\"the rogue\"" };
            (0..20).for_each(|_| frame::write_event(&event, &mut bytes));
            let at = rand::random_range(0..bytes.len());
            bytes[at] ^= 1 << rand::random_range(0..8);
        }
    }
    bytes.extend(noise);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_are_none_end_their_link_and_no_other() {
    let cluster = MemoryCluster::new();
    let (a, b) = (Honest::start(&cluster, "a").await, Honest::start(&cluster, "b").await);
    let mut rogue = Rogue::start(&cluster).await;
    a.is_linked_to("b").await;
    b.is_linked_to("a").await;
    let mut events = b.bus.subscribe(&Channel::parse("quiet").unwrap()).await.unwrap();
    let quiet = Channel::parse("quiet").unwrap();
    let mut refused = 0;
    for round in 0..200 {
        let Candidate { connection, mut send, .. } = rogue.dial("a", 3).await;
        let _ = send.write_all(&rubbish(round)).await;
        let _ = send.finish();
        // What could have been meant is waited for, as long as the link lives.
        let _ = timeout(Duration::from_millis(100), connection.closed()).await;
        refused += usize::from(
            connection.close_reason().and_then(|reason| handshake::told(&reason))
                == Some(CloseReason::Protocol),
        );
        connection.close(1_u32.into(), b"");
        let payload = Payload::parse(&round.to_string()).unwrap();
        a.bus.publish(&quiet, &EventName::parse("said").unwrap(), &payload).await.unwrap();
        assert_eq!(next(&mut events).await, round.to_string());
    }
    assert!(refused >= 50, "only {refused} of 200 were told why");
    assert_eq!(a.fact("b", "ready"), true);
}

/// The row is one that was good once, and its process is gone. Whoever says now that it is that process has another key.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_row_that_is_written_again_opens_nothing_without_its_key() {
    let cluster = MemoryCluster::new();
    let (a, b) = (Honest::start(&cluster, "a").await, Honest::start(&cluster, "b").await);
    a.is_linked_to("b").await;
    b.is_linked_to("a").await;
    let gone = Rogue::start(&cluster).await;
    let (membership, view) = gone.view(3).await;
    let me = membership.me().clone();
    let registry = cluster.registry();
    let rows = registry.members().await.unwrap();
    let row = rows.into_iter().find(|row| row.identity == me).unwrap();
    drop(gone);
    cluster.delete(&me.node_id);
    let (identity, endpoint, meta) = (row.identity, row.endpoint, row.meta);
    registry.register(&Registration { identity, endpoint, meta, timing: Timing::default() }).await.unwrap();

    let impostor = socket();
    impostor.trusted.replace(&view.targets);
    for target in &view.targets {
        for attempt in 1..20 {
            let rank = Rank { generation: attempt, by_lesser: true, attempt };
            let MeshSocket { sockets, key, trusted, .. } = &impostor;
            let dialled = handshake::dial(sockets, key, trusted, me.clone(), target, rank);
            let refused = timeout(LONG, dialled).await.unwrap().err().expect("it was let in");
            assert!(refused.to_string().contains("aborted"), "{refused}");
        }
    }
    assert_eq!((a.fact("!", "ready"), b.fact("!", "ready")), (Value::Null, Value::Null));
    assert_eq!((a.fact("b", "ready"), b.fact("a", "ready")), (true.into(), true.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn b095_a_peer_that_does_not_read_holds_up_nobody_and_goes_on_over_the_same_link() {
    let cluster = MemoryCluster::new();
    let (a, b) = (Honest::start(&cluster, "a").await, Honest::start(&cluster, "b").await);
    let mut rogue = Rogue::start(&cluster).await;
    a.is_linked_to("b").await;
    b.is_linked_to("a").await;
    let mut events = b.bus.subscribe(&room()).await.unwrap();
    let Candidate { connection, mut send, mut recv, .. } = rogue.dial("a", 3).await;
    let mut wants = Vec::new();
    frame::write_interest(&Interest { version: 1, add: vec![room()], remove: Vec::new() }, &mut wants);
    send.write_all(&wants).await.unwrap();
    a.is_linked_to("!").await;

    let (began, mut said) = (Instant::now(), 0);
    // Longer than it takes to give up a path that loses everything, and more than all queues hold.
    while began.elapsed() < Duration::from_secs(5) || said < 20_000 {
        for _ in 0..50 {
            a.say(said).await;
            assert!(next(&mut events).await.starts_with(&format!("\"{said} ")));
            said += 1;
        }
        assert!(a.fact("!", "queue_bytes").as_u64().unwrap() <= 8 * 1024 * 1024);
        sleep(Duration::from_millis(5)).await;
    }
    assert!(a.fact("!", "dropped_total").as_u64().unwrap() > 0, "{}", a.fact("!", "queue_bytes"));
    assert!(connection.close_reason().is_none(), "{:?}", connection.close_reason());

    // It reads again, and what is said from now on arrives.
    let (mut reader, mut last) = (Reader::default(), false);
    a.say(said).await;
    let read = async {
        while !last {
            let chunk = recv.read_chunk(MAX_BODY, true).await.unwrap().expect("the stream ended");
            let end = format!("\"{said} ");
            let mut each = |frame: Frame<'_>| {
                last |= matches!(frame, Frame::Event(event) if event.payload.starts_with(&end));
            };
            reader.feed(&chunk.bytes, &mut each).unwrap();
        }
    };
    timeout(LONG, read).await.expect("it does not go on");
    assert_eq!(a.fact("!", "ready"), true);
}
