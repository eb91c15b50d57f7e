//! What all answers have in common.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::state::Gateway;

/// Counts every request, and labels every answer: what this server sends is never guessed at and never stored.
pub(crate) async fn around(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    gateway.counts().requests.increment();
    if response.status().is_client_error() {
        gateway.counts().rejected.increment();
    }
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
