//! What cannot work is refused with a message that says what to do.

use std::error::Error as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;

use nix::unistd::Uid;
use switchboard_embedded_postgres::{BIN_DIR_VARIABLE, Binaries, Error, Options, PrivatePostgres, StopMode};

use crate::open_dir;
use crate::owner::{complaint, example, example_as_ordinary_user};

#[test]
fn a_wrong_bin_dir_variable() {
    let mut command = example();
    command.env(BIN_DIR_VARIABLE, "/nonexistent");
    let said = complaint(command);
    for part in [BIN_DIR_VARIABLE, "/nonexistent", "initdb, pg_ctl and postgres"] {
        assert!(said.contains(part), "{part:?} is missing in {said:?}");
    }
}

#[test]
fn no_binaries_and_no_way_to_download_them() {
    let dir = open_dir();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = example_as_ordinary_user(dir.path());
    command.arg("--download").env("XDG_CACHE_HOME", dir.path().join("cache"));
    // A proxy that refuses connections stands for a machine without internet access.
    command.env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, "http://127.0.0.1:1");
    }
    let said = complaint(command);
    for part in
        ["downloading it failed", "apt install postgresql", "brew install postgresql", BIN_DIR_VARIABLE]
    {
        assert!(said.contains(part), "{part:?} is missing in {said:?}");
    }
}

#[tokio::test]
async fn a_directory_in_use() {
    let dir = open_dir();
    let options = || Options { data_dir: Some(dir.path().join("kept")), ..Options::default() };
    let postgres = PrivatePostgres::start(options()).await.unwrap();
    let error = PrivatePostgres::start(options()).await.unwrap_err();
    let Error::DataDirInUse { holder, .. } = error else { panic!("{error}") };
    assert_eq!(holder, postgres.postmaster_pid());
}

#[tokio::test]
async fn a_file_in_place_of_the_directory() {
    let dir = open_dir();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error =
        PrivatePostgres::start(Options { data_dir: Some(file), ..Options::default() }).await.unwrap_err();
    assert!(error.to_string().contains("File exists"), "{error}");
    assert!(error.source().is_none(), "the reason would be shown twice: {error}");
}

#[tokio::test]
async fn a_port_in_use() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let error = PrivatePostgres::start(Options { port, ..Options::default() }).await.unwrap_err();
    assert!(matches!(error, Error::PortInUse { port: refused } if refused == port), "{error}");
}

#[tokio::test]
async fn a_setting_postgres_does_not_know() {
    let configuration = vec![("no_such_setting".to_owned(), "1".to_owned())];
    let error = PrivatePostgres::start(Options { configuration, ..Options::default() }).await.unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Failed { program: "postgres", .. }), "{message}");
    assert!(message.contains("no_such_setting"), "{message}");
}

#[tokio::test]
async fn data_of_another_major_version() {
    let dir = open_dir();
    let kept = dir.path().join("kept");
    let options = || Options { data_dir: Some(kept.clone()), ..Options::default() };
    let postgres = PrivatePostgres::start(options()).await.unwrap();
    postgres.stop().await.unwrap();
    std::fs::write(kept.join("data/PG_VERSION"), "9\n").unwrap();

    let binaries = Binaries::In(postgres.installation().bin_dir().to_owned());
    let error = PrivatePostgres::start(Options { binaries, ..options() }).await.unwrap_err();
    assert!(matches!(error, Error::WrongMajor { wrote: 9, .. }), "{error}");
    assert!(error.to_string().contains(BIN_DIR_VARIABLE));
}

#[tokio::test]
async fn a_directory_the_unprivileged_user_cannot_reach() {
    if !Uid::effective().is_root() {
        return;
    }
    let dir = open_dir();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let options = Options { data_dir: Some(dir.path().join("kept")), ..Options::default() };
    let error = PrivatePostgres::start(options).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let closed = dir.path().canonicalize().unwrap();
    assert!(error.to_string().ends_with(&format!("may not enter {}", closed.display())), "{error}");
}

#[tokio::test]
async fn going_on_after_the_end() {
    let postgres = PrivatePostgres::start(Options::default()).await.unwrap();
    postgres.stop().await.unwrap();
    assert!(matches!(postgres.resume().await, Err(Error::Stopped)));
    assert!(matches!(postgres.halt(StopMode::Fast).await, Err(Error::Stopped)));
}
