//! Hears that the process is to stop: by a signal, or because whoever started it is gone.
//!
//! The first request is for an orderly end, the second for an end at once. Handlers are in place from the start, since a process
//! with PID 1 has no others. SIGHUP stops as well: a closed terminal leaves no node behind.

use std::io;
use std::os::fd::AsFd;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Why the process is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Somebody sent a signal.
    Signal { name: &'static str, number: u8 },
    /// The other end of standard input is gone.
    ParentGone,
}

/// The requests so far. Dropping it stops listening; the signals stay without effect.
#[derive(Debug)]
pub(crate) struct Stop {
    requests: watch::Receiver<Vec<Reason>>,
    task: JoinHandle<()>,
}

impl Stop {
    /// Starts listening for signals, and for the end of standard input if asked to, which must be a pipe then.
    pub(crate) fn listen(with_stdin: bool) -> io::Result<Self> {
        let signals = Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        };
        let stdin = if with_stdin { Some(stdin_pipe()?) } else { None };
        let (asked, requests) = watch::channel(Vec::new());
        Ok(Self { requests, task: tokio::spawn(listen(signals, stdin, asked)) })
    }

    /// Waits for the first request.
    pub(crate) async fn asked(&self) -> Reason {
        self.request(0).await
    }

    /// Waits for the second.
    pub(crate) async fn insisted(&self) -> Reason {
        self.request(1).await
    }

    async fn request(&self, index: usize) -> Reason {
        let mut requests = self.requests.clone();
        match requests.wait_for(|requests| requests.len() > index).await {
            Ok(requests) => requests[index],
            // The task never ends by itself.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reason {
    /// The exit code of a process that ends at once for this reason, as a shell would report it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Signal { number, .. } => 128 + number,
            Self::ParentGone => 1,
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Signal { name, .. } => f.write_str(name),
            Self::ParentGone => f.write_str("the end of its parent"),
        }
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    async fn next(&mut self) -> Reason {
        tokio::select! {
            _ = self.terminate.recv() => Reason::Signal { name: "SIGTERM", number: 15 },
            _ = self.interrupt.recv() => Reason::Signal { name: "SIGINT", number: 2 },
            _ = self.hangup.recv() => Reason::Signal { name: "SIGHUP", number: 1 },
        }
    }
}

/// Standard input as something that can be waited for without a thread that blocks on it.
fn stdin_pipe() -> io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)
}

async fn listen(mut signals: Signals, stdin: Option<pipe::Receiver>, asked: watch::Sender<Vec<Reason>>) {
    let parent_gone = end_of(stdin);
    tokio::pin!(parent_gone);
    let mut orphaned = false;
    loop {
        let reason = tokio::select! {
            reason = signals.next() => reason,
            () = &mut parent_gone, if !orphaned => {
                orphaned = true;
                Reason::ParentGone
            }
        };
        asked.send_modify(|requests| requests.push(reason));
    }
}

async fn end_of(stdin: Option<pipe::Receiver>) {
    let Some(mut stdin) = stdin else { return std::future::pending().await };
    let mut ignored = [0; 64];
    while matches!(stdin.read(&mut ignored).await, Ok(1..)) {}
}
