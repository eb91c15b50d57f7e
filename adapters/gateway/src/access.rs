//! Who may do what. Until clients have tokens of their own, the admin token opens everything.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use subtle::ConstantTimeEq;

use crate::problem::Problem;
use crate::state::Gateway;

impl Gateway {
    /// Lets pass whoever may publish and subscribe.
    pub(crate) fn admit_client(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.config().open_access {
            must_be_addressed_as_local(headers)
        } else {
            self.admit_admin(headers)
        }
    }

    /// Lets an administrator pass.
    pub(crate) fn admit_admin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.config().open_access {
            must_be_addressed_as_local(headers)?;
        }
        let configured = self.config().admin_token.as_deref();
        let Some(expected) = configured.filter(|token| !token.is_empty()) else {
            let detail = "this node has no ADMIN_TOKEN, so nobody may do this";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail));
        };
        let Some(given) = bearer(headers) else {
            return Err(refused("send the admin token as `Authorization: Bearer …`"));
        };
        // In constant time: how long a wrong token took to be refused says nothing about the right one.
        if bool::from(given.ct_eq(expected.as_bytes())) {
            Ok(())
        } else {
            Err(refused("the token is not this node's admin token"))
        }
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

fn refused(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail).with_header(header::WWW_AUTHENTICATE, "Bearer")
}

/// As bytes: a token need not be ASCII.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim_ascii())
}
