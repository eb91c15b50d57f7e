//! Waiting for conditions. No test sleeps and hopes.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Longer than anything takes on a busy machine. Tests that pass never wait for it.
pub const LONG: Duration = Duration::from_secs(30);

/// Asks `check` until it says yes; panics with `what` if it does not within `limit`.
pub async fn eventually(limit: Duration, what: &str, mut check: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + limit;
    while !check().await {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
