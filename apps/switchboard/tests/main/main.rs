//! The command line of the real binary: exit codes, messages, and what goes to which stream. Nothing here needs a database;
//! what nodes do with one is tested in the workspace's `tests`.

#![allow(clippy::unwrap_used, reason = "tests may stop at the first surprise")]

mod client;
mod dev;
mod schema;
mod token;
mod wrong_settings;

use std::ffi::OsStr;
use std::process::{Command, Output};

/// Where no PostgreSQL is. The password must never be seen again.
const NOWHERE: &str = "postgres://user:hunter2@127.0.0.1:1/db";

/// The binary, in an environment without settings.
fn switchboard(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard"));
    command.args(arguments).env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs to a refusal, which is one line on stderr and nothing on stdout, and answers the line.
fn refusal(command: &mut Command, code: i32) -> String {
    let output = run(command);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert_eq!(stdout(&output), "");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("error: ") && !message.contains("hunter2"), "{message}");
    message
}

/// `serve` with one setting on top of a database that is not there.
fn serve_with(variable: &str, value: impl AsRef<OsStr>) -> Command {
    let mut command = switchboard(&["serve"]);
    command.env("DATABASE_URL", NOWHERE).env(variable, value);
    command
}

#[test]
fn help_is_the_reference_and_shows_no_secret() {
    let mut command = serve_with("ADMIN_TOKEN", "hunter2");
    let output = run(command.arg("--help"));
    assert!(output.status.success());
    let help = stdout(&output);
    for part in [
        "DATABASE_URL",
        "LISTEN_DATABASE_URL",
        "DATABASE_POOL_SIZE",
        "CLUSTER_SCHEMA",
        "CLUSTER_NODE_ID",
        "CLUSTER_ENDPOINT",
        "CLUSTER_HEARTBEAT_INTERVAL",
        "CLUSTER_STALE_THRESHOLD",
        "CLUSTER_ON_EVICTION",
        "CLUSTER_DRAIN_TIMEOUT",
        "CLUSTER_EPHEMERAL",
        "HTTP_ADDR",
        "ADMIN_TOKEN",
        "METRICS_TOKEN",
        "METRICS_OPEN",
        "AUTH_JWT_SECRET",
        "AUTH_JWT_PUBLIC_KEY_FILE",
        "AUTH_JWKS_FILE",
        "AUTH_AUDIENCE",
        "AUTH_ISSUER",
        "AUTH_LEEWAY",
        "AUTH_ORIGINS",
        "DURABLE_MAX_BYTES",
        "LOG_LEVEL",
        "LOG_FORMAT",
        "[default: 10s]",
        "[default: 30s]",
        "[default: 127.0.0.1:4000]",
        "such as 10s, 500ms or 1m30s",
    ] {
        assert!(help.contains(part), "{part:?} is missing in\n{help}");
    }
    assert!(!help.contains("hunter2") && !help.contains("exit-with-stdin"), "{help}");
}

#[test]
fn a_command_that_does_not_exist_is_wrong_usage() {
    assert_eq!(run(&mut switchboard(&["sevre"])).status.code(), Some(2));
    assert_eq!(run(&mut switchboard(&[])).status.code(), Some(2));
}
