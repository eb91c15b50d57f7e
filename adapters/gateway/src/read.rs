//! Listening to a channel, and reading its history.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use switchboard_core::access::{Grant, Right};
use switchboard_core::ports::{History, StartFrom};
use switchboard_core::types::{Channel, DurableEvent, EventName, Payload, Position};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::clients::Present;
use crate::openapi::ChannelRefusals;
use crate::problem::{Document, Problem};
use crate::state::{Gateway, Services};
use crate::{request, sse};

/// Longest wait for a subscription to begin, or for a page.
const LIMIT: Duration = Duration::from_secs(10);

/// Events of a page unless `limit` says otherwise, and at most.
const PAGE: (usize, usize) = (100, 1000);

/// Stands for the position before the oldest event that remains.
const OLDEST: &str = "oldest";

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Range {
    /// A position, or `oldest`: what follows it is wanted.
    after: Option<String>,
    /// Most events of a page; not for streams.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<usize>,
    // Of those who cannot set headers; read where access is decided, and nowhere else.
    #[serde(rename = "token")]
    #[param(ignore)]
    _token: Option<IgnoredAny>,
    #[serde(rename = "apikey")]
    #[param(ignore)]
    _apikey: Option<IgnoredAny>,
}

/// Read a page of a channel's history, or listen to it.
///
/// With `Accept: text/event-stream` the answer is a stream of Server-Sent Events, durable and ephemeral, from now on or after a position.
#[utoipa::path(
    get,
    path = "/api/channels/{channel}/events",
    tag = "channels",
    params(
        ("channel" = String, Path, description = "the channel, percent-encoded", min_length = 1, max_length = 255),
        ("Last-Event-ID" = Option<String>, Header, description = "for streams: the position to go on after, before `after`"),
        Range,
    ),
    responses(
        (status = 200, description = "a page of history, or a stream", content(
            (Page = "application/json"),
            (String = "text/event-stream"),
        )),
        ChannelRefusals,
        (status = 409, description = "`after` is not part of the history, which ends at `head`",
            body = Document, content_type = "application/problem+json"),
        (status = 410, description = "what follows `after` was pruned; `oldest` remains",
            body = Document, content_type = "application/problem+json"),
    ),
    security((), ("token" = []), ("apikey" = []), ("token_in_url" = []), ("apikey_in_url" = [])),
)]
pub(crate) async fn read(
    State(gateway): State<Gateway>,
    path: Result<Path<String>, PathRejection>,
    range: Result<Query<Range>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let grant = gateway.admit_client(&headers, &uri)?;
    let services = gateway.ready().map_err(Problem::unavailable)?;
    let channel = request::channel(path)?;
    grant.require(&channel, Right::Subscribe)?;
    let range = request::query(range, "`after`, `limit` and a token")?;
    if request::accepts(&headers, "text/event-stream") {
        listen(&gateway, services, &grant, channel, &range, &headers).await
    } else {
        history(services, channel, &range).await
    }
}

async fn listen(
    gateway: &Gateway,
    services: &Services,
    grant: &Grant,
    channel: Channel,
    range: &Range,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    if range.limit.is_some() {
        let detail = "`limit` is for pages of history: a stream goes on until one of us ends it";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    // What a browser says when it reconnects is newer than the URL it was given.
    let last = headers.get("last-event-id").map(|value| String::from_utf8_lossy(value.as_bytes()));
    let from = match last.as_deref().filter(|id| !id.is_empty()).or(range.after.as_deref()) {
        None => None,
        Some(OLDEST) => Some(StartFrom::Oldest),
        Some(position) => Some(StartFrom::After(position.parse()?)),
    };
    let present = Present::enter_stream(gateway)?;
    let subscribe = async {
        let ephemeral = services.ephemeral.subscribe(&channel).await?;
        let from = match from {
            Some(from) => from,
            // Not simply from now on: the client is told where that is.
            None => StartFrom::After(services.durable.head(&channel).await?),
        };
        let durable = services.durable.subscribe(&channel, from).await?;
        Ok::<_, Problem>((from, durable, ephemeral))
    };
    let (from, durable, ephemeral) = Problem::unless_within(LIMIT, subscribe).await?;
    let after = match from {
        StartFrom::After(position) => position.to_string(),
        _ => OLDEST.to_owned(),
    };
    Ok(sse::response(gateway, present, grant.expires, &after, durable, ephemeral))
}

/// Durable events of one channel, in order.
#[derive(Serialize, ToSchema)]
pub(crate) struct Page {
    data: Vec<Entry>,
    /// Ask for what follows `after` this; `null` if the page is empty, and then the end was reached.
    #[schema(value_type = Option<String>, required = true)]
    next: Option<Position>,
}

/// A durable event.
#[derive(Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct Entry {
    #[schema(value_type = String, examples("4f935b0852a09a4f-41"))]
    position: Position,
    #[schema(value_type = String)]
    event: EventName,
    #[schema(value_type = serde_json::Value)]
    payload: Payload,
    #[schema(value_type = String, format = DateTime)]
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

async fn history(services: &Services, channel: Channel, range: &Range) -> Result<Response, Problem> {
    let after = match range.after.as_deref() {
        None | Some(OLDEST) => None,
        Some(position) => Some(position.parse::<Position>()?),
    };
    let limit = range.limit.unwrap_or(PAGE.0);
    if !(1..=PAGE.1).contains(&limit) {
        let detail = format!("limit {limit} must be from 1 to {}", PAGE.1);
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    match Problem::unless_within(LIMIT, services.durable.history(&channel, after, limit)).await? {
        History::Page(events) => {
            let data: Vec<_> = events.iter().map(|event| Entry::from(&**event)).collect();
            let next = data.last().map(|entry| entry.position);
            Ok(Json(Page { data, next }).into_response())
        }
        History::Pruned { oldest } => {
            let detail =
                format!("the events after this position were pruned; the oldest that remains is {oldest}");
            Err(Problem::new(StatusCode::GONE, detail).with("oldest", oldest.to_string()))
        }
        History::Reset { head } => {
            let detail =
                format!("this position is not part of the channel's history, which now ends at {head}");
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
