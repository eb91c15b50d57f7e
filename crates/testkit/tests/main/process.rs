//! The harness sees what processes say and do, and leaves none behind.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use switchboard_testkit::process::{Process, Signal};
use switchboard_testkit::{LONG, eventually};
use tokio::process::Command;

fn shell(script: &str) -> Process {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script);
    Process::start("shell", command)
}

fn is_gone(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)
}

/// The state letter of a process, as in `ps`.
fn state(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

#[tokio::test]
async fn both_streams_are_heard_to_the_last_word_and_the_exit_is_seen() {
    let mut process = shell("echo out; echo err >&2; printf 'no newline \\377'; exit 7");
    assert_eq!(process.wait(LONG).await.code(), Some(7));
    let mut lines: Vec<_> = process.output().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["err", "no newline \u{fffd}", "out"]);
    assert_eq!(process.ended().and_then(|status| status.code()), Some(7));
}

#[tokio::test]
async fn a_process_that_writes_much_is_not_held_up() {
    let mut process = shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done");
    assert!(process.wait(LONG).await.success());
    assert!(process.output().ends_with("line 19999\n"));
    assert_eq!(process.output().lines().count(), 10_000);
}

#[tokio::test]
async fn a_line_can_be_waited_for() {
    let process = shell("sleep 0.2; echo the cluster is ready; exec sleep 60");
    process.says("is ready").await;
}

#[tokio::test]
#[should_panic(expected = "never, it ended with\nsomething else")]
async fn a_line_that_can_come_no_more_is_not_waited_for() {
    shell("echo something else").says("is ready").await;
}

#[tokio::test]
async fn signals_freeze_thaw_and_end_it() {
    let mut process =
        shell("trap 'echo asked to stop; exit 3' TERM; echo trapped; while :; do sleep 0.05; done");
    process.says("trapped").await;
    let pid = process.pid();
    process.freeze();
    eventually(LONG, "it is frozen", async || state(pid) == 'T').await;
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ended(), None);
    process.thaw();
    assert_eq!(process.wait(LONG).await.code(), Some(3));
    assert!(process.output().contains("asked to stop"), "{}", process.output());
}

#[tokio::test]
async fn a_killed_process_is_gone_at_once() {
    let mut process = shell("exec sleep 60");
    let pid = process.pid();
    process.kill().await;
    assert!(is_gone(pid));
    assert_eq!(process.ended().and_then(|status| status.signal()), Some(9));
}

#[tokio::test]
#[should_panic(expected = "shell goes on after 50ms")]
async fn a_process_that_does_not_end_is_named() {
    shell("exec sleep 60").wait(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn a_dropped_process_is_killed_even_when_frozen() {
    let process = shell("exec sleep 60");
    let pid = process.pid();
    process.freeze();
    drop(process);
    eventually(LONG, "the process is gone", async || is_gone(pid)).await;
}
