//! Who may do what. Until clients have tokens of their own, the admin token opens everything.

use axum::http::{HeaderMap, StatusCode, header};
use subtle::ConstantTimeEq;

use crate::problem::Problem;
use crate::state::{Gateway, GatewayConfig};

impl Gateway {
    /// Lets an administrator pass.
    pub(crate) fn admit_admin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let passed = check(self.config(), headers);
        if passed.is_err() {
            self.counts().refused.increment();
        }
        passed
    }

    /// Lets pass whoever may publish and subscribe.
    pub(crate) fn admit_client(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.config().open_access { Ok(()) } else { self.admit_admin(headers) }
    }
}

fn check(config: &GatewayConfig, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(expected) = &config.admin_token else {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "this node has no ADMIN_TOKEN, so nobody may do this",
        ));
    };
    let refused = |detail| {
        Problem::new(StatusCode::UNAUTHORIZED, detail).with_header(header::WWW_AUTHENTICATE, "Bearer")
    };
    let Some(given) = bearer(headers) else {
        return Err(refused("send the admin token as `Authorization: Bearer …`"));
    };
    // In constant time: how long a wrong token took to be refused says nothing about the right one.
    if bool::from(given.as_bytes().ct_eq(expected.as_bytes())) {
        Ok(())
    } else {
        Err(refused("the token is not this node's admin token"))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
