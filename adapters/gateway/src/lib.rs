//! The HTTP surface of a node.
//!
//! | route | answer |
//! |---|---|
//! | `GET /livez` | 200 as long as the process serves; never depends on PostgreSQL |
//! | `GET /readyz` | 200 if the node should get work, 503 with the reason if not |
//! | `GET /health` | 200 `{"status": "healthy", "node_id", "cluster": {"size", "peers", "heartbeat_age_ms"}}`; 503 with `"unhealthy"` and the `reason` when `/readyz` says 503; `warnings` if somebody should look |
//! | `GET /api/openapi.json` | 200 and this table for programs, as an `OpenAPI` document |
//! | `GET /metrics` | 200 and the node's metrics in the text format of Prometheus; every one is explained in `docs/metrics.md` |
//! | `GET /api/admin/cluster` | 200 `{"data": [member, …], "timing": {"heartbeat_interval_ms", "stale_threshold_ms"}}`, ordered by `seq`; a member is `{"node_id", "endpoint", "registered_at", "heartbeat", "heartbeat_age_ms", "incarnation", "stats", "meta"}` |
//! | `POST /api/channels/{channel}/events` | publishes `{"event": name, "payload": any JSON, "ephemeral": false}`: 201 `{"position"}` once a durable event is committed, 202 when an ephemeral one is on its way |
//! | `GET /api/channels/{channel}/events` with `Accept: text/event-stream` | 200 and a stream of both kinds of event (see the `sse` module), from now on, or after the position in `Last-Event-ID` or `?after=` (`oldest` for all that remains) |
//! | `GET /api/channels/{channel}/events` otherwise | a page of history: 200 `{"data": [{"position", "event", "payload", "created_at"}, …], "next"}` with `?after=` and `?limit=` (1 to 1000, 100 by default); a page may be shorter, and only an empty one, whose `next` is `null`, is the last |
//! | `GET /socket/websocket` | a WebSocket that npm `phoenix` and its ports speak (`vsn` 1.0.0 and 2.0.0); what is said over it stands with `switchboard-protocol` |
//! | `GET /realtime/v1/websocket` | the same as `@supabase/realtime-js` and its ports speak it |
//! | `POST /realtime/v1/api/broadcast` | publishes ephemeral events `{"messages": [{"topic", "event", "payload"}, …]}`, all or none: 202 |
//! | `POST /realtime/v1/api/broadcast/{topic}/events/{event}` | publishes one, whose payload is the body: JSON, or bytes as `application/octet-stream`: 202 |
//! | `GET /admin` | the cluster as a web page, as it changes; and below it what that needs: `POST /admin/login` with `{"token": the admin token}` answers 204 and a cookie for 12 hours, `POST /admin/logout` takes it back, `GET /admin/session` says who one is, `GET /admin/stream` is the list of `/api/admin/cluster` as Server-Sent Events, every second and with every change |
//! | `GET /demo` | a chat room as a web page, and below it what that needs; with [`GatewayConfig::open_access`] only |
//!
//! Every `GET` answers `HEAD`, too. `{channel}` is percent-decoded once. Payloads pass byte for byte.
//!
//! # Errors
//!
//! All but the probes answer errors as problem documents (RFC 9457) whose `detail` names the value and the rule:
//!
//! | status | when |
//! |---|---|
//! | 400 | the body is no JSON, the channel name no UTF-8, the query has an unknown key |
//! | 401 | the token is missing, wrong, not valid yet or not any more; `reason` is `missing`, `invalid`, `not_yet_valid` or `expired` |
//! | 403 | the token does not give the right (`reason` is `forbidden`); the request comes from a foreign web page (`origin`); this node accepts no tokens; or access is open and `Host` is neither `localhost` nor an address |
//! | 404, 405 | there is no such route, or not for this method |
//! | 408 | the body did not arrive in time |
//! | 409 | `after` is not part of the history, whose end is `head` |
//! | 410 | what follows `after` was pruned; `oldest` remains |
//! | 413 | the payload is beyond its limit |
//! | 415 | the body is not declared as `application/json` |
//! | 422 | a field, a name, a position or a limit breaks its rule |
//! | 426 | the request does not ask for the WebSocket that is there |
//! | 429 | too many attempts to sign in |
//! | 503 | the node is starting, joining, suspended or draining, or a bus or the registry is unavailable, or has as many streams and sockets as it may, or too many sockets are opened at once; `Retry-After` says when to try again |
//!
//! # Access
//!
//! The admin token opens the admin routes, as `Authorization: Bearer …`, and every channel, wherever a token may come but in a URL. A client's
//! token (see [`auth`]) opens channel routes: with the right `publish` for ephemeral events, `durable` for durable ones, `subscribe` for history and
//! streams. It may come as `Authorization: Bearer …`, in the header `apikey`, or in the query as `token` or `apikey`, for clients that cannot set
//! headers: the first in this order that is not empty counts, whatever it is worth. A socket may also bring it as a sub-protocol, as `phoenix`
//! does, which counts before all of these, and in messages. A stream ends when its token does, and says `expired` first. Rights are looked up
//! under the exact name of the channel, and nobody has any in the cluster's own, whose names start with `$switchboard`. With [`GatewayConfig::open_access`] the channel routes need no token.
//!
//! The metrics open to the admin token, to [`MetricsAccess::token`], which opens nothing else, or to everybody ([`MetricsAccess::open`], and open access).
//!
//! Web pages of a foreign origin are refused unless [`Origins`] lists theirs; those get CORS headers on the channel routes. And a publish
//! needs `Content-Type: application/json`, and open access a `Host` that is no name of somebody else's, so that no other page can read from
//! or post to a node its visitor can reach.
//!
//! What is below `/admin` is for the node's own pages alone, whatever [`Origins`] lists: there a cookie speaks for the visitor. It is `HttpOnly`,
//! `SameSite=Strict`, for that path, and `Secure` over HTTPS; every node with the same admin token accepts it, and a new token ends it. With
//! [`GatewayConfig::open_access`] the page needs no login.
//!
//! # Start and end
//!
//! The server is up before PostgreSQL is: [`Gateway::new`] needs nothing, [`Gateway::attach`] gives it the ports once there are some. When
//! [`Gateway::serve`] is told to stop, or [`Gateway::drain`] is called before that, the node is not ready at once and streams end, so that
//! clients go elsewhere; sockets are closed (1012) at times spread over [`SocketConfig::drain_window`]; requests that are being handled are answered.

