//! The end of a grant, for whatever goes on: streams and sockets.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::sleep;

/// Waits until `clock` has reached `expires`; for ever if that is never.
///
/// Sleep is measured by another clock, which may run differently and stands still while the machine does: so it looks again. Whoever
/// has something to send in between must look by itself.
pub(crate) async fn expiry(expires: Option<OffsetDateTime>, clock: impl Fn() -> OffsetDateTime) {
    let Some(expires) = expires else { return std::future::pending().await };
    loop {
        let left = expires - clock();
        if !left.is_positive() {
            return;
        }
        sleep(left.try_into().unwrap_or(Duration::MAX)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn b123_a_clock_that_was_set_back_ends_nothing_early() {
        let (began, offset) = (Instant::now(), AtomicI64::new(0));
        let clock = || {
            let offset = time::Duration::seconds(offset.load(Ordering::Relaxed));
            OffsetDateTime::UNIX_EPOCH + began.elapsed() + offset
        };
        let expires = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(30);
        let set_back = async {
            sleep(Duration::from_secs(10)).await;
            offset.store(-20, Ordering::Relaxed);
        };
        tokio::join!(expiry(Some(expires), clock), set_back);
        assert_eq!(began.elapsed().as_secs(), 50);
        expiry(Some(expires), clock).await;
        assert_eq!(began.elapsed().as_secs(), 50, "it waits although the moment has passed");
    }
}
