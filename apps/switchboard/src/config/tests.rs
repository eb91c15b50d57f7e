//! The whole configuration, given as flags: what is accepted, and how each wrong value is refused.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args as _, CommandFactory, FromArgMatches};
use switchboard_core::node::OnEviction;

use super::*;

const URL: &str = "postgres://u:hunter2@db/app";

/// Parses flags alone, whatever the environment of the test run holds.
fn resolve(flags: &[&str]) -> Result<ServeConfig, ConfigError> {
    resolve_all(flags).map(|(config, _)| config)
}

fn resolve_all(flags: &[&str]) -> Result<(ServeConfig, LogConfig), ConfigError> {
    let command = ServeArgs::augment_args(clap::Command::new("serve")).mut_args(|arg| arg.env(None::<&str>));
    let matches = command.try_get_matches_from([&["serve"], flags].concat()).unwrap();
    ServeArgs::from_arg_matches(&matches).unwrap().resolve()
}

/// The message for one wrong flag.
fn refusal(flag: &str, value: &str) -> String {
    let wrong = format!("{flag}={value}");
    let flags = if flag == "--database-url" { vec![&*wrong] } else { vec!["--database-url", URL, &wrong] };
    let message = resolve(&flags).unwrap_err().to_string();
    assert!(!message.contains('\n') && message.len() < 600, "{message}");
    message
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let (config, logs) = resolve_all(&["--database-url", URL]).unwrap();
    assert_eq!(config.cluster.timing.heartbeat_interval(), Duration::from_secs(10));
    assert_eq!(config.cluster.timing.stale_threshold(), Duration::from_secs(30));
    assert_eq!(config.cluster.drain_timeout, Duration::from_secs(10));
    assert_eq!(config.cluster.on_eviction, OnEviction::Stop);
    assert_eq!(config.cluster.endpoint, None);
    assert_eq!(config.database.schema.as_str(), "switchboard");
    assert_eq!(config.database.pool_size, 1);
    assert_eq!(config.http.addr.to_string(), "127.0.0.1:4000");
    assert_eq!(config.http.limits, PayloadLimits::default());
    assert!(config.http.admin_token.is_none());
    assert_eq!(logs.format, LogFormat::Text);
}

#[test]
fn every_wrong_value_is_refused_by_a_message_that_names_variable_value_and_rule() {
    for (flag, value, rule) in [
        ("--database-pool-size", "0", "from 1 to 1000"),
        ("--database-pool-size", "many", "from 1 to 1000"),
        ("--cluster-schema", "My-Schema", "1 to 40 of a-z"),
        ("--cluster-node-id", "a b", "visible ASCII"),
        ("--cluster-endpoint", "0.0.0.0:4433", "unspecified"),
        ("--cluster-heartbeat-interval", "30", "10s, 500ms or 1m30s"),
        ("--cluster-heartbeat-interval", "1ms", "at least 100ms"),
        ("--cluster-stale-threshold", "PT30S", "10s, 500ms or 1m30s"),
        ("--cluster-stale-threshold", "25h", "at most 86400s"),
        ("--cluster-on-eviction", "restart", "exit or rejoin"),
        ("--cluster-drain-timeout", "1.5s", "10s, 500ms or 1m30s"),
        ("--cluster-drain-timeout", "2h", "at most 1h"),
        ("--cluster-ephemeral", "nats", "must be pg"),
        ("--http-addr", "8080", "host:port"),
        ("--http-max-connections", "9", "10 to 1000000"),
        ("--durable-max-bytes", "1MiB", "1024 to 16777216"),
        ("--metrics-open", "yes", "on or off"),
        ("--log-level", "inof", "info"),
        ("--log-format", "xml", "text or json"),
    ] {
        let message = refusal(flag, value);
        let variable = flag.trim_start_matches('-').to_uppercase().replace('-', "_");
        assert!(message.starts_with(&format!("{variable} ({flag}) is \"{value}\": must ")), "{message}");
        assert!(message.contains(rule), "{rule:?} is missing in {message}");
    }
}

#[test]
fn a_value_that_is_set_but_empty_is_wrong_and_no_default() {
    let command = ServeArgs::augment_args(clap::Command::new("serve"));
    let flags: Vec<_> = command
        .get_arguments()
        .filter(|arg| arg.get_action().takes_values())
        .filter_map(|arg| arg.get_long().map(|long| format!("--{long}")))
        .collect();
    assert_eq!(flags.len(), if cfg!(feature = "mesh") { 37 } else { 35 });
    for flag in flags {
        let message = refusal(&flag, "");
        assert!(message.contains(&format!("({flag})")), "{message}");
    }
}

