//! The commands, one file each: what it takes, what it does, from top to bottom.

pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod health;
pub(crate) mod migrate;
pub(crate) mod nodes;
pub(crate) mod publish;
mod serve;
pub(crate) mod tail;
pub(crate) mod token;
pub(crate) mod top;

use std::process::ExitCode;

use crate::cli::Command;

/// Runs one command. The error is for the person at the terminal.
pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Serve(args) => serve::run(*args).await,
        Command::Dev(args) => dev::run(args).await,
        Command::Health(args) => health::run(args).await,
        Command::Nodes(args) => nodes::run(args).await,
        Command::Top(args) => top::run(args).await,
        Command::Publish(args) => publish::run(args).await,
        Command::Tail(args) => tail::run(args).await,
        Command::Token(args) => token::run(&args),
        Command::Migrate(args) => migrate::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
    }
}
