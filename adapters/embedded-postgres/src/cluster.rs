//! Prepares a data directory: runs `initdb` on the first start, clears up after a crash on the later ones.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::account::Account;
use crate::guarded::{gated, pid_of, spawn, wait_for_exit};
use crate::home::{Home, postmaster_pid};
use crate::process::{family_of, signal_all, was_started_with};
use crate::watchdog::Watchdog;
use crate::{Error, Installation};

/// `initdb` takes a second on an idle machine; a crowded CI runner with a slow disk takes many.
const PATIENCE: Duration = Duration::from_mins(2);

/// Makes sure that `home.data()` is a data directory PostgreSQL can start in.
pub(crate) fn prepare(
    home: &Home,
    installation: &Installation,
    account: &Account,
    log: &File,
    watchdog: &mut Watchdog,
) -> Result<(), Error> {
    if home.major().is_some() {
        forget_stale_postmaster(&home.data());
        return Ok(());
    }
    let unfinished = home.unfinished_data();
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished).map_err(Error::io("remove", &unfinished))?;
    }
    initdb(home, installation, account, log, watchdog)?;
    std::fs::rename(&unfinished, home.data()).map_err(Error::io("rename", &unfinished))
}

fn initdb(
    home: &Home,
    installation: &Installation,
    account: &Account,
    log: &File,
    watchdog: &mut Watchdog,
) -> Result<(), Error> {
    let mut command = gated(account, &installation.bin_dir().join("initdb"));
    command
        // Sorting and messages are the same on every machine; the C locale is the one that every system has.
        .args(["--username=postgres", "--encoding=UTF8", "--locale=C", "--no-instructions"])
        // Checked against the stored hash by the server. A plain password over loopback shows it to nobody who could
        // not read it in this process, and spares every connection of a debug build the 4096 rounds of SCRAM.
        .args(["--auth-host=password", "--auth-local=password"])
        .arg("--pwfile")
        .arg(home.password_file())
        .arg("--pgdata")
        .arg(home.unfinished_data());
    if home.is_temporary() {
        command.arg("--no-sync");
    }
    let mut child = spawn(command, log, watchdog)?;
    let outcome = wait_for_exit(&mut child, PATIENCE);
    if outcome.is_none() {
        signal_all(&family_of(pid_of(&child)), Signal::SIGKILL);
        let _ = child.wait();
    }
    watchdog.relax();
    match outcome {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(failure("initdb", describe(status), home)),
        None => Err(failure("initdb", format!("did not finish within {} s", PATIENCE.as_secs()), home)),
    }
}

/// Removes PostgreSQL's lock file if the pid in it now belongs to something else.
///
/// PostgreSQL refuses to start while that pid is alive, whoever it is; in a container, where pids start from 1 each
/// time, it usually is. A remaining process of the old instance is still noticed, by its shared memory.
pub(crate) fn forget_stale_postmaster(data: &Path) {
    let Some(pid) = postmaster_pid(data) else { return };
    if was_started_with(Pid::from_raw(pid), data) == Some(false) {
        tracing::debug!(pid, "the lock file of an unclean stop names another process by now");
        let _ = std::fs::remove_file(data.join("postmaster.pid"));
    }
}

/// An [`Error::Failed`] with the end of the log, which may be gone by the time somebody looks.
pub(crate) fn failure(program: &'static str, outcome: String, home: &Home) -> Error {
    const LINES: usize = 15;
    let text = std::fs::read(home.log_file()).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let log = lines[lines.len().saturating_sub(LINES)..].join("\n");
    Error::Failed { program, outcome, log_file: home.log_file(), log }
}

/// `exited with status 1` or `was killed by signal 9`.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_lock_file_is_stale_when_its_pid_is_another_program() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("postmaster.pid");
        std::fs::write(&file, format!("{}\n{}\n", std::process::id(), dir.path().display())).unwrap();
        forget_stale_postmaster(dir.path());
        assert_eq!(file.exists(), !Path::new("/proc/self/cmdline").exists());
    }

    #[test]
    fn a_lock_file_is_believed_while_its_pid_runs_in_this_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("postmaster.pid");
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo up; read -r wait", "sh"])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The kernel shows no arguments for an instant while it replaces the program.
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        std::fs::write(&file, format!("{}\n", child.id())).unwrap();
        forget_stale_postmaster(dir.path());
        assert!(file.exists());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
