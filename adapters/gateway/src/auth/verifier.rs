//! Whoever has a token asks here what it is worth, however it came.

use std::fmt;

use switchboard_core::access::{AuthError, Grant};
use time::OffsetDateTime;

use super::jwks::Rotation;
use super::{JwksFile, Keys, Rules};

/// Which tokens are accepted.
#[derive(Debug, Clone, Default)]
pub struct AuthConfig {
    /// Keys that stay.
    pub keys: Keys,
    /// Keys that may change while the node runs, in addition.
    pub jwks_file: Option<JwksFile>,
    /// What tokens must claim.
    pub rules: Rules,
}

/// Judges tokens. `Debug` shows no key.
#[derive(Debug)]
pub struct Verifier {
    keys: Source,
    rules: Rules,
}

enum Source {
    Lasting(Keys),
    Rotating(Rotation),
}

impl Verifier {
    /// A verifier, which reads its key file again and again as long as it lives. With one, it needs a Tokio runtime.
    pub fn new(config: AuthConfig) -> Self {
        let keys = match config.jwks_file {
            None => Source::Lasting(config.keys),
            Some(file) => Source::Rotating(Rotation::begin(file, config.keys)),
        };
        Self { keys, rules: config.rules }
    }

    /// What `token` allows, if it is accepted at `now`; then it is until [`Grant::expires`]. Does not block. The same token may be
    /// judged differently later: keys rotate, and time passes.
    pub fn verify(&self, token: &str, now: OffsetDateTime) -> Result<Grant, AuthError> {
        let claims = match &self.keys {
            Source::Lasting(keys) => keys.open(token),
            Source::Rotating(rotation) => rotation.keys().open(token),
        };
        self.rules.grant(claims?, now)
    }

    /// What somebody should look at although tokens are judged, as a clause for people.
    pub fn warning(&self) -> Option<String> {
        let Source::Rotating(rotation) = &self.keys else { return None };
        let broken = rotation.broken()?;
        Some(format!("the file of keys for tokens {broken}; the keys before it are still in use"))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lasting(keys) => keys.fmt(f),
            Self::Rotating(rotation) => rotation.keys().fmt(f),
        }
    }
}
