//! One run from beginning to end: start, hurt, heal, read everything, judge.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use switchboard_testkit::history::Violation;
use tokio::time::Instant;
use tracing::info;

use crate::cli::Options;
use crate::cluster::Cluster;
use crate::database::Database;
use crate::nemesis::Nemesis;
use crate::recording::Recording;
use crate::report;

pub(crate) enum Verdict {
    Kept,
    Broken,
}

pub(crate) async fn run(options: &Options) -> anyhow::Result<Verdict> {
    let seed = options.seed.unwrap_or_else(rand::random);
    let recording = Arc::new(Recording::begin(seed)?);
    info!("seed {seed}, {:?}", options.duration());
    let outcome = hurt(options, seed, &recording).await;
    if matches!(outcome, Ok(Verdict::Kept)) {
        recording.discard()?;
    } else {
        report::kept(recording.keep()?, seed)?;
    }
    outcome
}

async fn hurt(options: &Options, seed: u64, recording: &Arc<Recording>) -> anyhow::Result<Verdict> {
    let mut rng = StdRng::seed_from_u64(seed);
    let database = Arc::new(Database::open(options.database_url.as_deref(), seed).await?);
    let mut nemesis = Nemesis::new(StdRng::from_rng(&mut rng), database.server().is_some());
    let clusters_own = StdRng::from_rng(&mut rng);
    let mut cluster =
        Cluster::start(options, Arc::clone(&database), Arc::clone(recording), clusters_own).await?;

    let stuck = nemesis.rage(&mut cluster, Instant::now() + options.duration()).await?.err();
    let stuck = if stuck.is_some() { stuck } else { settle(&mut nemesis, &mut cluster).await? };
    database.read_log(recording).await?;
    cluster.end().await?;

    let (summary, mut violations) = recording.verdict();
    // Who was late may have got there meanwhile; late it was.
    violations.extend(stuck.filter(|stuck| !violations.contains(stuck)));
    report::verdict(&summary, &nemesis, &violations)?;
    if !violations.is_empty() {
        return Ok(Verdict::Broken);
    }
    database.discard().await?;
    Ok(Verdict::Kept)
}

/// All is healed: publishers finish, and everybody must get everything.
async fn settle(nemesis: &mut Nemesis, cluster: &mut Cluster) -> anyhow::Result<Option<Violation>> {
    cluster.hush().await?;
    cluster.must_run()?;
    Ok(match cluster.catches_up().await? {
        Ok(took) => {
            nemesis.slowest = nemesis.slowest.max(took);
            None
        }
        Err(behind) => Some(behind),
    })
}
