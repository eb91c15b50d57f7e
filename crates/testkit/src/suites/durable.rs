//! The promises of [`DurableBus`].

use std::sync::Arc;

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use switchboard_core::ports::{DurableBus, DurableError, DurableItem, DurableStream, History, StartFrom};
use switchboard_core::types::{Channel, DurableEvent, Epoch, PayloadLimits, Position};
use tokio::time::timeout;

use super::values::{DELICATE, channel, difficult_names, event, payload, sized};
use crate::wait::LONG;

/// Two nodes of one cluster.
#[async_trait]
pub trait Fixture: Send + Sync + Sized {
    /// A cluster that nobody else uses.
    async fn new() -> Self;

    /// The bus of node 0 or node 1.
    fn bus(&self, node: usize) -> Arc<dyn DurableBus>;

    /// Whatever may happen to the way by which live events travel (a lost listener, say); the log stays.
    async fn disturb(&self);

    /// Removes the oldest events of a channel until `keep` remain.
    async fn prune(&self, channel: &Channel, keep: usize);

    /// A failover to a store that never saw the last `lost` events of each channel: a new epoch.
    async fn fail_over(&self, lost: u64);
}

/// Makes one test of each promise of [`DurableBus`], for the [`Fixture`] given.
#[macro_export]
macro_rules! durable_suite {
    ($fixture:ty) => {
        $crate::suite_tests!(
            durable,
            $fixture,
            [
                positions_count_without_gaps_whoever_publishes,
                every_subscriber_gets_every_event_once_and_in_order,
                payloads_arrive_byte_for_byte_live_and_replayed,
                channels_are_told_apart_by_their_exact_names,
                equal_events_are_all_stored,
                limits_are_exact_and_what_is_refused_is_not_stored,
                now_begins_when_subscribe_returns,
                oldest_replays_everything_and_goes_on,
                resuming_has_no_seam_while_events_keep_coming,
                a_disturbance_neither_loses_nor_repeats,
                a_subscriber_that_does_not_read_misses_nothing,
                history_pages_from_the_oldest_to_the_end,
                pruned_history_is_reported_with_the_oldest_that_remains,
                positions_of_no_history_are_answered_with_a_reset,
                a_failover_that_lost_the_tail_is_reported_and_its_numbers_are_not_mistaken,
            ]
        );
    };
}

async fn next(events: &mut DurableStream) -> DurableItem {
    timeout(LONG, events.next()).await.expect("nothing arrives").expect("the stream ended")
}

async fn next_event(events: &mut DurableStream) -> Arc<DurableEvent> {
    match next(events).await {
        DurableItem::Event(event) => event,
        other => panic!("{other:?}"),
    }
}

async fn publish(bus: &Arc<dyn DurableBus>, channel: &Channel, text: &str) -> Position {
    bus.publish(channel, &event(), &payload(text)).await.unwrap()
}

/// Publishes 1, 2, … in the background.
fn publisher(bus: Arc<dyn DurableBus>, channel: Channel, count: u64) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        for n in 1..=count {
            publish(&bus, &channel, &n.to_string()).await;
            tokio::task::yield_now().await;
        }
    })
}

/// 1, 2, 3 … per channel, each given once, however many publish at the same time.
pub async fn positions_count_without_gaps_whoever_publishes<F: Fixture>(fixture: &F) {
    let mut tasks = Vec::new();
    for n in 0..40 {
        let (bus, room) = (fixture.bus(n % 2), channel(&format!("room:{}", n % 3)));
        tasks.push(tokio::spawn(async move {
            let mut seqs = Vec::new();
            for _ in 0..10 {
                seqs.push(publish(&bus, &room, "1").await.seq);
            }
            assert!(seqs.is_sorted(), "a publisher's own events are out of order");
            (n % 3, seqs)
        }));
    }
    let mut by_channel = [Vec::new(), Vec::new(), Vec::new()];
    for task in tasks {
        let (room, seqs) = task.await.unwrap();
        by_channel[room].extend(seqs);
    }
    for mut seqs in by_channel {
        seqs.sort_unstable();
        let expected: Vec<u64> = (1..=seqs.len() as u64).collect();
        assert_eq!(seqs, expected);
    }
}

