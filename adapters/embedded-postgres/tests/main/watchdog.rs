//! Owners that die: nothing of their PostgreSQL may remain.

use std::time::Duration;

use switchboard_embedded_postgres::{Options, PrivatePostgres};

use crate::owner::{Owner, example, example_as_ordinary_user};
use crate::{ask, open_dir, tell};

/// An immediate shutdown takes a fraction of a second; a crowded runner gets more.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_killed_owner_leaves_nothing() {
    let remains = Owner::start(example()).kill();
    remains.are_gone_within(SOON);
    assert!(!remains.home.exists());
}

#[test]
fn a_killed_owner_of_an_ordinary_user_leaves_nothing() {
    let dir = open_dir();
    let remains = Owner::start(example_as_ordinary_user(dir.path())).kill();
    remains.are_gone_within(SOON);
    assert!(!remains.home.exists());
}

#[test]
fn a_killed_owner_of_a_frozen_postgres_leaves_nothing() {
    let mut command = example();
    command.arg("--freeze");
    let remains = Owner::start(command).kill();
    remains.are_gone_within(SOON);
    assert!(!remains.home.exists());
}

#[test]
fn an_owner_interrupted_in_the_terminal_leaves_nothing() {
    let remains = Owner::start(example()).interrupt();
    remains.are_gone_within(SOON);
    assert!(!remains.home.exists());
}

#[test]
fn an_owner_killed_while_it_prepares_leaves_nothing() {
    let dir = open_dir();
    // From before the watchdog exists to after PostgreSQL is ready.
    for milliseconds in [0, 30, 80, 150, 300, 500, 800] {
        let mut command = example();
        command.env("TMPDIR", dir.path());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let deadline = std::time::Instant::now() + SOON;
    crate::owner::none_started_below(dir.path(), deadline);
}

#[tokio::test]
async fn what_a_killed_owner_kept_is_intact_at_once() {
    let dir = open_dir();
    let kept = dir.path().join("kept");
    let mut command = example();
    command.arg("--data-dir").arg(&kept);
    let owner = Owner::start(command);
    tell(&owner.url, "CREATE UNLOGGED TABLE u AS SELECT 'shut down in order' AS v").await;
    let remains = owner.kill();

    // No pause: the watchdog may still be at work when the directory is used again.
    let options = Options { data_dir: Some(kept), ..Options::default() };
    let postgres = PrivatePostgres::start(options).await.unwrap();
    assert_eq!(ask(postgres.url(), "SELECT v FROM u").await.unwrap(), "shut down in order");
    postgres.stop().await.unwrap();
    remains.are_gone_within(SOON);
}
