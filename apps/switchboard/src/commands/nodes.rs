//! `switchboard nodes`: the cluster as one of its nodes sees it.

use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{Table, presets};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::client::{Client, ClientArgs};
use crate::output;

/// What it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print all there is, as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    client: ClientArgs,
}

/// A row of the admin API. Its measurements are whatever the node tells; none is required.
#[derive(Deserialize)]
struct Node {
    #[serde(rename = "node_id")]
    id: String,
    endpoint: String,
    registered_at: String,
    heartbeat_age_ms: u64,
    stats: Map<String, Value>,
}

#[derive(Deserialize)]
struct Cluster {
    data: Vec<Node>,
}

const PATH: [&str; 3] = ["api", "admin", "cluster"];

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(args.client)?;
    if args.json {
        let cluster: Value = client.get(&PATH).await?;
        output::line(serde_json::to_string_pretty(&cluster)?)?;
    } else {
        let cluster: Cluster = client.get(&PATH).await?;
        output::line(table(&cluster.data))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(nodes: &[Node]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["NODE", "ENDPOINT", "REGISTERED", "HEARTBEAT", "UPTIME", "RSS", "CPU", "LAG"]);
    for node in nodes {
        let stat = |name: &str, show: fn(f64) -> String| {
            node.stats.get(name).and_then(Value::as_f64).map_or_else(|| "-".to_owned(), show)
        };
        table.add_row([
            node.id.clone(),
            node.endpoint.clone(),
            to_the_second(&node.registered_at),
            format!("{:.1} s ago", Duration::from_millis(node.heartbeat_age_ms).as_secs_f64()),
            stat("uptime_sec", uptime),
            stat("rss_bytes", |bytes| format!("{:.1} MiB", bytes / 1024.0 / 1024.0)),
            stat("cpu", |percent| format!("{percent:.1} %")),
            stat("scheduling_lag_ms", |ms| format!("{ms:.1} ms")),
        ]);
    }
    table.trim_fmt()
}

/// `2026-01-02T03:04:05.678901Z` without the fraction.
fn to_the_second(timestamp: &str) -> String {
    match timestamp.split_once('.') {
        Some((seconds, _)) if timestamp.ends_with('Z') => format!("{seconds}Z"),
        _ => timestamp.to_owned(),
    }
}

fn uptime(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds.trunc()) {
        Ok(duration) => humantime::format_duration(duration).to_string(),
        Err(_) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_tells_nothing_is_shown_all_the_same() {
        let cluster: Cluster = serde_json::from_str(
            r#"{"data": [
                {"node_id": "a", "endpoint": "h:1", "registered_at": "2026-01-02T03:04:05.6789Z",
                 "heartbeat_age_ms": 1234, "stats": {"uptime_sec": 3723, "rss_bytes": 10485760, "cpu": 1.25}},
                {"node_id": "b", "endpoint": "h:2", "registered_at": "x", "heartbeat_age_ms": 0, "stats": {"cpu": "odd"}}
            ]}"#,
        )
        .unwrap();
        let table = table(&cluster.data);
        let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows[1],
            [
                "a",
                "h:1",
                "2026-01-02T03:04:05Z",
                "1.2",
                "s",
                "ago",
                "1h",
                "2m",
                "3s",
                "10.0",
                "MiB",
                "1.2",
                "%",
                "-"
            ]
        );
        assert_eq!(rows[2], ["b", "h:2", "x", "0.0", "s", "ago", "-", "-", "-", "-"]);
    }
}
