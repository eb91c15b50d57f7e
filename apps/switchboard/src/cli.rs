//! The command line: which commands there are. What each takes stands with the command.

use clap::{Parser, Subcommand};

use crate::commands::{dev, doctor, migrate, nodes, publish, tail};
use crate::config::ServeArgs;

/// A cluster of realtime servers coordinated by PostgreSQL and nothing else.
#[derive(Parser)]
#[command(name = "switchboard", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run one node.
    ///
    /// Every setting is an environment variable and the flag of the same name. A wrong value stops the start with one message;
    /// the exit code is then 2. SIGTERM, SIGINT and SIGHUP make the node leave the cluster and exit 0, a second one ends it at
    /// once. A node that was evicted, or whose id is in use, exits 1.
    Serve(Box<ServeArgs>),
    /// Run a whole cluster on this machine, with a PostgreSQL of its own.
    Dev(dev::Args),
    /// Show the nodes of a cluster.
    Nodes(nodes::Args),
    /// Publish an event.
    Publish(publish::Args),
    /// Print the events of a channel as they come.
    Tail(tail::Args),
    /// Create or upgrade the schema, as a user who may.
    Migrate(migrate::Args),
    /// Check a PostgreSQL from where the node stands, and say what to do about what is found.
    Doctor(doctor::Args),
}
