//! WebSockets: from the request that opens one to the task that serves it.
//!
//! What is said over a socket is decided in `switchboard-protocol`; here it is carried out. Nothing is queued for a client that
//! does not read: while it takes nothing, nothing is fetched for it, so that its ephemeral events are dropped where they wait for everybody, oldest
//! first, and its durable ones stay in the log. If it takes nothing for [`SocketConfig::send_timeout`], it is closed.

mod conversation;
mod encoded;
mod feed;
mod handshake;
mod requests;

use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use switchboard_core::access::{AuthError, Grant};
use switchboard_protocol::Dialect;
use switchboard_protocol::codec::Version;
use switchboard_protocol::session::{Limits, Rate};

use crate::clients::Present;
use crate::connection::Switch;
use crate::openapi::SocketRefusals;
use crate::problem::Problem;
use crate::request;
use crate::state::Gateway;
use conversation::Conversation;
pub(crate) use encoded::Encoded;
use handshake::Handshake;

/// How sockets are served.
#[derive(Debug, Clone, Copy)]
pub struct SocketConfig {
    /// What one client may do.
    pub limits: Limits,
    /// New sockets of the node: who comes back after an outage comes at this rate, and not all at once. Others are told to wait (503).
    pub opening: Rate,
    /// Longest time for a client to take what is sent to it. Then it is closed with 1013 (try again later).
    pub send_timeout: Duration,
    /// When the node drains, sockets are closed (1012) at times spread over this.
    pub drain_window: Duration,
}

impl Default for SocketConfig {
    /// 500 new sockets/s in bursts of 1,000; 10 s to take a message; 5 s to drain.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            opening: Rate { per_second: 500, burst: 1000 },
            send_timeout: Duration::from_secs(10),
            drain_window: Duration::from_secs(5),
        }
    }
}

/// Whatever else is in the query is the client's own business.
#[derive(Deserialize)]
pub(crate) struct Params {
    vsn: Option<String>,
}

/// Open a WebSocket that speaks Phoenix Channels.
#[utoipa::path(
    get,
    path = "/socket/websocket",
    tag = "sockets",
    params(("vsn" = Option<String>, Query, description = "the version of the protocol: `1.0.0` or `2.0.0`")),
    responses((status = 101, description = "the socket is open"), SocketRefusals),
    security((), ("token" = []), ("apikey" = []), ("token_in_url" = []), ("apikey_in_url" = [])),
)]
pub(crate) async fn phoenix(
    gateway: State<Gateway>,
    params: Result<Query<Params>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
    switch: Option<Extension<Switch>>,
) -> Result<Response, Problem> {
    open(&gateway, Dialect::Phoenix, params, &uri, &headers, switch)
}

/// Open a WebSocket that speaks as `@supabase/realtime-js` does.
#[utoipa::path(
    get,
    path = "/realtime/v1/websocket",
    tag = "sockets",
    params(("vsn" = Option<String>, Query, description = "the version of the protocol: `1.0.0` or `2.0.0`")),
    responses((status = 101, description = "the socket is open"), SocketRefusals),
    security((), ("token" = []), ("apikey" = []), ("token_in_url" = []), ("apikey_in_url" = [])),
)]
pub(crate) async fn supabase(
    gateway: State<Gateway>,
    params: Result<Query<Params>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
    switch: Option<Extension<Switch>>,
) -> Result<Response, Problem> {
    open(&gateway, Dialect::Supabase, params, &uri, &headers, switch)
}

/// Everything that can be refused is refused here, with a status that clients back off from.
fn open(
    gateway: &Gateway,
    dialect: Dialect,
    params: Result<Query<Params>, QueryRejection>,
    uri: &Uri,
    headers: &HeaderMap,
    switch: Option<Extension<Switch>>,
) -> Result<Response, Problem> {
    let Handshake { accept, protocol, token } = Handshake::read(headers)?;
    let access = access(gateway, headers, uri, token.as_deref())?;
    let version = Version::parse(request::query(params, "`vsn` and a token")?.vsn.as_deref())?;
    gateway.ready().map_err(Problem::unavailable)?;
    gateway.admit_socket()?;
    let present = Present::enter_socket(gateway)?;
    let Some(Extension(switch)) = switch else {
        let detail = "WebSockets are served by this crate's own server alone";
        return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, detail));
    };
    let conversation = Box::new(Conversation::new(gateway.clone(), dialect, version, access, present));
    // Copied, so that the buffer is given back that it was read into.
    switch.to(|stream, early| Box::pin(conversation.run(stream, early.to_vec())));
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let answer = response.headers_mut();
    answer.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        answer.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok(response)
}

/// What the socket's own token is worth. Without one it may still be opened: channels can be joined with tokens of their own.
fn access(
    gateway: &Gateway,
    headers: &HeaderMap,
    uri: &Uri,
    token: Option<&[u8]>,
) -> Result<Result<Grant, AuthError>, Problem> {
    if let Some(grant) = gateway.admit_anybody(headers)? {
        return Ok(Ok(grant));
    }
    let access = match token {
        Some(token) => gateway.verify(token),
        None => gateway.authenticate(headers, uri),
    };
    match access {
        Err(AuthError::Missing) | Ok(_) => Ok(access),
        Err(error) => Err(error.into()),
    }
}
