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
