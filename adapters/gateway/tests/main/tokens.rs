//! Tokens for tests, and a node that accepts them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use switchboard_gateway::GatewayConfig;
use switchboard_gateway::auth::{AuthConfig, Keys, Rules, Signer, Verifier};
use time::OffsetDateTime;

use crate::server::config;

/// The fixtures' secret.
pub(crate) const SECRET: &str = "a secret for tests, 32 bytes or more";

pub(crate) fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A node that accepts tokens by [`SECRET`].
pub(crate) fn with_tokens() -> GatewayConfig {
    with_leeway(Duration::ZERO)
}

pub(crate) fn with_leeway(leeway: Duration) -> GatewayConfig {
    let rules = Rules { leeway, ..Rules::default() };
    let verifier = Verifier::new(AuthConfig { keys: Keys::secret(SECRET).unwrap(), jwks_file: None, rules });
    GatewayConfig { verifier: Some(Arc::new(verifier)), ..config() }
}

/// A token that makes these claims.
pub(crate) fn sign(claims: &Value) -> String {
    Signer::secret(SECRET).unwrap().sign(claims).unwrap()
}

/// A token for these channels that expires `from_now`, in seconds.
pub(crate) fn expiring(channels: &Value, from_now: f64) -> String {
    let now = OffsetDateTime::now_utc().unix_timestamp_nanos();
    #[allow(clippy::cast_precision_loss, reason = "to the microsecond is enough")]
    let exp = now as f64 / 1e9 + from_now;
    sign(&json!({"sub": "alice", "exp": exp, "channels": channels}))
}

/// A token for these channels.
pub(crate) fn token(channels: &Value) -> String {
    expiring(channels, 600.0)
}
