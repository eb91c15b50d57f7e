//! Retention: what the log forgets, and the task that has it forget.
//!
//! The log lies in segments that take turns. What is older than the longest age anybody asked for goes with its whole segment, by
//! TRUNCATE. Measured against deleting in batches (PostgreSQL 15, a million 64-byte events): 39 kB of WAL and 20 ms of CPU instead of
//! 282 MB, as much as it took to store them, and 1.5 s, with nothing left for vacuum; inserting through eight segments
//! costs as much as into one table. Rules that forget sooner, by a shorter age or a count, delete rows in small batches.
//!
//! One node at a time does it: the first that finds it due. Nothing here waits for a lock, so nothing waits behind it.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row, SqlSafeStr, SqlStr};
use switchboard_core::stats::Counter;
use switchboard_core::types::ChannelPattern;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::error::PostgresError;
use crate::pool::Pool;
use crate::schema::SchemaName;

/// Channels looked at, and events deleted per channel, by one statement.
const BATCH: (i64, i64) = (200, 1000);

/// How long events are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// For channels that no rule chooses. `None`: for ever.
    pub age: Option<Duration>,
    /// The first rule that chooses a channel holds for it.
    pub rules: Vec<RetentionRule>,
}

/// How long the events of some channels are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionRule {
    /// The channels.
    pub channels: ChannelPattern,
    /// Older events go. `None`: none does.
    pub age: Option<Duration>,
    /// Only so many of the newest events stay. `None`: all do.
    pub count: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { age: Some(Duration::from_hours(24)), rules: Vec::new() }
    }
}

impl Retention {
    /// The age at which whole segments go: the longest that anybody asks for.
    fn longest(&self) -> Option<Duration> {
        self.rules
            .iter()
            .map(|rule| rule.age)
            .chain([self.age])
            .try_fold(Duration::ZERO, |longest, age| Some(longest.max(age?)))
    }

    /// All rules in order, the one for everything else last.
    fn in_order(&self) -> impl Iterator<Item = RetentionRule> {
        let rest = RetentionRule { channels: ChannelPattern::any(), age: self.age, count: None };
        self.rules.iter().cloned().chain([rest])
    }

    /// Whether events have to be deleted one by one, because they go sooner than their segments.
    fn is_sooner(&self, rule: &RetentionRule) -> bool {
        rule.count.is_some() || rule.age != self.longest()
    }

    /// How often it is seen to: often enough for the shortest age, and every few seconds where events are counted.
    fn cadence(&self) -> Duration {
        let counts = self.rules.iter().any(|rule| rule.count.is_some());
        let longest = Duration::from_secs(if counts { 10 } else { 60 });
        let ages = self.rules.iter().filter_map(|rule| rule.age).chain(self.age);
        (ages.min().unwrap_or(Duration::MAX) / 24).clamp(Duration::from_millis(100), longest)
    }
}

/// Sees to retention.
pub(crate) struct Upkeep {
    pool: Pool,
    retention: Retention,
    turn: SqlStr,
    rotate: SqlStr,
    prune: SqlStr,
    /// Segments emptied by this node.
    pub(crate) emptied: Counter,
    /// Events deleted by this node, one by one.
    pub(crate) pruned: Counter,
}

impl Upkeep {
    pub(crate) fn new(schema: &SchemaName, pool: Pool, retention: Retention) -> Self {
        let sql = |template: &str| {
            AssertSqlSafe(Arc::<str>::from(template.replace("{schema}", schema.as_str()))).into_sql_str()
        };
        Self {
            pool,
            retention,
            turn: sql(r#"UPDATE "{schema}".log_upkeep SET done_at = clock_timestamp()
                   WHERE done_at <= clock_timestamp() - $1 * interval '1 ms' RETURNING true"#),
            rotate: sql(r#"SELECT emptied, busy FROM "{schema}".rotate_log($1 * interval '1 ms')"#),
            prune: sql(r#"WITH page AS (
                       SELECT channel, seq FROM "{schema}".channel_head
                       WHERE channel > $1 AND channel LIKE $2 AND NOT channel LIKE ANY ($3)
                       ORDER BY channel LIMIT $6
                   ), due AS MATERIALIZED (
                       SELECT e.segment, e.channel, e.seq
                       FROM page CROSS JOIN LATERAL (
                           SELECT segment, channel, seq, created_at FROM "{schema}".event_log
                           WHERE channel = page.channel ORDER BY seq LIMIT $7
                       ) e
                       WHERE e.created_at < clock_timestamp() - $4 * interval '1 ms' OR e.seq <= page.seq - $5
                   ), free AS MATERIALIZED (
                       SELECT segment, channel, seq FROM "{schema}".event_log JOIN due USING (segment, channel, seq)
                       FOR UPDATE OF event_log SKIP LOCKED
                   ), gone AS (
                       DELETE FROM "{schema}".event_log l USING free f
                       WHERE l.segment = f.segment AND l.channel = f.channel AND l.seq = f.seq
                       RETURNING true
                   )
                   SELECT (SELECT max(channel) FROM page) AS last, (SELECT count(*) FROM due) AS due,
                          (SELECT count(*) FROM gone) AS gone"#),
            emptied: Counter::default(),
            pruned: Counter::default(),
        }
    }

    /// Sees to it whenever it is due, until cancelled.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let cadence = self.retention.cadence();
        stop.run_until_cancelled(async {
            let mut tick = interval(cadence);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                if let Err(error) = self.keep(cadence).await {
                    warn!(%error, "retention could not be seen to, and is tried again");
                }
            }
        })
        .await;
    }

