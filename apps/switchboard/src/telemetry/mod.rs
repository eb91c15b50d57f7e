//! What the process tells about itself: its log, and the gauges that go into each heartbeat.

mod heap;
mod lag;
mod logging;
mod process;
mod runtime;

use switchboard_core::stats::StatsRegistry;
use tokio::runtime::Handle;

pub(crate) use lag::SchedulingLag;
pub(crate) use logging::{init, init_with_progress};

/// Adds the gauges of this process to `stats`. The task behind one of them stops when the answer is dropped.
pub(crate) fn watch_process(stats: &StatsRegistry) -> SchedulingLag {
    process::show(stats);
    heap::show(stats);
    runtime::show(stats, Handle::current().metrics());
    SchedulingLag::watch(stats)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_tells_about_itself() {
        let stats = StatsRegistry::default();
        let _measuring = watch_process(&stats);
        let told = stats.collect().0;
        for gauge in [
            "uptime_sec",
            "rss_bytes",
            "cpu",
            "cpu_seconds_total",
            "tokio_tasks",
            "tokio_queue_depth",
            "tokio_busy_ratio",
            "scheduling_lag_ms",
        ] {
            assert!(told[gauge].is_number(), "{gauge}: {told:?}");
        }
        assert!(told["rss_bytes"].as_u64() > Some(1_000_000), "{told:?}");
        if cfg!(any(target_os = "linux", target_os = "macos")) {
            assert!(told["heap_allocated_bytes"].as_u64() > Some(0), "{told:?}");
            assert!(told["heap_resident_bytes"].as_u64() > Some(0), "{told:?}");
        }
    }
}