/// Subscribers of both nodes, events of both nodes.
pub async fn every_subscriber_gets_every_event_once_and_in_order<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut streams = Vec::new();
    for n in 0..20 {
        streams.push(fixture.bus(n % 2).subscribe(&room, StartFrom::Now).await.unwrap());
    }
    let publishers = [0, 1].map(|node| publisher(fixture.bus(node), room.clone(), 100));
    for stream in &mut streams {
        for seq in 1..=200 {
            assert_eq!(next_event(stream).await.position.seq, seq);
        }
    }
    for publisher in publishers {
        publisher.await.unwrap();
    }
    for stream in &mut streams {
        assert_eq!(stream.next().now_or_never(), None, "an event came twice");
    }
}

/// Nobody on the way re-encodes JSON, nor does the store.
pub async fn payloads_arrive_byte_for_byte_live_and_replayed<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let texts = [DELICATE, "null", "0", "\"\\n\"", "[]", "{\n\t\"a\" :\r\n1}"];
    let mut live = fixture.bus(1).subscribe(&room, StartFrom::Now).await.unwrap();
    for text in texts {
        publish(&fixture.bus(0), &room, text).await;
        assert_eq!(next_event(&mut live).await.payload.as_str(), text);
    }
    let mut replay = fixture.bus(1).subscribe(&room, StartFrom::Oldest).await.unwrap();
    for text in texts {
        let event = next_event(&mut replay).await;
        assert_eq!((event.payload.as_str(), event.event.as_str(), &event.channel), (text, "message", &room));
    }
}

/// Case, look-alikes, length and punctuation make different channels.
pub async fn channels_are_told_apart_by_their_exact_names<F: Fixture>(fixture: &F) {
    let mut streams = Vec::new();
    for name in difficult_names() {
        let stream = fixture.bus(1).subscribe(&channel(&name), StartFrom::Now).await.unwrap();
        streams.push((name, stream));
    }
    for (n, (name, _)) in streams.iter().enumerate() {
        assert_eq!(
            publish(&fixture.bus(0), &channel(name), &n.to_string()).await.seq,
            1,
            "{name:?} shares its numbers"
        );
    }
    for (n, (name, stream)) in streams.iter_mut().enumerate() {
        assert_eq!(next_event(stream).await.payload, payload(&n.to_string()), "{name:?}");
        assert_eq!(stream.next().now_or_never(), None, "{name:?} heard another channel");
    }
}

/// Equality is no reason to merge.
pub async fn equal_events_are_all_stored<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut events = fixture.bus(1).subscribe(&room, StartFrom::Now).await.unwrap();
    let (bus, same) = (fixture.bus(0), payload("\"like\""));
    let (room, name) = (&room, event());
    futures::future::join_all((0..300).map(|_| bus.publish(room, &name, &same))).await;
    for seq in 1..=300 {
        assert_eq!(next_event(&mut events).await.position.seq, seq);
    }
}

/// The largest payload arrives, one byte more is refused with the limit, and nothing of it is stored.
pub async fn limits_are_exact_and_what_is_refused_is_not_stored<F: Fixture>(fixture: &F) {
    let (room, limit) = (channel("room:1"), PayloadLimits::default().durable);
    let mut events = fixture.bus(1).subscribe(&room, StartFrom::Now).await.unwrap();
    for size in [5_900, 7_900, 7_999, 8_000, 8_001, 64 * 1024 + 1, limit - 1, limit] {
        fixture.bus(0).publish(&room, &event(), &sized(size)).await.unwrap();
        assert_eq!(next_event(&mut events).await.payload, sized(size));
    }
    let refused = fixture.bus(0).publish(&room, &event(), &sized(limit + 1)).await.unwrap_err();
    assert!(
        matches!(&refused, DurableError::Rejected(error) if error.to_string().contains(&limit.to_string())),
        "{refused}"
    );
    assert_eq!(publish(&fixture.bus(0), &room, "1").await.seq, 9);
}

