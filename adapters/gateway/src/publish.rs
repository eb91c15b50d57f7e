//! Publishing to a channel.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_core::access::Right;
use switchboard_core::types::{EventName, Invalid, Payload, Position};
use switchboard_protocol::Object;
use utoipa::ToSchema;

use crate::openapi::{BodyRefusals, ChannelRefusals};
use crate::problem::Problem;
use crate::request;
use crate::state::Gateway;

/// Longest wait for a bus. Buses give up by themselves, and know better why; this is for one that does not.
const LIMIT: Duration = Duration::from_secs(40);

/// Where a durable event stands in its channel.
#[derive(Serialize, ToSchema)]
pub(crate) struct Published {
    #[schema(value_type = String, examples("4f935b0852a09a4f-41"))]
    position: Position,
}

/// Publish an event.
///
/// A durable one is stored and committed when this answers; with an `Idempotency-Key` the same request can be sent again and is stored once.
#[utoipa::path(
    post,
    path = "/api/channels/{channel}/events",
    tag = "channels",
    params(
        ("channel" = String, Path, description = "the channel, percent-encoded", min_length = 1, max_length = 255),
        ("Idempotency-Key" = Option<String>, Header, description = "names this request, so that it can be repeated"),
    ),
    request_body = Fields<'static>,
    responses(
        (status = 201, description = "a durable event is committed", body = Published),
        (status = 202, description = "an ephemeral event is on its way"),
        ChannelRefusals,
        BodyRefusals,
    ),
    security((), ("token" = []), ("apikey" = []), ("token_in_url" = []), ("apikey_in_url" = [])),
)]
pub(crate) async fn publish(
    State(gateway): State<Gateway>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    // Before the body is read: whoever is refused costs no memory.
    let grant = gateway.admit_client(request.headers(), request.uri())?;
    let services = gateway.ready().map_err(Problem::unavailable)?;
    let channel = request::channel(path)?;
    if !grant.allows(&channel, Right::Durable) {
        grant.require(&channel, Right::Publish)?;
    }
    let key = request::idempotency_key(request.headers())?;
    let body = request::json(request, gateway.config().body_limit()).await?;
    let Publication { event, payload, ephemeral } = Publication::parse(&body)?;
    grant.require(&channel, if ephemeral { Right::Publish } else { Right::Durable })?;
    let counts = gateway.counts();
    if ephemeral {
        Problem::unless_within(LIMIT, services.ephemeral.publish(&channel, &event, &payload)).await?;
        counts.published_ephemeral.increment();
        Ok(StatusCode::ACCEPTED.into_response())
    } else {
        let publish = match &key {
            Some(key) => services.durable.publish_once(&channel, &event, &payload, key),
            None => services.durable.publish(&channel, &event, &payload),
        };
        let position = Problem::unless_within(LIMIT, publish).await?;
        counts.published_durable.increment();
        Ok((StatusCode::CREATED, Json(Published { position })).into_response())
    }
}

struct Publication {
    event: EventName,
    payload: Payload,
    ephemeral: bool,
}

/// The body before its fields are looked at, so that each can be refused by name.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Publication, description = "An event to publish.")]
pub(crate) struct Fields<'a> {
    /// What clients bind handlers to: 1 to 255 bytes without control characters.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 255, examples("message"))]
    event: &'a RawValue,
    /// Any JSON, which is delivered byte for byte.
    #[serde(borrow)]
    #[schema(value_type = serde_json::Value)]
    payload: &'a RawValue,
    /// Whether it is not stored.
    #[serde(borrow, default = "not_ephemeral")]
    #[schema(value_type = bool, required = false, default = false)]
    ephemeral: &'a RawValue,
}

fn not_ephemeral() -> &'static RawValue {
    RawValue::FALSE
}

impl Publication {
    fn parse(body: &[u8]) -> Result<Self, Problem> {
        let Object(fields): Object<Fields<'_>> =
            serde_json::from_slice(body).map_err(|error| malformed(&error))?;
        let name: String = field("event", fields.event, "must be a string")?;
        Ok(Self {
            event: EventName::parse(&name)?,
            payload: Payload::parse(fields.payload.get())?,
            ephemeral: field("ephemeral", fields.ephemeral, "must be true or false")?,
        })
    }
}

/// Text that is no JSON is a bad request; JSON that says the wrong thing cannot be processed.
fn malformed(error: &serde_json::Error) -> Problem {
    let status = if error.is_data() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
    let expected = "{\"event\": name, \"payload\": any JSON, \"ephemeral\": true or false}";
    Problem::new(status, format!("the body must be {expected}: {}", excerpt(&error.to_string())))
}

/// The message repeats the name of an unknown field, whatever it holds: one short line of it will do.
fn excerpt(message: &str) -> String {
    const LONGEST: usize = 200;
    message.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn field<'a, T: Deserialize<'a>>(
    name: &'static str,
    raw: &'a RawValue,
    rule: &'static str,
) -> Result<T, Invalid> {
    serde_json::from_str(raw.get()).map_err(|_error| Invalid::new(name, raw.get(), rule))
}
