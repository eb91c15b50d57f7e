//! The settings of a node's HTTP surface and of what may be published through it.

use std::ffi::OsString;
use std::fmt;

use clap::Args;
use switchboard_core::types::{Invalid, PayloadLimits};

use super::http_addr::HttpAddr;
use super::setting::{ConfigError, Setting, integer};

pub(crate) const HTTP_ADDR: Setting = Setting::new("HTTP_ADDR", "--http-addr");
pub(crate) const ADMIN_TOKEN: Setting = Setting::new("ADMIN_TOKEN", "--admin-token");
const HTTP_MAX_CONNECTIONS: Setting = Setting::new("HTTP_MAX_CONNECTIONS", "--http-max-connections");
const DURABLE_MAX_BYTES: Setting = Setting::new("DURABLE_MAX_BYTES", "--durable-max-bytes");

/// An admin token below this can be guessed.
const SHORT_TOKEN: usize = 16;

/// As given.
#[derive(Args)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct HttpArgs {
    /// Where to serve HTTP: `host:port`, `[v6]:port`, or `:port` for all interfaces. Port 0 takes a free one.
    #[arg(
        long,
        env = "HTTP_ADDR",
        hide_env_values = true,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:4000"
    )]
    http_addr: OsString,

    /// The token for admin and event routes (`Authorization: Bearer …`): 1 to 8192 bytes of visible ASCII. Without one
    /// they are closed, but for clients with tokens of their own.
    ///
    /// Prefer the variable to the flag, which every user of the machine can read.
    #[arg(long, env = "ADMIN_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    admin_token: Option<OsString>,

    /// HTTP connections at once, sockets and streams among them: 10 to 1000000. Each is an open file; what does not fit into the hard
    /// limit (`ulimit -Hn`) is left out, with a warning. A tenth, at most a hundred, is kept for short requests: a full node can be probed.
    #[arg(
        long,
        env = "HTTP_MAX_CONNECTIONS",
        hide_env_values = true,
        value_name = "COUNT",
        default_value = "12000"
    )]
    http_max_connections: OsString,

    /// Largest payload of a durable event, in bytes: 1024 to 16777216. (Ephemeral events: 65536, always.)
    #[arg(
        long,
        env = "DURABLE_MAX_BYTES",
        hide_env_values = true,
        value_name = "BYTES",
        default_value = "1048576"
    )]
    durable_max_bytes: OsString,
}

/// As checked.
#[derive(Debug)]
pub(crate) struct HttpConfig {
    pub(crate) addr: HttpAddr,
    pub(crate) admin_token: Option<AdminToken>,
    pub(crate) max_connections: usize,
    pub(crate) limits: PayloadLimits,
}

/// A token that is never shown.
#[derive(Clone)]
pub(crate) struct AdminToken(String);

impl HttpArgs {
    pub(crate) fn resolve(self) -> Result<HttpConfig, ConfigError> {
        let defaults = PayloadLimits::default();
        let durable =
            DURABLE_MAX_BYTES.parse(&self.durable_max_bytes, |text| integer(text, 1024, 16 * 1024 * 1024))?;
        Ok(HttpConfig {
            addr: HTTP_ADDR.parse(&self.http_addr, HttpAddr::parse)?,
            admin_token: self
                .admin_token
                .map(|token| ADMIN_TOKEN.parse_secret(&token, AdminToken::parse))
                .transpose()?,
            max_connections: HTTP_MAX_CONNECTIONS
                .parse(&self.http_max_connections, |text| integer(text, 10, 1_000_000))?,
            limits: PayloadLimits { durable, ..defaults },
        })
    }
}

impl AdminToken {
    /// Checks a token: it must fit into an HTTP header as it is.
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() || text.len() > 8192 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Invalid::new(
                "token",
                "(hidden)",
                "must be 1 to 8192 bytes of visible ASCII without spaces",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The secret itself.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether it is short enough to be guessed.
    pub(crate) fn is_short(&self) -> bool {
        self.0.len() < SHORT_TOKEN
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(hidden)")
    }
}
