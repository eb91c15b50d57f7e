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

use crate::millis;
use crate::problem::Problem;
use crate::state::Gateway;

/// Longest wait for the registry.
const LIMIT: Duration = Duration::from_secs(3);

#[derive(Serialize)]
pub(crate) struct List {
    data: Vec<Entry>,
    timing: Thresholds,
}

#[derive(Serialize)]
struct Entry {
    node_id: NodeId,
    endpoint: Endpoint,
    #[serde(with = "time::serde::rfc3339")]
    registered_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    heartbeat: OffsetDateTime,
    /// By the registry's clock, when it was read.
    heartbeat_age_ms: u64,
    incarnation: Incarnation,
    stats: Stats,
    meta: Stats,
}

/// As this node is configured, so that nobody who shows ages has to guess from when on they are old.
#[derive(Serialize)]
struct Thresholds {
    heartbeat_interval_ms: u64,
    stale_threshold_ms: u64,
}

pub(crate) async fn cluster(
    State(gateway): State<Gateway>,
    headers: HeaderMap,
) -> Result<Json<List>, Problem> {
    gateway.admit_admin(&headers)?;
    // Not only when ready: an operator looks when something is wrong.
    let services = gateway.services().ok_or_else(|| Problem::unavailable(gateway.starting_reason()))?;
    let members = timeout(LIMIT, services.registry.members()).await.map_err(|_elapsed| {
        Problem::unavailable(format!("the registry did not answer within {LIMIT:?}"))
    })??;
    let timing = gateway.config().timing;
    Ok(Json(List {
        data: members.into_iter().map(Entry::from).collect(),
        timing: Thresholds {
            heartbeat_interval_ms: millis(timing.heartbeat_interval()),
            stale_threshold_ms: millis(timing.stale_threshold()),
        },
    }))
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
