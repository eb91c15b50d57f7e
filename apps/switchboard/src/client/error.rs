//! Why a node did not do what was asked, in words that say what to do next.

use std::error::Error;
use std::time::Duration;

use reqwest::{Response, StatusCode};

use super::url::NodeUrl;

/// Longest part of an unexpected answer that a message repeats, in characters.
const EXCERPT: usize = 200;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Nobody answered, or the answer broke off.
    #[error("cannot reach a node at {url}: {reason}{}", if *connected { "" } else { "; is a node running there? (--url says where to look)" })]
    Unreachable { url: NodeUrl, reason: String, connected: bool },
    /// A stream broke off.
    #[error("lost the connection to the node at {url}: {reason}")]
    Lost { url: NodeUrl, reason: String },
    /// Somebody accepted the connection and then said nothing.
    #[error("the node at {url} did not answer within {after:?}")]
    Silent { url: NodeUrl, after: Duration },
    /// The answer is not one that a node gives.
    #[error("the answer of {url} is not that of a node: {reason}; check the URL")]
    Strange { url: NodeUrl, reason: String },
    /// The token is missing or wrong.
    #[error("the node at {url} wants {}", if *had_token { "another token: SWITCHBOARD_TOKEN must be its ADMIN_TOKEN, or one with rights in the channel that has not expired" } else { "a token: set SWITCHBOARD_TOKEN to its ADMIN_TOKEN" })]
    Unauthorized { url: NodeUrl, had_token: bool },
    /// The node said no, or that it cannot now.
    #[error("the node at {url} answered {status}{}", if message.is_empty() { String::new() } else { format!(": {message}") })]
    Refused { url: NodeUrl, status: StatusCode, message: String },
}

impl ClientError {
    /// A stream that had begun went wrong.
    pub(crate) fn lost(url: &NodeUrl, source: &reqwest::Error) -> Self {
        Self::Lost { url: url.clone(), reason: innermost(source) }
    }

    /// No connection, or no answer, or one that is no good.
    pub(super) fn broken(url: &NodeUrl, source: &reqwest::Error) -> Self {
        let url = url.clone();
        let reason = innermost(source);
        if source.is_decode() {
            return Self::Strange { url, reason };
        }
        Self::Unreachable { url, reason, connected: !source.is_connect() }
    }

    pub(super) async fn refused(url: &NodeUrl, had_token: bool, response: Response) -> Self {
        let url = url.clone();
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED {
            return Self::Unauthorized { url, had_token };
        }
        let body = response.text().await.unwrap_or_default();
        Self::Refused { url, status, message: message_in(&body) }
    }

    /// Whether the same may succeed later, at this node or at another behind the same URL.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } | Self::Silent { .. } => true,
            Self::Refused { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            Self::Strange { .. } | Self::Unauthorized { .. } => false,
        }
    }
}

/// Nodes answer problem documents; what stands between may answer anything.
fn message_in(body: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Problem {
        detail: String,
    }
    let message =
        serde_json::from_str(body).map_or_else(|_| body.to_owned(), |problem: Problem| problem.detail);
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(EXCERPT).collect()
}

/// The cause at the bottom is the one a person can do something about.
fn innermost(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
