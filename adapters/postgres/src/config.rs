//! What the adapter needs to know.

use switchboard_core::types::{NodeId, PayloadLimits};

use crate::dsn::Dsn;
use crate::durable::Retention;
use crate::schema::SchemaName;

/// How to reach PostgreSQL and how to use it.
#[derive(Debug, Clone)]
pub struct PostgresConfig {
    /// Where PostgreSQL is.
    pub dsn: Dsn,
    /// A direct route for the two sessions that must not go through a transaction pooler (LISTEN, and renewals with
    /// their advisory lock), if `dsn` does.
    pub session_dsn: Option<Dsn>,
    /// The schema that holds the cluster.
    pub schema: SchemaName,
    /// Shown in `application_name`, so that an operator can tell whose connections these are.
    pub node_id: NodeId,
    /// Connections for reading history and members, opened when needed. At least 1.
    pub pool_size: u32,
    /// Largest payloads that are accepted.
    pub limits: PayloadLimits,
    /// How long durable events are kept. Every node should say the same: whichever finds retention due sees to it its way.
    pub retention: Retention,
}

impl PostgresConfig {
    /// Connections of one purpose each: renewals, LISTEN, durable publishing, ephemeral publishing. The last two are opened with
    /// the first event.
    pub const DEDICATED_CONNECTIONS: u32 = 4;

    /// The defaults: schema `switchboard`, a pool of one, events kept for a day.
    pub fn new(dsn: Dsn, node_id: NodeId) -> Self {
        Self {
            dsn,
            session_dsn: None,
            schema: SchemaName::default(),
            node_id,
            pool_size: 1,
            limits: PayloadLimits::default(),
            retention: Retention::default(),
        }
    }

    /// Most connections a node holds. The last of them it has for a while only: when it starts or opens a LISTEN session anew, and
    /// as long as events wait for a channel that some open transaction has locked.
    pub fn max_connections(&self) -> u32 {
        Self::DEDICATED_CONNECTIONS + self.pool_size.max(1) + 1
    }
}
