//! Which connections are idle, so that the one that has been for longest makes place when all places are taken.
//!
//! Anybody may hold connections and ask for nothing. They must not keep out a probe, or a node whose only fault is that it
//! is popular would be restarted.
//!
//! Invariant: who is being answered is not dismissed, and who is dismissed is not answered.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// The idle ones among the connections of a server.
#[derive(Clone)]
pub(crate) struct Idle {
    waiting: Arc<watch::Sender<Waiting>>,
    /// Who has been idle for less is not dismissed.
    chance: Duration,
}

#[derive(Default)]
struct Waiting {
    next_ticket: u64,
    /// By the order in which they became idle.
    seats: BTreeMap<u64, (Instant, CancellationToken)>,
}

impl Idle {
    /// Nobody is connected yet.
    pub(crate) fn new(chance: Duration) -> Self {
        Self { waiting: Arc::default(), chance }
    }

    /// A seat for a new connection, which is idle until its first request.
    pub(crate) fn seat(&self) -> Arc<Seat> {
        let seat =
            Seat { idle: self.clone(), ticket: AtomicU64::default(), dismissed: CancellationToken::new() };
        seat.sit_down();
        Arc::new(seat)
    }

    /// Waits until there is somebody to dismiss.
    pub(crate) async fn somebody(&self) {
        let mut waiting = self.waiting.subscribe();
        loop {
            // Empty-handed only when there is no sender any more, which is us.
            let first = waiting.wait_for(|waiting| !waiting.seats.is_empty()).await;
            let Some(due) = first.ok().and_then(|waiting| self.due(&waiting)) else { return };
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }

    /// Dismisses the connection that has been idle for longest. Says whether there was one.
    pub(crate) fn dismiss_one(&self) -> bool {
        let mut dismissed = false;
        self.change_quietly(|waiting| {
            if self.due(waiting).is_some_and(|due| due <= Instant::now())
                && let Some((_, (_, seat))) = waiting.seats.pop_first()
            {
                seat.cancel();
                dismissed = true;
            }
        });
        dismissed
    }

    /// When the next one may be dismissed.
    fn due(&self, waiting: &Waiting) -> Option<Instant> {
        let (_, (since, _)) = waiting.seats.first_key_value()?;
        Some(*since + self.chance)
    }

    /// A change that nobody waits for.
    fn change_quietly(&self, change: impl FnOnce(&mut Waiting)) {
        self.waiting.send_if_modified(|waiting| {
            change(waiting);
            false
        });
    }
}

/// One connection, idle or not.
pub(crate) struct Seat {
    idle: Idle,
    /// The last one it drew; it is idle while this one waits.
    ticket: AtomicU64,
    dismissed: CancellationToken,
}

impl Seat {
    /// Cancelled when another connection needs the place.
    pub(crate) fn dismissed(&self) -> &CancellationToken {
        &self.dismissed
    }

    /// Begins a request. The connection is idle again when the answer is dropped. `None` if it was dismissed.
    pub(crate) fn rise(self: &Arc<Self>) -> Option<Busy> {
        self.leave().then(|| Busy(Arc::clone(self)))
    }

    /// Is not idle any more, for good. False if it was dismissed.
    pub(crate) fn leave(&self) -> bool {
        self.get_up();
        // Nobody can be dismissed any more who was not by now.
        !self.dismissed.is_cancelled()
    }

    fn sit_down(&self) {
        self.idle.waiting.send_modify(|waiting| {
            let ticket = waiting.next_ticket;
            waiting.next_ticket += 1;
            waiting.seats.insert(ticket, (Instant::now(), self.dismissed.clone()));
            self.ticket.store(ticket, Ordering::Relaxed);
        });
    }

    fn get_up(&self) {
        self.idle.change_quietly(|waiting| {
            waiting.seats.remove(&self.ticket.load(Ordering::Relaxed));
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.get_up();
    }
}

/// Held while a connection's request is handled and its answer is sent.
pub(crate) struct Busy(Arc<Seat>);

impl Busy {
    /// The same body, and busy until all of it is sent.
    pub(crate) fn until_sent(self, body: Body) -> Answer {
        Answer { body, _busy: self }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.sit_down();
    }
}

/// The body of an answer.
pub(crate) struct Answer {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use switchboard_testkit::LONG;

    use super::*;

    #[test]
    fn the_one_that_has_been_idle_for_longest_is_dismissed() {
        let idle = Idle::new(Duration::ZERO);
        let [first, second, gone] = [(); 3].map(|()| idle.seat());
        drop(gone);
        // Its answer makes it the last in line.
        drop(first.rise().unwrap());
        assert!(idle.dismiss_one());
        assert!(second.dismissed().is_cancelled() && !first.dismissed().is_cancelled());
        assert!(idle.dismiss_one());
        assert!(first.dismissed().is_cancelled());
        assert!(!idle.dismiss_one());
    }

    #[test]
    fn who_is_being_answered_is_not_dismissed_until_the_answer_is_sent() {
        let idle = Idle::new(Duration::ZERO);
        let seat = idle.seat();
        let answer = seat.rise().unwrap().until_sent(Body::from("hello"));
        assert!(!idle.dismiss_one());
        assert!(idle.somebody().now_or_never().is_none());
        drop(answer);
        assert!(idle.somebody().now_or_never().is_some());
        assert!(idle.dismiss_one());
    }

    #[test]
    fn who_just_came_gets_a_chance_to_ask() {
        let idle = Idle::new(LONG);
        let _seat = idle.seat();
        assert!(!idle.dismiss_one());
    }

    #[test]
    fn who_is_dismissed_is_not_answered() {
        let idle = Idle::new(Duration::ZERO);
        let seat = idle.seat();
        assert!(idle.dismiss_one());
        assert!(seat.rise().is_none());
    }
}
