//! The settings of clients' tokens: the keys they are signed with, what they must claim, and which web pages may come in.

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use clap::Args;
use switchboard_core::types::Invalid;
use switchboard_gateway::Origins;
use switchboard_gateway::auth::{self, JwksFile, Keys, Rules};

use super::duration;
use super::setting::{ConfigError, Setting};

pub(crate) const AUTH_JWT_SECRET: Setting = Setting::new("AUTH_JWT_SECRET", "--auth-jwt-secret");
const AUTH_JWT_PUBLIC_KEY_FILE: Setting =
    Setting::new("AUTH_JWT_PUBLIC_KEY_FILE", "--auth-jwt-public-key-file");
const AUTH_JWKS_FILE: Setting = Setting::new("AUTH_JWKS_FILE", "--auth-jwks-file");
const AUTH_AUDIENCE: Setting = Setting::new("AUTH_AUDIENCE", "--auth-audience");
const AUTH_ISSUER: Setting = Setting::new("AUTH_ISSUER", "--auth-issuer");
const AUTH_LEEWAY: Setting = Setting::new("AUTH_LEEWAY", "--auth-leeway");
const AUTH_ORIGINS: Setting = Setting::new("AUTH_ORIGINS", "--auth-origins");

/// Clocks that are further apart are broken.
const MAX_LEEWAY: Duration = Duration::from_mins(5);

/// As given.
#[derive(Args)]
#[command(next_help_heading = "Tokens of clients")]
#[allow(clippy::struct_field_names, reason = "the flags are named after the fields")]
pub(crate) struct AuthArgs {
    /// The secret that tokens are signed with (HS256): at least 32 bytes.
    ///
    /// Prefer the variable to the flag, which every user of the machine can read.
    #[arg(long, env = "AUTH_JWT_SECRET", hide_env_values = true, value_name = "SECRET")]
    auth_jwt_secret: Option<OsString>,

    /// A file of public keys that tokens are signed with, in PEM: RSA (RS256), P-256 (ES256) or Ed25519 (EdDSA).
    #[arg(long, env = "AUTH_JWT_PUBLIC_KEY_FILE", hide_env_values = true, value_name = "FILE")]
    auth_jwt_public_key_file: Option<OsString>,

    /// A file with a JSON Web Key Set, which is read again when it changes.
    ///
    /// While it is broken, the keys before it stay, and /health says so.
    #[arg(long, env = "AUTH_JWKS_FILE", hide_env_values = true, value_name = "FILE")]
    auth_jwks_file: Option<OsString>,

    /// What the claim `aud` of tokens must be, or hold. Without it, that is not looked at.
    #[arg(long, env = "AUTH_AUDIENCE", hide_env_values = true, value_name = "NAME")]
    auth_audience: Option<OsString>,

    /// What the claim `iss` of tokens must be. Without it, that is not looked at.
    #[arg(long, env = "AUTH_ISSUER", hide_env_values = true, value_name = "NAME")]
    auth_issuer: Option<OsString>,

    /// How far clocks may be apart, up to 5m: how much earlier than `nbf` and later than `exp` a token is accepted.
    #[arg(long, env = "AUTH_LEEWAY", hide_env_values = true, value_name = "DURATION", default_value = "0s")]
    auth_leeway: OsString,

    /// The web pages of other origins that may use this node, such as `https://app.example,http://localhost:5173`; or `*` for all.
    ///
    /// A page's origin is compared exactly. Pages that are served from where this node is need not be listed; behind a proxy that
    /// changes `Host` they must be.
    #[arg(long, env = "AUTH_ORIGINS", hide_env_values = true, value_name = "ORIGINS")]
    auth_origins: Option<OsString>,
}

/// As checked.
#[derive(Debug)]
pub(crate) struct AuthConfig {
    /// `None` if there are no keys: then nobody has a token.
    pub(crate) tokens: Option<auth::AuthConfig>,
    pub(crate) origins: Origins,
}

impl AuthArgs {
    pub(crate) fn resolve(self) -> Result<AuthConfig, ConfigError> {
        let secret = self.auth_jwt_secret.map(|secret| AUTH_JWT_SECRET.parse_secret(&secret, Keys::secret));
        let public = self.auth_jwt_public_key_file.map(|path| {
            let text = fs::read_to_string(&path).map_err(|error| {
                AUTH_JWT_PUBLIC_KEY_FILE.refuse(&path.to_string_lossy(), &format!("cannot be read: {error}"))
            })?;
            Keys::pem(&text)
                .map_err(|error| AUTH_JWT_PUBLIC_KEY_FILE.refuse(&path.to_string_lossy(), error.rule()))
        });
        let jwks_file = self.auth_jwks_file.map(|path| {
            JwksFile::open(&path)
                .map_err(|error| AUTH_JWKS_FILE.refuse(&path.to_string_lossy(), &error.to_string()))
        });
        let jwks_file = jwks_file.transpose()?;
        let keys = secret.transpose()?.unwrap_or_default().and(&public.transpose()?.unwrap_or_default());
        let has_keys = !keys.is_empty() || jwks_file.is_some();
        // Without keys it would have no effect, and look as if it had.
        let expected = |setting: Setting, value: Option<OsString>| match value {
            Some(value) if !has_keys => Err(setting.refuse(
                &value.to_string_lossy(),
                "must come with AUTH_JWT_SECRET, AUTH_JWT_PUBLIC_KEY_FILE or AUTH_JWKS_FILE",
            )),
            Some(value) => setting.parse(&value, claim).map(Some),
            None => Ok(None),
        };
        let rules = Rules {
            audience: expected(AUTH_AUDIENCE, self.auth_audience)?,
            issuer: expected(AUTH_ISSUER, self.auth_issuer)?,
            leeway: AUTH_LEEWAY.parse(&self.auth_leeway, |text| duration::parse_at_most(text, MAX_LEEWAY))?,
            ..Rules::default()
        };
        let origins = self.auth_origins.map(|origins| AUTH_ORIGINS.parse(&origins, Origins::parse));
        Ok(AuthConfig {
            tokens: has_keys.then_some(auth::AuthConfig { keys, jwks_file, rules }),
            origins: origins.transpose()?.unwrap_or_default(),
        })
    }
}

/// Reads what a claim is compared with.
pub(crate) fn claim(text: &str) -> Result<String, Invalid> {
    if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
        return Err(Invalid::new("claim", text, "must be 1 to 255 bytes without control characters"));
    }
    Ok(text.to_owned())
}
