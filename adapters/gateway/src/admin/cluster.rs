//! The cluster for operators: a list of members, whatever their stats hold.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use switchboard_core::ports::Member;
use switchboard_core::types::{Endpoint, Incarnation, NodeId, Stats};
use time::OffsetDateTime;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::millis;
use crate::openapi::{TokenRefusals, Unavailable};
use crate::problem::Problem;
use crate::state::Gateway;

/// Longest wait for the registry.
const LIMIT: Duration = Duration::from_secs(3);

/// The members of the cluster, in the order in which they joined.
#[derive(Serialize, ToSchema)]
#[schema(as = MemberList)]
pub(crate) struct List {
    data: Vec<Entry>,
    timing: Thresholds,
}

/// A node as the registry has it.
#[derive(Serialize, ToSchema)]
#[schema(as = Member)]
struct Entry {
    #[schema(value_type = String)]
    node_id: NodeId,
    #[schema(value_type = String)]
    endpoint: Endpoint,
    #[schema(value_type = String, format = DateTime)]
    #[serde(with = "time::serde::rfc3339")]
    registered_at: OffsetDateTime,
    #[schema(value_type = String, format = DateTime)]
    #[serde(with = "time::serde::rfc3339")]
    heartbeat: OffsetDateTime,
    /// By the registry's clock, when it was read.
    heartbeat_age_ms: u64,
    #[schema(value_type = String)]
    incarnation: Incarnation,
    /// Whatever the node measures.
    #[schema(value_type = Object)]
    stats: Stats,
    /// Static facts that the node told when it joined.
    #[schema(value_type = Object)]
    meta: Stats,
}

/// As this node is configured, so that nobody who shows ages has to guess from when on they are old.
#[derive(Serialize, ToSchema)]
struct Thresholds {
    heartbeat_interval_ms: u64,
    stale_threshold_ms: u64,
}

/// Every node of the cluster, with what it tells about itself.
#[utoipa::path(
    get,
    path = "/api/admin/cluster",
    tag = "operations",
    responses((status = 200, description = "the members", body = List), TokenRefusals, Unavailable),
    security(("token" = [])),
)]
pub(crate) async fn cluster(
    State(gateway): State<Gateway>,
    headers: HeaderMap,
) -> Result<Json<List>, Problem> {
    gateway.admit_admin(&headers)?;
    read(&gateway).await.map(Json)
}

/// The list as the registry has it now.
pub(super) async fn read(gateway: &Gateway) -> Result<List, Problem> {
    // Not only when ready: an operator looks when something is wrong.
    let services = gateway.services().ok_or_else(|| Problem::unavailable(gateway.starting_reason()))?;
    let members = timeout(LIMIT, services.registry.members()).await.map_err(|_elapsed| {
        Problem::unavailable(format!("the registry did not answer within {LIMIT:?}"))
    })??;
    let timing = gateway.config().timing;
    Ok(List {
        data: members.into_iter().map(Entry::from).collect(),
        timing: Thresholds {
            heartbeat_interval_ms: millis(timing.heartbeat_interval()),
            stale_threshold_ms: millis(timing.stale_threshold()),
        },
    })
}

impl From<Member> for Entry {
    fn from(member: Member) -> Self {
        Self {
            node_id: member.identity.node_id,
            endpoint: member.endpoint,
            registered_at: member.registered_at,
            heartbeat: member.heartbeat,
            heartbeat_age_ms: millis(member.age),
            incarnation: member.identity.incarnation,
            stats: member.stats,
            meta: member.meta,
        }
    }
}
