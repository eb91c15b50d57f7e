//! Waits until every node sees the whole cluster, by asking each for its health, as any monitor would.

use std::time::Duration;

use anyhow::bail;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::nodes::{Node, Nodes};
use super::progress::Progress;

const PAUSE: Duration = Duration::from_millis(50);
const ANSWER: Duration = Duration::from_secs(2);
/// A machine that takes longer is not slow, something is wrong.
const PATIENCE: Duration = Duration::from_mins(2);

/// When whoever waits is told what for.
const SILENCE: Duration = Duration::from_secs(3);

#[derive(Deserialize)]
struct Health {
    node_id: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    size: usize,
}

#[derive(Deserialize)]
struct Unhealthy {
    reason: String,
}

/// Returns when all are ready. Fails when one ends before, or when it takes too long.
pub(crate) async fn wait_until_ready(nodes: &mut Nodes, progress: &Progress) -> anyhow::Result<()> {
    let http = reqwest::Client::builder().no_proxy().timeout(ANSWER).build()?;
    let count = nodes.iter().count();
    let begun = Instant::now();
    let mut told = String::new();
    loop {
        let mut ready = 0;
        let mut waiting = String::new();
        for node in nodes.iter() {
            match look(&http, node, count).await {
                Ok(()) => ready += 1,
                Err(reason) => waiting = format!("{} waits: {reason}", node.id),
            }
        }
        if ready == count {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            bail!("only {ready} of {count} nodes became ready; {waiting}");
        }
        let so_far = format!("starting the nodes: {ready} of {count} are ready");
        if begun.elapsed() < SILENCE {
            progress.update(&so_far);
        } else if waiting != told {
            progress.explain(&format!("{so_far}; {waiting}"));
            told = waiting;
        }
        tokio::select! {
            Some(death) = nodes.next_death() => bail!("a node did not start: {death}"),
            () = sleep(PAUSE) => {}
        }
    }
}

/// Whether a node is healthy and sees a cluster of at least `count` (the database may have been given, with others in it), or why not.
async fn look(http: &reqwest::Client, node: &Node, count: usize) -> Result<(), String> {
    let url = format!("{}/health", node.addr.local_url());
    let response = http.get(url).send().await.map_err(|_| "it does not serve HTTP yet".to_owned())?;
    if !response.status().is_success() {
        let unhealthy = response.json::<Unhealthy>().await;
        return Err(unhealthy.map_or_else(|_| "it gives no reason".to_owned(), |unhealthy| unhealthy.reason));
    }
    match response.json::<Health>().await {
        Ok(health) if health.node_id != node.id => Err(format!("its port serves {}", health.node_id)),
        Ok(health) if health.cluster.size < count => {
            Err(format!("it sees {} of {count} nodes", health.cluster.size))
        }
        Ok(_) => Ok(()),
        Err(_) => Err("its port serves something else".to_owned()),
    }
}
