//! Waiting for conditions. No test sleeps and hopes.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Longer than anything takes on a busy machine. Tests that pass never wait for it.
pub const LONG: Duration = Duration::from_secs(30);

/// Asks `check` until it says yes; panics with `what` if it does not within `limit`, or does not answer.
pub async fn eventually(limit: Duration, what: &str, mut check: impl AsyncFnMut() -> bool) {
    let comes_true = async {
        while !check().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(limit, comes_true).await.is_ok(), "not within {limit:?}: {what}");
}
