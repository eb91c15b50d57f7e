//! `switchboard migrate`: what a node does at its start, for those whose nodes may not run DDL.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use switchboard_postgres::{PostgresError, SchemaName, schema};
use tokio::time::timeout;

use crate::config::{DatabaseArgs, DatabaseConfig};
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
    let found =
        migrate(&database).await.map_err(|error| anyhow!("cannot migrate {}: {error}", database.dsn))?;
    let name = &database.schema;
    output::line(match found {
        0 => format!("created schema {name} at version {}", schema::SCHEMA_VERSION),
        schema::SCHEMA_VERSION => format!("schema {name} is at version {found} already"),
        _ => format!("upgraded schema {name} from version {found} to {}", schema::SCHEMA_VERSION),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Upgrades on the first host that lets us; a standby does not. Answers the version found before.
async fn migrate(database: &DatabaseConfig) -> Result<i32, PostgresError> {
    let dsn = database.session_dsn.as_ref().unwrap_or(&database.dsn);
    let mut failure = PostgresError::Unsuitable("the database URL names no host".to_owned());
    for host in dsn.hosts() {
        match migrate_at(host, &database.schema, dsn.connect_timeout()).await {
            Ok(found) => return Ok(found),
            // What passes by itself (a host that is down) tells less than what does not.
            Err(error) => {
                if failure.is_transient() || matches!(failure, PostgresError::Unsuitable(_)) {
                    failure = error;
                }
            }
        }
    }
    Err(failure)
}

async fn migrate_at(
    host: &PgConnectOptions,
    name: &SchemaName,
    patience: Duration,
) -> Result<i32, PostgresError> {
    let options = host.clone().application_name("switchboard migrate");
    let connecting = timeout(patience, PgConnection::connect_with(&options));
    let mut connection = connecting.await.map_err(|_| PostgresError::Timeout(patience))??;
    let found = schema::migrate(&mut connection, name).await?;
    // The work is done; how the connection ends changes nothing.
    let _ = timeout(patience, connection.close()).await;
    Ok(found)
}
