//! Switchboard's ephemeral bus node to node, over QUIC.
//!
//! Nodes find each other in the registry and nowhere else. Each process makes a key pair when it starts and lists the key's fingerprint in
//! its row; a connection is made only between two processes that prove the keys of current rows to each other. So there are no
//! certificates, no shared secret and no list of peers, and who cannot write to the registry cannot join.
//!
//! 1. [`MeshSocket::bind`] before the node joins: its port belongs into the node's endpoint, its [`facts`](MeshSocket::facts) into the
//!    node's `meta` under [`META_KEY`].
//! 2. [`Mesh::start`] with the node, which links it to every peer that it sees.
//! 3. [`Mesh::ephemeral`] is the bus. [`Mesh::close`] after the node has left.
//!
//! ```no_run
//! use std::sync::Arc;
//! use switchboard_core::health::HealthRegistry;
//! use switchboard_core::node::{Node, NodeConfig};
//! use switchboard_core::ports::Registry;
//! use switchboard_core::stats::StatsRegistry;
//! use switchboard_mesh::{META_KEY, Mesh, MeshConfig, MeshSocket};
//!
//! async fn join(registry: Arc<dyn Registry>, mut config: NodeConfig) -> Result<(), Box<dyn std::error::Error>> {
//!     let (stats, health) = (StatsRegistry::default(), HealthRegistry::default());
//!     let socket = MeshSocket::bind(&MeshConfig::default())?;
//!     config.meta.0.insert(META_KEY.to_owned(), socket.facts());
//!     config.endpoint = format!("10.0.0.7:{}", socket.local_addr()?.port()).parse()?;
//!     let node = Node::spawn(registry, config, stats.clone());
//!     let mesh = Mesh::start(socket, &node, None, &stats, &health).await?;
//!     mesh.ephemeral().publish(&"room:1".parse()?, &"typing".parse()?, &"true".parse()?).await?;
//!     Ok(())
//! }
//! ```
//!
//! # What it costs, and when to prefer NOTIFY
//!
//! An event goes only to the peers that have subscribers of its channel, and PostgreSQL hears nothing of it. In return every node holds
//! a connection to every other one, UDP must pass between them, and the first subscription of a channel takes a round trip. A cluster of two or
//! three that sends little is as well off with NOTIFY.
//!
//! # The fallback
//!
//! A peer without a link (UDP does not pass, it was just started, it speaks another version) is reached by another bus that all nodes
//! share, in envelopes on a channel of the cluster's own, which name the peers they are for. While a node is in the cluster that has no mesh at
//! all, events go as plain events of that bus, which everybody hears: a rolling change between the two is safe. When the last such
//! node has left, an event may overtake those before it once.
//!
//! # Suspicion
//!
//! A peer that is silent for 1.8 s, or closes, has no link from then on, and is among [`EphemeralBus::suspects`]. Who is in the cluster
//! stays the registry's to say.

mod bus;
mod driver;
mod envelope;
mod error;
mod frame;
mod handshake;
mod interest;
mod key;
mod link;
mod links;
mod members;
mod outbox;
mod places;
mod progress;
#[cfg(test)]
mod rogue;
mod routes;
mod sockets;
mod state;
mod tls;

use std::fmt;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use switchboard_core::health::HealthRegistry;
use switchboard_core::node::Node;
use switchboard_core::ports::{EphemeralBus, EphemeralError};
use switchboard_core::stats::StatsRegistry;
use switchboard_core::types::{Channel, EventName, PayloadLimits};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use bus::{MeshBus, Post, Shared};
use driver::Driver;
pub use envelope::ENVELOPE_ROOM;
pub use error::MeshError;
use key::KeyPair;
use links::CloseReason;
pub use members::META_KEY;
use members::Trusted;
use sockets::Sockets;
use state::State;

/// Longest wait for the last events to arrive when closing.
const FLUSH: Duration = Duration::from_millis(500);

/// Where the mesh listens, and what it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeshConfig {
    /// The UDP address; port 0 takes a free one. The unspecified IPv6 address is both families, or IPv4 alone where there is no IPv6.
    pub addr: SocketAddr,
    /// Largest payloads.
    pub limits: PayloadLimits,
    /// Whether the system may be handed many datagrams at once, to cut them apart itself (UDP GSO). Where it turns out that it cannot, that is
    /// noticed, at the cost of some lost packets; where it loses them without a word, it must be told here.
    pub segmentation_offload: bool,
}

