//! What `dev` refuses before it starts anything.

use std::net::TcpListener;

use crate::{refusal, run, switchboard};

#[test]
fn a_port_in_use_is_named_before_anything_is_started() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = holder.local_addr().unwrap().to_string();
    let message =
        refusal(switchboard(&["dev", "--nodes", "1", "--http", &addr]).env("HOME", "/nonexistent"), 1);
    assert!(message.contains(&addr) && message.contains("--http"), "{message}");
}

#[test]
fn settings_that_its_nodes_would_refuse_are_refused_at_once() {
    let dev = || switchboard(&["dev", "--http", "127.0.0.1:0"]);
    let message = refusal(dev().env("CLUSTER_STALE_THRESHOLD", "5"), 2);
    assert!(message.contains("CLUSTER_STALE_THRESHOLD"), "{message}");
    let message = refusal(dev().env("DATABASE_URL", "hunter2"), 2);
    assert!(message.contains("DATABASE_URL"), "{message}");
    let message = refusal(dev().env("ADMIN_TOKEN", ""), 2);
    assert!(message.contains("ADMIN_TOKEN"), "{message}");
}

#[test]
fn a_cluster_that_others_can_reach_needs_a_token() {
    for addr in [":0", "0.0.0.0:0", "[::]:0"] {
        let message = refusal(&mut switchboard(&["dev", "--http", addr]), 2);
        assert!(message.contains("ADMIN_TOKEN") && message.contains(addr), "{message}");
    }
}

#[test]
fn it_takes_one_to_thirty_two_nodes() {
    for count in ["0", "33", "-1", "x", ""] {
        assert_eq!(run(&mut switchboard(&["dev", &format!("--nodes={count}")])).status.code(), Some(2));
    }
}
