//! What carries ephemeral events: NOTIFY, or the mesh with NOTIFY to fall back to.
//!
//! The mesh binds before the node joins, since its port belongs into the node's endpoint and its key into the node's row. A build
//! without the feature `mesh` has only the first.

use std::net::IpAddr;
use std::sync::Arc;

use switchboard_core::health::HealthRegistry;
use switchboard_core::node::Node;
use switchboard_core::ports::EphemeralBus;
use switchboard_core::stats::StatsRegistry;
use switchboard_core::types::Stats;
use switchboard_postgres::Postgres;
#[cfg(feature = "mesh")]
use {
    crate::config::{Ephemeral, MESH_ADDR},
    anyhow::Context,
    switchboard_mesh::{META_KEY, Mesh, MeshConfig, MeshSocket},
};

use crate::config::ServeConfig;

/// Before the node joins.
pub(super) struct Bound {
    #[cfg(feature = "mesh")]
    mesh: Option<MeshSocket>,
}

/// Once it has begun to.
pub(super) struct Transport {
    bus: Arc<dyn EphemeralBus>,
    #[cfg(feature = "mesh")]
    mesh: Option<Mesh>,
}

#[cfg(feature = "mesh")]
impl Bound {
    pub(super) fn bind(config: &ServeConfig) -> anyhow::Result<Self> {
        if config.cluster.ephemeral == Ephemeral::Pg {
            return Ok(Self { mesh: None });
        }
        let mesh = MeshConfig {
            addr: config.mesh.addr,
            limits: config.http.limits,
            segmentation_offload: config.mesh.gso,
        };
        let socket = MeshSocket::bind(&mesh).with_context(|| MESH_ADDR.to_string())?;
        Ok(Self { mesh: Some(socket) })
    }

    /// Where peers dial, if not where HTTP is: the address, if it is one, and the port.
    pub(super) fn address(&self) -> anyhow::Result<Option<(Option<IpAddr>, u16)>> {
        let Some(socket) = &self.mesh else { return Ok(None) };
        let addr = socket.local_addr()?;
        Ok(Some((Some(addr.ip()).filter(|ip| !ip.is_unspecified()), addr.port())))
    }

    /// Adds to what the node tells about itself.
    pub(super) fn describe(&self, meta: &mut Stats) {
        if let Some(socket) = &self.mesh {
            meta.0.insert(META_KEY.to_owned(), socket.facts());
        }
    }

    pub(super) async fn start(
        self,
        node: &Node,
        postgres: &Postgres,
        stats: &StatsRegistry,
        health: &HealthRegistry,
    ) -> anyhow::Result<Transport> {
        let notify = postgres.ephemeral();
        let Some(socket) = self.mesh else { return Ok(Transport { bus: notify, mesh: None }) };
        let mesh = Mesh::start(socket, node, Some(notify), stats, health).await?;
        Ok(Transport { bus: mesh.ephemeral(), mesh: Some(mesh) })
    }
}

#[cfg(feature = "mesh")]
impl Transport {
    /// Lets what was said last arrive, and peers know that this node is going.
    pub(super) async fn close(&self) {
        if let Some(mesh) = &self.mesh {
            mesh.close().await;
        }
    }
}

#[cfg(not(feature = "mesh"))]
#[allow(
    clippy::unused_self,
    clippy::unused_async,
    clippy::unnecessary_wraps,
    reason = "what the build with a mesh needs, this one can do without"
)]
impl Bound {
    pub(super) fn bind(_config: &ServeConfig) -> anyhow::Result<Self> {
        Ok(Self {})
    }

    pub(super) fn address(&self) -> anyhow::Result<Option<(Option<IpAddr>, u16)>> {
        Ok(None)
    }

    pub(super) fn describe(&self, _meta: &mut Stats) {}

    pub(super) async fn start(
        self,
        _node: &Node,
        postgres: &Postgres,
        _stats: &StatsRegistry,
        _health: &HealthRegistry,
    ) -> anyhow::Result<Transport> {
        Ok(Transport { bus: postgres.ephemeral() })
    }
}

#[cfg(not(feature = "mesh"))]
#[allow(clippy::unused_self, clippy::unused_async, reason = "what the build with a mesh needs")]
impl Transport {
    pub(super) async fn close(&self) {}
}

impl Transport {
    pub(super) fn bus(&self) -> Arc<dyn EphemeralBus> {
        Arc::clone(&self.bus)
    }
}
