//! A short run of the checker; longer ones are for people.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use switchboard_testkit::process::Process;
use tokio::process::Command;

/// Starting, settling and judging. Every wait within is bounded, and says what it waited for.
const SLACK: Duration = Duration::from_mins(4);

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_repeated_or_made_up_whatever_happens_to_the_cluster() {
    let seconds = if std::env::var_os("CI").is_some() { 60 } else { 10 };
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard-checker"));
    command.args(["--seconds", &seconds.to_string()]);
    let mut checker = Process::start("the checker", command);
    let status = checker.wait(Duration::from_secs(seconds) + SLACK).await;
    assert!(status.success(), "{status}\n{}", checker.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_usage_is_no_violation() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_switchboard-checker"));
    command.args(["--nodes", "0"]);
    let mut checker = Process::start("the checker", command);
    assert_eq!(checker.wait(switchboard_testkit::LONG).await.code(), Some(2), "{}", checker.output());
}
