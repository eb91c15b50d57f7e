//! Reads rows of the registry into domain types.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use switchboard_core::claim::Holder;
use switchboard_core::ports::{Member, Renewed, Swept};
use switchboard_core::types::{Endpoint, Identity, Incarnation, Invalid, NodeId, Stats};
use tracing::warn;

use crate::error::PostgresError;

pub(super) fn holder(row: &PgRow) -> Result<Holder, PostgresError> {
    Ok(Holder {
        incarnation: incarnation(row)?,
        endpoint: row.try_get("endpoint")?,
        heartbeat: row.try_get("heartbeat")?,
        stale: row.try_get("stale")?,
    })
}

fn member(row: &PgRow) -> Result<Member, PostgresError> {
    Ok(Member {
        identity: identity(row)?,
        endpoint: Endpoint::parse(row.try_get("endpoint")?).map_err(|error| foreign(&error))?,
        seq: row.try_get("seq")?,
        registered_at: row.try_get("registered_at")?,
        heartbeat: row.try_get("heartbeat")?,
        age: duration(row, "age")?,
        stats: stats(row, "stats")?,
        meta: stats(row, "meta")?,
    })
}

/// Everybody who can be read. A row that no node wrote must not cost the nodes their heartbeats.
pub(super) fn members(rows: &[PgRow]) -> Vec<Member> {
    let readable =
        |row| member(row).inspect_err(|error| warn!(%error, "skipped a row of node_registry")).ok();
    rows.iter().filter_map(readable).collect()
}

/// The answer to a renewal; `None` if the caller's row was not there, in which case there are no rows at all.
pub(super) fn renewed(rows: Vec<PgRow>) -> Result<Option<Renewed>, PostgresError> {
    let Some(first) = rows.first() else { return Ok(None) };
    let (gap, heartbeat) = (duration(first, "gap")?, first.try_get("written")?);
    let (swept, members): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row.try_get("swept").unwrap_or_default());
    let swept = swept
        .iter()
        .filter_map(|row| Some(Swept { identity: identity(row).ok()?, age: duration(row, "age").ok()? }));
    Ok(Some(Renewed { members: self::members(&members), swept: swept.collect(), heartbeat, gap }))
}

fn identity(row: &PgRow) -> Result<Identity, PostgresError> {
    Ok(Identity {
        node_id: NodeId::parse(row.try_get("node_id")?).map_err(|error| foreign(&error))?,
        incarnation: incarnation(row)?,
    })
}

fn incarnation(row: &PgRow) -> Result<Incarnation, PostgresError> {
    Ok(Incarnation::from_bits(row.try_get::<Uuid, _>("incarnation")?.as_u128()))
}

/// Microseconds; a clock that went back makes no negative age.
fn duration(row: &PgRow, column: &str) -> Result<Duration, PostgresError> {
    Ok(Duration::from_micros(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0)))
}

/// Written by people with `psql`, it may be anything that is JSON.
fn stats(row: &PgRow, column: &str) -> Result<Stats, PostgresError> {
    Ok(serde_json::from_str(row.try_get(column)?).unwrap_or_default())
}

/// A row that no node wrote.
fn foreign(error: &Invalid) -> PostgresError {
    PostgresError::Unsuitable(format!("node_registry holds a row that no node wrote: {error}"))
}
