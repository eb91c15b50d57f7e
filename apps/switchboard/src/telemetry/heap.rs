//! Gauges of the heap, from jemalloc's own books. Where the system's allocator is used there are none.

use switchboard_core::stats::StatsRegistry;

/// Adds `heap_allocated_bytes` (asked for) and `heap_resident_bytes` (held from the system for it).
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub(super) fn show(stats: &StatsRegistry) {
    use tikv_jemalloc_ctl::{epoch, stats as books};

    // The books are brought up to date by advancing the epoch; a gauge that fails has nothing to say.
    let read =
        |value: fn() -> Result<usize, tikv_jemalloc_ctl::Error>| epoch::advance().and_then(|_| value()).ok();
    stats.gauge("heap_allocated_bytes", move || read(books::allocated::read));
    stats.gauge("heap_resident_bytes", move || read(books::resident::read));
}

/// No books to read.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub(super) fn show(_: &StatsRegistry) {}
