//! Foreign web pages, and which of them may come in.
//!
//! A browser says on whose behalf it asks (`Origin`), and a page cannot lie about that. Whoever sends none is no browser, or a page of
//! the same origin that only reads; tokens are for those. The check comes before any work, and before a WebSocket is opened, which
//! no browser keeps a foreign page from otherwise.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use switchboard_core::types::Invalid;
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

use crate::problem::Problem;
use crate::state::Gateway;

/// What is allowed, for messages.
const RULE: &str =
    "must be origins such as https://app.example or http://localhost:5173, separated by commas, or * for all";

/// The foreign pages that may use a node. By default there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    all: bool,
    /// As browsers send them.
    listed: Vec<String>,
}

impl Origins {
    /// Reads a list of exact origins, `scheme://host` or `scheme://host:port`, separated by commas; or `*`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text == "*" {
            return Ok(Self { all: true, listed: Vec::new() });
        }
        let refuse = |entry: &str| Invalid::new("origin", entry, RULE);
        let entries = text.split(',').map(str::trim);
        let listed =
            entries.map(|entry| serialized(entry).ok_or_else(|| refuse(entry))).collect::<Result<_, _>>()?;
        Ok(Self { all: false, listed })
    }

    /// Whether every page may come in.
    pub fn are_all(&self) -> bool {
        self.all
    }

    /// Lets pass what does not come from a foreign page, and pages that may come in.
    ///
    /// A page is the node's own if its origin is what the client calls the node by (`Host`). The scheme is not compared: TLS may end in
    /// front of the node. `X-Forwarded-Host` is not believed: where a proxy changes `Host`, list the public origin.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (Some(origin), more) = (origins.next(), origins.next()) else { return Ok(()) };
        if more.is_none() && (self.lists(origin) || is_own(origin, headers)) {
            return Ok(());
        }
        let origin =
            Invalid::new("origin", &String::from_utf8_lossy(origin.as_bytes()), "is not allowed here");
        let detail = format!("{origin}; AUTH_ORIGINS says which web pages may use this node");
        Err(Problem::new(StatusCode::FORBIDDEN, detail).with("reason", "origin".to_owned()))
    }

    /// Byte by byte, since browsers have one spelling for each.
    fn lists(&self, origin: &HeaderValue) -> bool {
        self.all || self.listed.iter().any(|listed| listed.as_bytes() == origin.as_bytes())
    }

    /// What lets browsers hand answers to the pages that may come in. Tokens are sent by hand, so there are no credentials of the browser's.
    pub(crate) fn cors(&self) -> CorsLayer {
        let origins = self.clone();
        CorsLayer::new()
            .allow_origin(AllowOrigin::predicate(move |origin, _| origins.lists(origin)))
            .allow_methods(AllowMethods::mirror_request())
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers([header::RETRY_AFTER, header::WWW_AUTHENTICATE])
            .max_age(Duration::from_hours(2))
    }
}

/// Turns foreign pages away.
pub(crate) async fn guard(
    State(gateway): State<Gateway>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    gateway.config().origins.admit(request.headers())?;
    Ok(next.run(request).await)
}

/// Lets pass what comes from a page of this node, and what no page sends: where a cookie speaks for the visitor, pages that may use channels
/// are foreign, too. A request that changes something must say where it comes from, as browsers do.
pub(crate) async fn own_pages_only(request: Request, next: Next) -> Result<Response, Problem> {
    let headers = request.headers();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_from_here = match (origins.next(), origins.next()) {
        (Some(origin), None) => is_own(origin, headers),
        (None, _) => request.method().is_safe(),
        (Some(_), Some(_)) => false,
    };
    if is_from_here {
        return Ok(next.run(request).await);
    }
    let detail = "this is for the node's own pages: `Origin` must be what the node is called by (`Host`), \
        which a proxy in front has to pass on";
    Err(Problem::new(StatusCode::FORBIDDEN, detail).with("reason", "origin".to_owned()))
}

/// Refuses what a page of another origin has its visitor's browser fetch without saying `Origin`, as it does for images and scripts. That could
/// not be read there; but a stream would be held open.
pub(crate) fn must_not_be_embedded(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => {
            let detail = "this is for the node's own pages (`Sec-Fetch-Site`)";
            Err(Problem::new(StatusCode::FORBIDDEN, detail).with("reason", "origin".to_owned()))
        }
    }
}

fn is_own(origin: &HeaderValue, headers: &HeaderMap) -> bool {
    let own = || {
        let (scheme, page) = origin.to_str().ok()?.split_once("://")?;
        let host = headers.get(header::HOST)?.to_str().ok()?;
        Some(place(scheme, page)? == place(scheme, host)?)
    };
    own().unwrap_or(false)
}

/// An origin as browsers write it: in lower case, and without the port that the scheme implies.
fn serialized(text: &str) -> Option<String> {
    let (scheme, authority) = text.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_lowercase())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let (host, port) = place(&scheme, authority)?;
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    is_scheme.then(|| format!("{scheme}://{host}{port}"))
}

/// Host and port; `None` for the port that the scheme implies.
fn place(scheme: &str, authority: &str) -> Option<(String, Option<u16>)> {
    let authority: Authority = authority.parse().ok()?;
    let implied = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    let host = authority.host();
    // Not `Authority::port`: one that is no number is not none.
    let port = match authority.as_str().get(host.len()..)? {
        "" => None,
        port => Some(port.strip_prefix(':')?.parse().ok()?),
    };
    let is_plain = !host.is_empty() && host.is_ascii() && !authority.as_str().contains(['@', '*']);
    is_plain.then(|| (host.to_ascii_lowercase(), port.filter(|port| Some(*port) != implied)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_browsers_would_write_it() {
        let origins =
            Origins::parse("https://App.Example:443, http://localhost:5173,capacitor://localhost").unwrap();
        assert_eq!(origins.listed, ["https://app.example", "http://localhost:5173", "capacitor://localhost"]);
        assert!(Origins::parse("*").unwrap().are_all() && !origins.are_all());
        assert_eq!(Origins::parse("http://[::1]:80").unwrap().listed, ["http://[::1]"]);
    }

    #[test]
    fn what_is_no_origin_is_refused_by_name() {
        for wrong in [
            "",
            "null",
            "app.example",
            "https://",
            "https://app.example/",
            "https://app.example/x",
            "https://*.example",
            "https://u@app.example",
            "https://app.example:x",
            "https://app.example:",
            "https://app.example:99999",
            "https://bücher.example",
            "//app.example",
            "1x://app.example",
            "https://a.example,",
            "https://a.example,*",
            "https://a.example https://b.example",
        ] {
            let error = Origins::parse(wrong).expect_err(wrong).to_string();
            assert!(error.contains("such as https://app.example"), "{error}");
        }
    }
}
