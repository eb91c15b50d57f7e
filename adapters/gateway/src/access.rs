//! Who may do what. Until clients have tokens of their own, the admin token opens everything.

use axum::http::{HeaderMap, StatusCode, header};
use subtle::ConstantTimeEq;

use crate::problem::Problem;
use crate::state::Gateway;

impl Gateway {
    /// Lets pass whoever may publish and subscribe.
    pub(crate) fn admit_client(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.config().open_access { Ok(()) } else { self.admit_admin(headers) }
    }

    /// Lets an administrator pass.
    pub(crate) fn admit_admin(&self, headers: &HeaderMap) -> Result<(), Problem> {
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

fn refused(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, detail).with_header(header::WWW_AUTHENTICATE, "Bearer")
}

/// As bytes: a token need not be ASCII.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim_ascii())
}
