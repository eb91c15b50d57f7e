//! Whole clusters under random faults, in virtual time: thousands of seeds, each a different history.
//!
//! What must hold in every one of them:
//!
//! - **Nobody acts who may be swept.** A node never believes its heartbeat younger than the registry's clock says, so it is
//!   never active with a heartbeat older than the threshold, nor without a row.
//! - **Nobody healthy is evicted.** Whatever the registry does, stalls of any length included, a node loses its row only if
//!   something was done to that very node: see [`Process::may_be_evicted`](process::Process::may_be_evicted).
//! - **Nobody dead is kept.** A peer that has been healthy for threshold and tick keeps no dead row that is older than that.
//! - **Everybody agrees in the end.** Threshold and two ticks after the last fault, all views are the same, and stay so.
//!
//! A seed that fails is printed. `SIM_SEED=n` runs it alone, many times, since the jitter of retries is not part of the seed;
//! `SIM_SEEDS=n` runs more or fewer than the default.

mod faults;
mod process;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use world::{Tally, World};

const SEEDS: u64 = 10_000;

fn simulate(seed: u64) -> Tally {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { World::new(seed).run().await })
}

#[test]
fn nobody_acts_who_may_be_swept_and_nobody_healthy_is_evicted() {
    let setting = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    if let Some(seed) = setting("SIM_SEED") {
        for _ in 0..500 {
            simulate(seed);
        }
        return;
    }
    let seeds = setting("SIM_SEEDS").unwrap_or(SEEDS);
    let (next, total) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let Ok(tally) = std::panic::catch_unwind(|| simulate(seed)) else {
                // The others need not go on.
                next.store(seeds, Ordering::Relaxed);
                panic!("seed {seed} failed; SIM_SEED={seed} runs it alone");
            };
            *total.lock().unwrap() += tally;
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    total.into_inner().unwrap().assert_that_much_happened(seeds);
}
