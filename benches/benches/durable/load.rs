//! Load for any way of publishing: as fast as it goes, or at a rate. An event counts when all three nodes' subscribers have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

pub(crate) const NODES: usize = 3;

/// A way to publish events that three nodes receive.
#[async_trait]
pub(crate) trait Way: Clone + Send + Sync + 'static {
    /// Publishers that keep it busy.
    const WORKERS: usize;

    /// Publishes from a node to a channel and waits for the commit.
    async fn publish(&self, node: usize, channel: usize, payload: String);

    fn received(&self) -> &Received;
}

/// Who publishes, and to how many channels.
#[derive(Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) nodes: usize,
    pub(crate) channels: usize,
}

/// What arrived at each node.
pub(crate) struct Received {
    began: Instant,
    counts: [AtomicU64; NODES],
    latencies: Mutex<Vec<Duration>>,
}

impl Received {
    pub(crate) fn new() -> Arc<Self> {
        let counts = [(); NODES].map(|()| AtomicU64::new(0));
        Arc::new(Self { began: Instant::now(), counts, latencies: Mutex::default() })
    }

    pub(crate) fn arrived(&self, node: usize, payload: &str) {
        self.counts[node].fetch_add(1, Ordering::Relaxed);
        if node == NODES - 1 {
            let sent = payload.get(7..27).and_then(|nanos| nanos.parse().ok()).map(Duration::from_nanos);
            let latency = sent.map(|sent| self.began.elapsed().saturating_sub(sent));
            self.latencies.lock().extend(latency);
        }
    }

    /// 64 bytes that say when they were sent.
    fn payload(&self) -> String {
        format!("{{\"at\":\"{:020}\",\"pad\":\"{}\"}}", self.began.elapsed().as_nanos(), "x".repeat(26))
    }

    fn least(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).min().unwrap_or_default()
    }

    fn reset(&self) {
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.latencies.lock().clear();
    }

    async fn wait_for(&self, count: u64) {
        while self.least() < count {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Publishes for `length` as fast as it goes; answers events/s until the last of them has arrived everywhere.
#[allow(clippy::cast_precision_loss, reason = "a count of events")]
pub(crate) async fn throughput<W: Way>(way: &W, spread: Spread, length: Duration) -> f64 {
    way.received().reset();
    let began = Instant::now();
    let mut workers = JoinSet::new();
    for worker in 0..W::WORKERS {
        let way = way.clone();
        workers.spawn(async move {
            let mut published = 0;
            while began.elapsed() < length {
                way.publish(worker % spread.nodes, worker % spread.channels, way.received().payload()).await;
                published += 1;
            }
            published
        });
    }
    let published: u64 = workers.join_all().await.into_iter().sum();
    way.received().wait_for(published).await;
    published as f64 / began.elapsed().as_secs_f64()
}

/// Publishes at a rate, from the first node; answers how long each event took to the last node.
pub(crate) async fn latencies<W: Way>(way: &W, rate: u32, length: Duration) -> Vec<Duration> {
    way.received().reset();
    let (published, _) = pace(way, rate, length).await;
    way.received().wait_for(published).await;
    way.received().latencies.lock().clone()
}

/// Publishes at a rate, as far as the way keeps up; answers how many events, and the rate reached.
#[allow(clippy::cast_precision_loss, reason = "a count of events")]
pub(crate) async fn pace<W: Way>(way: &W, rate: u32, length: Duration) -> (u64, f64) {
    let began = Instant::now();
    let mut tick = interval(Duration::from_secs(1) / rate.min(1000));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut workers, mut published) = (JoinSet::new(), 0_u64);
    while began.elapsed() < length {
        tick.tick().await;
        for _ in 0..rate.div_ceil(1000) {
            // Whoever cannot keep up publishes less instead of building up a queue.
            if workers.len() >= W::WORKERS {
                workers.join_next().await;
            }
            let (way, channel) = (way.clone(), usize::try_from(published % 100).unwrap_or_default());
            workers.spawn(async move { way.publish(0, channel, way.received().payload()).await });
            published += 1;
        }
        while workers.try_join_next().is_some() {}
    }
    workers.join_all().await;
    (published, published as f64 / began.elapsed().as_secs_f64())
}
