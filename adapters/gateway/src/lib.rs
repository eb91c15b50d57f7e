//! The HTTP surface of a node.
//!
//! | route | answer |
//! |---|---|
//! | `GET /livez` | 200 as long as the process serves; never depends on PostgreSQL |
//! | `GET /readyz` | 200 if the node should get work, 503 with the reason if not |
//! | `GET /health` | `{"status", "node_id", "cluster": {"size", "peers", "heartbeat_age_ms"}}`; 503, `"unhealthy"` and a `reason` as `/readyz`; `warnings` if somebody should look |
//! | `GET /api/admin/cluster` | `{"data": [member, …], "timing": {…}}`, ordered by `seq`; needs the admin token |
//! | `POST /api/channels/{channel}/events` | publishes `{"event", "payload", "ephemeral"}`: 201 `{"position"}` once a durable event is committed, 202 for an ephemeral one |
//! | `GET /api/channels/{channel}/events` | with `Accept: text/event-stream` a stream of both kinds (see the `sse` module), otherwise a page of history: `{"data": [event, …], "next"}` with `after` and `limit` |
//!
//! Errors are problem documents (RFC 9457). Tokens travel in `Authorization: Bearer …` alone, never in a URL. There are no CORS headers, and a
//! publish needs `Content-Type: application/json`, so that no foreign web page can post to a node its visitor can reach.
//!
//! The server is up before PostgreSQL is: [`Gateway::new`] needs nothing, [`Gateway::attach`] gives it the ports once there are some.

mod access;
mod admin;
mod channel;
mod health;
mod problem;
mod serve;
mod sse;
mod state;

use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Router, middleware};

pub use state::{Gateway, GatewayConfig, Services};

/// What a request may be larger than its payload.
const ENVELOPE: usize = 16 * 1024;

impl Gateway {
    /// The routes, for those who serve them themselves.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/livez", get(health::livez))
            .route("/readyz", get(health::readyz))
            .route("/health", get(health::health))
            .route("/api/admin/cluster", get(admin::cluster))
            .route("/api/channels/{channel}/events", get(channel::read).post(channel::publish))
            .fallback(problem::not_found)
            .method_not_allowed_fallback(problem::method_not_allowed)
            .layer(DefaultBodyLimit::max(self.config().limits.durable + ENVELOPE))
            .layer(middleware::from_fn_with_state(self.clone(), serve::around))
            .with_state(self.clone())
    }
}
