//! Examines a PostgreSQL from where the node stands, and says what to do about what it finds.
//!
//! Changes nothing but a notification that nobody else hears. Every check runs on connections of its own, which it closes.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};
use time::OffsetDateTime;

use crate::config::PostgresConfig;
use crate::error::PostgresError;
use crate::listener::{Listener, ListenerState};
use crate::route::{Route, within};
use crate::schema::{self, SCHEMA_VERSION};

/// Longest wait for any one answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Oldest supported server, as `server_version_num` counts.
const OLDEST: i32 = 140_000;
const RECOMMENDED: i32 = 150_000;

/// How far the clocks may differ before people who read timestamps are misled. Nothing else depends on it.
const CLOCK_TOLERANCE: f64 = 5.0;

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What was looked at, in a word or two.
    pub check: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What to do about it; `None` if nothing.
    pub advice: Option<String>,
}

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Works, but somebody should look.
    Warning,
    /// A node would not work.
    Failed,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, detail: detail.into(), advice: None }
    }

    fn warning(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warning, detail: detail.into(), advice: Some(advice.into()) }
    }

    fn failed(check: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Failed, detail: detail.into(), advice: Some(advice.into()) }
    }
}

/// Runs every check that makes sense after the ones before it; in the order in which to mend.
pub async fn examine(config: &PostgresConfig) -> Vec<Finding> {
    let route = Route::new(config.dsn.clone(), config.node_id.clone());
    let mut connection = match route.connect("doctor").await {
        Ok(connection) => connection,
        Err(error) => return vec![unreachable(config, &error)],
    };
    let mut findings = vec![
        Finding::ok("connection", format!("connected to {}", config.dsn)),
        Finding::ok("read-write", "the server takes writes"),
    ];
    let checks = async {
        findings.push(version(&mut connection).await?);
        findings.push(encoding(&mut connection).await?);
        findings.push(rights(&mut connection, config).await?);
        findings.push(epoch(&mut connection).await?);
        findings.push(clock(&mut connection).await?);
        findings.push(connections(&mut connection, config).await?);
        findings.push(queue(&mut connection).await?);
        findings.push(crash_safety(&mut connection).await?);
        Ok::<_, PostgresError>(())
    };
    match checks.await {
        Ok(()) => {}
        Err(error @ PostgresError::Pooled) => findings.push(swallowed(&error)),
        Err(error) => findings.push(Finding::failed(
            "statements",
            error.to_string(),
            "see the message; then run doctor again",
        )),
    }
    let session = config.session_dsn.clone().map_or(route, |dsn| Route::new(dsn, config.node_id.clone()));
    findings.push(listen(session, config).await);
    let _ = within(LIMIT, connection.close()).await;
    findings
}

fn unreachable(config: &PostgresConfig, error: &PostgresError) -> Finding {
    let detail = format!("cannot use {}: {error}", config.dsn);
    match error {
        PostgresError::ReadOnly { .. } => Finding::failed(
            "read-write",
            detail,
            "point DATABASE_URL at the primary, or list all hosts in it",
        ),
        PostgresError::Pooled => swallowed(error),
        error if is_denied(error) => Finding::failed(
            "connection",
            format!("cannot use {}: this user may not connect to the database", config.dsn),
            "have the owner of the database grant CONNECT on it to this user, or correct DATABASE_URL",
        ),
        error if error.is_transient() => Finding::failed(
            "connection",
            detail,
            "start PostgreSQL, or correct host and port in DATABASE_URL; check firewalls and pg_hba.conf",
        ),
        _ => Finding::failed("connection", detail, "correct DATABASE_URL as the message says"),
    }
}

async fn version(connection: &mut PgConnection) -> Result<Finding, PostgresError> {
    let row = fetch(
        connection,
        "SELECT current_setting('server_version_num')::int, current_setting('server_version')",
    )
    .await?;
    let (number, name): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
    let check = "version";
    Ok(match number {
        ..OLDEST => Finding::failed(
            check,
            format!("PostgreSQL {name}"),
            "upgrade to PostgreSQL 15 or newer (14 at least)",
        ),
        OLDEST..RECOMMENDED => Finding::warning(
            check,
            format!("PostgreSQL {name}"),
            "15 or newer is recommended: 14 logs its sequences even for unlogged tables",
        ),
        _ => Finding::ok(check, format!("PostgreSQL {name}")),
    })
}

