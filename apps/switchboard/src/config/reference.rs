//! `docs/configuration.md` says what `switchboard serve --help` says, from the same source. `UPDATE_DOCS=1` has the test write it.
//!
//! Built with the mesh, whose settings belong to it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fmt::Write;

use clap::{Arg, Args as _};

use super::ServeArgs;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");

const OPENING: &str = "<!-- Generated: `UPDATE_DOCS=1 cargo test -p switchboard --features mesh reference`. -->

# Configuration

Every setting of `switchboard serve` is an environment variable, and the flag of the same name: `CLUSTER_NODE_ID` is `--cluster-node-id`. The flag wins.
A wrong value stops the start with one message that names the variable, the value and what is allowed; one that is set but empty is wrong, and no default.
Durations are whole numbers with the units `h`, `m`, `s` and `ms`, the largest first and without spaces: `10s`, `500ms`, `1m30s`.
";

fn reference() -> String {
    let command = ServeArgs::augment_args(clap::Command::new("serve"));
    let settings: Vec<_> = command.get_arguments().filter(|arg| arg.get_env().is_some()).collect();
    let mut text = OPENING.to_owned();
    let mut sections: Vec<_> = settings.iter().filter_map(|arg| arg.get_help_heading()).collect();
    sections.dedup();
    for section in sections {
        let _ = write!(text, "\n## {section}\n");
        for arg in settings.iter().filter(|arg| arg.get_help_heading() == Some(section)) {
            text.push_str(&setting(arg));
        }
    }
    text
}

fn setting(arg: &Arg) -> String {
    let variable = arg.get_env().unwrap().to_string_lossy();
    let help = arg.get_long_help().or(arg.get_help()).unwrap().to_string();
    let (mut meaning, computed) = computed_default(&help);
    // Clap takes the stop from a help of one sentence.
    if !meaning.ends_with('.') {
        meaning.push('.');
    }
    let values: Vec<_> =
        arg.get_value_names().into_iter().flatten().map(|name| format!("`{name}`")).collect();
    let given = arg.get_default_values().first().map(|value| format!("`{}`", value.to_string_lossy()));
    let default = given.or(computed).unwrap_or_else(|| "none".to_owned());
    format!("\n### `{variable}`\n\n{}; default: {default}\n\n{meaning}\n", values.join(" "))
}

/// What a default that depends on something is said to be, apart from the rest.
fn computed_default(help: &str) -> (String, Option<String>) {
    let Some((before, rest)) = help.split_once("[default") else { return (help.trim().to_owned(), None) };
    let (default, after) = rest.split_once(']').unwrap();
    let meaning = [before.trim(), after.trim()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n\n");
    let default = default.split_whitespace().collect::<Vec<_>>().join(" ");
    (meaning, Some(default.trim_start_matches(':').trim().to_owned()))
}

#[test]
fn the_configuration_reference_says_what_the_help_says() {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(FILE, reference()).unwrap();
    }
    let written = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(written == reference(), "docs/configuration.md is out of date: UPDATE_DOCS=1 writes it");
}

#[test]
fn every_setting_is_in_a_section() {
    let command = ServeArgs::augment_args(clap::Command::new("serve"));
    for arg in command.get_arguments().filter(|arg| arg.get_env().is_some()) {
        assert!(arg.get_help_heading().is_some(), "{:?}", arg.get_env());
    }
}
