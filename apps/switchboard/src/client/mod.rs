//! Talks to a node over HTTP, as `nodes`, `publish` and `tail` do. Any node will do: all show the same cluster.

mod error;
mod url;

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use reqwest::header::ACCEPT;
use reqwest::{Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use switchboard_core::types::{Channel, EventName, IdempotencyKey, Payload, Position};

pub(crate) use error::ClientError;

use crate::commands::dev::DEV_TOKEN;
use crate::config::{AdminToken, ConfigError, Setting};
use url::NodeUrl;

const URL: Setting = Setting::new("SWITCHBOARD_URL", "--url");

const CONNECT: Duration = Duration::from_secs(5);
/// Longer than a node waits for PostgreSQL before it says that it cannot be reached.
const ANSWER: Duration = Duration::from_secs(45);
/// Whoever asks for a probe waits no longer than this, as `docker` and `kubelet` do by custom.
const PROBE: Duration = Duration::from_secs(5);
/// A node that streams shows a sign of life every 15 s. One that does not is gone, whatever the connection says.
const SILENCE: Duration = Duration::from_secs(45);

/// How to reach a node.
#[derive(clap::Args)]
#[command(next_help_heading = "Node")]
pub(crate) struct ClientArgs {
    /// The URL of any node.
    #[arg(
        long,
        env = "SWITCHBOARD_URL",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:4000"
    )]
    url: OsString,

    /// The node's `ADMIN_TOKEN`, or for `publish` and `tail` one that `switchboard token` made. [default for this machine: dev, as `switchboard dev` has it]
    ///
    /// Prefer the variable to the flag, which every user of the machine can read.
    #[arg(long = "token", env = "SWITCHBOARD_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<OsString>,
}

/// A client of one node.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: NodeUrl,
    token: Option<AdminToken>,
}

impl Client {
    pub(crate) fn new(args: ClientArgs) -> anyhow::Result<Self> {
        let (url, token) = args.resolve()?;
        Self::build(url, token)
    }

    /// A client for routes that are open to all.
    pub(crate) fn without_token(url: &OsStr) -> anyhow::Result<Self> {
        Self::build(URL.parse(url, NodeUrl::parse)?, None)
    }

    fn build(url: NodeUrl, token: Option<AdminToken>) -> anyhow::Result<Self> {
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .user_agent(concat!("switchboard/", env!("CARGO_PKG_VERSION")));
        if url.is_local() {
            // A proxy cannot mean the same machine that we do.
            http = http.no_proxy();
        }
        Ok(Self { http: http.build()?, url, token })
    }

    /// The node it talks to, for messages.
    pub(crate) fn url(&self) -> &NodeUrl {
        &self.url
    }

    /// The body of an admin route.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, ClientError> {
        self.json(self.request(Method::GET, path).timeout(ANSWER)).await
    }

    /// The text of a probe's answer, if it is a good one.
    pub(crate) async fn probe(&self, route: &str) -> Result<String, ClientError> {
        let response = self.accept(self.request(Method::GET, &[route]).timeout(PROBE).send().await).await?;
        response.text().await.map_err(|source| ClientError::broken(&self.url, &source))
    }

    /// Publishes; answers the position of a durable event. One with a key may be published again: it is stored once.
    pub(crate) async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        ephemeral: bool,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<Position>, ClientError> {
        #[derive(Serialize)]
        struct Body<'a> {
            event: &'a EventName,
            payload: &'a Payload,
            ephemeral: bool,
        }
        #[derive(Deserialize)]
        struct Answer {
            position: Position,
        }
        let request = self.request(Method::POST, &events_of(channel)).timeout(ANSWER);
        let mut request = request.json(&Body { event, payload, ephemeral });
        if let Some(key) = key {
            request = request.header("Idempotency-Key", format!("\"{key}\""));
        }
        if ephemeral {
            self.accept(request.send().await).await?;
            return Ok(None);
        }
        let answer: Answer = self.json(request).await?;
        Ok(Some(answer.position))
    }

    /// Starts listening; the answer is a stream of server-sent events. It begins after `last_event_id` if there is one.
    pub(crate) async fn subscribe(
        &self,
        channel: &Channel,
        last_event_id: Option<&str>,
    ) -> Result<Response, ClientError> {
        let mut request = self.request(Method::GET, &events_of(channel)).header(ACCEPT, "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        // Bounds the wait for the headers and each wait for the next bytes, not the whole.
        let answer = tokio::time::timeout(ANSWER, request.send()).await;
        let response = answer.map_err(|_| ClientError::Silent { url: self.url.clone(), after: ANSWER })?;
        self.accept(response).await
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let request = self.http.request(method, self.url.join(path));
        match &self.token {
            Some(token) => request.bearer_auth(token.reveal()),
            None if self.url.is_local() => request.bearer_auth(DEV_TOKEN),
            None => request,
        }
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.accept(request.send().await).await?;
        response.json().await.map_err(|source| ClientError::broken(&self.url, &source))
    }

    async fn accept(&self, response: Result<Response, reqwest::Error>) -> Result<Response, ClientError> {
        let response = response.map_err(|source| ClientError::broken(&self.url, &source))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(ClientError::refused(&self.url, self.token.is_some(), response).await)
    }
}

impl ClientArgs {
    fn resolve(self) -> Result<(NodeUrl, Option<AdminToken>), ConfigError> {
        let url = URL.parse(&self.url, NodeUrl::parse)?;
        let token = self.token.map(|token| {
            Setting::new("SWITCHBOARD_TOKEN", "--token").parse_secret(&token, AdminToken::parse)
        });
        Ok((url, token.transpose()?))
    }
}

fn events_of(channel: &Channel) -> [&str; 4] {
    ["api", "channels", channel.as_str(), "events"]
}
