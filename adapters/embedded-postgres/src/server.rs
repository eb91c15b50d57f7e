//! One run of the postmaster, from spawn to reaped: waiting until it is ready, stopping, freezing.
//!
//! `postgres` is a direct child, not a daemon made by `pg_ctl`: its exit is noticed at once, its pid cannot be another
//! process's while it is not reaped, and its settings need no shell quoting.

use std::fs::File;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::account::Account;
use crate::cluster::{describe, failure};
use crate::guarded::{POLL, gated, pid_of, spawn, wait_for_exit};
use crate::home::{Home, postmaster_pid};
use crate::process::{family_of, signal, signal_all};
use crate::watchdog::Watchdog;
use crate::{Error, Installation, StopMode, free_port};

/// How long PostgreSQL may take until it accepts connections; recovery after a crash is the long case.
const READY_WITHIN: Duration = Duration::from_mins(1);
/// How long the last processes of a predecessor, stopped by its own watchdog, may keep us waiting.
const PREDECESSOR: Duration = Duration::from_secs(30);
/// PostgreSQL kills its own processes five seconds into an immediate shutdown.
const IMMEDIATE_WITHIN: Duration = Duration::from_secs(7);
/// How often another free port is tried before the machine is to blame.
const PORTS_TRIED: usize = 10;

/// Everything a postmaster is started from; the same for every run of an instance.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) installation: Installation,
    pub(crate) account: Account,
    pub(crate) configuration: Vec<(String, String)>,
    pub(crate) log: File,
}

/// A running postmaster. Dropping it leaves it to the watchdog.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    port: u16,
}

/// Why a postmaster ended before it was ready.
enum Obstacle {
    PortTaken,
    Predecessor,
    Other(Error),
}

impl Server {
    /// Starts PostgreSQL on a port of its choice, or on the given one.
    pub(crate) fn start(
        recipe: &Recipe,
        home: &Home,
        watchdog: &mut Watchdog,
        fixed_port: Option<u16>,
    ) -> Result<Self, Error> {
        let begun = Instant::now();
        let mut ports_left = PORTS_TRIED;
        loop {
            let port = fixed_port.unwrap_or_else(free_port);
            match Self::attempt(recipe, home, watchdog, port) {
                Ok(server) => return Ok(server),
                Err(Obstacle::PortTaken) if fixed_port.is_none() && ports_left > 0 => ports_left -= 1,
                Err(Obstacle::PortTaken) => return Err(Error::PortInUse { port }),
                Err(Obstacle::Predecessor) if begun.elapsed() < PREDECESSOR => std::thread::sleep(POLL * 10),
                Err(Obstacle::Predecessor) => {
                    return Err(Error::DataDirInUse {
                        path: home.path().to_owned(),
                        holder: postmaster_pid(&home.data()),
                    });
                }
                Err(Obstacle::Other(error)) => return Err(error),
            }
        }
    }

