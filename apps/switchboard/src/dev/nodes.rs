//! The nodes of a development cluster: child processes of this very program, each its own process group, so that Ctrl-C in the
//! terminal reaches `dev` alone, which then stops them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::FutureExt;
use futures::future::{join_all, select_all};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::death::Death;
use crate::config::HttpAddr;
use crate::output;

/// Lines of its log that are shown when a node dies.
const LAST_WORDS: usize = 8;

/// Longest wait for the log of a node that has ended to be read to its end.
const LOG_END: Duration = Duration::from_secs(1);

/// How to start nodes.
pub(crate) struct Recipe {
    /// This very program.
    pub(crate) program: PathBuf,
    pub(crate) database_url: String,
    /// Whether the database is not the one the environment names: then its direct route is not, either.
    pub(crate) database_is_private: bool,
    pub(crate) admin_token: String,
    /// Let clients in without a token.
    pub(crate) open_access: bool,
    /// `AUTH_ORIGINS` of the nodes: pages of one node may go to another when theirs is gone.
    pub(crate) origins: String,
    /// Show their logs, each line after the node's id.
    pub(crate) show_logs: bool,
}

/// The nodes that were started.
#[derive(Default)]
pub(crate) struct Nodes(Vec<Node>);

pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) pid: u32,
    pub(crate) addr: HttpAddr,
    child: Child,
    /// Its standard input. It ends when we do, and that tells the node.
    _lifeline: Option<ChildStdin>,
    log: Log,
    ended: bool,
}

impl Nodes {
    /// Starts one more.
    pub(crate) fn start(&mut self, recipe: &Recipe, addr: HttpAddr) -> anyhow::Result<()> {
        let node_id = format!("node-{}", self.0.len() + 1);
        let mut command = Command::new(&recipe.program);
        command
            .args(["serve", "--exit-with-stdin"])
            .env("DATABASE_URL", &recipe.database_url)
            .env("ADMIN_TOKEN", &recipe.admin_token)
            .env("HTTP_ADDR", addr.to_string())
            .env("CLUSTER_NODE_ID", &node_id)
            .env("AUTH_ORIGINS", &recipe.origins)
            .env_remove("CLUSTER_ENDPOINT")
            .env_remove("MESH_ADDR")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if recipe.open_access {
            command.arg("--dev-open-access");
        }
        if recipe.database_is_private {
            command.env_remove("LISTEN_DATABASE_URL");
        }
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", recipe.program.display()))?;
        let pid = child.id().unwrap_or_default();
        let log = Log::read(child.stderr.take(), recipe.show_logs.then(|| node_id.clone()));
        // Taken out, since waiting for a child closes what is still in there.
        let lifeline = child.stdin.take();
        self.0.push(Node { id: node_id, pid, addr, child, _lifeline: lifeline, log, ended: false });
        Ok(())
    }

    /// Those that were started, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter()
    }

    /// Waits for the next one to end. `None` if none is left. May be called again after it was cancelled.
    pub(crate) async fn next_death(&mut self) -> Option<Death> {
        let running = self.0.iter_mut().filter(|node| !node.ended);
        let deaths: Vec<_> = running.map(|node| node.death().boxed()).collect();
        if deaths.is_empty() {
            return None;
        }
        Some(select_all(deaths).await.0)
    }

    /// Asks all to leave, and kills what has not ended after `patience`. Nothing is left when it returns.
    pub(crate) async fn stop(&mut self, patience: Duration) {
        let stopping = self.0.iter_mut().filter(|node| !node.ended).map(|node| node.stop(patience));
        join_all(stopping).await;
    }
}

impl Node {
    async fn death(&mut self) -> Death {
        let status = self.child.wait().await.unwrap_or_default();
        self.ended = true;
        Death { node_id: self.id.clone(), pid: self.pid, status, last_words: self.log.last_words().await }
    }

    async fn stop(&mut self, patience: Duration) {
        self.signal(Signal::SIGTERM);
        // One that was frozen for demonstration could not hear it.
        self.signal(Signal::SIGCONT);
        if timeout(patience, self.child.wait()).await.is_err() {
            // Fails only if it has ended by now.
            let _ = self.child.kill().await;
        }
        self.ended = true;
    }

    /// A process that has not been waited for keeps its pid, so this reaches nobody else.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// Reads what a node logs, keeps the end of it, and shows it if asked to.
struct Log {
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
}

impl Log {
    fn read(stderr: Option<ChildStderr>, show_as: Option<String>) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::with_capacity(LAST_WORDS)));
        let kept = Arc::clone(&lines);
        let reader = tokio::spawn(async move {
            let Some(stderr) = stderr else { return };
            let mut stderr = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = stderr.next_line().await {
                if let Some(node_id) = &show_as {
                    output::note(format_args!("{node_id} | {line}"));
                }
                let mut kept = kept.lock();
                if kept.len() == LAST_WORDS {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
        Self { lines, reader }
    }

    async fn last_words(&mut self) -> Vec<String> {
        let _ = timeout(LOG_END, &mut self.reader).await;
        self.lines.lock().iter().cloned().collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
