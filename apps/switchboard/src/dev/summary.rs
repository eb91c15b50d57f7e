//! What a developer sees when the cluster is up: where it is, and what to try.

use std::fmt::Write as _;

use comfy_table::{Table, presets};

use super::nodes::{Nodes, Recipe};

/// The table of nodes, the database, and commands to copy. `program` is how the reader calls this program.
pub(crate) fn summary(
    nodes: &Nodes,
    recipe: &Recipe,
    postgres: &str,
    database_url: &str,
    program: &str,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["NODE", "PID", "URL"]);
    for node in nodes.iter() {
        table.add_row([node.id.clone(), node.pid.to_string(), node.addr.local_url()]);
    }
    let urls: Vec<_> = nodes.iter().map(|node| node.addr.local_url()).collect();
    let (first, last) = (urls.first().map_or("", String::as_str), urls.last().map_or("", String::as_str));
    let token = if recipe.admin_token == "dev" { "dev" } else { "as in ADMIN_TOKEN" };
    let mut text = format!("\n{}\n\n", table.trim_fmt());
    let mut row = |name: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<14}{value}");
    };
    row("postgresql", postgres);
    row("DATABASE_URL", database_url);
    row("admin token", token);
    if recipe.open_access {
        let windows = urls.iter().take(2).map(|url| format!("{url}/demo"));
        row("demo", &windows.collect::<Vec<_>>().join("  "));
    }
    row("dashboard", &format!("{first}/admin"));
    row("listen", &format!("{program} tail room:1 --url {last}"));
    row("publish", &format!("{program} publish room:1 message '{{\"text\":\"hi\"}}' --url {first}"));
    row("look", &format!("{program} nodes --url {first}"));
    row("stop", "Ctrl-C");
    text
}
