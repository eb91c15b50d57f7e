//! The columns of a node's row, the most important first: a narrow terminal shows those that fit.

use std::time::{Duration, Instant};

use super::state::{Condition, Row, View};

/// A column: its title, its width, and what stands in it.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: u16,
    pub(super) show: fn(&View, &Row, Instant) -> String,
}

const fn column(title: &'static str, width: u16, show: fn(&View, &Row, Instant) -> String) -> Column {
    Column { title, width, show }
}

pub(super) const COLUMNS: [Column; 15] = [
    column("NODE", 20, |_, row, _| row.member.node_id.clone()),
    column("STATE", 7, |view, row, now| word(view.condition(row, now)).to_owned()),
    column("HEARTBEAT", 9, |view, row, now| seconds(view.heartbeat_age(row, now))),
    column("DURABLE/s", 9, |_, row, _| or_dash(row.rate(&["durable", "published_total"]), short)),
    column("EPHEM/s", 8, |_, row, _| or_dash(row.rate(&["ephemeral", "published_total"]), short)),
    column("HEARD/s", 8, |_, row, _| or_dash(row.rate(&["ephemeral", "received_total"]), short)),
    column("SOCKETS", 7, |_, row, _| or_dash(row.number(&["ws_clients"]), short)),
    column("STREAMS", 7, |_, row, _| or_dash(row.number(&["sse_clients"]), short)),
    column("MESH", 7, |_, row, _| row.mesh().map_or_else(dash, |(ready, all, _)| format!("{ready}/{all}"))),
    column("RTT", 8, |_, row, _| row.mesh().map_or_else(dash, |(.., rtt)| format!("{rtt:.1} ms"))),
    column("CPU", 7, |_, row, _| or_dash(row.number(&["cpu"]), |percent| format!("{percent:.1} %"))),
    column("MEMORY", 9, |_, row, _| {
        or_dash(row.number(&["rss_bytes"]), |bytes| format!("{:.1} MiB", bytes / 1024.0 / 1024.0))
    }),
    column("LAG", 8, |_, row, _| or_dash(row.number(&["scheduling_lag_ms"]), |ms| format!("{ms:.1} ms"))),
    column("DROPS/s", 7, |_, row, _| or_dash(row.rate(&["ephemeral", "dropped_total"]), short)),
    column("ENDPOINT", 24, |_, row, _| row.member.endpoint.clone()),
];

/// The titles, for a reader that is no terminal.
pub(crate) fn head() -> String {
    COLUMNS.iter().map(|column| column.title).collect::<Vec<_>>().join("\t")
}

/// A line for each node, for a reader that is no terminal.
pub(crate) fn lines(view: &View, now: Instant) -> impl Iterator<Item = String> {
    view.rows().iter().map(move |row| {
        let fields = COLUMNS.iter().map(|column| (column.show)(view, row, now));
        fields.collect::<Vec<_>>().join("\t")
    })
}

pub(super) fn word(condition: Condition) -> &'static str {
    match condition {
        Condition::Healthy => "healthy",
        Condition::Draining => "draining",
        Condition::Suspect => "suspect",
        Condition::Stale => "stale",
        Condition::Gone => "gone",
    }
}

pub(super) fn or_dash(number: Option<f64>, show: fn(f64) -> String) -> String {
    number.map_or_else(dash, show)
}

fn dash() -> String {
    "-".to_owned()
}

pub(super) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Three digits that mean something: `0.25`, `12.5`, `999`, `12.5k`, `1.25M`.
pub(super) fn short(number: f64) -> String {
    let (number, unit) = match number {
        _ if number >= 999_500.0 => (number / 1e6, "M"),
        _ if number >= 9_999.5 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let digits = match number {
        _ if number >= 99.95 || number.fract() == 0.0 => 0,
        _ if number >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.25, 3.0, 9.999, 12.54, 999.4, 9_999.0, 12_540.0, 1_250_000.0].map(short);
        assert_eq!(shown, ["0", "0.25", "3", "10.0", "12.5", "999", "9999", "12.5k", "1.25M"]);
    }
}
