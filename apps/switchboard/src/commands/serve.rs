//! `switchboard serve`: one node. What it takes is the configuration, what it does is the `node` module.

use std::process::ExitCode;

use tracing::error;

use crate::config::ServeArgs;
use crate::node;
use crate::stop::Stop;
use crate::telemetry;

pub(super) async fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let (config, logs) = args.resolve()?;
    telemetry::init(logs);
    let stop = Stop::listen(config.exit_with_stdin)?;
    config.log();
    let outcome = tokio::select! {
        outcome = node::run(config, &stop) => outcome,
        reason = stop.insisted() => {
            error!(%reason, "asked twice to stop: exiting at once");
            return Ok(ExitCode::from(reason.exit_code()));
        }
    };
    // From here on the log is where one looks, in the form that was asked for.
    outcome.or_else(|error| {
        error!("{error:#}");
        Ok(ExitCode::FAILURE)
    })
}
