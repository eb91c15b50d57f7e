//! How long something takes, as counts by upper bound: what a percentile over time and over nodes can be computed from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in seconds, from what a healthy neighbour needs to what nobody waits for. The same for everything, so that it compares.
pub const BOUNDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Durations, counted by [`BOUNDS`]. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Latency(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// One for each bound.
    within: [AtomicU64; BOUNDS.len()],
    beyond: AtomicU64,
    micros: AtomicU64,
}

/// What a [`Latency`] has seen so far.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencySnapshot {
    /// For each of [`BOUNDS`], how many durations were not longer.
    pub cumulative: [u64; BOUNDS.len()],
    /// How many there were.
    pub count: u64,
    /// All of them together, to the microsecond.
    pub sum: Duration,
}

impl Latency {
    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound);
        let counter = bucket.map_or(&self.0.beyond, |bucket| &self.0.within[bucket]);
        counter.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Reads the counts. One that is being counted meanwhile may be in them and not yet in the sum.
    pub fn snapshot(&self) -> LatencySnapshot {
        let mut so_far = 0;
        let cumulative = std::array::from_fn(|bucket| {
            so_far += self.0.within[bucket].load(Ordering::Relaxed);
            so_far
        });
        LatencySnapshot {
            cumulative,
            count: so_far + self.0.beyond.load(Ordering::Relaxed),
            sum: Duration::from_micros(self.0.micros.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_under_every_bound_that_it_does_not_exceed() {
        let latency = Latency::default();
        for took in [0, 1, 3, 10_000, 10_001] {
            latency.observe(Duration::from_millis(took));
        }
        let seen = latency.snapshot();
        assert_eq!(seen.cumulative, [1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4]);
        assert_eq!((seen.count, seen.sum), (5, Duration::from_millis(20_005)));
    }
}
