//! What handlers read from a request, each part refused in its own words.

use std::error::Error;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, Path, Query, Request};
use axum::http::{HeaderMap, StatusCode, header};
use switchboard_core::types::{Channel, IdempotencyKey, Invalid};
use tokio::time::timeout;

use crate::problem::Problem;

/// Longest time for a client to send a body.
const BODY: Duration = Duration::from_secs(30);

/// The channel named in the path, percent-decoded once.
pub(crate) fn channel(path: Result<Path<String>, PathRejection>) -> Result<Channel, Problem> {
    let Path(name) = path.map_err(|_rejection| {
        let detail = "the channel name in the path must be UTF-8, percent-encoded where necessary";
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    Ok(Channel::parse(&name)?)
}

/// The query, whose keys are `allowed`.
pub(crate) fn query<T>(query: Result<Query<T>, QueryRejection>, allowed: &str) -> Result<T, Problem> {
    let Query(query) = query.map_err(|rejection| {
        let cause = rejection.source().map_or_else(|| rejection.body_text(), ToString::to_string);
        Problem::new(StatusCode::BAD_REQUEST, format!("the query may hold {allowed}: {cause}"))
    })?;
    Ok(query)
}

/// The body, which must say that it is JSON: a form of a foreign web page cannot do that without asking first.
///
/// `limit` is the router's body limit, for the message.
pub(crate) async fn json(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default();
    if !is_type(&kind, "application/json") {
        let detail = Invalid::new("content type", &kind, "must be application/json").to_string();
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    body(request, limit).await
}

/// The body, whatever it is.
pub(crate) async fn body(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let body = timeout(BODY, Bytes::from_request(request, &())).await.map_err(|_elapsed| {
        Problem::new(StatusCode::REQUEST_TIMEOUT, format!("the body did not arrive within {BODY:?}"))
    })?;
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body must be at most {limit} bytes"))
        }
        _ => Problem::new(StatusCode::BAD_REQUEST, "the body broke off or is not framed as HTTP wants it"),
    })
}

/// What names this request, so that it can be repeated: `Idempotency-Key: "order 7"`, with the quotes of a structured field (as the
/// IETF's draft-ietf-httpapi-idempotency-key-header has it) or without.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&text);
    Ok(Some(IdempotencyKey::parse(bare)?))
}

/// Whether the client asks for this media type.
pub(crate) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let asked = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    asked.flat_map(|value| value.split(',')).any(|kind| is_type(kind, media_type))
}

/// Compares without parameters such as `charset`.
fn is_type(given: &str, media_type: &str) -> bool {
    given.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(media_type)
}
