//! Real processes: started, watched, frozen, killed. Nothing outlives its test.
//!
//! Invariant: a process is killed when its [`Process`] is dropped, frozen or not, and whatever it wrote is read, so that it
//! never waits for a full pipe.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::wait::{LONG, eventually};

pub use nix::sys::signal::Signal;

/// Lines that are kept for messages and conditions.
const KEPT: usize = 10_000;

/// How long the last lines of a process that has ended may take. Its children may hold its pipes for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);

type Lines = Arc<Mutex<VecDeque<String>>>;

/// A child process whose output is read. Killed when dropped.
pub struct Process {
    name: String,
    child: Child,
    lines: Lines,
    readers: [JoinHandle<()>; 2],
}

impl Process {
    /// Starts `command`, with its output to be read here.
    pub fn start(name: &str, mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let lines = Lines::default();
        let readers = [
            tokio::spawn(collect(child.stdout.take().unwrap(), Arc::clone(&lines))),
            tokio::spawn(collect(child.stderr.take().unwrap(), Arc::clone(&lines))),
        ];
        Self { name: name.to_owned(), child, lines, readers }
    }

    /// Its process id; panics once it has been waited for.
    pub fn pid(&self) -> i32 {
        let pid = self.child.id().unwrap_or_else(|| panic!("{} has ended:\n{}", self.name, self.output()));
        i32::try_from(pid).unwrap()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// SIGSTOP: it does nothing any more, and does not know it.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// SIGCONT: it goes on as if nothing had happened.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// SIGKILL, and waits until it is gone.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM, and waits for the exit.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait(LONG).await
    }

    /// Waits for the exit, and for its last words.
    pub async fn wait(&mut self, limit: Duration) -> ExitStatus {
        let Ok(status) = timeout(limit, self.child.wait()).await else {
            panic!("{} goes on after {limit:?}:\n{}", self.name, self.output());
        };
        // What is still unread then belongs to others that have its pipes.
        let _ = timeout(LAST_WORDS, self.silence()).await;
        status.unwrap()
    }

    /// The exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// What it has written so far, both streams, line by line.
    pub fn output(&self) -> String {
        self.lines.lock().unwrap().iter().fold(String::new(), |all, line| all + line + "\n")
    }

    /// Waits for a line that contains `text`; panics with the output if it does not come or can come no more.
    pub async fn says(&self, text: &str) {
        let said = || self.lines.lock().unwrap().iter().any(|line| line.contains(text));
        let what = format!("{} says {text:?}", self.name);
        let heard = timeout(LONG, eventually(LONG * 2, &what, async || said() || self.is_silent())).await;
        assert!(heard.is_ok(), "not within {LONG:?}: {what}; it said\n{}", self.output());
        assert!(said(), "{what}: never, it ended with\n{}", self.output());
    }

    /// Whether nothing can come from it any more.
    fn is_silent(&self) -> bool {
        self.readers.iter().all(JoinHandle::is_finished)
    }

    async fn silence(&self) {
        while !self.is_silent() {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.readers.iter().for_each(JoinHandle::abort);
    }
}

/// Reads lines to the end, whatever bytes they are made of.
async fn collect(stream: impl AsyncRead + Unpin, kept: Lines) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while let Ok(1..) = stream.read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned();
        line.clear();
        let mut kept = kept.lock().unwrap();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(text);
    }
}
