//! Gauges of the process as the operating system sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use switchboard_core::stats::StatsRegistry;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Gauges that are read together share one look, and CPU time needs a while to mean anything.
const FRESH: Duration = Duration::from_millis(500);

/// Adds `uptime_sec`, `rss_bytes`, `cpu` (percent of one core since the last look) and `cpu_seconds_total`.
pub(super) fn show(stats: &StatsRegistry) {
    let started = Instant::now();
    stats.gauge("uptime_sec", move || started.elapsed().as_secs());
    let Some(probe) = Probe::new().map(Mutex::new).map(Arc::new) else { return };
    let (rss, total) = (Arc::clone(&probe), Arc::clone(&probe));
    stats.gauge("rss_bytes", move || rss.lock().look().rss);
    stats.gauge("cpu_seconds_total", move || {
        let milliseconds = total.lock().look().cpu_total_ms;
        Value::from(Duration::from_millis(milliseconds).as_secs_f64())
    });
    stats.gauge("cpu", move || {
        let cpu = f64::from(probe.lock().look().cpu);
        Value::from((cpu * 10.0).round() / 10.0)
    });
}

/// Looks at this process in the process table.
struct Probe {
    system: System,
    pid: Pid,
    looked: Instant,
    seen: Seen,
}

#[derive(Clone, Copy)]
struct Seen {
    rss: u64,
    cpu: f32,
    cpu_total_ms: u64,
}

impl Probe {
    /// `None` where processes cannot be looked at.
    fn new() -> Option<Self> {
        let pid = sysinfo::get_current_pid().ok()?;
        let mut probe = Self {
            system: System::new().ok()?,
            pid,
            looked: Instant::now(),
            seen: Seen { rss: 0, cpu: 0.0, cpu_total_ms: 0 },
        };
        probe.refresh();
        Some(probe)
    }

    fn look(&mut self) -> Seen {
        if self.looked.elapsed() >= FRESH {
            self.refresh();
        }
        self.seen
    }

    fn refresh(&mut self) {
        let wanted = ProcessRefreshKind::nothing().with_cpu().with_memory().without_tasks();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&[self.pid]), false, wanted);
        self.looked = Instant::now();
        if let Some(process) = self.system.process(self.pid) {
            self.seen = Seen {
                rss: process.memory(),
                cpu: process.cpu_usage(),
                cpu_total_ms: process.accumulated_cpu_time(),
            };
        }
    }
}
