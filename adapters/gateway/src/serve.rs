//! The accept loop, and what surrounds every request.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::problem::Problem;
use crate::state::Gateway;

/// Longest time for a request to be read and answered; a stream counts as answered when it begins.
const LIMIT: Duration = Duration::from_mins(1);

impl Gateway {
    /// Serves `listener` until `stop`, then lets what is under way finish for at most `patience`.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken, patience: Duration) {
        let server =
            axum::serve(listener, self.router()).with_graceful_shutdown(stop.clone().cancelled_owned());
        let overdue = async {
            stop.cancelled().await;
            tokio::time::sleep(patience).await;
        };
        tokio::select! {
            result = server => if let Err(error) = result {
                warn!(%error, "the HTTP server ended");
            },
            () = overdue => warn!(?patience, "closed HTTP connections that did not finish in time"),
        }
    }
}

/// Counts, bounds and labels every request.
pub(crate) async fn around(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    gateway.counts().requests.increment();
    let mut response = match timeout(LIMIT, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => {
            Problem::new(StatusCode::REQUEST_TIMEOUT, format!("not done within {LIMIT:?}")).into_response()
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
