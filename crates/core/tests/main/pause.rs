//! What SIGSTOP does to a process, for one task in virtual time.

use futures::future::BoxFuture;
use tokio::sync::watch;

/// Runs `life` while `paused` is false. Meanwhile it is not polled: its timers run out and its answers arrive unnoticed.
pub(crate) async fn pausable(mut life: BoxFuture<'static, ()>, mut paused: watch::Receiver<bool>) {
    loop {
        // An error means that the handle is gone, and with it the task.
        let _ = paused.wait_for(|paused| !paused).await;
        tokio::select! {
            biased;
            Ok(()) = paused.changed() => {}
            () = &mut life => return,
        }
    }
}
