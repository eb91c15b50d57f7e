//! `switchboard migrate`: what a node does at its start, for those whose nodes may not run DDL.

use std::process::ExitCode;

use anyhow::anyhow;
use switchboard_core::types::{NodeId, PayloadLimits};
use switchboard_postgres::{migrate, schema};

use crate::config::DatabaseArgs;
use crate::output;

/// What it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,

    /// Print the SQL that creates the schema from nothing, and connect to nothing.
    #[arg(long)]
    print: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.print {
        output::line(schema::print(&args.database.schema()?).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let database = args.database.resolve()?;
    // The message of the adapter says all; the causes would say it again.
    let config = database.for_node(NodeId::parse("migrate")?, PayloadLimits::default());
    let found =
        migrate(&config).await.map_err(|error| anyhow!("cannot migrate {}: {error}", database.dsn))?;
    let name = &database.schema;
    output::line(match found {
        0 => format!("created schema {name} at version {}", schema::SCHEMA_VERSION),
        schema::SCHEMA_VERSION => format!("schema {name} is at version {found} already"),
        _ => format!("upgraded schema {name} from version {found} to {}", schema::SCHEMA_VERSION),
    })?;
    Ok(ExitCode::SUCCESS)
}