/// What was committed before is not yielded, everything after is.
pub async fn now_begins_when_subscribe_returns<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    for n in 1..=20 {
        publish(&fixture.bus(0), &room, "0").await;
        let mut events = fixture.bus(n % 2).subscribe(&room, StartFrom::Now).await.unwrap();
        let position = publish(&fixture.bus(0), &room, "1").await;
        assert_eq!(next_event(&mut events).await.position, position);
    }
}

/// History first, then live.
pub async fn oldest_replays_everything_and_goes_on<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut nothing_yet = fixture.bus(1).subscribe(&room, StartFrom::Oldest).await.unwrap();
    for _ in 0..600 {
        publish(&fixture.bus(0), &room, "1").await;
    }
    let mut events = fixture.bus(1).subscribe(&room, StartFrom::Oldest).await.unwrap();
    publish(&fixture.bus(0), &room, "1").await;
    for seq in 1..=601 {
        assert_eq!(next_event(&mut events).await.position.seq, seq);
        assert_eq!(next_event(&mut nothing_yet).await.position.seq, seq);
    }
}

/// Wherever a subscriber resumes, while events keep coming: contiguous, nothing twice.
pub async fn resuming_has_no_seam_while_events_keep_coming<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let total = 2_000;
    let publisher = publisher(fixture.bus(0), room.clone(), total);
    let mut last = None;
    let mut expected = 1;
    while expected <= total {
        let from = last.map_or(StartFrom::Oldest, StartFrom::After);
        let mut events = fixture.bus(1).subscribe(&room, from).await.unwrap();
        // A different number each time, so that some end in history and some in live events.
        for _ in 0..=(expected % 97) {
            if expected > total {
                break;
            }
            let event = next_event(&mut events).await;
            assert_eq!(event.position.seq, expected);
            last = Some(event.position);
            expected += 1;
        }
    }
    publisher.await.unwrap();
}

/// Listeners may be lost as often as they like.
pub async fn a_disturbance_neither_loses_nor_repeats<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut events = fixture.bus(1).subscribe(&room, StartFrom::Now).await.unwrap();
    let publisher = publisher(fixture.bus(0), room.clone(), 1_000);
    for seq in 1..=1_000 {
        assert_eq!(next_event(&mut events).await.position.seq, seq);
        if seq % 200 == 0 {
            fixture.disturb().await;
        }
    }
    publisher.await.unwrap();
}

/// Served from the log once it reads.
pub async fn a_subscriber_that_does_not_read_misses_nothing<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut lazy = fixture.bus(1).subscribe(&room, StartFrom::Now).await.unwrap();
    publisher(fixture.bus(0), room.clone(), 2_000).await.unwrap();
    for seq in 1..=2_000 {
        assert_eq!(next_event(&mut lazy).await.position.seq, seq);
    }
}

