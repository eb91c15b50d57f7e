//! What is known of a cluster: the last list, what moved since the one before, and why there is no newer one. Pure: time is an argument.
//!
//! Nodes tell their counters with each heartbeat, so a rate is what a counter gained between two heartbeats, by the registry's clock. A node that is not
//! listed any more stays in view for a while: whoever looks up from the keyboard shall see that it has gone.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value};
use time::OffsetDateTime;

/// How long a node that has gone is shown.
const REMEMBERED: Duration = Duration::from_secs(30);

/// What may be late about a heartbeat that is on time, as a share of the interval.
const SLACK: f64 = 0.25;

/// A body of the admin API.
#[derive(Deserialize)]
pub(crate) struct Answer {
    data: Vec<Member>,
    timing: Timing,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Member {
    pub(super) node_id: String,
    pub(super) endpoint: String,
    incarnation: String,
    #[serde(with = "time::serde::rfc3339")]
    heartbeat: OffsetDateTime,
    heartbeat_age_ms: u64,
    stats: Map<String, Value>,
}

/// As the node that was asked is configured.
#[derive(Clone, Copy, Deserialize)]
struct Timing {
    heartbeat_interval_ms: u64,
    stale_threshold_ms: u64,
}

/// The cluster, as far as it is known.
pub(crate) struct View {
    rows: Vec<Row>,
    timing: Timing,
    /// When the list was read.
    read: Instant,
    /// Why there is no newer list.
    problem: Option<String>,
    /// Rows that are scrolled out of sight.
    pub(super) skipped: usize,
}

/// A node, and what moved between its last two heartbeats.
pub(super) struct Row {
    pub(super) member: Member,
    /// The heartbeat before, of the same incarnation.
    before: Option<Member>,
    gone: Option<Instant>,
}

/// What a heartbeat says about a node, by its age first. As the dashboard has it (`state.js` of the gateway).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Healthy,
    Draining,
    Suspect,
    Stale,
    Gone,
}

impl View {
    pub(crate) fn new(now: Instant, answer: Answer) -> Self {
        let timing = answer.timing;
        let mut view = Self { rows: Vec::new(), timing, read: now, problem: None, skipped: 0 };
        view.read(now, answer);
        view
    }

    /// Takes in a list.
    pub(crate) fn read(&mut self, now: Instant, answer: Answer) {
        let mut known = std::mem::take(&mut self.rows);
        for member in answer.data {
            let index = known.iter().position(|row| row.member.node_id == member.node_id);
            let before = index.map(|index| known.remove(index));
            self.rows.push(Row::next(member, before));
        }
        let gone = known.into_iter().map(|row| Row { gone: row.gone.or(Some(now)), ..row });
        self.rows.extend(gone.filter(|row| row.gone.is_some_and(|gone| now - gone < REMEMBERED)));
        (self.timing, self.read, self.problem) = (answer.timing, now, None);
        self.scroll(0);
    }

    /// There is no new list.
    pub(crate) fn fail(&mut self, problem: String) {
        self.problem = Some(problem);
    }

    /// Moves the rows by this many, down if it is positive.
    pub(crate) fn scroll(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        self.skipped = self.skipped.saturating_add_signed(by).min(last);
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// How long ago the list was read.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.read)
    }

    /// How long ago a node's last heartbeat was.
    pub(super) fn heartbeat_age(&self, row: &Row, now: Instant) -> Duration {
        Duration::from_millis(row.member.heartbeat_age_ms) + self.age(now)
    }

    pub(super) fn condition(&self, row: &Row, now: Instant) -> Condition {
        if row.gone.is_some() {
            return Condition::Gone;
        }
        // While there is no newer list, nobody's heartbeat is known to be late.
        let age = Duration::from_millis(row.member.heartbeat_age_ms)
            + if self.problem.is_none() { self.age(now) } else { Duration::ZERO };
        if age >= Duration::from_millis(self.timing.stale_threshold_ms) {
            Condition::Stale
        } else if age > Duration::from_millis(self.timing.heartbeat_interval_ms).mul_f64(2.0 + SLACK) {
            Condition::Suspect
        } else if row.member.stats.get("draining") == Some(&Value::Bool(true)) {
            Condition::Draining
        } else {
            Condition::Healthy
        }
    }

    /// Nodes that are there, and those among them that are healthy.
    pub(super) fn size(&self, now: Instant) -> (usize, usize) {
        let there = || self.rows.iter().filter(|row| row.gone.is_none());
        (there().count(), there().filter(|row| self.condition(row, now) == Condition::Healthy).count())
    }

    /// A number of every node that is there, if any of them tells it.
    pub(super) fn each<'a>(
        &'a self,
        number: impl Fn(&Row) -> Option<f64> + 'a,
    ) -> Option<impl Iterator<Item = f64> + 'a> {
        let mut numbers = self.rows.iter().filter(|row| row.gone.is_none()).filter_map(number).peekable();
        numbers.peek().is_some().then_some(numbers)
    }
}

impl Row {
    fn next(member: Member, before: Option<Self>) -> Self {
        let before = before.filter(|row| row.member.incarnation == member.incarnation);
        let before = before.and_then(|row| {
            if row.member.heartbeat == member.heartbeat { row.before } else { Some(row.member) }
        });
        Self { member, before, gone: None }
    }

    /// The number at this path of its stats.
    pub(super) fn number(&self, path: &[&str]) -> Option<f64> {
        number(&self.member, path)
    }

