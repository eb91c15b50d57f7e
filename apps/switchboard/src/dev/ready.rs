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

#[derive(Deserialize)]
struct Health {
    node_id: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
struct Cluster {
    size: usize,
}

/// Returns when all are ready. Fails when one ends before, or when it takes too long.
pub(crate) async fn wait_until_ready(nodes: &mut Nodes, progress: &Progress) -> anyhow::Result<()> {
    let http = reqwest::Client::builder().no_proxy().timeout(ANSWER).build()?;
    let count = nodes.iter().count();
    let deadline = Instant::now() + PATIENCE;
    let mut ready = 0;
    while ready < count {
        ready = 0;
        for node in nodes.iter() {
            ready += usize::from(sees(&http, node, count).await);
        }
        progress.update(&format!("starting the nodes: {ready} of {count} are ready"));
        if Instant::now() > deadline {
            bail!("only {ready} of {count} nodes became ready; --logs shows what they are doing");
        }
        if ready < count {
            tokio::select! {
                Some(death) = nodes.next_death() => bail!("a node did not start: {death}"),
                () = sleep(PAUSE) => {}
            }
        }
    }
    Ok(())
}

/// Whether a node is healthy and sees a cluster of at least `count` (the database may have been given, with others in it).
async fn sees(http: &reqwest::Client, node: &Node, count: usize) -> bool {
    let url = format!("{}/health", node.addr.local_url());
    let Ok(response) = http.get(url).send().await else { return false };
    if !response.status().is_success() {
        return false;
    }
    let health = response.json::<Health>().await;
    health.is_ok_and(|health| health.node_id == node.id && health.cluster.size >= count)
}
