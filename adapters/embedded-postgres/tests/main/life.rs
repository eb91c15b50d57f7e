//! Start, use, stop, restart, freeze: the life of an instance whose owner behaves.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use switchboard_embedded_postgres::{Options, PrivatePostgres, StopMode};

use crate::owner::{Owner, example_as_ordinary_user, is_alive};
use crate::{ask, open_dir, tell};

async fn start() -> PrivatePostgres {
    PrivatePostgres::start(Options::default()).await.unwrap()
}

async fn start_in(dir: &Path) -> PrivatePostgres {
    PrivatePostgres::start(Options { data_dir: Some(dir.to_owned()), ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn it_answers_and_goes_without_a_trace() {
    let postgres = start().await;
    assert_eq!(ask(postgres.url(), "SELECT 1::text").await.unwrap(), "1");
    let version = ask(postgres.url(), "SHOW server_version").await.unwrap();
    assert!(version.starts_with(postgres.installation().version()), "{version}");
    assert!(postgres.log_file().is_file());

    let pid = postgres.postmaster_pid().unwrap();
    postgres.stop().await.unwrap();
    postgres.stop().await.unwrap();
    assert_eq!(postgres.postmaster_pid(), None);
    assert!(!is_alive(pid));
    assert!(!postgres.home().exists());
}

#[tokio::test]
async fn dropping_it_stops_it() {
    let postgres = start().await;
    let (pid, home) = (postgres.postmaster_pid().unwrap(), postgres.home().to_owned());
    drop(postgres);
    assert!(!is_alive(pid));
    assert!(!home.exists());
}

#[tokio::test]
async fn an_ordinary_user_needs_nothing_either() {
    let dir = open_dir();
    let owner = Owner::start(example_as_ordinary_user(dir.path()));
    assert_eq!(ask(&owner.url, "SELECT 1::text").await.unwrap(), "1");
    let remains = owner.finish();
    remains.are_gone_within(Duration::ZERO);
    assert!(!remains.home.exists());
}

#[tokio::test]
async fn two_at_once_do_not_meet() {
    let (one, two) = tokio::join!(start(), start());
    assert_ne!(one.port(), two.port());
    tell(one.url(), "CREATE TABLE mine ()").await;
    assert_eq!(
        ask(two.url(), "SELECT count(*)::text FROM pg_tables WHERE tablename = 'mine'").await.unwrap(),
        "0"
    );
}

#[tokio::test]
async fn settings_reach_the_server_but_it_stays_local() {
    let settings =
        [("max_connections", "37"), ("application_name", "two words, 'quoted'"), ("listen_addresses", "*")];
    let configuration = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let postgres = PrivatePostgres::start(Options { configuration, ..Options::default() }).await.unwrap();
    assert_eq!(ask(postgres.url(), "SHOW max_connections").await.unwrap(), "37");
    assert_eq!(ask(postgres.url(), "SHOW application_name").await.unwrap(), "two words, 'quoted'");
    assert_eq!(ask(postgres.url(), "SHOW listen_addresses").await.unwrap(), "127.0.0.1");
    assert_eq!(ask(postgres.url(), "SHOW fsync").await.unwrap(), "off");
}

#[tokio::test]
async fn the_superuser_has_a_password() {
    let postgres = start().await;
    let guessed = format!("postgres://postgres:postgres@127.0.0.1:{}/postgres", postgres.port());
    let error = ask(&guessed, "SELECT 1::text").await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().unwrap(), "28P01");
}

#[tokio::test]
async fn a_kept_directory_is_used_again() {
    let dir = open_dir();
    let dir = dir.path().join("kept");
    let postgres = start_in(&dir).await;
    assert_eq!(ask(postgres.url(), "SHOW fsync").await.unwrap(), "on");
    tell(postgres.url(), "CREATE TABLE t AS SELECT 'kept' AS v").await;
    postgres.stop().await.unwrap();

    let postgres = start_in(&dir).await;
    assert_eq!(ask(postgres.url(), "SELECT v FROM t").await.unwrap(), "kept");
    postgres.stop().await.unwrap();
    assert!(dir.join("data/PG_VERSION").is_file());
}

#[tokio::test]
async fn a_kept_directory_survives_a_killed_postmaster() {
    let dir = open_dir();
    let dir = dir.path().join("kept");
    let postgres = start_in(&dir).await;
    tell(postgres.url(), "CREATE TABLE t AS SELECT 'kept' AS v").await;
    kill(Pid::from_raw(postgres.postmaster_pid().unwrap()), Signal::SIGKILL).unwrap();
    drop(postgres);
    assert!(dir.join("data/postmaster.pid").exists(), "the stop was not unclean");

    let postgres = start_in(&dir).await;
    assert_eq!(ask(postgres.url(), "SELECT v FROM t").await.unwrap(), "kept");
}

#[tokio::test]
async fn an_interrupted_initdb_is_done_again() {
    let dir = open_dir();
    let dir = dir.path().join("kept");
    start_in(&dir).await.stop().await.unwrap();
    std::fs::rename(dir.join("data"), dir.join("data.new")).unwrap();
    std::fs::remove_file(dir.join("data.new/PG_VERSION")).unwrap();
    assert_eq!(ask(start_in(&dir).await.url(), "SELECT 1::text").await.unwrap(), "1");
}

#[tokio::test]
async fn a_restart_keeps_url_and_data_and_only_an_immediate_one_empties_unlogged_tables() {
    let postgres = start().await;
    tell(postgres.url(), "CREATE TABLE t AS SELECT 1; CREATE UNLOGGED TABLE u AS SELECT 1").await;
    let both = "SELECT (SELECT count(*) FROM t) || ' ' || (SELECT count(*) FROM u)";

    postgres.restart(StopMode::Fast).await.unwrap();
    assert_eq!(ask(postgres.url(), both).await.unwrap(), "1 1");
    postgres.restart(StopMode::Immediate).await.unwrap();
    assert_eq!(ask(postgres.url(), both).await.unwrap(), "1 0");
}

#[tokio::test]
async fn it_can_be_down_for_a_while() {
    let postgres = start().await;
    tell(postgres.url(), "CREATE TABLE t AS SELECT 'still here' AS v").await;
    postgres.halt(StopMode::Immediate).await.unwrap();
    postgres.halt(StopMode::Fast).await.unwrap();
    assert_eq!(postgres.postmaster_pid(), None);
    assert!(ask(postgres.url(), "SELECT v FROM t").await.is_err());

    postgres.resume().await.unwrap();
    let pid = postgres.postmaster_pid();
    postgres.resume().await.unwrap();
    assert_eq!(postgres.postmaster_pid(), pid);
    assert_eq!(ask(postgres.url(), "SELECT v FROM t").await.unwrap(), "still here");
}

#[tokio::test]
async fn it_can_be_resumed_after_a_crash() {
    let postgres = start().await;
    tell(postgres.url(), "CREATE TABLE t AS SELECT 'still here' AS v").await;
    kill(Pid::from_raw(postgres.postmaster_pid().unwrap()), Signal::SIGKILL).unwrap();
    while postgres.postmaster_pid().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    postgres.resume().await.unwrap();
    assert_eq!(ask(postgres.url(), "SELECT v FROM t").await.unwrap(), "still here");
}

#[tokio::test]
async fn frozen_it_answers_nobody_and_thawed_it_goes_on() {
    let postgres = start().await;
    let url = postgres.url();
    postgres.freeze();
    let mut query = std::pin::pin!(ask(url, "SELECT 'late'"));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut query).await.is_err());
    postgres.thaw();
    assert_eq!(query.await.unwrap(), "late");
}

#[tokio::test]
async fn a_session_that_is_open_freezes_too() {
    use sqlx::{Connection, PgConnection};
    let postgres = start().await;
    let mut session = PgConnection::connect(postgres.url()).await.unwrap();
    postgres.freeze();
    let mut ping = std::pin::pin!(session.ping());
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut ping).await.is_err());
    postgres.thaw();
    ping.await.unwrap();
}

#[tokio::test]
async fn a_frozen_one_can_be_stopped() {
    let postgres = start().await;
    let pid = postgres.postmaster_pid().unwrap();
    postgres.freeze();
    postgres.stop().await.unwrap();
    assert!(!is_alive(pid));
}
