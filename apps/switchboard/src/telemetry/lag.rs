//! How late the runtime runs what is due: the first thing to look at when everything is slow.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use switchboard_core::stats::StatsRegistry;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

const PERIOD: Duration = Duration::from_millis(500);
/// Together about a default heartbeat interval, so that no stall falls between two heartbeats.
const SAMPLES: usize = 20;

/// A task that sets itself a timer and measures by how much it oversleeps. Stops when dropped.
#[derive(Debug)]
pub(crate) struct SchedulingLag {
    task: JoinHandle<()>,
}

impl SchedulingLag {
    /// Starts measuring, and adds `scheduling_lag_ms`: the worst of the last ten seconds.
    pub(super) fn watch(stats: &StatsRegistry) -> Self {
        let worst = Arc::new(AtomicU64::new(0));
        let shown = Arc::clone(&worst);
        stats.gauge("scheduling_lag_ms", move || {
            let micros = u32::try_from(shown.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
            Value::from(f64::from(micros) / 1000.0)
        });
        Self { task: tokio::spawn(measure(worst)) }
    }
}

impl Drop for SchedulingLag {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn measure(worst: Arc<AtomicU64>) {
    let mut samples = VecDeque::with_capacity(SAMPLES);
    loop {
        let due = Instant::now() + PERIOD;
        sleep_until(due).await;
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX));
        worst.store(samples.iter().copied().max().unwrap_or_default(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_blocked_runtime_shows() {
        let stats = StatsRegistry::default();
        let _lag = SchedulingLag::watch(&stats);
        let worst = || stats.collect().0["scheduling_lag_ms"].as_f64().unwrap();
        // Lets the task set its timer, then blocks the only thread there is until after it is due.
        tokio::task::yield_now().await;
        std::thread::sleep(PERIOD + Duration::from_millis(200));
        let deadline = Instant::now() + Duration::from_secs(10);
        while worst() < 150.0 {
            assert!(Instant::now() < deadline, "{} ms", worst());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
