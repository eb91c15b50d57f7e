//! One node: the bus, publishers and subscribers, telling all that happens to whoever started it.
//!
//! Invariant: what it is about to publish is out before it is sent, so that a kill at any moment leaves no event that nobody
//! announced. It ends with its input, so it cannot outlive the run.

mod publisher;
mod recorder;
mod session;
mod subscriber;

use std::time::Duration;

use anyhow::{Context, bail};
use rand::SeedableRng;
use rand::rngs::StdRng;
use switchboard_core::health::HealthRegistry;
use switchboard_core::stats::StatsRegistry;
use switchboard_core::types::{ChannelPattern, NodeId};
use switchboard_postgres::{Dsn, Postgres, PostgresConfig, Retention, RetentionRule, SchemaName};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::wire::{Plan, QUIET};
use publisher::Publisher;
use recorder::Operations;
use subscriber::Subscriber;

/// Pause between attempts to reach PostgreSQL.
const RETRY: Duration = Duration::from_millis(100);

pub(crate) async fn run() -> anyhow::Result<()> {
    let mut orders = BufReader::new(stdin()).lines();
    let plan = serde_json::from_str(&orders.next_line().await?.context("no plan")?)?;
    let quiet = CancellationToken::new();
    tokio::select! {
        ended = work(plan, quiet.clone()) => ended,
        () = obey(orders, quiet) => Ok(()),
    }
}

/// Reads orders until there are no more.
async fn obey(mut orders: Lines<BufReader<Stdin>>, quiet: CancellationToken) {
    while let Ok(Some(order)) = orders.next_line().await {
        if order == QUIET {
            quiet.cancel();
        }
    }
}

/// Publishes until it shall be quiet; subscribes for ever.
async fn work(plan: Plan, quiet: CancellationToken) -> anyhow::Result<()> {
    let postgres = connect(&plan).await?;
    let operations = Operations::new(plan.number);
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let mut channels: Vec<_> = plan.subscribers.iter().map(|following| following.channel.clone()).collect();
    channels.sort();
    channels.dedup();

    let (mut publishers, mut subscribers) = (JoinSet::new(), JoinSet::new());
    for following in plan.subscribers.clone() {
        let rng = StdRng::from_rng(&mut rng);
        subscribers.spawn(Subscriber::new(following, postgres.durable(), rng).run());
    }
    for number in 0..plan.publishers {
        let rng = StdRng::from_rng(&mut rng);
        let publisher = Publisher::new(&plan, channels.clone(), operations.clone(), rng)?;
        publishers.spawn(publisher.run(number, postgres.durable(), quiet.clone()));
    }
    let done = async {
        while let Some(publisher) = publishers.join_next().await {
            publisher?;
        }
        recorder::quiet();
        std::future::pending().await
    };
    tokio::select! {
        failed = done => failed,
        ended = subscribers.join_next() => match ended {
            Some(subscriber) => bail!("the subscription of {} ended", subscriber?),
            None => bail!("nobody to subscribe"),
        },
    }
}

/// So short that segments are emptied all the time, and that who comes back to one of the channels has often missed something.
fn retention() -> anyhow::Result<Retention> {
    let age = Some(Duration::from_secs(10));
    let few = RetentionRule { channels: ChannelPattern::parse("room:1")?, age, count: Some(50) };
    Ok(Retention { age, rules: vec![few] })
}

/// Tries until it works, whatever the nemesis does meanwhile. That it does at last is for the run to see.
async fn connect(plan: &Plan) -> anyhow::Result<Postgres> {
    let mut config = PostgresConfig::new(Dsn::parse(&plan.url)?, NodeId::parse(&plan.name)?);
    config.schema = SchemaName::parse(&plan.schema)?;
    config.retention = retention()?;
    loop {
        match Postgres::connect(config.clone(), &StatsRegistry::default(), &HealthRegistry::default()).await {
            Ok(postgres) => return Ok(postgres),
            Err(error) => debug!(%error, "cannot use PostgreSQL yet"),
        }
        sleep(RETRY).await;
    }
}
