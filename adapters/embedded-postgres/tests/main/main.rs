//! Real PostgreSQL, real processes: what a private instance promises, seen from outside.
//!
//! Owners that are to be killed are runs of the example `private_postgres`. As root, the same stories are also told for
//! an ordinary user.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests may stop at the first surprise")]

mod life;
mod owner;
mod refusals;
mod watchdog;

use sqlx::{Connection, PgConnection, Row};

/// Runs one statement on a fresh connection and returns its first value as text.
async fn ask(url: &str, sql: &'static str) -> Result<String, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let row = sqlx::query(sql).fetch_one(&mut connection).await?;
    row.try_get(0)
}

/// Runs statements that return nothing.
async fn tell(url: &str, sql: &'static str) {
    let mut connection = PgConnection::connect(url).await.expect("PostgreSQL accepts connections");
    sqlx::raw_sql(sql).execute(&mut connection).await.expect("the statements are valid");
}

/// A directory that any user may enter, so that PostgreSQL's user can reach what is put below it.
fn open_dir() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new()
        .prefix("private postgres test ")
        .permissions(PermissionsExt::from_mode(0o755))
        .tempdir_in("/tmp")
        .expect("/tmp is writable")
}
