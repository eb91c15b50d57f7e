//! Errors as problem documents (RFC 9457).

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use switchboard_core::ports::{DurableError, EphemeralError, RegistryError};
use switchboard_core::types::Invalid;
use tokio::time::timeout;
use utoipa::ToSchema;

/// Why a request was not served: a status, a sentence for people, and at most one member and one header for programs.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    member: Option<(&'static str, String)>,
    header: Option<(HeaderName, &'static str)>,
    message: bool,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), member: None, header: None, message: false }
    }

    /// The node cannot do it now; another one may, or this one later.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_header(header::RETRY_AFTER, "1")
    }

    /// What `work` answers, unless that takes longer than `limit`: then it is given up, which does not say that it was not done.
    pub(crate) async fn unless_within<T, E: Into<Self>>(
        limit: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Self> {
        match timeout(limit, work).await {
            Ok(done) => done.map_err(Into::into),
            Err(_elapsed) => Err(Self::unavailable(format!(
                "no answer within {limit:?}; what was asked for may be done nevertheless"
            ))),
        }
    }

    /// The sentence for people.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Adds one member for programs.
    pub(crate) fn with(mut self, member: &'static str, value: String) -> Self {
        self.member = Some((member, value));
        self
    }

    /// Repeats the detail as `message`, which clients of Supabase show.
    pub(crate) fn with_message(mut self) -> Self {
        self.message = true;
        self
    }

    /// Adds one header.
    pub(crate) fn with_header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.header = Some((name, value));
        self
    }
}

/// Why a request was not served (RFC 9457). `detail` is for people, what follows it for programs.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Document {
    title: &'static str,
    status: u16,
    detail: String,
    /// Repeats `detail`, for clients of Supabase.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Of a token or an origin that was refused: `missing`, `invalid`, `expired`, `not_yet_valid`, `forbidden` or `origin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The oldest position that remains.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest: Option<String>,
    /// Where the history ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<String>,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let member =
            |name| self.member.as_ref().filter(|(known, _)| *known == name).map(|(_, value)| value.clone());
        let body = Document {
            title: self.status.canonical_reason().unwrap_or("error"),
            status: self.status.as_u16(),
            message: self.message.then(|| self.detail.clone()),
            reason: member("reason"),
            oldest: member("oldest"),
            head: member("head"),
            detail: self.detail,
        };
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some((name, value)) = self.header {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// A value in the URL or the body breaks a rule; a payload that is too large has its own status.
impl From<Invalid> for Problem {
    fn from(error: Invalid) -> Self {
        let too_large = error.what() == "payload" && error.rule().starts_with("must be at most");
        let status = if too_large { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::UNPROCESSABLE_ENTITY };
        Self::new(status, error.to_string())
    }
}

impl From<DurableError> for Problem {
    fn from(error: DurableError) -> Self {
        match error {
            DurableError::Rejected(error) => error.into(),
            DurableError::Unavailable(_) => Self::unavailable(error.to_string()),
        }
    }
}

impl From<EphemeralError> for Problem {
    fn from(error: EphemeralError) -> Self {
        match error {
            EphemeralError::Rejected(error) => error.into(),
            EphemeralError::Closed => Self::unavailable(error.to_string()),
        }
    }
}

impl From<RegistryError> for Problem {
    fn from(error: RegistryError) -> Self {
        Self::unavailable(error.to_string())
    }
}

pub(crate) async fn not_found(uri: Uri) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("there is nothing at {:.200}", uri.path()))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{:.20} is not for {:.200}", method.as_str(), uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
