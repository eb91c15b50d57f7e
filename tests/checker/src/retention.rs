//! Retention, as it shows to subscribers: all the time, the oldest events of some channel disappear while it is in use.
//!
//! The one place that prunes. Once nodes do it by themselves, this goes and they are given a short retention in `node/mod.rs`; the
//! checker takes what subscribers are told of it either way.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use switchboard_core::types::Channel;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::debug;

use crate::database::Database;

/// Pause between two prunings.
const PAUSE: Duration = Duration::from_millis(500);
/// Most events that pruning leaves in a channel; it may leave none.
const KEPT: u64 = 200;

/// Prunes until dropped.
pub(crate) struct Retention {
    _task: JoinSet<()>,
}

impl Retention {
    pub(crate) fn start(database: Arc<Database>, channels: Vec<Channel>, mut rng: StdRng) -> Self {
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                sleep(PAUSE).await;
                let keep = rng.random_range(0..=KEPT);
                if let Some(channel) = channels.choose(&mut rng)
                    && let Err(error) = prune(&database, channel, keep).await
                {
                    debug!(%error, "cannot prune now");
                }
            }
        });
        Self { _task: task }
    }
}

/// Removes the oldest events of a channel until at most `keep` remain.
async fn prune(database: &Database, channel: &Channel, keep: u64) -> anyhow::Result<()> {
    let statement = format!(
        "DELETE FROM {{schema}}.event_log l USING {{schema}}.channel_head h \
         WHERE l.channel = '{channel}' AND h.channel = l.channel AND l.seq <= h.seq - {keep}"
    );
    database.rows(&statement).await.map(|_| ())
}