    /// What the counter at this path gained in a second.
    pub(super) fn rate(&self, path: &[&str]) -> Option<f64> {
        let before = self.before.as_ref()?;
        let seconds = (self.member.heartbeat - before.heartbeat).as_seconds_f64();
        let gained = self.number(path)? - number(before, path)?;
        (seconds > 0.0 && gained >= 0.0).then_some(gained / seconds)
    }

    /// Links of its mesh that are ready, all its peers with a mesh, and the longest round trip in milliseconds.
    pub(super) fn mesh(&self) -> Option<(usize, usize, f64)> {
        let mesh = self.member.stats.get("mesh")?;
        let links = mesh.get("peers")?.as_object()?;
        let ready = links.values().filter(|link| link.get("ready") == Some(&Value::Bool(true)));
        let (count, longest) = ready.fold((0, 0.0_f64), |(count, longest), link| {
            (count + 1, longest.max(link.get("rtt_us").and_then(Value::as_f64).unwrap_or_default()))
        });
        let unreached = mesh
            .get("unreached")
            .and_then(Value::as_u64)
            .and_then(|unreached| usize::try_from(unreached).ok());
        Some((count, count + unreached.unwrap_or_default(), longest / 1000.0))
    }
}

fn number(member: &Member, path: &[&str]) -> Option<f64> {
    let (last, objects) = path.split_last()?;
    let stats = objects.iter().try_fold(&member.stats, |stats, name| stats.get(*name)?.as_object())?;
    stats.get(*last)?.as_f64()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A node whose heartbeat was `at` seconds past the minute.
    pub(in crate::top) fn member(id: &str, incarnation: &str, at: u8, age_ms: u64, stats: &Value) -> Value {
        json!({
            "node_id": id, "endpoint": format!("{id}:4000"), "incarnation": incarnation, "heartbeat_age_ms": age_ms,
            "registered_at": "2026-01-02T03:00:00Z", "heartbeat": format!("2026-01-02T03:04:{at:02}.5Z"), "stats": stats, "meta": {},
        })
    }

    pub(in crate::top) fn answer(members: &[Value]) -> Answer {
        let timing = json!({"heartbeat_interval_ms": 10_000, "stale_threshold_ms": 30_000});
        serde_json::from_value(json!({"data": members, "timing": timing})).unwrap()
    }

    fn published(count: u64) -> Value {
        json!({"durable": {"published_total": count}})
    }

    const PUBLISHED: [&str; 2] = ["durable", "published_total"];

    #[test]
    fn a_rate_is_what_a_counter_gained_between_two_heartbeats_of_one_incarnation() {
        let now = Instant::now();
        let mut view = View::new(now, answer(&[member("a", "1", 0, 0, &published(100))]));
        assert_eq!(view.rows[0].rate(&PUBLISHED), None);
        view.read(now, answer(&[member("a", "1", 10, 0, &published(150))]));
        assert_eq!(view.rows[0].rate(&PUBLISHED), Some(5.0));
        // Read again before the next heartbeat.
        view.read(now, answer(&[member("a", "1", 10, 900, &published(150))]));
        assert_eq!(view.rows[0].rate(&PUBLISHED), Some(5.0));
        view.read(now, answer(&[member("a", "2", 20, 0, &published(3))]));
        assert_eq!(view.rows[0].rate(&PUBLISHED), None);
        view.read(now, answer(&[member("a", "2", 30, 0, &json!({"durable": "odd"}))]));
        assert_eq!(view.rows[0].rate(&PUBLISHED), None);
    }

    #[test]
    fn the_age_of_the_heartbeat_says_how_a_node_is() {
        let now = Instant::now();
        let ages = [("a", 22_000), ("b", 23_000), ("c", 30_000)];
        let mut view = View::new(now, answer(&ages.map(|(id, age)| member(id, "1", 0, age, &json!({})))));
        let conditions =
            |view: &View, now| view.rows.iter().map(|row| view.condition(row, now)).collect::<Vec<_>>();
        assert_eq!(conditions(&view, now), [Condition::Healthy, Condition::Suspect, Condition::Stale]);
        let later = now + Duration::from_secs(15);
        assert_eq!(conditions(&view, later), [Condition::Stale; 3]);
        view.fail("nobody answers".to_owned());
        assert_eq!(conditions(&view, later), [Condition::Healthy, Condition::Suspect, Condition::Stale]);
        let draining = json!({"draining": true});
        view.read(now, answer(&[member("a", "1", 0, 0, &draining), member("b", "1", 0, 23_000, &draining)]));
        assert_eq!(conditions(&view, now)[..2], [Condition::Draining, Condition::Suspect]);
    }

    #[test]
    fn a_node_that_has_gone_is_shown_for_a_while_and_may_come_back() {
        let now = Instant::now();
        let [a, b] = ["a", "b"].map(|id| member(id, "1", 0, 0, &json!({})));
        let mut view = View::new(now, answer(&[a.clone(), b.clone()]));
        view.scroll(1);
        view.read(now, answer(std::slice::from_ref(&b)));
        assert_eq!(view.condition(&view.rows[1], now), Condition::Gone);
        assert_eq!((view.rows.len(), view.size(now)), (2, (1, 1)));
        view.read(now + REMEMBERED / 2, answer(&[b.clone(), a]));
        assert_eq!(view.size(now), (2, 2));
        view.read(now + REMEMBERED, answer(std::slice::from_ref(&b)));
        assert_eq!(view.rows.len(), 2);
        view.read(now + REMEMBERED * 2, answer(&[b]));
        assert_eq!((view.rows.len(), view.skipped), (1, 0));
    }
}
