//! Publishing to a channel, reading its history, listening to it.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use switchboard_core::ports::{History, StartFrom};
use switchboard_core::types::{Channel, DurableEvent, EventName, Payload, Position};
use time::OffsetDateTime;
use tokio::time::timeout;

use crate::problem::Problem;
use crate::sse;
use crate::state::Gateway;

/// Longest wait for a subscription to begin, or for a page.
const LIMIT: Duration = Duration::from_secs(10);

/// Events of a page unless `limit` says otherwise, and at most.
const PAGE: (usize, usize) = (100, 1000);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Publication {
    event: EventName,
    payload: Payload,
    #[serde(default)]
    ephemeral: bool,
}

#[derive(Serialize)]
struct Published {
    position: Position,
}

pub(crate) async fn publish(
    State(gateway): State<Gateway>,
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    gateway.admit_client(&headers)?;
    let services = gateway.ready().map_err(Problem::unavailable)?;
    let channel = channel(path)?;
    ensure_json(&headers)?;
    let body = body.map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))?;
    let publication: Publication = serde_json::from_slice(&body).map_err(|error| malformed(&error))?;
    let Publication { event, payload, ephemeral } = publication;
    let answer = if ephemeral {
        services.ephemeral.publish(&channel, &event, &payload).await?;
        StatusCode::ACCEPTED.into_response()
    } else {
        let position = services.durable.publish(&channel, &event, &payload).await?;
        (StatusCode::CREATED, Json(Published { position })).into_response()
    };
    gateway.counts().published.increment();
    Ok(answer)
}

/// Text that is no JSON is a bad request; JSON that says the wrong thing cannot be processed.
fn malformed(error: &serde_json::Error) -> Problem {
    let status = if error.is_data() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
    let expected = "{\"event\": name, \"payload\": any JSON, \"ephemeral\": true or false}";
    Problem::new(status, format!("the body must be {expected}: {error}"))
}

/// A form of a foreign web page cannot send this type without asking first.
fn ensure_json(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = format!("content type {given:.100?} must be application/json");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Range {
    after: Option<String>,
    limit: Option<usize>,
}

pub(crate) async fn read(
    State(gateway): State<Gateway>,
    path: Result<Path<String>, PathRejection>,
    range: Result<Query<Range>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    gateway.admit_client(&headers)?;
    gateway.ready().map_err(Problem::unavailable)?;
    let channel = channel(path)?;
    let Query(range) =
        range.map_err(|rejection| Problem::new(StatusCode::BAD_REQUEST, rejection.body_text()))?;
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("text/event-stream")) {
        listen(&gateway, channel, &range, &headers).await
    } else {
        history(&gateway, channel, &range).await
    }
}

async fn listen(
    gateway: &Gateway,
    channel: Channel,
    range: &Range,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    // What a browser says when it reconnects is newer than the URL it was given.
    let last = headers.get("last-event-id").map(|value| String::from_utf8_lossy(value.as_bytes()));
    let after = last.as_deref().filter(|id| !id.is_empty()).or(range.after.as_deref());
    let from = match after {
        None => StartFrom::Now,
        Some("oldest") => StartFrom::Oldest,
        Some(position) => StartFrom::After(position.parse()?),
    };
    let services = gateway.ready().map_err(Problem::unavailable)?;
    let subscribe = async {
        let ephemeral = services.ephemeral.subscribe(&channel).await?;
        let durable = services.durable.subscribe(&channel, from).await?;
        Ok::<_, Problem>((durable, ephemeral))
    };
    let (durable, ephemeral) = within(subscribe).await?;
    Ok(sse::response(gateway, durable, ephemeral))
}

#[derive(Serialize)]
struct Page {
    data: Vec<Entry>,
    /// Ask for what follows `after` this; `null` if the page is empty.
    next: Option<Position>,
}

#[derive(Serialize)]
struct Entry {
    position: Position,
    event: EventName,
    payload: Payload,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

async fn history(gateway: &Gateway, channel: Channel, range: &Range) -> Result<Response, Problem> {
    let after = match range.after.as_deref() {
        None | Some("oldest") => None,
        Some(position) => Some(position.parse::<Position>()?),
    };
    let limit = range.limit.unwrap_or(PAGE.0);
    if !(1..=PAGE.1).contains(&limit) {
        let detail = format!("limit {limit} must be from 1 to {}", PAGE.1);
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let services = gateway.ready().map_err(Problem::unavailable)?;
    match within(async { Ok(services.durable.history(&channel, after, limit).await?) }).await? {
        History::Page(events) => {
            let data: Vec<_> = events.iter().map(|event| Entry::from(&**event)).collect();
            let next = data.last().map(|entry| entry.position);
            Ok(Json(Page { data, next }).into_response())
        }
        History::Pruned { oldest } => {
            Err(Problem::new(StatusCode::GONE, "the events after this position were pruned")
                .with("oldest", oldest.to_string()))
        }
        History::Reset { head } => {
            let detail = "this position is not part of the channel's history";
            Err(Problem::new(StatusCode::CONFLICT, detail).with("head", head.to_string()))
        }
    }
}

impl From<&DurableEvent> for Entry {
    fn from(event: &DurableEvent) -> Self {
        Self {
            position: event.position,
            event: event.event.clone(),
            payload: event.payload.clone(),
            created_at: event.created_at,
        }
    }
}

fn channel(path: Result<Path<String>, PathRejection>) -> Result<Channel, Problem> {
    let Path(name) =
        path.map_err(|rejection| Problem::new(StatusCode::BAD_REQUEST, rejection.body_text()))?;
    Ok(Channel::parse(&name)?)
}

async fn within<T>(work: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    timeout(LIMIT, work)
        .await
        .map_err(|_elapsed| Problem::unavailable(format!("no answer within {LIMIT:?}")))?
}
