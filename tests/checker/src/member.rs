//! One node as the run sees it: a process that can be killed, and the only way by which it reaches PostgreSQL.

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use switchboard_testkit::proxy::Proxy;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::cluster::LIMIT;
use crate::recording::Recording;
use crate::wire::{Plan, QUIET, Said};

pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) proxy: Proxy,
    process: Option<Process>,
}

struct Process {
    child: Child,
    orders: ChildStdin,
    quiet: watch::Receiver<bool>,
    /// Ends with the process, once everything it said has been recorded.
    listener: JoinHandle<anyhow::Result<()>>,
}

impl Member {
    pub(crate) fn new(name: String, proxy: Proxy) -> Self {
        Self { name, proxy, process: None }
    }

    /// Starts the process.
    pub(crate) async fn start(&mut self, plan: &Plan, recording: Arc<Recording>) -> anyhow::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("node").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut orders = child.stdin.take().context("a node without input")?;
        let output = child.stdout.take().context("a node without output")?;
        let (said_quiet, quiet) = watch::channel(false);
        let listener = tokio::spawn(listen(output, recording, said_quiet));
        orders.write_all((serde_json::to_string(plan)? + "\n").as_bytes()).await?;
        self.process = Some(Process { child, orders, quiet, listener });
        Ok(())
    }

    /// SIGKILL. Returns when all that it had said is in the recording.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.child.kill().await?;
        process.listener.await?
    }

    /// Fails if the process has ended by itself.
    pub(crate) fn must_run(&mut self) -> anyhow::Result<()> {
        let process = self.process.as_mut().context("no process")?;
        if let Some(status) = process.child.try_wait()? {
            bail!("{} ended by itself: {status}", self.name);
        }
        Ok(())
    }

    /// Publishes no more.
    pub(crate) async fn hush(&mut self) -> anyhow::Result<()> {
        let process = self.process.as_mut().context("no process")?;
        process.orders.write_all(format!("{QUIET}\n").as_bytes()).await?;
        let quiet = timeout(LIMIT, process.quiet.wait_for(|quiet| *quiet)).await;
        quiet.with_context(|| format!("the publishers of {} do not end within {LIMIT:?}", self.name))??;
        Ok(())
    }

    /// Ends the process in an orderly way.
    pub(crate) async fn end(&mut self) -> anyhow::Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        drop(process.orders);
        let status: ExitStatus = timeout(LIMIT, process.child.wait())
            .await
            .with_context(|| format!("{} does not end within {LIMIT:?}", self.name))??;
        ensure!(status.success(), "{} ended with {status}", self.name);
        process.listener.await?
    }
}

/// Records what a node says. A line that a kill cut off is no line.
async fn listen(
    output: ChildStdout,
    recording: Arc<Recording>,
    quiet: watch::Sender<bool>,
) -> anyhow::Result<()> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).await? > 0 {
        if line.ends_with(b"\n") {
            match serde_json::from_slice(&line)? {
                Said::Record(record) => recording.push(record)?,
                Said::Quiet => {
                    quiet.send_replace(true);
                }
            }
        }
        line.clear();
    }
    Ok(())
}
