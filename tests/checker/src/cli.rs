//! What may be asked for.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One node, told what to do on its standard input.
    #[command(hide = true)]
    Node,
}

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long the cluster is hurt, in minutes; added to --seconds.
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// How long the cluster is hurt, in seconds [default: 60 if --minutes is not given].
    #[arg(long)]
    seconds: Option<u64>,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub(crate) nodes: u8,
    /// Channels, each followed by two subscribers on every node.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) channels: u16,
    /// Publishers on every node, of three kinds in turn: through the bus, in transactions of their own, in single statements.
    #[arg(long, default_value_t = 6)]
    pub(crate) publishers: u16,
    /// Repeats the choices of an earlier run, though not its timing.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// A server to use instead of a private one. It is not restarted; a schema of its own is left behind if something is wrong.
    #[arg(long)]
    pub(crate) database_url: Option<String>,
}

impl Options {
    pub(crate) fn duration(&self) -> Duration {
        let seconds = self.seconds.unwrap_or(if self.minutes == 0 { 60 } else { 0 });
        Duration::from_secs(self.minutes * 60 + seconds)
    }
}
