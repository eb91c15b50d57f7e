//! Wrong settings in the environment: one message that names the variable, exit code 2, and nothing started.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::{refusal, serve_with, switchboard};

#[test]
fn b132_a_duration_without_a_unit_stops_the_start() {
    for variable in ["CLUSTER_HEARTBEAT_INTERVAL", "CLUSTER_STALE_THRESHOLD", "CLUSTER_DRAIN_TIMEOUT"] {
        for value in ["30", "30 s", "1.5s", "PT10S", "10sec", "1d", "٣s", "1e3ms", ""] {
            let message = refusal(&mut serve_with(variable, value), 2);
            assert!(message.contains(&format!("{variable} (--")), "{message}");
            assert!(message.contains(&format!("is \"{value}\": must be")), "{message}");
            assert!(message.contains("10s, 500ms or 1m30s"), "{message}");
        }
    }
}

#[test]
fn a_variable_that_is_set_but_empty_is_no_default() {
    for variable in [
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
    ] {
        let message = refusal(&mut serve_with(variable, ""), 2);
        assert!(message.contains(&format!("error: {variable} (--")), "{message}");
    }
}

#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    let message = refusal(&mut serve_with("CLUSTER_NODE_ID", OsStr::from_bytes(b"caf\xe9")), 2);
    assert!(message.contains("CLUSTER_NODE_ID") && message.contains("must be UTF-8"), "{message}");
    let secret = OsStr::from_bytes(b"postgres://user:hunter2\xff@h/db");
    let message = refusal(&mut serve_with("DATABASE_URL", secret), 2);
    assert!(message.contains("DATABASE_URL") && message.contains("must be UTF-8"), "{message}");
}

#[test]
fn b134_a_database_url_that_cannot_be_read_is_not_repeated() {
    for url in [
        "postgres://user:hunter2#x@h/db",
        "postgres://user:x/hunter2@h/db",
        "postgres://user:hunter2@h:port/db",
        "postgres://user:hunter2@h/db?sslmod=require",
    ] {
        let message = refusal(&mut serve_with("DATABASE_URL", url), 2);
        assert!(message.contains("error: DATABASE_URL (--database-url)"), "{message}");
    }
    let message = refusal(&mut switchboard(&["serve"]), 2);
    assert!(message.contains("DATABASE_URL (--database-url) is not set"), "{message}");
}

#[test]
fn a_flag_wins_over_its_variable() {
    let mut command = serve_with("CLUSTER_NODE_ID", "good");
    let message = refusal(command.args(["--cluster-node-id", "not good"]), 2);
    assert!(message.contains("(--cluster-node-id) is \"not good\""), "{message}");
}

#[test]
#[cfg(not(feature = "mesh"))]
fn a_build_without_a_mesh_says_so() {
    let message = refusal(&mut serve_with("CLUSTER_EPHEMERAL", "mesh"), 2);
    assert!(message.contains("this build has no mesh"), "{message}");
}