    fn attempt(recipe: &Recipe, home: &Home, watchdog: &mut Watchdog, port: u16) -> Result<Self, Obstacle> {
        let logged_before = log_length(recipe);
        let child = spawn(postgres(recipe, home, port), &recipe.log, watchdog).map_err(Obstacle::Other)?;
        let mut server = Self { child, port };
        let deadline = Instant::now() + READY_WITHIN;
        while !server.is_ready(home) {
            if let Ok(Some(status)) = server.child.try_wait() {
                watchdog.relax();
                return Err(obstacle(home, logged_before, describe(status)));
            }
            if Instant::now() > deadline {
                let error =
                    failure("postgres", format!("was not ready within {} s", READY_WITHIN.as_secs()), home);
                // If it will not go, the watchdog keeps at it.
                if server.stop(StopMode::Immediate, IMMEDIATE_WITHIN).is_ok() {
                    watchdog.relax();
                }
                return Err(Obstacle::Other(error));
            }
            std::thread::sleep(POLL);
        }
        Ok(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn pid(&self) -> Pid {
        pid_of(&self.child)
    }

    /// False once the postmaster has exited, for whatever reason.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Stops the postmaster and reaps it: as asked, then immediately, then by force.
    pub(crate) fn stop(&mut self, mode: StopMode, patience: Duration) -> Result<(), Error> {
        if !self.is_running() {
            return Ok(());
        }
        self.thaw();
        let steps = match mode {
            StopMode::Fast => &[(Signal::SIGINT, patience), (Signal::SIGQUIT, IMMEDIATE_WITHIN)][..],
            StopMode::Immediate => &[(Signal::SIGQUIT, IMMEDIATE_WITHIN)][..],
        };
        for (how, patience) in steps {
            signal(self.pid(), *how);
            if wait_for_exit(&mut self.child, *patience).is_some() {
                return Ok(());
            }
            tracing::warn!(pid = %self.pid(), signal = %how, "PostgreSQL did not stop in time");
        }
        signal_all(&family_of(self.pid()), Signal::SIGKILL);
        wait_for_exit(&mut self.child, IMMEDIATE_WITHIN)
            .map(|_| ())
            .ok_or_else(|| Error::WillNotDie { pid: self.pid().as_raw() })
    }

    /// Stops every process of the instance in its tracks, and returns when none moves any more.
    pub(crate) fn freeze(&self) {
        // Until its own signal takes effect, the postmaster may still start another child.
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let mut moving = family_of(self.pid());
            moving.retain(|process| process.state != 'T');
            if moving.is_empty() || Instant::now() > deadline {
                return;
            }
            signal_all(&moving, Signal::SIGSTOP);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Undoes [`freeze`](Self::freeze), and any SIGSTOP from elsewhere.
    pub(crate) fn thaw(&self) {
        signal_all(&family_of(self.pid()), Signal::SIGCONT);
    }

    /// As `pg_ctl` does: the postmaster writes its state into the 8th line of its lock file.
    fn is_ready(&self, home: &Home) -> bool {
        let Ok(text) = std::fs::read_to_string(home.data().join("postmaster.pid")) else { return false };
        let mut lines = text.lines();
        let is_ours = lines.next().is_some_and(|pid| pid.trim() == self.pid().as_raw().to_string());
        is_ours && lines.nth(6).is_some_and(|state| state.trim() == "ready")
    }
}

/// The command line of the postmaster.
fn postgres(recipe: &Recipe, home: &Home, port: u16) -> Command {
    let mut command = gated(&recipe.account, &recipe.installation.bin_dir().join("postgres"));
    command.arg("-D").arg(home.data()).current_dir(home.data());
    let mut set = |name: &str, value: &str| {
        command.arg("-c").arg(format!("{name}={value}"));
    };
    if home.is_temporary() {
        // A temporary instance does not outlive a power cut anyway. Crashes of PostgreSQL itself lose nothing by this:
        // commits still reach the kernel, so tests of recovery mean what they say.
        set("fsync", "off");
        set("full_page_writes", "off");
    }
    set("logging_collector", "off");
    set("log_destination", "stderr");
    // This crate reads its own log.
    set("lc_messages", "C");
    for (name, value) in &recipe.configuration {
        set(name, value);
    }
    // Last, so that they win: reachable from this machine only, and by no socket whose path could be too long.
    set("listen_addresses", "127.0.0.1");
    set("unix_socket_directories", "");
    set("port", &port.to_string());
    command
}

fn log_length(recipe: &Recipe) -> usize {
    recipe.log.metadata().ok().and_then(|meta| usize::try_from(meta.len()).ok()).unwrap_or(0)
}

/// What a postmaster that gave up wrote about it.
fn obstacle(home: &Home, logged_before: usize, outcome: String) -> Obstacle {
    let text = std::fs::read(home.log_file()).unwrap_or_default();
    let said = String::from_utf8_lossy(text.get(logged_before..).unwrap_or_default());
    if said.contains("could not bind") {
        Obstacle::PortTaken
    } else if said.contains("lock file \"postmaster.pid\" already exists")
        || said.contains("pre-existing shared memory block")
    {
        Obstacle::Predecessor
    } else {
        Obstacle::Other(failure("postgres", outcome, home))
    }
}
