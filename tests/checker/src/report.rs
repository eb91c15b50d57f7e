//! What the run has to say, on standard output.

use std::io::{self, Write, stdout};
use std::path::Path;

use comfy_table::{Table, presets};
use switchboard_testkit::history::{Summary, Violation};

use crate::nemesis::Nemesis;

/// Violations that are shown. One fault often breaks a promise many times, and the file has them all.
const SHOWN: usize = 20;

pub(crate) fn verdict(summary: &Summary, nemesis: &Nemesis, violations: &[Violation]) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut row = |what: &str, count: String| {
        table.add_row([what.to_owned(), count]);
    };
    row("events published", summary.published.to_string());
    row("  committed", summary.committed.to_string());
    row("  failed", summary.failed.to_string());
    row("  unknown", summary.unknown.to_string());
    row("events delivered", summary.delivered.to_string());
    row("subscriptions", summary.subscriptions.to_string());
    row("prunings told", summary.pruned.to_string());
    row("slowest catch-up", format!("{:.1} s", nemesis.slowest.as_secs_f64()));
    for (action, count) in &nemesis.done {
        row(&action.to_string(), count.to_string());
    }
    row("violations", violations.len().to_string());

    let mut out = stdout().lock();
    writeln!(out, "{}", table.trim_fmt())?;
    for violation in violations.iter().take(SHOWN) {
        writeln!(out, "VIOLATION {violation}")?;
    }
    if violations.len() > SHOWN {
        writeln!(out, "and {} more", violations.len() - SHOWN)?;
    }
    Ok(())
}

/// Where to look, and how to try again.
pub(crate) fn kept(history: &Path, seed: u64) -> io::Result<()> {
    writeln!(
        stdout().lock(),
        "history: {}\nagain, though with other timing: --seed {seed}",
        history.display()
    )
}