/// Page after page, each after the last of the one before.
pub async fn history_pages_from_the_oldest_to_the_end<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let empty = fixture.bus(0).history(&room, None, 10).await.unwrap();
    assert_eq!(empty, History::Page(vec![]));
    for _ in 0..25 {
        publish(&fixture.bus(0), &room, "1").await;
    }
    let (mut after, mut seqs) = (None, Vec::new());
    loop {
        match fixture.bus(1).history(&room, after, 10).await.unwrap() {
            History::Page(events) if events.is_empty() => break,
            History::Page(events) => {
                assert!(events.len() <= 10);
                seqs.extend(events.iter().map(|event| event.position.seq));
                after = events.last().map(|event| event.position);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seqs, (1..=25).collect::<Vec<u64>>());
}

/// Never silence: whoever comes back too late is told, and goes on with what is left.
pub async fn pruned_history_is_reported_with_the_oldest_that_remains<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let first = publish(&fixture.bus(0), &room, "1").await;
    for _ in 2..=10 {
        publish(&fixture.bus(0), &room, "1").await;
    }
    fixture.prune(&room, 4).await;
    let oldest = Position { seq: 7, ..first };
    assert_eq!(fixture.bus(1).history(&room, Some(first), 10).await.unwrap(), History::Pruned { oldest });
    let mut late = fixture.bus(1).subscribe(&room, StartFrom::After(first)).await.unwrap();
    assert_eq!(next(&mut late).await, DurableItem::Pruned { oldest });
    for seq in 7..=10 {
        assert_eq!(next_event(&mut late).await.position.seq, seq);
    }
    // Nothing is missing between 6 and 7.
    let mut just =
        fixture.bus(1).subscribe(&room, StartFrom::After(Position { seq: 6, ..first })).await.unwrap();
    assert_eq!(next_event(&mut just).await.position.seq, 7);

    fixture.prune(&room, 0).await;
    let mut all_gone = fixture.bus(1).subscribe(&room, StartFrom::After(first)).await.unwrap();
    assert!(matches!(next(&mut all_gone).await, DurableItem::Pruned { oldest } if oldest.seq == 11));
    assert_eq!(publish(&fixture.bus(0), &room, "1").await.seq, 11, "numbers began again");
    assert_eq!(next_event(&mut all_gone).await.position.seq, 11);
}

/// Beyond the head, of another epoch, before the first.
pub async fn positions_of_no_history_are_answered_with_a_reset<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let head = publish(&fixture.bus(0), &room, "1").await;
    let beyond = Position { seq: 99, ..head };
    let foreign = Position { epoch: Epoch::from_bits(!head.epoch.bits()), ..head };
    for wrong in [beyond, foreign, Position { seq: Position::MAX_SEQ, ..head }] {
        assert_eq!(fixture.bus(1).history(&room, Some(wrong), 10).await.unwrap(), History::Reset { head });
        let mut events = fixture.bus(1).subscribe(&room, StartFrom::After(wrong)).await.unwrap();
        assert_eq!(next(&mut events).await, DurableItem::Reset { head });
    }
    // A channel that was never written to knows no position but the one before the first.
    let unwritten = channel("unwritten");
    let reset = fixture.bus(1).history(&unwritten, Some(head), 10).await.unwrap();
    assert!(matches!(reset, History::Reset { head } if head.seq == 0), "{reset:?}");
    for epoch in [head.epoch, foreign.epoch] {
        let start = Position::new(epoch, 0);
        let mut events = fixture.bus(1).subscribe(&room, StartFrom::After(start)).await.unwrap();
        assert_eq!(next_event(&mut events).await.position, head);
    }
}

/// A number that is used again in a new epoch is a new event.
pub async fn a_failover_that_lost_the_tail_is_reported_and_its_numbers_are_not_mistaken<F: Fixture>(
    fixture: &F,
) {
    let room = channel("room:1");
    let mut events = fixture.bus(1).subscribe(&room, StartFrom::Now).await.unwrap();
    let mut last = publish(&fixture.bus(0), &room, "1").await;
    for _ in 2..=6 {
        last = publish(&fixture.bus(0), &room, "1").await;
    }
    for _ in 1..=6 {
        next_event(&mut events).await;
    }
    fixture.fail_over(2).await;
    assert!(matches!(next(&mut events).await, DurableItem::Reset { head } if head.seq == 4));
    let again = publish(&fixture.bus(0), &room, "2").await;
    assert_eq!(again.seq, 5);
    assert_ne!(again.epoch, last.epoch);
    assert_eq!(next_event(&mut events).await.position, again);
    publish(&fixture.bus(0), &room, "3").await;
    let mut resumed = fixture.bus(1).subscribe(&room, StartFrom::After(last)).await.unwrap();
    assert!(matches!(next(&mut resumed).await, DurableItem::Reset { head } if head.seq == 6));
}
