//! Real processes: started, watched, frozen, killed. Nothing outlives its test.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::wait::{LONG, eventually};

/// Lines that are kept for messages and conditions.
const KEPT: usize = 10_000;

/// A child process whose output is read. Killed when dropped.
pub struct Process {
    name: String,
    child: Child,
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Process {
    /// Starts `command`. Standard input is empty unless the command says otherwise.
    pub fn start(name: &str, mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        collect(child.stdout.take().unwrap(), Arc::clone(&lines));
        collect(child.stderr.take().unwrap(), Arc::clone(&lines));
        Self { name: name.to_owned(), child, lines }
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

    /// SIGKILL, and waits until it is gone.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM, and waits for the exit.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait(LONG).await
    }

    /// Waits for the exit.
    pub async fn wait(&mut self, limit: Duration) -> ExitStatus {
        let status = timeout(limit, self.child.wait()).await;
        status
            .unwrap_or_else(|_elapsed| panic!("{} goes on after {limit:?}:\n{}", self.name, self.output()))
            .unwrap()
    }

    /// The exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// What it has written so far, both streams, line by line.
    pub fn output(&self) -> String {
        self.lines.lock().unwrap().iter().fold(String::new(), |all, line| all + line + "\n")
    }

    /// Waits for a line that contains `text`.
    pub async fn says(&self, text: &str) {
        let said = async || self.lines.lock().unwrap().iter().any(|line| line.contains(text));
        let what = format!("{} says {text:?}", self.name);
        let heard = timeout(LONG, eventually(LONG * 2, &what, said)).await;
        assert!(heard.is_ok(), "{what}: it said\n{}", self.output());
    }
}

fn collect(stream: impl AsyncRead + Unpin + Send + 'static, kept: Arc<Mutex<VecDeque<String>>>) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut kept = kept.lock().unwrap();
            if kept.len() == KEPT {
                kept.pop_front();
            }
            kept.push_back(line);
        }
    });
}