mod access;
mod admin;
mod answer;
pub mod auth;
mod broadcast;
mod clients;
mod connection;
mod demo;
mod health;
mod idle;
mod metrics;
mod openapi;
mod origin;
mod page;
mod problem;
mod publish;
mod read;
mod request;
mod serve;
mod socket;
mod sse;
mod state;

use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::{Router, middleware};

// Asked by browsers before they let a foreign page in, and answered by the layer around it.
use problem::method_not_allowed as preflight;

pub use metrics::MetricsAccess;
pub use origin::Origins;
pub use socket::SocketConfig;
pub use state::{Gateway, GatewayConfig, Services};
pub use switchboard_protocol::session::{Limits, Rate};

impl Gateway {
    /// The routes, for those who serve them themselves.
    pub fn router(&self) -> Router {
        let open_to_pages = Router::new()
            .route(
                "/api/channels/{channel}/events",
                get(read::read).post(publish::publish).options(preflight),
            )
            .route("/socket/websocket", get(socket::phoenix))
            .route("/realtime/v1/websocket", get(socket::supabase))
            .route("/realtime/v1/api/broadcast", post(broadcast::batch).options(preflight))
            .route(
                "/realtime/v1/api/broadcast/{topic}/events/{event}",
                post(broadcast::one).options(preflight),
            )
            .layer(self.config().origins.cors())
            .layer(middleware::from_fn_with_state(self.clone(), origin::guard));
        let demo = if self.config().open_access { demo::routes() } else { Router::new() };
        Router::new()
            .merge(open_to_pages)
            .merge(demo)
            .merge(admin::routes())
            .route("/livez", get(health::livez))
            .route("/readyz", get(health::readyz))
            .route("/health", get(health::health))
            .route("/api/openapi.json", get(openapi::document))
            .route("/metrics", get(metrics::metrics))
            .fallback(problem::not_found)
            .method_not_allowed_fallback(problem::method_not_allowed)
            .layer(DefaultBodyLimit::max(self.config().body_limit()))
            .layer(middleware::from_fn_with_state(self.clone(), answer::around))
            .with_state(self.clone())
    }
}

/// Durations in JSON are whole milliseconds.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
