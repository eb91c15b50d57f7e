//! The command line: which commands there are. What each takes stands with the command.

use clap::{Parser, Subcommand};

use crate::commands::{dev, doctor, health, migrate, nodes, publish, tail, token, top};
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
    ///
    /// Starts a private PostgreSQL and nodes that use it, each a process of its own, so that one can be killed to see what happens.
    /// Ends its report with `cluster ready: N nodes`. Ctrl-C, SIGTERM or SIGHUP stops everything it started.
    ///
    /// Nodes take the settings of `switchboard serve` from the environment. With `DATABASE_URL` that database is used instead of a
    /// private one. Clients on this machine need no token; the admin token is `dev` unless `ADMIN_TOKEN` is set.
    Dev(dev::Args),
    /// Ask a node whether it is ready.
    ///
    /// Prints its answer. Exits 0 if it is, 1 if it is not, or does not answer within 5 s. For health checks of containers.
    Health(health::Args),
    /// Show every node of a cluster, in the order in which they joined.
    Nodes(nodes::Args),
    /// Watch a cluster: its nodes, their traffic, the mesh, the NOTIFY queue.
    ///
    /// In a terminal, until `q` or Ctrl-C. Elsewhere each look is one line for each node, its fields separated by tabs.
    /// A node that goes away is shown, and so is why there is nothing new to show.
    Top(top::Args),
    /// Publish an event, and print its position.
    ///
    /// A durable event is stored when this returns, and every subscriber gets it.
    Publish(publish::Args),
    /// Print the events of a channel as they come.
    ///
    /// Each is one line: its position (- if it is ephemeral), its name and its payload, separated by tabs. When the node goes away
    /// it tries again until it is back, and misses no durable event after the last one printed. What else there is to say goes to
    /// standard error. Ends with Ctrl-C, or when nobody reads its output.
    Tail(tail::Args),
    /// Make a token for a client, and print it.
    ///
    /// It is signed with `AUTH_JWT_SECRET` or a private key, and nodes that know the secret or the public key let its holder do
    /// what it says until it expires. Asks no node and no database.
    Token(token::Args),
    /// Create or upgrade the schema.
    ///
    /// Nodes do it by themselves where their user may. Where not, run this as one who may, then grant the nodes' user the
    /// rights that `switchboard doctor` lists. Does nothing if the schema is up to date.
    Migrate(migrate::Args),
    /// Check a PostgreSQL from where the node stands.
    ///
    /// Prints one line for each finding, with what to do about it. Exits 1 if a node would not work.
    Doctor(doctor::Args),
}
