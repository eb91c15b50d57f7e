//! What happens to a cluster in life, in random order.
//!
//! Invariant: when an action has returned, nothing stands in the way of anybody any more; what it broke must mend by itself.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use switchboard_testkit::history::Violation;
use switchboard_testkit::postgres::StopMode;
use switchboard_testkit::proxy::Mode;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::info;

use crate::cluster::Cluster;

/// Longest pause between two actions.
const PAUSE: Duration = Duration::from_millis(1500);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    /// The server ends the LISTEN sessions of all nodes.
    TerminateListeners,
    /// The connections of one node are reset, wherever in a message they are.
    ResetNode,
    /// The connections of all nodes are reset.
    ResetAll,
    /// What one node says gets through, the answers do not, and then its connections are reset.
    LoseAnswers,
    /// Nothing gets through for a while, then everything does.
    Stall,
    /// SIGKILL, and a successor a while later.
    KillNode,
    RestartFast,
    RestartImmediate,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TerminateListeners => "listeners terminated",
            Self::ResetNode => "connections of a node reset",
            Self::ResetAll => "all connections reset",
            Self::LoseAnswers => "answers lost",
            Self::Stall => "network stalled",
            Self::KillNode => "node killed",
            Self::RestartFast => "PostgreSQL restarted, fast",
            Self::RestartImmediate => "PostgreSQL restarted, immediate",
        })
    }
}

pub(crate) struct Nemesis {
    rng: StdRng,
    actions: Vec<Action>,
    /// How often it did what.
    pub(crate) done: BTreeMap<Action, u32>,
    /// The longest that it took everybody to catch up.
    pub(crate) slowest: Duration,
}

impl Nemesis {
    pub(crate) fn new(rng: StdRng, may_restart: bool) -> Self {
        let mut actions = vec![
            Action::TerminateListeners,
            Action::ResetNode,
            Action::ResetAll,
            Action::LoseAnswers,
            Action::Stall,
            Action::KillNode,
        ];
        if may_restart {
            actions.extend([Action::RestartFast, Action::RestartImmediate]);
        }
        Self { rng, actions, done: BTreeMap::new(), slowest: Duration::ZERO }
    }

    /// Acts until `end`: everything once before anything twice, so that a short run sees it all, too. After every other action, on
    /// average, it waits until everybody has caught up; otherwise one thing comes on top of the other. Answers who did not catch up.
    pub(crate) async fn rage(
        &mut self,
        cluster: &mut Cluster,
        end: Instant,
    ) -> anyhow::Result<Result<(), Violation>> {
        let mut next = Vec::new();
        while Instant::now() < end {
            sleep_until(end.min(Instant::now() + self.random(PAUSE))).await;
            if next.is_empty() {
                next.clone_from(&self.actions);
                next.shuffle(&mut self.rng);
            }
            let Some(action) = next.pop() else { break };
            info!("{action}");
            self.act(action, cluster).await?;
            *self.done.entry(action).or_default() += 1;
            cluster.must_run()?;
            if self.rng.random() {
                match cluster.catches_up().await? {
                    Ok(took) => self.slowest = self.slowest.max(took),
                    Err(behind) => return Ok(Err(behind)),
                }
            }
        }
        Ok(Ok(()))
    }

    async fn act(&mut self, action: Action, cluster: &mut Cluster) -> anyhow::Result<()> {
        let victim = self.rng.random_range(0..cluster.members.len());
        match action {
            Action::TerminateListeners => {
                let statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                                 WHERE application_name LIKE 'switchboard listener checker-%'";
                cluster.database.rows(statement).await?;
            }
            Action::ResetNode => cluster.members[victim].proxy.reset(),
            Action::ResetAll => cluster.members.iter().for_each(|member| member.proxy.reset()),
            Action::LoseAnswers => {
                let proxy = &cluster.members[victim].proxy;
                proxy.set(Mode::StallAnswers);
                sleep(self.random(Duration::from_millis(300))).await;
                proxy.reset();
            }
            Action::Stall => {
                cluster.members.iter().for_each(|member| member.proxy.set(Mode::Stall));
                sleep(Duration::from_secs(1) + self.random(Duration::from_secs(2))).await;
            }
            Action::KillNode => {
                cluster.members[victim].kill().await?;
                sleep(self.random(Duration::from_secs(2))).await;
                cluster.start_node(victim).await?;
            }
            Action::RestartFast => self.restart(cluster, StopMode::Fast).await?,
            Action::RestartImmediate => self.restart(cluster, StopMode::Immediate).await?,
        }
        cluster.heal();
        Ok(())
    }

    /// With a random time in between.
    async fn restart(&mut self, cluster: &Cluster, mode: StopMode) -> anyhow::Result<()> {
        if let Some(server) = cluster.database.server() {
            server.halt(mode).await?;
            sleep(self.random(Duration::from_secs(1))).await;
            server.resume().await?;
        }
        Ok(())
    }

    fn random(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.rng.random())
    }
}
