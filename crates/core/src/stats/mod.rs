//! Collects what a node tells about itself: a registry of named gauges that any adapter can add to.

mod latency;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::types::Stats;

pub use latency::{BOUNDS, Latency, LatencySnapshot};

type Gauge = Arc<dyn Fn() -> Value + Send + Sync>;

/// Named gauges, read together with each heartbeat. Clones share the same gauges.
///
/// Names follow the seed (`uptime_sec`, `ws_clients`): lower case, underscores, unit last. A gauge may answer an
/// object to keep what belongs together in one place. Gauges are called from the heartbeat, so they must not block.
#[derive(Clone, Default)]
pub struct StatsRegistry {
    gauges: Arc<Mutex<BTreeMap<String, Gauge>>>,
    latencies: Arc<Mutex<BTreeMap<String, Latency>>>,
}

impl StatsRegistry {
    /// Adds the gauge `name`, or replaces it.
    pub fn gauge<F, V>(&self, name: &str, read: F)
    where
        F: Fn() -> V + Send + Sync + 'static,
        V: Into<Value>,
    {
        self.gauges.lock().insert(name.to_owned(), Arc::new(move || read().into()));
    }

    /// Adds a gauge that shows a counter, and answers the counter.
    pub fn counter(&self, name: &str) -> Counter {
        let counter = Counter::default();
        let shown = counter.clone();
        self.gauge(name, move || shown.get());
        counter
    }

    /// Answers the latency `name`, whose unit is seconds. It is read by those who scrape the node and is no part of a heartbeat.
    pub fn latency(&self, name: &str) -> Latency {
        self.latencies.lock().entry(name.to_owned()).or_default().clone()
    }

    /// Reads every latency, in the order of names.
    pub fn latencies(&self) -> Vec<(String, LatencySnapshot)> {
        self.latencies.lock().iter().map(|(name, latency)| (name.clone(), latency.snapshot())).collect()
    }

    /// Reads every gauge. A gauge that has nothing to say (`null`) is left out.
    pub fn collect(&self) -> Stats {
        // Called outside the lock: a gauge may be slow, or add another gauge.
        let gauges = self.gauges.lock().clone();
        let read = gauges.into_iter().map(|(name, read)| (name, read()));
        Stats(read.filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
    }
}

impl std::fmt::Debug for StatsRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.gauges.lock().keys()).finish()
    }
}

/// A number that only grows. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Counts one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whatever_is_registered_is_collected() {
        let stats = StatsRegistry::default();
        let sent = stats.counter("sent_total");
        stats.gauge("pool", || json!({"idle": 1}));
        stats.gauge("unknown", || Value::Null);
        sent.add(3);
        assert_eq!(Value::Object(stats.collect().0), json!({"pool": {"idle": 1}, "sent_total": 3}));
    }
}