    async fn keep(&self, cadence: Duration) -> Result<(), PostgresError> {
        let since = millis(cadence / 2);
        if self.pool.fetch_all(sqlx::query(self.turn.clone()).bind(since)).await?.is_empty() {
            return Ok(());
        }
        if let Some(age) = self.retention.longest() {
            self.rotate(age).await?;
        }
        let mut earlier = Vec::new();
        for rule in self.retention.in_order() {
            if self.retention.is_sooner(&rule) {
                self.prune(&rule, &earlier).await?;
            }
            earlier.push(like(&rule.channels));
        }
        Ok(())
    }

    async fn rotate(&self, age: Duration) -> Result<(), PostgresError> {
        let rows = self.pool.fetch_all(sqlx::query(self.rotate.clone()).bind(millis(age))).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let (emptied, busy): (i32, i32) = (row.try_get("emptied")?, row.try_get("busy")?);
        if emptied > 0 {
            self.emptied.add(u64::from(emptied.unsigned_abs()));
            info!(segments = emptied, "emptied segments of the event log that are past their age");
        }
        if busy > 0 {
            warn!(
                segments = busy,
                "segments of the event log are past their age, but a transaction holds on to them"
            );
        }
        Ok(())
    }

    async fn prune(&self, rule: &RetentionRule, earlier: &[String]) -> Result<(), PostgresError> {
        let mut after = String::new();
        loop {
            let query = sqlx::query(self.prune.clone())
                .bind(&after)
                .bind(like(&rule.channels))
                .bind(earlier)
                .bind(rule.age.map(millis))
                .bind(rule.count.map(|count| i64::try_from(count).unwrap_or(i64::MAX)))
                .bind(BATCH.0)
                .bind(BATCH.1);
            let rows = self.pool.fetch_all(query).await?;
            let Some(row) = rows.first() else { return Ok(()) };
            let (due, gone): (i64, i64) = (row.try_get("due")?, row.try_get("gone")?);
            self.pruned.add(gone.unsigned_abs());
            if gone < due {
                debug!(channels = %rule.channels, events = due - gone, "events are past their time, but locked");
            }
            // There may be more of the same channels, unless all that is left is locked.
            if gone >= BATCH.1 {
                continue;
            }
            match row.try_get::<Option<String>, _>("last")? {
                Some(last) => after = last,
                None => return Ok(()),
            }
        }
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The pattern as LIKE writes it.
fn like(pattern: &ChannelPattern) -> String {
    let mut like = String::new();
    for c in pattern.as_str().chars() {
        match c {
            '*' => like.push('%'),
            '%' | '_' | '\\' => like.extend(['\\', c]),
            c => like.push(c),
        }
    }
    like
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Option<Duration> = Some(Duration::from_hours(1));
    const DAY: Option<Duration> = Some(Duration::from_hours(24));
    const WEEK: Option<Duration> = Some(Duration::from_hours(7 * 24));

    fn rule(channels: &str, age: Option<Duration>, count: Option<u64>) -> RetentionRule {
        RetentionRule { channels: ChannelPattern::parse(channels).unwrap(), age, count }
    }

    fn sooner(retention: &Retention) -> Vec<String> {
        let rules = retention.in_order().filter(|rule| retention.is_sooner(rule));
        rules.map(|rule| rule.channels.to_string()).collect()
    }

    #[test]
    fn one_age_for_all_goes_with_the_segments_and_needs_no_deletes() {
        let retention = Retention::default();
        assert_eq!((retention.longest(), sooner(&retention)), (DAY, vec![]));
    }

    #[test]
    fn segments_live_as_long_as_the_longest_age_and_whatever_ends_sooner_is_deleted() {
        let rules = vec![rule("audit:*", WEEK, None), rule("cursor:*", HOUR, Some(10))];
        let retention = Retention { age: DAY, rules };
        assert_eq!(retention.longest(), WEEK);
        assert_eq!(sooner(&retention), ["cursor:*", "*"]);
    }

    #[test]
    fn what_is_kept_for_ever_keeps_the_segments() {
        let retention = Retention { age: DAY, rules: vec![rule("audit:*", None, None)] };
        assert_eq!((retention.longest(), sooner(&retention)), (None, vec!["*".to_owned()]));
        let retention = Retention { age: None, rules: vec![rule("cursor:*", DAY, Some(10))] };
        assert_eq!((retention.longest(), sooner(&retention)), (None, vec!["cursor:*".to_owned()]));
    }

    #[test]
    fn patterns_are_taken_literally_by_like() {
        assert_eq!(like(&ChannelPattern::parse(r"a_%\*").unwrap()), r"a\_\%\\%");
    }
}