async fn encoding(connection: &mut PgConnection) -> Result<Finding, PostgresError> {
    let encoding: String =
        fetch(connection, "SELECT current_setting('server_encoding')").await?.try_get(0)?;
    Ok(if encoding == "UTF8" {
        Finding::ok("encoding", "UTF8")
    } else {
        Finding::failed(
            "encoding",
            format!("the database is encoded in {encoding}"),
            "create the database WITH ENCODING 'UTF8': channel names and payloads are UTF-8",
        )
    })
}

async fn rights(connection: &mut PgConnection, config: &PostgresConfig) -> Result<Finding, PostgresError> {
    let schema = &config.schema;
    let found = match within(LIMIT, schema::version(connection, schema)).await {
        Ok(found) => found,
        Err(error) if is_denied(&error) => return lacking_rights(connection, config).await,
        Err(error) => return Err(error),
    };
    if found < SCHEMA_VERSION {
        let query = format!(
            "SELECT coalesce(has_schema_privilege(to_regnamespace('\"{schema}\"'), 'CREATE'), \
                             has_database_privilege(current_database(), 'CREATE'))"
        );
        let may_create: bool = fetch(connection, query).await?.try_get(0)?;
        if may_create {
            return Ok(Finding::ok(
                "rights",
                format!(
                    "schema {schema} is at version {found} and will be brought to {SCHEMA_VERSION} by the first node"
                ),
            ));
        }
        let grants = grants(connection, config).await?;
        return Ok(Finding::failed(
            "rights",
            format!(
                "schema {schema} is at version {found} of {SCHEMA_VERSION} and this user may not create it"
            ),
            format!(
                "run `switchboard migrate` once as a user with CREATE on the database, then, as that user: {grants}"
            ),
        ));
    }
    // has_table_privilege answers whether *any* of several rights is held, so each is asked for by itself.
    let query = format!(
        "SELECT has_schema_privilege('{schema}', 'USAGE') AND bool_and(has_table_privilege(format('%I.%I', '{schema}', name), one)) \
         FROM (SELECT name, one FROM unnest(ARRAY['node_registry', 'channel_head', 'event_log', 'log_segment', 'log_upkeep']) name, \
                                     unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) one \
               UNION ALL SELECT 'event_log_' || segment, 'TRUNCATE' FROM generate_series(0, 7) segment) needed"
    );
    let row = fetch(connection, query).await?;
    if row.try_get::<Option<bool>, _>(0)?.unwrap_or_default() {
        return Ok(Finding::ok("rights", format!("may read and write schema {schema} (version {found})")));
    }
    lacking_rights(connection, config).await
}

async fn lacking_rights(
    connection: &mut PgConnection,
    config: &PostgresConfig,
) -> Result<Finding, PostgresError> {
    let grants = grants(connection, config).await?;
    Ok(Finding::failed(
        "rights",
        format!("this user lacks rights in schema {}", config.schema),
        format!("as the schema's owner: {grants}"),
    ))
}

/// Statements to paste.
async fn grants(connection: &mut PgConnection, config: &PostgresConfig) -> Result<String, PostgresError> {
    let (schema, role) = (&config.schema, role(connection).await?);
    Ok(format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO {role}; \
         GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA \"{schema}\" TO {role}; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA \"{schema}\" TO {role};"
    ))
}

/// Whose rights count, as a statement writes it.
async fn role(connection: &mut PgConnection) -> Result<String, PostgresError> {
    Ok(fetch(connection, "SELECT quote_ident(current_user)").await?.try_get(0)?)
}

async fn epoch(connection: &mut PgConnection) -> Result<Finding, PostgresError> {
    let probe =
        "SELECT system_identifier::text, pg_walfile_name(pg_current_wal_lsn()) FROM pg_control_system()";
    match fetch(connection, probe).await {
        Ok(_) => Ok(Finding::ok("history", "system identifier and timeline can be read")),
        Err(error) if is_denied(&error) => Ok(Finding::failed(
            "history",
            "this user may not read the system identifier and the timeline",
            format!(
                "as a superuser: GRANT EXECUTE ON FUNCTION pg_control_system() TO {};",
                role(connection).await?
            ),
        )),
        Err(error) => Err(error),
    }
}

