//! Hurts a cluster for as long as asked and checks that the durable bus kept its promise.
//!
//! Nodes are processes of this very program (`node/`), so that they can be killed. They publish, subscribe and tell what they see to
//! the process that started them (`cluster.rs`), while that one does to them and to PostgreSQL what happens in life
//! (`nemesis.rs`). The verdict is the testkit's ([`switchboard_testkit::history`]).
//!
//! Exit codes: 0 every promise was kept, 1 some was not, 2 wrong usage or the run could not be done.

mod cli;
mod cluster;
mod database;
mod member;
mod nemesis;
mod node;
mod payload;
mod recording;
mod report;
mod run;
mod wire;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;
use cli::{Cli, Command};
use run::Verdict;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // What the adapter says of the faults is expected; RUST_LOG brings it back.
    let quiet = EnvFilter::new("off,switchboard_checker=info");
    let filter = EnvFilter::try_from_default_env().unwrap_or(quiet);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let outcome = runtime.block_on(async {
        match cli.command {
            Some(Command::Node) => node::run().await.map(|()| Verdict::Kept),
            None => run::run(&cli.options).await,
        }
    });
    // A node's input may still be read; nobody waits for it.
    runtime.shutdown_background();
    match outcome {
        Ok(Verdict::Kept) => ExitCode::SUCCESS,
        Ok(Verdict::Broken) => ExitCode::from(1),
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    tracing::error!("{error:#}");
    ExitCode::from(2)
}
