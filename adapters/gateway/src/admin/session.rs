//! The session of an administrator's browser: a signed cookie that says when it ends, and nothing else.
//!
//! There is nothing to store. The key is derived from the admin token, so every node accepts the sessions of every other, and a new token
//! ends them all. Signing out takes the cookie from the browser; one that was stolen before is worth something until it ends.

use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ring::hmac;
use serde::{Deserialize, Serialize};
use switchboard_core::access::AuthError;
use switchboard_core::types::NodeId;
use time::OffsetDateTime;

use crate::origin;
use crate::problem::Problem;
use crate::request;
use crate::state::Gateway;

/// Largest body of an attempt to sign in, in bytes.
pub(super) const BODY: usize = 16 * 1024;

const COOKIE: &str = "switchboard_admin";

/// How long a session lasts: a working day.
const LIFETIME: Duration = Duration::from_hours(12);

/// What the key is for. Another format of the cookie needs another.
const PURPOSE: &[u8] = b"switchboard: sessions of administrators, version 1";

impl Gateway {
    /// When the session of this browser ends, if it has one.
    pub(crate) fn session(&self, headers: &HeaderMap, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let key = key(self.admin_token()?);
        cookies(headers).find_map(|value| open(&key, value)).filter(|expires| *expires > now)
    }
}

/// What the page can do before it asks for anything that could be refused.
#[derive(Serialize)]
pub(super) struct Session {
    node_id: NodeId,
    /// `open` without a token, `signed_in`, `signed_out`, or `closed` to everybody.
    access: &'static str,
}

pub(super) async fn session(
    State(gateway): State<Gateway>,
    headers: HeaderMap,
) -> Result<Json<Session>, Problem> {
    origin::must_not_be_embedded(&headers)?;
    let access = match gateway.admit_watcher(&headers) {
        Ok(_) if gateway.config().open_access => "open",
        Ok(_) => "signed_in",
        Err(problem) if gateway.config().open_access => return Err(problem),
        Err(_) if gateway.admin_token().is_none() => "closed",
        Err(_) => "signed_out",
    };
    Ok(Json(Session { node_id: gateway.config().node_id.clone(), access }))
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

/// Takes the token from the body: URLs are logged. (The type of the body is one that no form of a foreign page can send.)
pub(super) async fn login(State(gateway): State<Gateway>, request: Request) -> Result<Response, Problem> {
    gateway.must_have_admin_token()?;
    gateway.admit_login()?;
    let secure = is_https(request.headers());
    let body = request::json(request, BODY).await?;
    // The error could repeat the token.
    let Login { token } = serde_json::from_slice(&body).map_err(|_error| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, r#"the body must be {"token": the admin token}"#)
    })?;
    let admin_token = gateway.admin_token().filter(|_| gateway.is_admin(token.as_bytes()));
    let Some(admin_token) = admin_token else {
        return Err(AuthError::Invalid("it is not this node's admin token".to_owned()).into());
    };
    let value = seal(&key(admin_token), OffsetDateTime::now_utc() + LIFETIME);
    Ok(with_cookie(&value, LIFETIME, secure))
}

pub(super) async fn logout(headers: HeaderMap) -> Response {
    with_cookie("", Duration::ZERO, is_https(&headers))
}

fn with_cookie(value: &str, age: Duration, secure: bool) -> Response {
    let secure = if secure { "; Secure" } else { "" };
    let age = age.as_secs();
    let cookie = format!("{COOKIE}={value}; Max-Age={age}; Path=/admin; HttpOnly; SameSite=Strict{secure}");
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()
}

fn key(admin_token: &str) -> hmac::Key {
    let token = hmac::Key::new(hmac::HMAC_SHA256, admin_token.as_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&token, PURPOSE).as_ref())
}

fn seal(key: &hmac::Key, expires: OffsetDateTime) -> String {
    let expires = expires.unix_timestamp().to_string();
    let signature = BASE64.encode(hmac::sign(key, expires.as_bytes()));
    format!("{expires}.{signature}")
}

fn open(key: &hmac::Key, value: &str) -> Option<OffsetDateTime> {
    let (expires, signature) = value.split_once('.')?;
    hmac::verify(key, expires.as_bytes(), &BASE64.decode(signature).ok()?).ok()?;
    OffsetDateTime::from_unix_timestamp(expires.parse().ok()?).ok()
}

/// All of that name: whoever serves the same host can add one, and must not be able to lock anybody out by it.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let headers = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = headers.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// As far as the node can know: TLS ends in front of it.
fn is_https(headers: &HeaderMap) -> bool {
    let starts = |name: &str, prefix: &[u8]| {
        headers.get(name).is_some_and(|value| value.as_bytes().to_ascii_lowercase().starts_with(prefix))
    };
    starts("origin", b"https://") || starts("x-forwarded-proto", b"https")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: OffsetDateTime = time::macros::datetime!(2026-01-02 12:00 UTC);

    #[test]
    fn a_sealed_cookie_opens_under_the_same_token_alone() {
        let sealed = seal(&key("token"), NOON);
        assert_eq!(open(&key("token"), &sealed), Some(NOON));
        assert_eq!(open(&key("token2"), &sealed), None);
    }

    #[test]
    fn whatever_was_changed_opens_nothing() {
        let key = key("token");
        let sealed = seal(&key, NOON);
        let (expires, signature) = sealed.split_once('.').unwrap();
        for changed in [
            String::new(),
            ".".to_owned(),
            expires.to_owned(),
            format!("{expires}."),
            format!("{expires}0.{signature}"),
            format!("+{expires}.{signature}"),
            format!("{expires}.{signature}A"),
            format!("{expires}.{signature}="),
            format!("{expires}.{}", signature.to_lowercase()),
            format!("99999999999999999999.{signature}"),
        ] {
            assert_eq!(open(&key, &changed), None, "{changed}");
        }
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append("cookie", "a=1; switchboard_admin=x; switchboard_admin_=n".parse().unwrap());
        headers.append("cookie", "switchboard_admin=y=z".parse().unwrap());
        assert_eq!(cookies(&headers).collect::<Vec<_>>(), ["x", "y=z"]);
    }
}
