//! The cluster's schema: its name, its versions, and how it is created by many nodes at once.
//!
//! Not `sqlx::migrate!`, because every object lives in a schema whose name is configured: the statements are templates.
//! Migrations are additive, so that an older node keeps working while a newer one upgrades the schema under it.

mod name;

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use tracing::info;

pub use name::SchemaName;

use crate::error::PostgresError;

/// The versions in order; entry 0 makes version 1. Never edited once released.
const MIGRATIONS: &[&str] = &[include_str!("v1.sql")];

/// The version this program needs.
pub const SCHEMA_VERSION: i32 = 1;
const _: () = assert!(MIGRATIONS.len() == SCHEMA_VERSION as usize, "SCHEMA_VERSION counts the migrations");

/// Longest wait for a migration. For a lock, which a node that stands still may hold, the server itself waits less long.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// All statements that create the schema from nothing, as `switchboard migrate --print` shows them.
pub fn print(schema: &SchemaName) -> String {
    let mut script = String::from("BEGIN;\n");
    script.push_str(&prelude(schema));
    for version in 1..=SCHEMA_VERSION {
        script.push_str(&step(schema, version));
    }
    script.push_str("COMMIT;\n");
    script
}

/// Creates or upgrades the schema; answers the version found before.
pub(crate) async fn migrate(
    connection: &mut PgConnection,
    schema: &SchemaName,
) -> Result<i32, PostgresError> {
    let found = version(connection, schema).await?;
    if found >= SCHEMA_VERSION {
        return ensure_known(schema, found);
    }
    match upgrade(connection, schema).await {
        Ok(found) => Ok(found),
        Err(cause) => Err(PostgresError::SchemaOutdated {
            schema: schema.to_string(),
            found,
            needed: SCHEMA_VERSION,
            cause: Box::new(cause),
        }),
    }
}

/// The version of the schema, 0 if there is none.
pub(crate) async fn version(
    connection: &mut PgConnection,
    schema: &SchemaName,
) -> Result<i32, PostgresError> {
    let table = format!("\"{schema}\".schema_version");
    let exists: Option<String> = sqlx::query("SELECT to_regclass($1)::text")
        .bind(&table)
        .persistent(false)
        .fetch_one(&mut *connection)
        .await?
        .try_get(0)?;
    if exists.is_none() {
        return Ok(0);
    }
    let query = format!("SELECT coalesce(max(version), 0) FROM {table}");
    Ok(sqlx::query(AssertSqlSafe(query)).persistent(false).fetch_one(connection).await?.try_get(0)?)
}

fn ensure_known(schema: &SchemaName, found: i32) -> Result<i32, PostgresError> {
    if found > SCHEMA_VERSION {
        return Err(PostgresError::SchemaTooNew {
            schema: schema.to_string(),
            found,
            needed: SCHEMA_VERSION,
        });
    }
    Ok(found)
}

async fn upgrade(connection: &mut PgConnection, schema: &SchemaName) -> Result<i32, PostgresError> {
    let mut transaction = connection.begin().await?;
    // `IF NOT EXISTS` is not atomic across sessions; the lock is. It ends with the transaction, also behind a pooler. Whoever waited
    // for it must see what was committed meanwhile, and only PostgreSQL's own functions are meant.
    transaction.execute(sqlx::raw_sql(AssertSqlSafe(prelude(schema)))).await?;
    let found = version(&mut transaction, schema).await?;
    for version in found + 1..=SCHEMA_VERSION {
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(step(schema, version)))).await?;
        info!(%schema, version, "upgraded the schema");
    }
    transaction.commit().await?;
    ensure_known(schema, found)
}

fn prelude(schema: &SchemaName) -> String {
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n\
         SET LOCAL search_path = pg_catalog, pg_temp;\n\
         SET LOCAL lock_timeout = '10s';\n\
         SELECT pg_advisory_xact_lock(hashtextextended('switchboard schema {schema}', 0));\n\
         -- CREATE SCHEMA IF NOT EXISTS would need CREATE on the database even where the schema is there.\n\
         DO $$ BEGIN\n    \
             IF to_regnamespace('\"{schema}\"') IS NULL THEN CREATE SCHEMA \"{schema}\"; END IF;\n\
         END $$;\n\
         CREATE TABLE IF NOT EXISTS \"{schema}\".schema_version (\n    \
             version     int         PRIMARY KEY,\n    \
             migrated_at timestamptz NOT NULL DEFAULT now()\n);\n\n"
    )
}

fn step(schema: &SchemaName, version: i32) -> String {
    let index = usize::try_from(version - 1).unwrap_or_default();
    let template = MIGRATIONS[index].replace("{schema}", schema.as_str());
    format!("{template}\nINSERT INTO \"{schema}\".schema_version (version) VALUES ({version});\n")
}
