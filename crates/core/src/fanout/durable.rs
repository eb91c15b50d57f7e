//! One durable subscription: live events where they follow without a gap, the log for everything else.
//!
//! Invariant: an event is yielded only if its position directly follows the last one yielded, in a history that the log
//! has confirmed. Live deliveries are hints. Missed, repeated, late or dropped ones can therefore neither lose nor
//! repeat an event, and a subscriber that falls behind is served from the log, not from memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use tokio::time::sleep;
use tracing::warn;

use super::{Delivery, Subscription};
use crate::ports::{DurableError, DurableItem, DurableStream, History};
use crate::types::{Channel, DurableEvent, Position};

/// Live events that may wait for one subscriber before it is served from the log instead.
pub const DURABLE_MAILBOX: usize = 256;

/// Events asked from the log at once.
const PAGE: usize = 256;

/// Pauses between attempts to read a log that is unavailable.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The stored events, as a subscription needs them.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// As [`DurableBus::history`](crate::ports::DurableBus::history).
    async fn read(
        &self,
        channel: &Channel,
        after: Option<Position>,
        limit: usize,
    ) -> Result<History, DurableError>;
}

/// What an adapter tells the subscribers of a channel as it happens. Every variant is a hint.
#[derive(Debug, Clone)]
pub enum Live {
    /// This event was committed.
    Event(Arc<DurableEvent>),
    /// The channel has got at least to this position.
    Head(Position),
    /// The log was looked at, after everything that was told before, and the channel stands here. If a subscriber is further, what
    /// it has seen is not in the log.
    Looked(Position),
    /// Anything may have happened, even the loss of history: ask the log.
    Verify,
}

/// The stream of a subscriber that stands at `last` (`None`: before the oldest event that remains).
///
/// `live` must have been subscribed before `last` was read from the log. With `verify` the log is asked at once: for
/// history that stands after `last`, and whether `last` belongs to it at all.
pub fn durable_stream(
    log: Arc<dyn EventLog>,
    live: Subscription<Live>,
    last: Option<Position>,
    verify: bool,
) -> DurableStream {
    let behind = if verify { Some(Target::End) } else { None };
    let reader = Reader { log, live, last, fetched: VecDeque::new(), behind, complained: false };
    stream::unfold(reader, |mut reader| async { reader.next().await.map(|item| (item, reader)) }).boxed()
}

struct Reader {
    log: Arc<dyn EventLog>,
    live: Subscription<Live>,
    last: Option<Position>,
    fetched: VecDeque<Arc<DurableEvent>>,
    behind: Option<Target>,
    /// Whether the log was told of that cannot be read.
    complained: bool,
}

/// How far the log must be read before live events can be trusted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    At(Position),
    End,
}

impl Reader {
    async fn next(&mut self) -> Option<DurableItem> {
        let mut pause = RETRY.0;
        loop {
            if let Some(event) = self.fetched.pop_front() {
                return Some(self.advance(event));
            }
            if let Some(target) = self.behind {
                if matches!((target, self.last), (Target::At(at), Some(last)) if reaches(last, at)) {
                    self.behind = None;
                    continue;
                }
                let page = self.log.read(self.live.channel(), self.last, PAGE).await;
                self.complained &= page.is_err();
                match page {
                    Ok(History::Page(events)) if events.is_empty() => self.behind = None,
                    Ok(History::Page(events)) => self.fetched = events.into(),
                    Ok(History::Pruned { oldest }) => {
                        self.last = Some(Position { seq: oldest.seq.saturating_sub(1), ..oldest });
                        return Some(DurableItem::Pruned { oldest });
                    }
                    Ok(History::Reset { head }) => {
                        self.last = Some(head);
                        return Some(DurableItem::Reset { head });
                    }
                    Err(error) => {
                        // Once an outage: what passes within seconds is nobody's business.
                        if pause == RETRY.1 && !self.complained {
                            self.complained = true;
                            warn!(%error, channel = %self.live.channel(), "a subscription cannot read the log and waits");
                        }
                        sleep(pause).await;
                        pause = (pause * 2).min(RETRY.1);
                    }
                }
                continue;
            }
            match self.live.next().await? {
                Delivery::Item(Live::Event(event)) => match self.last {
                    Some(last) if event.position == last.next() => return Some(self.advance(event)),
                    Some(last) if reaches(last, event.position) => {}
                    _ => self.behind = Some(Target::At(event.position)),
                },
                Delivery::Item(Live::Head(head)) => self.behind = Some(Target::At(head)),
                Delivery::Item(Live::Looked(head)) => {
                    let lost = self.last.is_some_and(|last| reaches(last, head) && last != head);
                    self.behind = Some(if lost { Target::End } else { Target::At(head) });
                }
                Delivery::Item(Live::Verify) => self.behind = Some(Target::End),
                // What was dropped shows as a gap before the next event, and the newest is never dropped.
                Delivery::Dropped(_) => {}
            }
        }
    }

