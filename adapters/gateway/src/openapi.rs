//! `GET /api/openapi.json`: the HTTP API, described from the code that serves it.
//!
//! Each handler carries its own description; here they are collected, with the refusals that many share. Pages for people are no part of it. Open to
//! everybody: it says what any reader of this source knows.

use std::collections::BTreeMap;

use axum::Json;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use crate::problem::Document;
use crate::{admin, broadcast, health, metrics, publish, read, socket};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Switchboard",
        description = "Publish events, listen to channels, look at the cluster. Every node of a cluster serves the same.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    paths(
        health::livez,
        health::readyz,
        health::health,
        metrics::metrics,
        document,
        admin::cluster::cluster,
        read::read,
        publish::publish,
        socket::phoenix,
        socket::supabase,
        broadcast::batch,
        broadcast::one,
    ),
    components(schemas(Document)),
    modifiers(&Tokens),
    tags(
        (name = "channels", description = "events of a channel"),
        (name = "broadcast", description = "ephemeral events, as clients of Supabase publish them"),
        (name = "sockets", description = "WebSockets; what is said over them is no part of this document"),
        (name = "operations", description = "for administrators"),
        (name = "probes", description = "for supervisors; open to everybody"),
    ),
)]
struct Api;

/// This document.
#[utoipa::path(
    get,
    path = "/api/openapi.json",
    tag = "operations",
    responses((status = 200, description = "an OpenAPI document", body = Object)),
)]
pub(crate) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Api::openapi())
}

/// Where a token may come.
struct Tokens;

impl Modify for Tokens {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let named = |name: &str, place: fn(ApiKeyValue) -> ApiKey| {
            SecurityScheme::ApiKey(place(ApiKeyValue::new(name)))
        };
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
        components.add_security_scheme("apikey", named("apikey", ApiKey::Header));
        components.add_security_scheme("token_in_url", named("token", ApiKey::Query));
        components.add_security_scheme("apikey_in_url", named("apikey", ApiKey::Query));
    }
}

/// Refused for want of a token.
pub(crate) enum TokenRefusals {}

/// Refused although there may be nothing wrong with the request.
pub(crate) enum Unavailable {}

/// Refused by what everything under a channel goes through.
pub(crate) enum ChannelRefusals {}

/// Refused because of the body.
pub(crate) enum BodyRefusals {}

/// Refused instead of opening a WebSocket.
pub(crate) enum SocketRefusals {}

type Responses = BTreeMap<String, RefOr<Response>>;

const UNAUTHORIZED: (u16, &str) =
    (401, "the token is missing, wrong, not valid yet or not any more; `reason` says which");
const FORBIDDEN: (u16, &str) =
    (403, "the token does not give the right, the page is of a foreign origin, or nobody may do this");
const UNAVAILABLE: (u16, &str) = (503, "not now: `Retry-After` says when to try again");

impl IntoResponses for TokenRefusals {
    fn responses() -> Responses {
        problems(&[UNAUTHORIZED, FORBIDDEN])
    }
}

impl IntoResponses for Unavailable {
    fn responses() -> Responses {
        problems(&[UNAVAILABLE])
    }
}

impl IntoResponses for ChannelRefusals {
    fn responses() -> Responses {
        problems(&[
            (400, "the body is no JSON, a name in the path no UTF-8, or the query has an unknown key"),
            UNAUTHORIZED,
            FORBIDDEN,
            (422, "a field, a name, a position or a limit breaks its rule"),
            UNAVAILABLE,
        ])
    }
}

impl IntoResponses for BodyRefusals {
    fn responses() -> Responses {
        problems(&[
            (408, "the body did not arrive in time"),
            (413, "the payload is beyond its limit"),
            (415, "the body is not declared as what it must be"),
        ])
    }
}

impl IntoResponses for SocketRefusals {
    fn responses() -> Responses {
        problems(&[
            (400, "the request for a WebSocket, or the query, is not understood"),
            UNAUTHORIZED,
            FORBIDDEN,
            (422, "there is no such version of the protocol"),
            (426, "the request does not ask for the WebSocket that is there"),
            UNAVAILABLE,
        ])
    }
}

fn problems(refusals: &[(u16, &str)]) -> Responses {
    let problem = || Content::new(Some(Ref::from_schema_name("Problem")));
    let refusals = refusals.iter().map(|(status, description)| {
        let response =
            ResponseBuilder::new().description(*description).content("application/problem+json", problem());
        (status.to_string(), RefOr::T(response.build()))
    });
    refusals.collect()
}
