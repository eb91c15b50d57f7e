//! The registry's statements, written once per schema.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::schema::SchemaName;

pub(super) struct Statements {
    pub(super) lock: SqlStr,
    pub(super) is_free: SqlStr,
    pub(super) holder: SqlStr,
    pub(super) take_row: SqlStr,
    pub(super) renew: SqlStr,
    pub(super) members: SqlStr,
    pub(super) leave: SqlStr,
}

/// Columns that [`rows::member`](super::rows::member) reads; `age` in microseconds. `members` is read from sessions whose search path
/// may not be ours, so every operator finds its exact types in `pg_catalog`.
const COLUMNS: &str = "r.node_id, r.incarnation, r.endpoint, r.seq, {registered_at} AS registered_at, {heartbeat} AS heartbeat, \
    (extract(epoch FROM now() - {heartbeat}) * 1000000.0)::bigint AS age, r.stats::text AS stats, r.meta::text AS meta";

/// The heartbeat of a row. Somebody with `psql` may have written infinity, or a year that nobody can subtract or read.
const HEARTBEAT: &str =
    "greatest(least(r.heartbeat, timestamptz '9999-01-01 00:00Z'), timestamptz '2000-01-01 00:00Z')";

/// The threshold of a row, which is a day at most.
const STALE_AFTER: &str = "least(r.stale_after, interval '1 day')";

/// Age of the caller's previous heartbeat, in microseconds.
const GAP: &str = "(SELECT (extract(epoch FROM now() - previous) * 1000000)::bigint FROM me)";

impl Statements {
    pub(super) fn new(schema: &SchemaName) -> Self {
        let sql = |template: &str| {
            let text = template
                .replace("{schema}", schema.as_str())
                .replace("{columns}", COLUMNS)
                .replace("{registered_at}", &HEARTBEAT.replace("heartbeat", "registered_at"))
                .replace("{heartbeat}", HEARTBEAT)
                .replace("{stale_after}", STALE_AFTER)
                .replace("{gap}", GAP);
            AssertSqlSafe(Arc::<str>::from(text)).into_sql_str()
        };
        Self {
            lock: sql(
                "SELECT pg_try_advisory_lock(hashtextextended('switchboard node {schema}/' || $1::uuid, 0))",
            ),
            // Looked up, not tried: a lock that is taken to see whether it is free is not free for its owner, who may just be
            // reconnecting, nor for anybody else who looks. A 64-bit key is shown in two halves.
            is_free: sql(
                "SELECT NOT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
                 WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND d.datname = current_database() \
                   AND l.classid::bigint << 32 | l.objid::bigint = hashtextextended('switchboard node {schema}/' || $1::uuid, 0))",
            ),
            holder: sql(r#"SELECT r.incarnation, r.endpoint, {heartbeat} AS heartbeat,
                          now() - {heartbeat} > greatest($2 * interval '1 microsecond', {stale_after}) AS stale
                   FROM "{schema}".node_registry r WHERE r.node_id = $1"#),
            // Guarded by what was looked at: of two that saw the same holder, one writes, and a holder that has renewed since stays.
            take_row: sql(r#"WITH taken AS (
                       INSERT INTO "{schema}".node_registry AS r (node_id, incarnation, endpoint, meta, stale_after)
                       VALUES ($1, $2, $3, $4::jsonb, $7 * interval '1 microsecond')
                       ON CONFLICT (node_id) DO UPDATE
                       SET incarnation = excluded.incarnation, endpoint = excluded.endpoint, meta = excluded.meta,
                           stale_after = excluded.stale_after, registered_at = now(), heartbeat = now(), stats = '{}'
                       WHERE r.incarnation = excluded.incarnation OR (r.incarnation, {heartbeat}) = ($5, $6)
                       RETURNING r.seq, r.heartbeat
                   )
                   SELECT seq, heartbeat, pg_notify('{schema}.registry', 'registered ' || $1) FROM taken"#),
            // One round trip: heartbeat, sweep, announcement, membership (in which the caller sees its own row as it has just
            // written it, which the snapshot does not show). `me` shows the previous heartbeat, which
            // is the witness; without its row nothing else happens, and nobody is swept by a call that is out of order. Locked rows are skipped: a stuck peer blocks nobody, no two ticks deadlock.
            renew: sql(r#"WITH me AS (
                       SELECT r.node_id, {heartbeat} AS previous FROM "{schema}".node_registry r
                       WHERE r.node_id = $1 AND r.incarnation = $2 FOR UPDATE
                   ), beat AS (
                       UPDATE "{schema}".node_registry r SET heartbeat = now(), stats = $3::jsonb
                       FROM me WHERE r.node_id = me.node_id
                   ), stale AS (
                       SELECT r.node_id, now() - {heartbeat} AS age
                       FROM "{schema}".node_registry r, me
                       WHERE r.node_id <> me.node_id AND me.previous = $8
                         AND (r.heartbeat < me.previous - $4 * interval '1 microsecond'
                              OR $5 AND now() - me.previous <= $6 * interval '1 microsecond'
                                    AND r.heartbeat < now() - greatest($7 * interval '1 microsecond', {stale_after}))
                       FOR UPDATE OF r SKIP LOCKED
                   ), swept AS (
                       DELETE FROM "{schema}".node_registry r USING stale s
                       WHERE r.node_id = s.node_id
                       RETURNING r.node_id, r.incarnation, (extract(epoch FROM s.age) * 1000000)::bigint AS age
                   )
                   SELECT {columns}, false AS swept, {gap} AS gap, now() AS written, NULL AS announced
                   FROM (
                       SELECT node_id, incarnation, endpoint, seq, registered_at, meta,
                              CASE WHEN node_id = $1 THEN now() ELSE heartbeat END AS heartbeat,
                              CASE WHEN node_id = $1 THEN $3::jsonb ELSE stats END AS stats
                       FROM "{schema}".node_registry
                   ) r
                   WHERE EXISTS (SELECT FROM me) AND NOT EXISTS (SELECT FROM swept s WHERE s.node_id = r.node_id)
                   UNION ALL
                   SELECT s.node_id, s.incarnation, '', 0, now(), now(), s.age, '{}', '{}', true, {gap}, now(),
                          pg_notify('{schema}.registry', 'swept ' || s.node_id)::text
                   FROM swept s
                   ORDER BY seq, node_id"#),
            members: sql(r#"SELECT {columns} FROM "{schema}".node_registry r ORDER BY r.seq, r.node_id"#),
            leave: sql(r#"WITH gone AS (
                       DELETE FROM "{schema}".node_registry WHERE node_id = $1 AND incarnation = $2 RETURNING node_id
                   )
                   SELECT pg_notify('{schema}.registry', 'left ' || node_id) FROM gone"#),
        }
    }
}
