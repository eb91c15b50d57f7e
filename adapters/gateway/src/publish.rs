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

use crate::problem::Problem;
use crate::request;
use crate::state::Gateway;

/// Longest wait for a bus. Buses give up by themselves, and know better why; this is for one that does not.
const LIMIT: Duration = Duration::from_secs(40);

#[derive(Serialize)]
struct Published {
    position: Position,
}

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
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Fields<'a> {
    #[serde(borrow)]
    event: &'a RawValue,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow, default = "not_ephemeral")]
    ephemeral: &'a RawValue,
}

fn not_ephemeral() -> &'static RawValue {
    RawValue::FALSE
}

impl Publication {
    fn parse(body: &[u8]) -> Result<Self, Problem> {
        let fields: Fields<'_> = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
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
