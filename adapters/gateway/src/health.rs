//! Probes. `/livez` is about this process alone; `/readyz` and `/health` are about what it depends on.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use switchboard_core::types::NodeId;

use crate::millis;
use crate::state::Gateway;

pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

pub(crate) async fn readyz(State(gateway): State<Gateway>) -> Response {
    match gateway.ready() {
        Ok(_) => "ok\n".into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    node_id: NodeId,
    cluster: Cluster,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The cluster as this node last saw it.
#[derive(Serialize)]
struct Cluster {
    size: usize,
    peers: Vec<NodeId>,
    /// By the monotonic clock; `null` before the first heartbeat.
    heartbeat_age_ms: Option<u64>,
}

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
