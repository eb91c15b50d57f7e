//! What can go wrong between us and PostgreSQL, sorted by whether waiting helps.

use std::time::Duration;

use sqlx::Error as SqlxError;
use switchboard_core::ports::Cause;

/// Why PostgreSQL did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The driver or the server reported an error.
    #[error("{}", describe(.0))]
    Sql(#[source] SqlxError),
    /// Connecting or a statement took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server is a standby or was made read-only; it will not become a registry by waiting, but another host may.
    #[error(
        "{host} is read-only (a standby, or default_transaction_read_only is on); Switchboard needs the read-write primary"
    )]
    ReadOnly {
        /// The host that was asked.
        host: String,
    },
    /// What a session did (LISTEN, PREPARE) is not there when it is needed.
    #[error(
        "sessions lose their LISTEN or their prepared statements on this route: a transaction pooler (PgBouncer in \
         pool_mode=transaction, RDS Proxy …) seems to stand in front of PostgreSQL; set LISTEN_DATABASE_URL to a direct \
         route, and have the pooler keep prepared statements (PgBouncer 1.21 and newer do) or point DATABASE_URL there, too"
    )]
    Pooled,
    /// The schema is missing or older than this program, and may not be created by this user.
    #[error(
        "schema {schema} is at version {found} and this program needs {needed}; run `switchboard migrate` as its owner ({cause})"
    )]
    SchemaOutdated {
        /// Name of the schema.
        schema: String,
        /// Version found, 0 if there is none.
        found: i32,
        /// Version needed.
        needed: i32,
        /// Why it could not be upgraded now.
        cause: Box<PostgresError>,
    },
    /// The schema was made by a newer program whose changes this one does not know.
    #[error(
        "schema {schema} is at version {found}, newer than the {needed} this program knows; upgrade the program"
    )]
    SchemaTooNew {
        /// Name of the schema.
        schema: String,
        /// Version found.
        found: i32,
        /// Newest version known.
        needed: i32,
    },
    /// The server cannot be used as it is set up.
    #[error("{0}")]
    Unsuitable(String),
}

impl From<SqlxError> for PostgresError {
    fn from(error: SqlxError) -> Self {
        let handed_around = match &error {
            // A session that never executed LISTEN was notified.
            SqlxError::Protocol(message) => message.contains("NotificationResponse"),
            // A statement that was prepared is not there, or one that was not is.
            SqlxError::Database(error) => {
                error.code().is_some_and(|code| matches!(&*code, "26000" | "42P05"))
            }
            _ => false,
        };
        if handed_around { Self::Pooled } else { Self::Sql(error) }
    }
}

impl PostgresError {
    /// Whether waiting may help: the server is down, starting, full, failing over or slow. Everything else needs a person.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Sql(error) => !is_permanent(error),
            Self::Timeout(_) | Self::ReadOnly { .. } => true,
            Self::SchemaOutdated { cause, .. } => cause.is_transient(),
            Self::Pooled | Self::SchemaTooNew { .. } | Self::Unsuitable(_) => false,
        }
    }

    /// As the cause of a port's error.
    pub(crate) fn into_cause(self) -> Cause {
        Box::new(self)
    }

    /// The SQLSTATE, if the server sent one.
    pub fn sqlstate(&self) -> Option<String> {
        match self {
            Self::Sql(SqlxError::Database(error)) => error.code().map(Into::into),
            _ => None,
        }
    }
}

/// Classes of SQLSTATE that will be the same tomorrow: authentication (28), unknown database (3D), schema (3F),
/// missing rights (42501), tables (42P01), functions (42883) and columns (42703).
fn is_permanent(error: &SqlxError) -> bool {
    match error {
        SqlxError::Configuration(_) | SqlxError::Tls(_) => true,
        SqlxError::Database(error) => error.code().is_some_and(|code| {
            code.starts_with("28")
                || code.starts_with("3D")
                || code.starts_with("3F")
                || matches!(&*code, "42501" | "42P01" | "42883" | "42703")
        }),
        _ => false,
    }
}

/// The server's own words with the SQLSTATE, which is what one searches for; no statement text, no URL.
fn describe(error: &SqlxError) -> String {
    match error {
        SqlxError::Database(database) => match database.code() {
            Some(code) => format!("{} (SQLSTATE {code}){}", database.message(), hint(&code)),
            None => database.message().to_owned(),
        },
        SqlxError::Io(error) => format!("connection failed: {error}"),
        SqlxError::PoolTimedOut => "no free connection in time".to_owned(),
        other => other.to_string(),
    }
}

/// What to do about the errors that people meet first.
fn hint(code: &str) -> &'static str {
    match code {
        "28P01" | "28000" => "; check user and password in DATABASE_URL",
        "3D000" => "; create the database or correct its name in DATABASE_URL",
        "42501" => "; grant the rights that `switchboard doctor` lists",
        "42P01" | "3F000" | "42883" => "; run `switchboard migrate`",
        "53300" => "; raise max_connections or lower DATABASE_POOL_SIZE",
        "58P01" => {
            "; PostgreSQL releases before November 2025 can lose commit status that the NOTIFY queue still needs: \
             SELECT pg_notification_queue_usage() heals it, upgrading prevents it"
        }
        _ => "",
    }
}
