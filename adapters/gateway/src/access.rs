//! Who may do what, over HTTP: the admin token opens everything, a client's token what it says, and open access the channels.

use std::net::IpAddr;

use axum::extract::Query;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use serde::Deserialize;
use subtle::ConstantTimeEq;
use switchboard_core::access::{AuthError, Grant};
use time::OffsetDateTime;

use crate::metrics::MetricsAccess;
use crate::problem::Problem;
use crate::state::Gateway;

impl Gateway {
    /// What whoever sends this may do in channels.
    pub(crate) fn admit_client(&self, headers: &HeaderMap, uri: &Uri) -> Result<Grant, Problem> {
        match self.admit_anybody(headers)? {
            Some(grant) => Ok(grant),
            None => Ok(self.authenticate(headers, uri)?),
        }
    }

    /// What one may do without a token, if that is anything; or why nobody may do anything.
    pub(crate) fn admit_anybody(&self, headers: &HeaderMap) -> Result<Option<Grant>, Problem> {
        if self.config().open_access {
            must_be_addressed_as_local(headers)?;
            return Ok(Some(Grant::everything()));
        }
        if self.admin_token().is_none() && self.config().verifier.is_none() {
            let detail =
                "this node has neither keys for tokens (AUTH_…) nor an ADMIN_TOKEN, so nobody may do this";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        Ok(None)
    }

    /// What the token of a request is worth.
    ///
    /// It is taken from `Authorization: Bearer …`, the header `apikey`, or the query's `token` or `apikey`, in this order: the first that
    /// is there and not empty counts, whatever it is worth. The admin token opens nothing from a URL, which others log.
    pub(crate) fn authenticate(&self, headers: &HeaderMap, uri: &Uri) -> Result<Grant, AuthError> {
        let key = headers.get(API_KEY).map(|key| key.as_bytes().trim_ascii()).filter(|key| !key.is_empty());
        if let Some(token) = bearer(headers).or(key) {
            return self.verify(token);
        }
        let invalid = |reason: &str| AuthError::Invalid(reason.to_owned());
        let Query(query) =
            Query::<InUrl>::try_from_uri(uri).map_err(|_| invalid("the query holds more than one"))?;
        let mut tokens = [query.token, query.apikey].into_iter().flatten().filter(|token| !token.is_empty());
        let token = tokens.next().ok_or(AuthError::Missing)?;
        if self.is_admin(token.as_bytes()) {
            return Err(invalid(
                "the admin token must not be in a URL, which others log: send it in a header",
            ));
        }
        self.verify(token.as_bytes())
    }

    /// What a token is worth now, however it came, but from a URL.
    pub(crate) fn verify(&self, token: &[u8]) -> Result<Grant, AuthError> {
        if self.is_admin(token) {
            return Ok(Grant::everything());
        }
        let invalid = |reason: &str| AuthError::Invalid(reason.to_owned());
        let Some(verifier) = &self.config().verifier else {
            return Err(invalid("it is not this node's admin token, and there are no keys for others"));
        };
        let token = std::str::from_utf8(token).map_err(|_| invalid("it is no text"))?;
        verifier.verify(token, OffsetDateTime::now_utc())
    }

    /// Lets an administrator pass.
    pub(crate) fn admit_admin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.config().open_access {
            must_be_addressed_as_local(headers)?;
        }
        self.must_have_admin_token()?;
        let token = bearer(headers).ok_or(AuthError::Missing)?;
        if self.is_admin(token) {
            return Ok(());
        }
        Err(AuthError::Invalid("it is not this node's admin token".to_owned()).into())
    }

    /// Lets pass who may read the metrics.
    pub(crate) fn admit_scraper(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let MetricsAccess { token, open } = &self.config().metrics;
        if *open {
            return Ok(());
        }
        if self.config().open_access {
            return must_be_addressed_as_local(headers);
        }
        let token = token.as_deref().filter(|token| !token.is_empty());
        if token.is_none() && self.admin_token().is_none() {
            let detail = "this node has neither METRICS_TOKEN nor ADMIN_TOKEN, so nobody may read metrics; \
                METRICS_OPEN=on lets everybody";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        }
        let given = bearer(headers).ok_or(AuthError::Missing)?;
        if self.is_admin(given) || token.is_some_and(|token| given.ct_eq(token.as_bytes()).into()) {
            return Ok(());
        }
        let reason = "it is neither this node's METRICS_TOKEN nor its ADMIN_TOKEN";
        Err(AuthError::Invalid(reason.to_owned()).into())
    }

    /// Lets somebody watch the cluster: whoever is at this machine under open access, an administrator, or the browser of one. Answers when
    /// that ends.
    pub(crate) fn admit_watcher(&self, headers: &HeaderMap) -> Result<Option<OffsetDateTime>, Problem> {
        if self.config().open_access {
            must_be_addressed_as_local(headers)?;
            return Ok(None);
        }
        self.must_have_admin_token()?;
        if bearer(headers).is_some() {
            return self.admit_admin(headers).map(|()| None);
        }
        self.session(headers, OffsetDateTime::now_utc()).map(Some).ok_or_else(|| AuthError::Missing.into())
    }

    pub(crate) fn must_have_admin_token(&self) -> Result<(), Problem> {
        if self.admin_token().is_some() {
            return Ok(());
        }
        let detail = "this node has no ADMIN_TOKEN, so nobody may do this";
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }

    pub(crate) fn admin_token(&self) -> Option<&str> {
        self.config().admin_token.as_deref().filter(|token| !token.is_empty())
    }

    /// In constant time: how long a wrong token took to be refused says nothing about the right one.
    pub(crate) fn is_admin(&self, token: &[u8]) -> bool {
        self.admin_token().is_some_and(|expected| token.ct_eq(expected.as_bytes()).into())
    }
}

/// Refuses a web page that had its own name resolved to this machine, and is now of the same origin to its visitor's browser.
/// Open access has no token that it could not know; but `Host` is still the name that it came from.
fn must_be_addressed_as_local(headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()?.parse::<Authority>().ok());
    let is_local = host.as_ref().is_some_and(|host| {
        let host = host.host().trim_matches(['[', ']']);
        host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
    });
    if is_local {
        return Ok(());
    }
    let detail = "without tokens, this node must be called localhost or by its address (`Host`), so that no foreign web page can pass";
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        let (status, challenge) = match error {
            AuthError::Missing => (StatusCode::UNAUTHORIZED, "Bearer"),
            AuthError::Forbidden { .. } => (StatusCode::FORBIDDEN, "Bearer error=\"insufficient_scope\""),
            _ => (StatusCode::UNAUTHORIZED, "Bearer error=\"invalid_token\""),
        };
        let detail = match error {
            AuthError::Missing => format!("{error}: send it as `Authorization: Bearer …`"),
            _ => error.to_string(),
        };
        Self::new(status, detail)
            .with("reason", error.kind().to_owned())
            .with_header(header::WWW_AUTHENTICATE, challenge)
    }
}

/// Where clients of Supabase put a key.
const API_KEY: &str = "apikey";

/// Where those put a token that cannot set headers.
#[derive(Deserialize)]
struct InUrl {
    token: Option<String>,
    apikey: Option<String>,
}

/// `None` if there is none, or an empty one. As bytes: a token need not be ASCII.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked(SCHEME.len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(SCHEME) && !token.is_empty()).then_some(token)
}