#[test]
fn every_setting_is_a_variable_and_the_flag_of_the_same_name() {
    for command in [
        ServeArgs::augment_args(clap::Command::new("serve")),
        crate::cli::Cli::command().find_subcommand("serve").unwrap().clone(),
    ] {
        for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
            let variable = arg.get_env().unwrap().to_str().unwrap();
            let flag = variable.to_lowercase().replace('_', "-");
            assert_eq!(arg.get_long(), Some(flag.as_str()));
            assert!(arg.is_hide_env_values_set(), "--help would show the value of {variable}");
        }
    }
}

#[test]
fn a_threshold_below_two_heartbeats_names_both_variables() {
    let message = refusal("--cluster-stale-threshold", "15s");
    assert_eq!(
        message,
        "CLUSTER_STALE_THRESHOLD (--cluster-stale-threshold) is \"15s\": must be at least two heartbeats (2 × 10s); \
         CLUSTER_HEARTBEAT_INTERVAL is \"10s\""
    );
}

#[test]
fn b077_odd_node_ids_and_endpoints_are_kept_or_refused() {
    let with = |flag: &str, value: &str| resolve(&["--database-url", URL, &format!("{flag}={value}")]);
    for good in ["x", "..", "a/b", "a%2Fb", "a?b#c", "<b>", &"x".repeat(128)] {
        assert_eq!(with("--cluster-node-id", good).unwrap().cluster.node_id.as_str(), good);
    }
    for bad in [" a", "a ", "a\nb", "🦀", "a'b", &"x".repeat(129), &"x".repeat(1_000_000)] {
        assert!(refusal("--cluster-node-id", bad).starts_with("CLUSTER_NODE_ID"));
    }
    for good in ["[::1]:4433", "node-1.svc:1", "10.0.0.1:65535", "host.:7"] {
        assert_eq!(with("--cluster-endpoint", good).unwrap().cluster.endpoint.unwrap().to_string(), good);
    }
    for bad in [
        "::1:4433",
        "host:0",
        "host:65536",
        "host",
        "http://host:1",
        "[fe80::1%eth0]:1",
        "0.0.0.0:4433",
        "bücher.example:1",
    ] {
        assert!(refusal("--cluster-endpoint", bad).starts_with("CLUSTER_ENDPOINT"));
    }
}

#[test]
fn b134_a_database_url_is_required_and_never_shown() {
    let missing = resolve(&[]).unwrap_err().to_string();
    assert_eq!(
        missing,
        "DATABASE_URL (--database-url) is not set: must be postgres://user:password@host:port/database"
    );
    for bad in [
        "postgres://u:hunter2#@db/app",
        "postgres://u:hun/ter2@db/app",
        "postgres://u:hunter2@db:port/app",
        "mysql://u:hunter2@db/app",
        "hunter2",
    ] {
        for flags in [&["--database-url", bad][..], &["--database-url", URL, "--listen-database-url", bad]] {
            let message = resolve(flags).unwrap_err().to_string();
            assert!(message.contains("DATABASE_URL") && !message.contains("hun"), "{message}");
        }
    }
    let config =
        resolve(&["--database-url", "postgres://u:p%40ss%2Fword@db/app", "--admin-token", "hunter2"]);
    let shown = format!("{:?}", config.unwrap());
    assert!(!shown.contains("p%40ss") && !shown.contains("p@ss") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn an_admin_token_must_fit_into_a_header() {
    for bad in ["a b", "ü", "a\n", &"x".repeat(8193)] {
        let message = refusal("--admin-token", bad);
        assert!(
            message.starts_with("ADMIN_TOKEN (--admin-token) has a value that is not allowed"),
            "{message}"
        );
        assert!(!message.contains(&format!("\"{bad}\"")), "{message}");
    }
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let flag = OsString::from_vec(b"--cluster-node-id=caf\xe9".to_vec());
    let command = ServeArgs::augment_args(clap::Command::new("serve")).mut_args(|arg| arg.env(None::<&str>));
    let flags = [OsString::from("serve"), "--database-url".into(), URL.into(), flag];
    let matches = command.try_get_matches_from(flags).unwrap();
    let error = ServeArgs::from_arg_matches(&matches).unwrap().resolve().unwrap_err().to_string();
    assert!(error.starts_with("CLUSTER_NODE_ID") && error.ends_with("must be UTF-8"), "{error}");
}
