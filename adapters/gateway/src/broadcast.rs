//! Publishing as `@supabase/realtime-js` does where it has no socket: `httpSend`, and `send` before `subscribe`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_core::access::{Grant, Right};
use switchboard_core::types::{Channel, EventName, Payload};
use switchboard_protocol::Object;
use utoipa::ToSchema;

use crate::openapi::{BodyRefusals, ChannelRefusals};
use crate::problem::Problem;
use crate::request;
use crate::state::{Gateway, Services};

/// The body of the batch form.
#[derive(Deserialize, ToSchema)]
#[schema(description = "Ephemeral events to publish, all or none.")]
pub(crate) struct Batch<'a> {
    #[serde(borrow)]
    #[schema(value_type = Vec<Message<'static>>)]
    messages: Vec<Object<Message<'a>>>,
}

/// A message of the batch form. Channels need rights here, whether or not a client calls them private.
#[derive(Deserialize, ToSchema)]
#[schema(description = "An ephemeral event. Other members are ignored.")]
pub(crate) struct Message<'a> {
    /// The channel.
    #[schema(value_type = String, min_length = 1, max_length = 255)]
    topic: Channel,
    #[schema(value_type = String, min_length = 1, max_length = 255)]
    event: EventName,
    /// Any JSON, which is delivered byte for byte.
    #[serde(borrow)]
    #[schema(value_type = serde_json::Value)]
    payload: &'a RawValue,
}

/// Publish ephemeral events, all of them, or none if one may not be sent.
#[utoipa::path(
    post,
    path = "/realtime/v1/api/broadcast",
    tag = "broadcast",
    request_body = Batch<'static>,
    responses((status = 202, description = "they are on their way"), ChannelRefusals, BodyRefusals),
    security((), ("token" = []), ("apikey" = []), ("token_in_url" = []), ("apikey_in_url" = [])),
)]
pub(crate) async fn batch(gateway: State<Gateway>, request: Request) -> Result<StatusCode, Problem> {
    publish_all(gateway, request).await.map_err(Problem::with_message)
}

async fn publish_all(State(gateway): State<Gateway>, request: Request) -> Result<StatusCode, Problem> {
    let grant = gateway.admit_client(request.headers(), request.uri())?;
    let services = gateway.ready().map_err(Problem::unavailable)?;
    let body = request::json(request, gateway.config().body_limit()).await?;
    let Object(batch): Object<Batch<'_>> = serde_json::from_slice(&body).map_err(|error| {
        let status = if error.is_data() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
        let expected = "{\"messages\": [{\"topic\", \"event\", \"payload\"}, …]}";
        Problem::new(status, format!("the body must be {expected}: {error:.200}"))
    })?;
    let mut events = Vec::with_capacity(batch.messages.len());
    for Object(Message { topic, event, payload }) in batch.messages {
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

/// Publish one ephemeral event, whose payload is the body: JSON or bytes.
#[utoipa::path(
    post,
    path = "/realtime/v1/api/broadcast/{topic}/events/{event}",
    tag = "broadcast",
    params(
        ("topic" = String, Path, description = "the channel, percent-encoded", min_length = 1, max_length = 255),
        ("event" = String, Path, description = "the event's name, percent-encoded", min_length = 1, max_length = 255),
    ),
    request_body(content(
        (serde_json::Value = "application/json"),
        (Vec<u8> = "application/octet-stream"),
    )),
    responses((status = 202, description = "it is on its way"), ChannelRefusals, BodyRefusals),
    security((), ("token" = []), ("apikey" = []), ("token_in_url" = []), ("apikey_in_url" = [])),
)]
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
