//! Who may read a node's metrics.

use std::ffi::OsString;

use clap::Args;
use switchboard_gateway::MetricsAccess;

use super::http::AdminToken;
use super::setting::{ConfigError, Setting, one_of};

const METRICS_TOKEN: Setting = Setting::new("METRICS_TOKEN", "--metrics-token");
const METRICS_OPEN: Setting = Setting::new("METRICS_OPEN", "--metrics-open");

/// As given.
#[allow(clippy::struct_field_names, reason = "the fields are the flags, and those are the variables")]
#[derive(Args)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MetricsArgs {
    /// A token that opens `/metrics` and nothing else (`Authorization: Bearer …`), for Prometheus: 1 to 8192 bytes of visible ASCII.
    /// `ADMIN_TOKEN` opens it, too.
    ///
    /// Prefer the variable to the flag, which every user of the machine can read.
    #[arg(long, env = "METRICS_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    metrics_token: Option<OsString>,

    /// Whether everybody who reaches the node may read `/metrics`: `on` or `off`. For networks that only Prometheus can reach.
    #[arg(long, env = "METRICS_OPEN", hide_env_values = true, value_name = "on|off", default_value = "off")]
    metrics_open: OsString,
}

/// As checked.
#[derive(Debug)]
pub(crate) struct MetricsConfig {
    token: Option<AdminToken>,
    open: bool,
}

impl MetricsArgs {
    pub(crate) fn resolve(self) -> Result<MetricsConfig, ConfigError> {
        let token = self.metrics_token.map(|token| METRICS_TOKEN.parse_secret(&token, AdminToken::parse));
        let words = [("on", true), ("off", false)];
        Ok(MetricsConfig {
            token: token.transpose()?,
            open: METRICS_OPEN.parse(&self.metrics_open, |text| one_of(text, &words))?,
        })
    }
}

impl MetricsConfig {
    /// For the gateway.
    pub(crate) fn access(&self) -> MetricsAccess {
        MetricsAccess { token: self.token.as_ref().map(|token| token.reveal().to_owned()), open: self.open }
    }
}
