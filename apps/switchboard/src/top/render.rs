//! Draws what is known. Pure: the same view at the same time is the same picture.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table};

use super::columns::{COLUMNS, Column, or_dash, seconds, short};
use super::state::{Condition, View};

/// Between two columns.
const GAP: u16 = 1;

/// A full NOTIFY queue makes every publisher fail; from here on it deserves a look.
const FILLING: f64 = 0.2;

impl View {
    /// Draws everything.
    pub(crate) fn render(&self, frame: &mut Frame<'_>, now: Instant) {
        let parts = [Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)];
        let [summary, nodes, footer] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(Paragraph::new(vec![self.summary(now), self.traffic()]), summary);
        frame.render_widget(self.table(nodes.width, now), nodes);
        let help = match self.problem() {
            Some(problem) => Line::from(format!("as of {} ago: {problem}", seconds(self.age(now)))).red(),
            None => Line::from("q quits, ↑ and ↓ scroll").dim(),
        };
        frame.render_widget(help, footer);
    }

    fn summary(&self, now: Instant) -> Line<'static> {
        let (size, healthy) = self.size(now);
        let plural = if size == 1 { "" } else { "s" };
        let color = if healthy == size { Color::Green } else { Color::Yellow };
        let queue = self.each(|row| row.number(&["postgres", "notify_queue_usage"]));
        let queue = queue.map(|usages| usages.fold(0.0, f64::max));
        let queue_style =
            if queue.is_some_and(|usage| usage >= FILLING) { Style::new().red() } else { Style::new() };
        Line::from(vec![
            Span::from(format!("{size} node{plural}")).bold(),
            Span::from(", "),
            Span::styled(format!("{healthy} healthy"), color),
            Span::from("   NOTIFY queue "),
            Span::styled(or_dash(queue, |usage| format!("{:.1} %", usage * 100.0)), queue_style),
        ])
    }

    fn traffic(&self) -> Line<'static> {
        let sum = |path: &'static [&'static str], is_rate: bool| {
            let each = self.each(move |row| if is_rate { row.rate(path) } else { row.number(path) });
            or_dash(each.map(Iterator::sum), short)
        };
        Line::from(format!(
            "durable {}/s   ephemeral {}/s   sockets {}   streams {}   present {}",
            sum(&["durable", "published_total"], true),
            sum(&["ephemeral", "published_total"], true),
            sum(&["ws_clients"], false),
            sum(&["sse_clients"], false),
            sum(&["presence_own_entries"], false),
        ))
    }

    fn table(&self, width: u16, now: Instant) -> Table<'static> {
        let columns = fitting(width);
        let rows = self.rows().iter().skip(self.skipped).map(|row| {
            let condition = self.condition(row, now);
            let cells = columns.iter().map(|column| match column.title {
                "STATE" => Cell::from((column.show)(self, row, now)).fg(color(condition)),
                _ => Cell::from((column.show)(self, row, now)),
            });
            let is_gone = condition == Condition::Gone;
            TableRow::new(cells).style(if is_gone {
                Style::new().add_modifier(Modifier::DIM)
            } else {
                Style::new()
            })
        });
        let titles = TableRow::new(columns.iter().map(|column| column.title)).style(Style::new().reversed());
        Table::new(rows, columns.iter().map(|column| Constraint::Length(column.width)))
            .header(titles)
            .column_spacing(GAP)
    }
}

/// The first columns, as many as there is room for, and one at least.
fn fitting(width: u16) -> &'static [Column] {
    let mut left = width;
    let fit = COLUMNS.iter().take_while(|column| {
        let fits = left >= column.width;
        left = left.saturating_sub(column.width + GAP);
        fits
    });
    &COLUMNS[..fit.count().max(1)]
}

fn color(condition: Condition) -> Color {
    match condition {
        Condition::Healthy => Color::Green,
        Condition::Draining => Color::Blue,
        Condition::Suspect => Color::Yellow,
        Condition::Stale => Color::Red,
        Condition::Gone => Color::Reset,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::super::state::tests::{answer, member};
    use super::*;

    /// The lines of a screen of this size, without trailing blanks.
    fn drawn(view: &View, (width, height): (u16, u16), now: Instant) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.render(frame, now)).unwrap();
        let cells = terminal.backend().buffer().content().chunks(width.into());
        cells
            .map(|line| {
                line.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned()
            })
            .collect()
    }

    fn stats(published: u64) -> serde_json::Value {
        json!({
            "durable": {"published_total": published}, "ephemeral": {"published_total": published * 2, "received_total": 0},
            "ws_clients": 3, "sse_clients": 1, "presence_own_entries": 2, "cpu": 12.5, "rss_bytes": 10_485_760, "scheduling_lag_ms": 0.3,
            "postgres": {"notify_queue_usage": 0.015},
            "mesh": {"unreached": 1, "peers": {"b": {"ready": true, "rtt_us": 1500}, "c": {"ready": false, "rtt_us": 9}}},
        })
    }

    fn view(now: Instant) -> View {
        let mut view =
            View::new(now, answer(&[member("a", "1", 0, 0, &stats(0)), member("b", "1", 0, 0, &json!({}))]));
        view.read(
            now,
            answer(&[
                member("a", "1", 10, 1200, &stats(1000)),
                member("c", "1", 10, 31_000, &json!({"cpu": "odd"})),
            ]),
        );
        view
    }

    #[test]
    fn the_cluster_at_a_glance() {
        let now = Instant::now();
        let screen = drawn(&view(now), (160, 8), now);
        assert_eq!(screen[0], "2 nodes, 1 healthy   NOTIFY queue 1.5 %");
        assert_eq!(screen[1], "durable 100/s   ephemeral 200/s   sockets 3   streams 1   present 2");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(&screen[2]),
            "NODE STATE HEARTBEAT DURABLE/s EPHEM/s HEARD/s SOCKETS STREAMS MESH RTT CPU MEMORY LAG DROPS/s ENDPOINT"
        );
        assert_eq!(
            words(&screen[3]),
            "a healthy 1.2 s 100 200 0 3 1 1/2 1.5 ms 12.5 % 10.0 MiB 0.3 ms - a:4000"
        );
        assert_eq!(words(&screen[4]), "c stale 31.0 s - - - - - - - - - - - c:4000");
        assert!(words(&screen[5]).starts_with("b gone "), "{screen:?}");
        assert_eq!(screen[7], "q quits, ↑ and ↓ scroll");
    }

    #[test]
    fn a_list_that_cannot_be_read_leaves_the_last_one_with_its_age() {
        let now = Instant::now();
        let mut view = view(now);
        view.fail("cannot reach a node".to_owned());
        let screen = drawn(&view, (120, 8), now + Duration::from_secs(7));
        assert!(screen[3].starts_with("a "), "{screen:?}");
        assert_eq!(screen[7], "as of 7.0 s ago: cannot reach a node");
    }

    #[test]
    fn no_terminal_is_too_small_and_a_long_list_is_scrolled() {
        let now = Instant::now();
        let mut view = view(now);
        for size in [(1, 1), (2, 3), (20, 4), (30, 5), (400, 100)] {
            drawn(&view, size, now);
        }
        let screen = drawn(&view, (40, 5), now);
        assert_eq!(screen[2].trim_end(), "NODE                 STATE   HEARTBEAT");
        view.scroll(1);
        assert!(drawn(&view, (40, 5), now)[3].starts_with("c "));
        view.scroll(100);
        assert!(drawn(&view, (40, 5), now)[3].starts_with("b "));
        view.scroll(-100);
        assert!(drawn(&view, (40, 5), now)[3].starts_with("a "));
    }
}
