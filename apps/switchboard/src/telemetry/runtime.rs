//! Gauges of the Tokio runtime.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use switchboard_core::stats::StatsRegistry;
use tokio::runtime::RuntimeMetrics;

/// A shorter interval says nothing about how busy the workers are.
const FRESH: Duration = Duration::from_millis(500);

/// Adds `tokio_tasks`, `tokio_queue_depth` and `tokio_busy_ratio` (0 to 1, over all workers, since the last look).
pub(super) fn show(stats: &StatsRegistry, metrics: RuntimeMetrics) {
    let tasks = metrics.clone();
    stats.gauge("tokio_tasks", move || tasks.num_alive_tasks());
    let queue = metrics.clone();
    stats.gauge("tokio_queue_depth", move || queue.global_queue_depth());
    let busy = Mutex::new(BusyRatio::new(&metrics));
    stats.gauge("tokio_busy_ratio", move || Value::from(busy.lock().read(&metrics)));
}

struct BusyRatio {
    since: Instant,
    busy: Duration,
    ratio: f64,
}

impl BusyRatio {
    fn new(metrics: &RuntimeMetrics) -> Self {
        Self { since: Instant::now(), busy: busy(metrics), ratio: 0.0 }
    }

    fn read(&mut self, metrics: &RuntimeMetrics) -> f64 {
        let elapsed = self.since.elapsed();
        if elapsed >= FRESH {
            let now_busy = busy(metrics);
            let workers = u32::try_from(metrics.num_workers()).unwrap_or(u32::MAX);
            let available = elapsed.saturating_mul(workers);
            let ratio = now_busy.saturating_sub(self.busy).div_duration_f64(available);
            *self = Self {
                since: Instant::now(),
                busy: now_busy,
                ratio: (ratio.clamp(0.0, 1.0) * 1000.0).round() / 1000.0,
            };
        }
        self.ratio
    }
}

fn busy(metrics: &RuntimeMetrics) -> Duration {
    (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum()
}
