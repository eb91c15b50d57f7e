//! Handshakes that are begun and not gone on with, in a number that would fill a node if it kept them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use rustls::RootCertStore;
use rustls::version::TLS13;
use serde_json::Value;
use switchboard_testkit::{LONG, eventually};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::mesh::{Ear, linked, say, start, stats};
use crate::node::{Cluster, Node};

const HANDSHAKES: usize = 10_000;
/// What a node may grow by meanwhile. Keeping them all for the time that QUIC remembers a refused one would take many times that.
const GROWTH: u64 = 16 * 1024 * 1024;

/// Makes the first packets of genuine handshakes: a dialler that sends them into a trap.
struct Diallers {
    endpoint: Endpoint,
    config: ClientConfig,
    trap: UdpSocket,
}

impl Diallers {
    async fn new() -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"switchboard-mesh/1".to_vec()];
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        Self { endpoint, config, trap: UdpSocket::bind("127.0.0.1:0").await.unwrap() }
    }

    /// The first packet of another handshake.
    async fn first_packet(&self) -> Vec<u8> {
        let trap = self.trap.local_addr().unwrap();
        let dialling = self.endpoint.connect_with(self.config.clone(), trap, "switchboard-mesh").unwrap();
        let mut packet = vec![0; 2000];
        loop {
            let length = timeout(LONG, self.trap.recv(&mut packet)).await.unwrap().unwrap();
            // Not the farewells of those before.
            if length >= 1200 {
                packet.truncate(length);
                drop(dialling);
                return packet;
            }
        }
    }
}

async fn endpoint(node: &Node) -> SocketAddr {
    let (_, body) = node.get("/api/admin/cluster").await.unwrap();
    body["data"][0]["endpoint"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_half_open_handshakes_cost_little_memory_and_cut_no_link() {
    let cluster = Cluster::new().await;
    let (a, b) = (start(&cluster, "a").await, start(&cluster, "b").await);
    linked(&a, "a", &["b"]).await;
    linked(&a, "b", &["a"]).await;
    let mut ear = Ear::on(&b, "room:1").await;
    let resident = async || stats(&a, "a").await["rss_bytes"].as_u64();
    eventually(LONG, "it says what it takes", async || resident().await.is_some()).await;
    let (target, before) = (endpoint(&a).await, resident().await.unwrap());
    let diallers = Diallers::new().await;
    let mut sources = Vec::new();
    for _ in 0..64 {
        sources.push(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    }
    let mut most = before;
    for n in 0..HANDSHAKES {
        let packet = diallers.first_packet().await;
        sources[n % sources.len()].send_to(&packet, target).await.unwrap();
        if n % 500 == 0 {
            say(&a, n).await;
            assert_eq!(ear.hears().await, n);
            most = most.max(resident().await.unwrap_or_default());
        }
    }
    most = most.max(resident().await.unwrap());
    assert!(most < before + GROWTH, "{most} bytes, {before} before");
    // Some were let in as far as they went, or this would show nothing.
    let mut answers = 0;
    for source in &sources {
        answers += u32::from(source.try_recv_from(&mut [0; 2000]).is_ok());
    }
    assert!(answers > 0, "nothing was answered");
    let links = stats(&a, "a").await["mesh"]["peers"].clone();
    assert_eq!(links["b"]["ready"], Value::Bool(true), "{links}");
    let late = start(&cluster, "c").await;
    timeout(Duration::from_secs(10), linked(&late, "c", &["a", "b"])).await.expect("the door is blocked");
}
