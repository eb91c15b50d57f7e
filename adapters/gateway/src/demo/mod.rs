//! The demo page, for development: a chat room whose windows may be on different nodes.
//!
//! It shows what a client can do, with the npm client `phoenix` as it is published (1.8.16, vendored with its licence) and no build step.
//!
//! Invariant: it exists under open access alone, and asks nothing of any host but this cluster's nodes.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use switchboard_core::types::NodeId;

use crate::page::{self, CSS, File, HTML, JS, SVG, TEXT};
use crate::problem::Problem;
use crate::state::Gateway;

/// Nodes of a development cluster differ by their port. (Sources cannot name IPv6 addresses: a page from one stays with its node.)
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self' ws://127.0.0.1:* ws://localhost:*; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const FILES: [File; 9] = [
    ("/demo", HTML, include_str!("index.html")),
    ("/demo/demo.css", CSS, include_str!("demo.css")),
    ("/demo/demo.js", JS, include_str!("demo.js")),
    ("/demo/fading.js", JS, include_str!("fading.js")),
    ("/demo/nodes.js", JS, include_str!("nodes.js")),
    ("/demo/view.js", JS, include_str!("view.js")),
    ("/demo/icon.svg", SVG, include_str!("icon.svg")),
    ("/demo/phoenix.mjs", JS, include_str!("phoenix.mjs")),
    ("/demo/phoenix.LICENSE.md", TEXT, include_str!("phoenix.LICENSE.md")),
];

/// The page, and what it asks for.
pub(crate) fn routes() -> Router<Gateway> {
    page::routes(FILES, POLICY).route("/demo/nodes", get(nodes))
}

#[derive(Serialize)]
struct Nodes {
    node_id: NodeId,
    peers: Vec<Peer>,
}

#[derive(Serialize)]
struct Peer {
    node_id: NodeId,
    url: String,
}

/// Where a page may go when its node is gone.
async fn nodes(State(gateway): State<Gateway>, headers: HeaderMap) -> Result<Json<Nodes>, Problem> {
    gateway.admit_anybody(&headers)?;
    let services = gateway.ready().map_err(Problem::unavailable)?;
    let membership = services.node.membership().borrow().clone();
    let peers = membership.peers().iter().filter_map(|peer| {
        let url = peer.meta.0.get("http")?.as_str()?.to_owned();
        Some(Peer { node_id: peer.identity.node_id.clone(), url })
    });
    Ok(Json(Nodes { node_id: gateway.config().node_id.clone(), peers: peers.collect() }))
}
