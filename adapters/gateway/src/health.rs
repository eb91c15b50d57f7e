//! Probes. `/livez` is about this process alone; `/readyz` and `/health` are about what it depends on.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use switchboard_core::types::NodeId;
use utoipa::ToSchema;

use crate::millis;
use crate::state::Gateway;

/// Whether the process serves. Never depends on PostgreSQL.
#[utoipa::path(
    get, path = "/livez", tag = "probes",
    responses((status = 200, description = "it does", body = String, content_type = "text/plain")),
)]
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether the node should get work.
#[utoipa::path(
    get, path = "/readyz", tag = "probes",
    responses(
        (status = 200, description = "it should", body = String, content_type = "text/plain"),
        (status = 503, description = "it should not: why", body = String, content_type = "text/plain"),
    ),
)]
pub(crate) async fn readyz(State(gateway): State<Gateway>) -> Response {
    match gateway.ready() {
        Ok(_) => "ok\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

/// How a node is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `healthy` or `unhealthy`.
    #[schema(value_type = String)]
    status: &'static str,
    #[schema(value_type = String)]
    node_id: NodeId,
    cluster: Cluster,
    /// Why it is unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// What somebody should look at although the node works.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    warnings: Vec<String>,
}

/// The cluster as this node last saw it.
#[derive(Serialize, ToSchema)]
pub(crate) struct Cluster {
    /// Nodes, this one among them.
    size: usize,
    #[schema(value_type = Vec<String>)]
    peers: Vec<NodeId>,
    /// By the monotonic clock; `null` before the first heartbeat.
    #[schema(required = true)]
    heartbeat_age_ms: Option<u64>,
}

/// How the node is, and the cluster as it sees it.
#[utoipa::path(
    get, path = "/health", tag = "probes",
    responses(
        (status = 200, description = "the node should get work", body = Health),
        (status = 503, description = "it should not", body = Health),
    ),
)]
pub(crate) async fn health(State(gateway): State<Gateway>) -> Response {
    let reason = gateway.ready().err();
    let (code, status) = match &reason {
        None => (StatusCode::OK, "healthy"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "unhealthy"),
    };
    let warnings = gateway.warnings();
    let node_id = gateway.config().node_id.clone();
    (code, Json(Health { status, node_id, cluster: cluster(&gateway), reason, warnings })).into_response()
}

fn cluster(gateway: &Gateway) -> Cluster {
    let Some(services) = gateway.services() else {
        return Cluster { size: 1, peers: Vec::new(), heartbeat_age_ms: None };
    };
    let membership = services.node.membership().borrow().clone();
    let age = services.node.status().borrow().heartbeat_age();
    Cluster {
        size: membership.size(),
        peers: membership.peers().iter().map(|peer| peer.identity.node_id.clone()).collect(),
        heartbeat_age_ms: age.map(millis),
    }
}
