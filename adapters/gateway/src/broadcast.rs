//! Publishing as `@supabase/realtime-js` does where it has no socket: `httpSend`, and `send` before `subscribe`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_core::access::{Grant, Right};
use switchboard_core::types::{Channel, EventName, Payload};

use crate::problem::Problem;
use crate::request;
use crate::state::{Gateway, Services};

/// The body of the batch form.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Batch<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

/// A message of the batch form. Channels need rights here, whether or not a client calls them private.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Message<'a> {
    topic: Channel,
    event: EventName,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// `POST …/api/broadcast`: all of them, or none if one may not be sent.
pub(crate) async fn batch(gateway: State<Gateway>, request: Request) -> Result<StatusCode, Problem> {
    publish_all(gateway, request).await.map_err(Problem::with_message)
}

async fn publish_all(State(gateway): State<Gateway>, request: Request) -> Result<StatusCode, Problem> {
    let grant = gateway.admit_client(request.headers(), request.uri())?;
    let services = gateway.ready().map_err(Problem::unavailable)?;
    let body = request::json(request, gateway.config().body_limit()).await?;
    let batch: Batch<'_> = serde_json::from_slice(&body).map_err(|error| {
        let status = if error.is_data() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
        let expected = "{\"messages\": [{\"topic\", \"event\", \"payload\"}, …]}";
        Problem::new(status, format!("the body must be {expected}: {error:.200}"))
    })?;
    let mut events = Vec::with_capacity(batch.messages.len());
    for Message { topic, event, payload } in batch.messages {
        grant.require(&topic, Right::Publish)?;
        let payload = Payload::parse(payload.get())?;
        payload.within(gateway.config().limits.ephemeral)?;
        events.push((topic, event, payload));
    }
    for (channel, event, payload) in &events {
        send(&gateway, services, channel, event, payload).await?;
    }
    Ok(StatusCode::ACCEPTED)
}

/// `POST …/api/broadcast/{topic}/events/{event}`: the body is the payload, JSON or bytes.
pub(crate) async fn one(
    gateway: State<Gateway>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<StatusCode, Problem> {
    publish_one(gateway, path, request).await.map_err(Problem::with_message)
}

async fn publish_one(
    State(gateway): State<Gateway>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let grant: Grant = gateway.admit_client(request.headers(), request.uri())?;
    let services = gateway.ready().map_err(Problem::unavailable)?;
    let Path((topic, event)) = path.map_err(|_rejection| {
        let detail = "topic and event in the path must be UTF-8, percent-encoded where necessary";
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let (channel, event) = (Channel::parse(&topic)?, EventName::parse(&event)?);
    grant.require(&channel, Right::Publish)?;
    let kind = request.headers().get(header::CONTENT_TYPE);
    let limit = gateway.config().body_limit();
    let payload = if kind.is_some_and(|kind| kind == "application/octet-stream") {
        switchboard_protocol::payload_of_bytes(&request::body(request, limit).await?)?
    } else {
        let body = request::json(request, limit).await?;
        let text = std::str::from_utf8(&body)
            .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "the body must be UTF-8"))?;
        Payload::parse(text)?
    };
    send(&gateway, services, &channel, &event, &payload).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn send(
    gateway: &Gateway,
    services: &Services,
    channel: &Channel,
    event: &EventName,
    payload: &Payload,
) -> Result<(), Problem> {
    services.ephemeral.publish(channel, event, payload).await?;
    gateway.counts().published_ephemeral.increment();
    Ok(())
}
