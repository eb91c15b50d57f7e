//! The settings of the log: how much, and in which form.

use std::ffi::OsString;

use clap::Args;
use switchboard_core::types::Invalid;
use tracing_subscriber::EnvFilter;

use super::setting::{ConfigError, Setting, one_of};

const LOG_LEVEL: Setting = Setting::new("LOG_LEVEL", "--log-level");
const LOG_FORMAT: Setting = Setting::new("LOG_FORMAT", "--log-format");

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// As given.
#[derive(Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct LogArgs {
    /// What to log to stderr: off, error, warn, info, debug or trace, also by module (`info,switchboard_postgres=debug`).
    #[arg(
        long,
        env = "LOG_LEVEL",
        hide_env_values = true,
        value_name = "FILTER",
        default_value = "info,sqlx=warn"
    )]
    log_level: OsString,

    /// The form of the log: `text` or `json` (one object a line).
    #[arg(
        long,
        env = "LOG_FORMAT",
        hide_env_values = true,
        value_name = "text|json",
        default_value = "text"
    )]
    log_format: OsString,
}

/// As checked.
#[derive(Debug)]
pub(crate) struct LogConfig {
    pub(crate) filter: EnvFilter,
    pub(crate) format: LogFormat,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl LogArgs {
    pub(crate) fn resolve(self) -> Result<LogConfig, ConfigError> {
        Ok(LogConfig {
            filter: LOG_LEVEL.parse(&self.log_level, parse_filter)?,
            format: LOG_FORMAT.parse(&self.log_format, |text| {
                one_of(text, &[("text", LogFormat::Text), ("json", LogFormat::Json)])
            })?,
        })
    }
}

/// The filter's own parser takes a misspelt level for the name of a module; a module must come with a level here.
fn parse_filter(text: &str) -> Result<EnvFilter, Invalid> {
    let known = |part: &str| part.contains('=') || LEVELS.contains(&part.to_ascii_lowercase().as_str());
    let filter = text.split(',').all(known).then(|| EnvFilter::try_new(text).ok()).flatten();
    filter.ok_or_else(|| {
        let rule =
            format!("must be {}, also by module as in info,switchboard_postgres=debug", LEVELS.join(", "));
        Invalid::new("filter", text, rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_level_is_not_taken_for_a_module() {
        for good in ["off", "INFO", "warn,switchboard_postgres=debug", "switchboard=trace"] {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in ["", "inof", "3", "info,", "switchboard", "switchboard=loud", "info debug"] {
            assert!(parse_filter(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
