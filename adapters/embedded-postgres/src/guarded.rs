//! Starts a process that cannot run a single instruction of its program before the watchdog knows its pid.
//!
//! A plain spawn leaves a gap: an owner killed between fork and telling the watchdog would leave PostgreSQL behind. So
//! the child starts as a shell that waits for a word on its standard input and then becomes the program, under the same
//! pid. An owner that dies in the gap closes the pipe and the shell ends.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::Error;
use crate::account::Account;
use crate::watchdog::Watchdog;

const GATE: &str = r#"read -r go || exit 1; exec "$@" </dev/null"#;

/// How often a wait looks again. Short, because tests start and stop PostgreSQL many times.
pub(crate) const POLL: Duration = Duration::from_millis(10);

/// A command for `program` behind the gate, to be extended with the program's arguments.
pub(crate) fn gated(account: &Account, program: &Path) -> Command {
    let mut command = account.command("/bin/sh");
    command.args(["-c", GATE, "sh"]).arg(program);
    command
}

/// Spawns a gated command with its output going to `log`, and opens the gate once the watchdog guards it.
pub(crate) fn spawn(mut command: Command, log: &File, watchdog: &mut Watchdog) -> Result<Child, Error> {
    let output = || log.try_clone().map_err(Error::io("share", "the log file"));
    command.stdin(Stdio::piped()).stdout(output()?).stderr(output()?);
    let mut child = command.spawn().map_err(Error::io("start", "/bin/sh"))?;
    let gate = child.stdin.take();
    let opened = watchdog.guard(pid_of(&child)).and_then(|()| {
        gate.map_or(Ok(()), |mut gate| gate.write_all(b"go\n")).map_err(Error::io("write to", "the gate"))
    });
    if let Err(error) = opened {
        // The gate is closed by now, so the child ends by itself.
        let _ = child.wait();
        return Err(error);
    }
    Ok(child)
}

/// The pid of a child that was not reaped, and so still is this child's.
pub(crate) fn pid_of(child: &Child) -> Pid {
    // Linux and macOS keep pids far below 2^31.
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX))
}

/// Waits for a child to exit and reaps it; `None` if it is still running after `patience`.
pub(crate) fn wait_for_exit(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL),
            Ok(None) => return None,
            // Only possible if someone else reaped it, which is the same as gone.
            Err(_) => return Some(ExitStatus::default()),
        }
    }
}
