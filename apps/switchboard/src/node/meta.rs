//! What a node tells about itself when it joins: static facts for peers and dashboards.

use serde_json::json;
use switchboard_core::types::{Endpoint, Stats};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::config::HttpAddr;

pub(super) fn describe(http: &HttpAddr, endpoint: &Endpoint, http_port: u16) -> Stats {
    let facts = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "http": http.url_for_peers(endpoint, http_port),
        "pid": std::process::id(),
        // For people: no clock of a node is compared with anything.
        "started_at": OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default(),
    });
    Stats(facts.as_object().cloned().unwrap_or_default())
}