    fn advance(&mut self, event: Arc<DurableEvent>) -> DurableItem {
        self.last = Some(event.position);
        DurableItem::Event(event)
    }
}

/// Whether a reader at `last` has seen `position`. Across epochs nobody can tell but the log.
fn reaches(last: Position, position: Position) -> bool {
    last.epoch == position.epoch && last.seq >= position.seq
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use parking_lot::Mutex;
    use time::OffsetDateTime;

    use super::super::Fanout;
    use super::*;
    use crate::types::{Epoch, EventName, Payload};

    const EPOCH: Epoch = Epoch::from_bits(1);

    fn channel() -> Channel {
        Channel::parse("room:1").unwrap()
    }

    fn event(position: Position) -> Arc<DurableEvent> {
        Arc::new(DurableEvent {
            channel: channel(),
            position,
            event: EventName::parse("message").unwrap(),
            payload: Payload::parse("1").unwrap(),
            created_at: OffsetDateTime::UNIX_EPOCH,
        })
    }

    fn at(seq: u64) -> Position {
        Position::new(EPOCH, seq)
    }

    /// Answers reads from a script and records what it was asked.
    #[derive(Default)]
    struct Script {
        answers: Mutex<VecDeque<Result<History, DurableError>>>,
        asked: Mutex<Vec<Option<u64>>>,
    }

    #[async_trait]
    impl EventLog for Script {
        async fn read(
            &self,
            _: &Channel,
            after: Option<Position>,
            _: usize,
        ) -> Result<History, DurableError> {
            self.asked.lock().push(after.map(|position| position.seq));
            self.answers.lock().pop_front().expect("an unexpected read of the log")
        }
    }

    struct Scene {
        log: Arc<Script>,
        fanout: Fanout<Live>,
        stream: DurableStream,
    }

    fn scene(last: Option<Position>, verify: bool, answers: impl IntoIterator<Item = History>) -> Scene {
        let log = Arc::new(Script {
            answers: Mutex::new(answers.into_iter().map(Ok).collect()),
            ..Script::default()
        });
        let fanout = Fanout::new(4);
        let live = fanout.subscribe(&channel());
        let stream = durable_stream(log.clone(), live, last, verify);
        Scene { log, fanout, stream }
    }

    impl Scene {
        fn live(&self, live: &Live) {
            self.fanout.deliver("room:1", live);
        }

        /// The `seq` of every event that can be yielded without waiting.
        fn yielded(&mut self) -> Vec<u64> {
            std::iter::from_fn(|| match self.stream.next().now_or_never()?? {
                DurableItem::Event(event) => Some(event.position.seq),
                other => panic!("{other:?}"),
            })
            .collect()
        }
    }

    fn page(seqs: &[u64]) -> History {
        History::Page(seqs.iter().map(|seq| event(at(*seq))).collect())
    }

    #[test]
    fn contiguous_live_events_need_no_log() {
        let mut scene = scene(Some(at(0)), false, []);
        for seq in [1, 2, 2, 1, 3] {
            scene.live(&Live::Event(event(at(seq))));
            if seq == 2 {
                let _ = scene.yielded();
            }
        }
        assert_eq!(scene.yielded(), [3], "duplicates were yielded");
    }

    #[test]
    fn a_gap_is_filled_from_the_log_and_only_as_far_as_needed() {
        let mut scene = scene(Some(at(3)), false, [page(&[4, 5]), page(&[6])]);
        scene.live(&Live::Event(event(at(6))));
        scene.live(&Live::Event(event(at(7))));
        assert_eq!(scene.yielded(), [4, 5, 6, 7]);
        assert_eq!(*scene.log.asked.lock(), [Some(3), Some(5)]);
    }

    #[test]
    fn a_doorbell_without_the_event_fetches_it() {
        let mut scene = scene(Some(at(0)), false, [page(&[1])]);
        scene.live(&Live::Head(at(1)));
        assert_eq!(scene.yielded(), [1]);
        scene.live(&Live::Head(at(1)));
        assert_eq!(scene.yielded(), [0; 0], "a repeated doorbell caused a read");
    }

    #[test]
    fn a_head_that_fell_back_is_lost_history_even_in_the_same_epoch() {
        let mut scene = scene(Some(at(0)), false, [History::Reset { head: at(1) }]);
        scene.live(&Live::Event(event(at(1))));
        scene.live(&Live::Event(event(at(2))));
        assert_eq!(scene.yielded(), [1, 2]);
        scene.live(&Live::Head(at(1)));
        assert_eq!(scene.yielded(), [0; 0], "a late doorbell was taken for a loss");
        scene.live(&Live::Looked(at(2)));
        assert_eq!(scene.yielded(), [0; 0], "the same head was taken for a loss");
        scene.live(&Live::Looked(at(1)));
        let item = scene.stream.next().now_or_never();
        assert_eq!(item, Some(Some(DurableItem::Reset { head: at(1) })));
    }

    #[test]
    fn a_mailbox_that_overflows_is_made_good_from_the_log() {
        let mut scene = scene(Some(at(0)), false, [page(&[1, 2, 3, 4, 5, 6, 7])]);
        for seq in 1..=9 {
            scene.live(&Live::Event(event(at(seq))));
        }
        assert_eq!(scene.yielded(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn the_next_number_of_another_epoch_is_not_trusted_until_the_log_confirms_it() {
        let other = Position::new(Epoch::from_bits(2), 4);
        let mut scene = scene(Some(at(3)), false, [History::Reset { head: other }]);
        scene.live(&Live::Event(event(other)));
        let item = scene.stream.next().now_or_never();
        assert_eq!(item, Some(Some(DurableItem::Reset { head: other })));
        scene.live(&Live::Event(event(other.next())));
        assert_eq!(scene.yielded(), [5]);
    }

    #[test]
    fn pruned_history_is_reported_and_the_stream_goes_on_with_the_oldest() {
        let mut scene =
            scene(Some(at(1)), true, [History::Pruned { oldest: at(5) }, page(&[5, 6]), page(&[])]);
        let item = scene.stream.next().now_or_never();
        assert_eq!(item, Some(Some(DurableItem::Pruned { oldest: at(5) })));
        assert_eq!(scene.yielded(), [5, 6]);
        assert_eq!(*scene.log.asked.lock(), [Some(1), Some(4), Some(6)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_log_is_waited_for() {
        let scene = scene(None, true, []);
        let down = || Err(DurableError::Unavailable("down".into()));
        scene.log.answers.lock().extend([down(), down(), Ok(page(&[1])), Ok(page(&[]))]);
        let first = scene.stream.take(1).collect::<Vec<_>>().await;
        assert_eq!(first, [DurableItem::Event(event(at(1)))]);
    }
}