async fn clock(connection: &mut PgConnection) -> Result<Finding, PostgresError> {
    let theirs: OffsetDateTime = fetch(connection, "SELECT clock_timestamp()").await?.try_get(0)?;
    let ahead = (theirs - OffsetDateTime::from(SystemTime::now())).as_seconds_f64();
    Ok(if ahead.abs() <= CLOCK_TOLERANCE {
        Finding::ok("clock", format!("differs by {ahead:+.3} s"))
    } else {
        Finding::warning(
            "clock",
            format!("PostgreSQL's clock differs from this machine's by {ahead:+.1} s"),
            "set up NTP; liveness does not depend on it, but people who compare timestamps do",
        )
    })
}

async fn connections(
    connection: &mut PgConnection,
    config: &PostgresConfig,
) -> Result<Finding, PostgresError> {
    let row = fetch(
        connection,
        "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int, \
                (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend')",
    )
    .await?;
    let (room, used): (i32, i32) = (row.try_get(0)?, row.try_get(1)?);
    let (needed, free) = (i64::from(config.max_connections()), i64::from(room - used));
    let detail = format!("{used} of {room} in use; a node needs up to {needed}");
    Ok(if free >= needed {
        Finding::ok("connections", detail)
    } else {
        Finding::failed("connections", detail, "raise max_connections, or free connections of other programs")
    })
}

async fn queue(connection: &mut PgConnection) -> Result<Finding, PostgresError> {
    let usage: f64 = fetch(connection, "SELECT pg_notification_queue_usage()").await?.try_get(0)?;
    let detail = format!("{:.1} % full", usage * 100.0);
    Ok(if usage < 0.25 {
        Finding::ok("notify queue", detail)
    } else {
        Finding::warning(
            "notify queue",
            detail,
            "find the session that executed LISTEN and sits in a transaction: \
            SELECT * FROM pg_stat_activity WHERE state = 'idle in transaction'",
        )
    })
}

async fn crash_safety(connection: &mut PgConnection) -> Result<Finding, PostgresError> {
    let row =
        fetch(connection, "SELECT current_setting('fsync')::bool, current_setting('synchronous_commit')")
            .await?;
    let (fsync, synchronous): (bool, String) = (row.try_get(0)?, row.try_get(1)?);
    let (off, them) = match (fsync, synchronous != "off") {
        (true, true) => return Ok(Finding::ok("durability", "commits are flushed")),
        (false, true) => ("fsync is off", "it"),
        (true, false) => ("synchronous_commit is off", "it"),
        (false, false) => ("fsync and synchronous_commit are off", "them"),
    };
    Ok(Finding::warning(
        "durability",
        off,
        format!(
            "turn {them} on, or accept that a crash of the server can lose events that were acknowledged"
        ),
    ))
}

/// A LISTEN session must hear a NOTIFY from another session: what every node makes sure of when it starts.
async fn listen(route: Route, config: &PostgresConfig) -> Finding {
    match Listener::new(route, &config.schema, Vec::new(), ListenerState::new()).open().await {
        Ok(_session) => {
            Finding::ok("listen", "a NOTIFY reached a LISTEN session; no pooler in between swallows it")
        }
        Err(error @ PostgresError::Pooled) => swallowed(&error),
        Err(error) => Finding::failed(
            "listen",
            error.to_string(),
            "see the message; LISTEN_DATABASE_URL is the route that is used",
        ),
    }
}

fn swallowed(error: &PostgresError) -> Finding {
    Finding::failed("listen", error.to_string(), "set LISTEN_DATABASE_URL to a direct route to PostgreSQL")
}

/// Whether a right is missing. Its message, meant for the log of a node, leads to the doctor.
fn is_denied(error: &PostgresError) -> bool {
    error.sqlstate().as_deref() == Some("42501")
}

async fn fetch(
    connection: &mut PgConnection,
    query: impl Into<String>,
) -> Result<sqlx::postgres::PgRow, PostgresError> {
    within(LIMIT, sqlx::query(AssertSqlSafe(query.into())).persistent(false).fetch_one(connection)).await
}
