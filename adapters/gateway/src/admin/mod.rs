//! The cluster for operators: a list of members, whatever their stats hold, and a page that shows it as it changes.
//!
//! | part | |
//! |---|---|
//! | `cluster` | the list, for programs |
//! | `session` | how a browser that was given the admin token once is let in again |
//! | `stream` | the list as it changes, read once for everybody who watches |
//! | the other files | the page: it reads the list and renders it, and knows nothing else |
//!
//! Invariants: what is below `/admin` is for this node's own pages; the token is sent once, in a body, and never kept by the page.

pub(crate) mod cluster;
mod session;
mod stream;

use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use axum::{Router, middleware};

use crate::origin;
use crate::page::{self, CSS, File, HTML, JS, SVG};
use crate::state::Gateway;

pub(crate) use stream::Feed;

/// As strict as it gets: nothing inline, nothing from elsewhere, no text that becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const FILES: [File; 13] = [
    ("/admin", HTML, include_str!("index.html")),
    ("/admin/dashboard.css", CSS, include_str!("dashboard.css")),
    ("/admin/dashboard.js", JS, include_str!("dashboard.js")),
    ("/admin/card.js", JS, include_str!("card.js")),
    ("/admin/dom.js", JS, include_str!("dom.js")),
    ("/admin/fields.js", JS, include_str!("fields.js")),
    ("/admin/history.js", JS, include_str!("history.js")),
    ("/admin/live.js", JS, include_str!("live.js")),
    ("/admin/mesh.js", JS, include_str!("mesh.js")),
    ("/admin/numbers.js", JS, include_str!("numbers.js")),
    ("/admin/session.js", JS, include_str!("session.js")),
    ("/admin/state.js", JS, include_str!("state.js")),
    ("/admin/icon.svg", SVG, include_str!("../demo/icon.svg")),
];

/// The list, the page, and what it asks for.
pub(crate) fn routes() -> Router<Gateway> {
    page::routes(FILES, POLICY)
        .route("/admin/session", get(session::session))
        .route("/admin/login", post(session::login).layer(DefaultBodyLimit::max(session::BODY)))
        .route("/admin/logout", post(session::logout))
        .route("/admin/stream", get(stream::stream))
        .layer(middleware::from_fn(origin::own_pages_only))
        .route("/api/admin/cluster", get(cluster::cluster))
}
