//! The process that makes sure nothing is left running when the owner is killed, exits without dropping, or panics.
//!
//! It is a shell reading a pipe (`watchdog.sh`): no threads or signal handlers in the owner, nothing that `kill -9`
//! could skip. The pipe's write end is close-on-exec, so that no child of the owner can keep it open.

use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use nix::unistd::Pid;

use crate::Error;
use crate::account::detached;
use crate::guarded::wait_for_exit;

const SCRIPT: &str = include_str!("watchdog.sh");

/// Its orderly end takes milliseconds: nothing is guarded any more, the directory is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the watchdog does when the owner is gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastWill<'a> {
    /// The signal that stops PostgreSQL: `INT` is fast, `QUIT` immediate.
    pub(crate) signal: &'static str,
    /// How long PostgreSQL may take before it is killed.
    pub(crate) patience: Duration,
    /// The private directory.
    pub(crate) home: &'a Path,
    /// Whether the directory goes, too.
    pub(crate) remove: bool,
}

/// A running watchdog. Dropping it makes it act.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    /// `None` once closed.
    pipe: Option<ChildStdin>,
}

impl Watchdog {
    /// Starts a watchdog that guards nothing yet but the directory.
    pub(crate) fn spawn(will: LastWill<'_>) -> Result<Self, Error> {
        let mut command = detached("/bin/sh");
        // The script needs rm and sleep whatever the owner's PATH is.
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{path}:/usr/bin:/bin"))
            .args(["-c", SCRIPT, "switchboard-postgres-watchdog", will.signal])
            .arg(will.patience.as_secs().to_string())
            .arg(will.home)
            .arg(if will.remove { "remove" } else { "keep" })
            .stdin(Stdio::piped());
        let mut child = command.spawn().map_err(Error::io("start the watchdog with", "/bin/sh"))?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe })
    }

    /// From now on this process is stopped when the owner is gone.
    pub(crate) fn guard(&mut self, pid: Pid) -> Result<(), Error> {
        self.tell(&pid.to_string())
    }

    /// The guarded process has been reaped; its pid may soon belong to another.
    pub(crate) fn relax(&mut self) {
        if let Err(error) = self.tell("-") {
            tracing::warn!(%error, "the watchdog of the private PostgreSQL is gone");
        }
    }

    fn tell(&mut self, line: &str) -> Result<(), Error> {
        let Some(pipe) = self.pipe.as_mut() else { return Ok(()) };
        pipe.write_all(format!("{line}\n").as_bytes()).map_err(Error::io("write to the watchdog's", "pipe"))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.pipe = None;
        if wait_for_exit(&mut self.child, PATIENCE).is_none() {
            tracing::warn!("the watchdog of the private PostgreSQL did not end in time");
        }
    }
}
