//! `GET /metrics`: what a node tells about itself, for Prometheus.
//!
//! There is one source: the gauges and counters of the node's [`StatsRegistry`](switchboard_core::stats::StatsRegistry), which its heartbeats
//! carry, too, and the latencies beside them. What changes between two heartbeats, and whether the node is ready, is read when asked for.
//! [`names`] says what each is called, [`families`] puts them together; `docs/metrics.md` is the table for people.

mod families;
mod names;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus::{TEXT_FORMAT, TextEncoder};
use switchboard_core::health::Condition;

use crate::openapi::TokenRefusals;
use crate::problem::Problem;
use crate::state::Gateway;
use families::Families;

/// Who may read the metrics, besides the holder of the admin token.
#[derive(Clone, Default)]
pub struct MetricsAccess {
    /// Opens them and nothing else.
    pub token: Option<String>,
    /// Opens them to everybody.
    pub open: bool,
}

/// The node's metrics in the text format of Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operations",
    responses(
        (status = 200, description = "the metrics", body = String, content_type = "text/plain"),
        TokenRefusals,
    ),
    security((), ("token" = [])),
)]
pub(crate) async fn metrics(State(gateway): State<Gateway>, headers: HeaderMap) -> Result<Response, Problem> {
    gateway.admit_scraper(&headers)?;
    let mut families = Families::default();
    families.add_stats(gateway.stats().collect());
    families.add_latencies(gateway.stats().latencies());
    add_state(&gateway, &mut families);
    let text = TextEncoder::new().encode_to_string(&families.finish()).map_err(|error| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {error}"))
    })?;
    Ok(([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response())
}

/// What `/readyz` and `/health` say.
fn add_state(gateway: &Gateway, families: &mut Families) {
    let node_id = gateway.config().node_id.to_string();
    let labels = [("node_id", node_id), ("version", env!("CARGO_PKG_VERSION").to_owned())];
    families.add("switchboard_node_info", labels, 1.0);
    families.add("switchboard_ready", [], f64::from(u8::from(gateway.ready().is_ok())));
    let Some(services) = gateway.services() else { return };
    let size = u32::try_from(services.node.membership().borrow().size()).unwrap_or(u32::MAX);
    families.add("switchboard_cluster_size", [], f64::from(size));
    if let Some(age) = services.node.status().borrow().heartbeat_age() {
        families.add("switchboard_heartbeat_age_seconds", [], age.as_secs_f64());
    }
    for (check, condition) in services.health.report() {
        let state = match condition {
            Condition::Ok => 0.0,
            Condition::Degraded(_) => 1.0,
            Condition::Failed(_) => 2.0,
        };
        families.add("switchboard_check_state", [("check", check.to_owned())], state);
    }
}
