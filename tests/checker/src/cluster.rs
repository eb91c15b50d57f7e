//! The nodes together: started, hurt, healed, and asked whether they have caught up.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rand::RngExt;
use rand::rngs::StdRng;
use switchboard_core::types::{Channel, Epoch, Position};
use switchboard_testkit::history::{Record, Violation};
use switchboard_testkit::proxy::{Mode, Proxy};
use tokio::time::{Instant, sleep, timeout};

use crate::cli::Options;
use crate::database::Database;
use crate::member::Member;
use crate::recording::Recording;
use crate::wire::{Following, Plan};

/// Longer than anything may take once all is healed, on a busy machine. Whatever takes longer is a violation.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

pub(crate) struct Cluster {
    pub(crate) database: Arc<Database>,
    pub(crate) recording: Arc<Recording>,
    pub(crate) members: Vec<Member>,
    channels: Vec<Channel>,
    publishers: u16,
    epoch: Epoch,
    started: u32,
    rng: StdRng,
}

impl Cluster {
    /// Starts all nodes.
    pub(crate) async fn start(
        options: &Options,
        database: Arc<Database>,
        recording: Arc<Recording>,
        rng: StdRng,
    ) -> anyhow::Result<Self> {
        let epoch = database.prepare().await?;
        let address = database.address().await?;
        let channels = (1..=options.channels).map(|n| Channel::parse(&format!("room:{n}")));
        let mut cluster = Self {
            database,
            recording,
            members: Vec::new(),
            channels: channels.collect::<Result<_, _>>()?,
            publishers: options.publishers,
            epoch,
            started: 0,
            rng,
        };
        for number in 1..=options.nodes {
            let member = Member::new(format!("checker-{number}"), Proxy::start(address).await);
            cluster.members.push(member);
            for Following { by, channel, .. } in cluster.subscribers(usize::from(number) - 1) {
                cluster.recording.push(Record::Joined { by, channel })?;
            }
            cluster.start_node(usize::from(number) - 1).await?;
        }
        Ok(cluster)
    }

    /// Starts a node. Its subscribers go on where those of the process before it got to, as clients do that reconnect.
    pub(crate) async fn start_node(&mut self, index: usize) -> anyhow::Result<()> {
        let subscribers = self.subscribers(index);
        let member = self.members.get_mut(index).context("no such node")?;
        self.started += 1;
        let plan = Plan {
            url: self.database.url_through(member.proxy.address())?,
            schema: self.database.schema().to_string(),
            name: member.name.clone(),
            number: self.started,
            seed: self.rng.random(),
            publishers: self.publishers,
            subscribers,
        };
        member.start(&plan, Arc::clone(&self.recording)).await
    }

    fn subscribers(&self, index: usize) -> Vec<Following> {
        let Some(member) = self.members.get(index) else { return Vec::new() };
        let each = |channel: &Channel, restless| {
            let by = format!("{}/{}", member.name, if restless { "restless" } else { "steady" });
            let last = self.recording.last(&by, channel);
            let after = last.unwrap_or(Position::new(self.epoch, 0));
            Following { by, channel: channel.clone(), after, restless }
        };
        self.channels.iter().flat_map(|channel| [each(channel, false), each(channel, true)]).collect()
    }

    /// Undoes whatever is still done to the connections.
    pub(crate) fn heal(&self) {
        for member in &self.members {
            member.proxy.set(Mode::Forward);
        }
    }

    /// Fails if a node has ended by itself.
    pub(crate) fn must_run(&mut self) -> anyhow::Result<()> {
        self.members.iter_mut().try_for_each(Member::must_run)
    }

    /// Waits until every subscriber has got everything that is committed now, and answers how long that took; or who was still
    /// behind at the end.
    pub(crate) async fn catches_up(&self) -> anyhow::Result<Result<Duration, Violation>> {
        let since = Instant::now();
        let heads = self.database.heads().await?;
        while let Some(behind) = self.recording.behind(&heads) {
            if since.elapsed() > LIMIT {
                return Ok(Err(behind));
            }
            sleep(POLL).await;
        }
        Ok(Ok(since.elapsed()))
    }

    /// Stops all publishers, and waits until nothing that they sent can still be committed.
    pub(crate) async fn hush(&mut self) -> anyhow::Result<()> {
        for member in &mut self.members {
            member.hush().await?;
        }
        let settled = async {
            while !self.database.is_settled().await? {
                sleep(POLL).await;
            }
            anyhow::Ok(())
        };
        timeout(LIMIT, settled).await.with_context(|| format!("transactions go on after {LIMIT:?}"))?
    }

    /// Ends all nodes.
    pub(crate) async fn end(&mut self) -> anyhow::Result<()> {
        for member in &mut self.members {
            member.end().await?;
        }
        Ok(())
    }
}