impl Default for MeshConfig {
    /// All interfaces, any port, with segmentation offload.
    fn default() -> Self {
        Self {
            addr: SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
            limits: PayloadLimits::default(),
            segmentation_offload: true,
        }
    }
}

/// A bound socket and a fresh key, before there is a node.
pub struct MeshSocket {
    sockets: Sockets,
    key: KeyPair,
    trusted: Trusted,
    limits: PayloadLimits,
}

impl MeshSocket {
    /// Binds the address and makes the key. Must be called within a Tokio runtime.
    pub fn bind(config: &MeshConfig) -> Result<Self, MeshError> {
        let (key, trusted) = (KeyPair::generate()?, Trusted::default());
        let sockets = Sockets::bind(config.addr, config.segmentation_offload, &key, &trusted)?;
        Ok(Self { sockets, key, trusted, limits: config.limits })
    }

    /// The address it is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.sockets.local_addr()
    }

    /// What belongs into the node's `meta` under [`META_KEY`].
    pub fn facts(&self) -> Value {
        members::describe(&self.key.fingerprint)
    }
}

impl fmt::Debug for MeshSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeshSocket").field("key", &self.key.fingerprint).finish_non_exhaustive()
    }
}

/// The mesh of one node. Dropping it closes its links without a word; [`close`](Self::close) says good-bye.
pub struct Mesh {
    shared: Arc<Shared>,
    sockets: Arc<Sockets>,
    stop: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

impl Mesh {
    /// Links `node` to its peers, in the background and for as long as both are there.
    ///
    /// `fallback`: a bus that reaches every node of the cluster, those without a mesh included, and takes payloads that are
    /// [`ENVELOPE_ROOM`] larger than the limit. Without one, peers without a link hear nothing.
    ///
    /// Adds the gauges `ephemeral` and `mesh` to `stats`, and the check `mesh` to `health`. Fails only if `fallback` is closed.
    pub async fn start(
        socket: MeshSocket,
        node: &Node,
        fallback: Option<Arc<dyn EphemeralBus>>,
        stats: &StatsRegistry,
        health: &HealthRegistry,
    ) -> Result<Self, EphemeralError> {
        let MeshSocket { sockets, key, trusted, limits } = socket;
        let membership = node.membership();
        let me = membership.borrow().me().clone();
        let (channel, event) = (Channel::parse(envelope::CHANNEL)?, EventName::parse(envelope::EVENT)?);
        let mut tasks = JoinSet::new();
        let (post, envelopes) = match fallback {
            Some(bus) => {
                let envelopes = bus.subscribe(&channel).await?;
                (Some(Post { bus, channel, event }), Some(envelopes))
            }
            None => (None, None),
        };
        let (shared, state) = (Shared::new(me, limits.ephemeral, post), Arc::new(State::default()));
        state::show(&state, &shared, stats, health);
        if let Some(envelopes) = envelopes {
            tasks.spawn(bus::open_envelopes(Arc::clone(&shared), envelopes));
        }
        let (sockets, stop) = (Arc::new(sockets), CancellationToken::new());
        let endpoint = node.endpoint().clone();
        let driver =
            Driver::new(Arc::clone(&sockets), key, trusted, membership, endpoint, Arc::clone(&shared), state);
        tasks.spawn(driver.run(stop.clone()));
        Ok(Self { shared, sockets, stop, tasks: Mutex::new(tasks) })
    }

    /// The bus.
    pub fn ephemeral(&self) -> Arc<dyn EphemeralBus> {
        Arc::new(MeshBus(Arc::clone(&self.shared)))
    }

    /// Lets the last events arrive, for at most half a second, tells the peers that this node leaves, and ends all subscriptions.
    /// Idempotent.
    pub async fn close(&self) {
        self.shared.close();
        let links = self.shared.interest.links();
        let flushed = links.iter().map(|link| async {
            link.outbox.finish();
            link.outbox.flushed.notified().await;
        });
        // A peer that does not read has missed it.
        let _ = timeout(FLUSH, join_all(flushed)).await;
        let (code, text) = CloseReason::Leaving.told();
        let _ = timeout(FLUSH, self.sockets.close(code, text)).await;
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
        self.shared.fanout.close();
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mesh").field("closed", &self.shared.is_closed()).finish_non_exhaustive()
    }
}
