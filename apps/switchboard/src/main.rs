//! The `switchboard` binary: one node, a whole cluster for development, and the tools to look at it.
//!
//! The only place that names concrete adapters. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

mod cli;
mod client;
mod commands;
mod config;
mod dev;
mod node;
mod output;
mod stop;
mod telemetry;
mod top;
mod traces;

use std::process::ExitCode;

use clap::Parser;
use cli::Cli;
use config::ConfigError;
use switchboard_core::types::Invalid;

/// Keeps memory of a long-lived server from fragmenting, and keeps books that the gauges read.
#[cfg(any(target_os = "linux", target_os = "macos"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // The HTTP client and the downloader share it. Fails only if there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&anyhow::Error::new(error).context("cannot start the runtime")),
    };
    let outcome = runtime.block_on(commands::run(cli.command));
    // Whatever still blocks (a name that is being resolved) is not waited for.
    runtime.shutdown_background();
    outcome.unwrap_or_else(|error| fail(&error))
}

fn fail(error: &anyhow::Error) -> ExitCode {
    if output::is_closed(error) {
        return ExitCode::SUCCESS;
    }
    output::note(format_args!("error: {error:#}"));
    let is_wrong_usage = error.is::<ConfigError>() || error.is::<Invalid>();
    ExitCode::from(if is_wrong_usage { 2 } else { 1 })
}
