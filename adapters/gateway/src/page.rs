//! Web pages that are part of the program: how their files are served.
//!
//! Invariant: a page runs the scripts of its node alone, is framed by nobody, and tells nobody where its visitor came from.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

use crate::state::Gateway;

pub(crate) const HTML: &str = "text/html; charset=utf-8";
pub(crate) const CSS: &str = "text/css; charset=utf-8";
pub(crate) const JS: &str = "text/javascript; charset=utf-8";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const SVG: &str = "image/svg+xml";

/// Where a file is, what it is, and what is in it.
pub(crate) type File = (&'static str, &'static str, &'static str);

/// These files, under a Content-Security-Policy. A page is found with a slash behind it, too.
pub(crate) fn routes<const N: usize>(files: [File; N], policy: &'static str) -> Router<Gateway> {
    files.into_iter().fold(Router::new(), |router, (path, kind, text)| {
        let router = router.route(path, get(async move || file(kind, text, policy)));
        if kind == HTML {
            router.route(&format!("{path}/"), get(async move || Redirect::permanent(path)))
        } else {
            router
        }
    })
}

fn file(kind: &'static str, text: &'static str, policy: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy)),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    ];
    (headers, text).into_response()
}
