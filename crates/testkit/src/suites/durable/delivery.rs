//! Every event, once, in order, as it was published, from wherever a subscription starts.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use switchboard_core::ports::{DurableError, History, StartFrom};
use switchboard_core::types::{EventName, PayloadLimits, Position};
use tokio::time::timeout;

use super::{Fixture, next_event, publish, publisher};
use crate::suites::values::{DELICATE, channel, difficult_names, event, key, payload, sized};

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

/// The name of an event is data too.
pub async fn event_names_arrive_as_they_are_live_and_replayed<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut live = fixture.bus(1).subscribe(&room, StartFrom::Now).await.unwrap();
    for name in difficult_names() {
        fixture.bus(0).publish(&room, &EventName::parse(&name).unwrap(), &payload("1")).await.unwrap();
        assert_eq!(next_event(&mut live).await.event.as_str(), name);
    }
    let mut replay = fixture.bus(1).subscribe(&room, StartFrom::Oldest).await.unwrap();
    for name in difficult_names() {
        assert_eq!(next_event(&mut replay).await.event.as_str(), name);
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

/// Nothing was missed, so nothing comes until something happens; also before the first event of all.
pub async fn after_the_head_waits_for_what_comes_next<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let first = publish(&fixture.bus(0), &room, "1").await;
    let unwritten = channel("unwritten");
    for (channel, after) in [(&room, first), (&unwritten, Position::new(first.epoch, 0))] {
        let mut events = fixture.bus(1).subscribe(channel, StartFrom::After(after)).await.unwrap();
        assert!(timeout(Duration::from_millis(200), events.next()).await.is_err(), "something came");
        assert_eq!(publish(&fixture.bus(0), channel, "2").await, after.next());
        assert_eq!(next_event(&mut events).await.position, after.next());
    }
}

/// Wherever a subscriber resumes, while events keep coming: contiguous, nothing twice.
pub async fn resuming_has_no_seam_while_events_keep_coming<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut total = 2_000;
    let publisher = publisher(fixture.bus(0), room.clone(), total);
    let mut last = None;
    let mut expected = 1;
    while expected <= total {
        // Whatever the publisher does meanwhile, this one is missed.
        publish(&fixture.bus(1), &room, "0").await;
        total += 1;
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

/// A retry after a lost answer, from whatever node, must not store the event again.
pub async fn a_key_makes_an_event_be_stored_once<F: Fixture>(fixture: &F) {
    let (room, other) = (channel("room:1"), channel("room:2"));
    let (seventh, eighth, tenth) = (key("order 7"), key("order 8"), key("order 10"));
    let once = async |node: usize, channel, key, text| {
        fixture.bus(node).publish_once(channel, &event(), &payload(text), key).await.unwrap()
    };
    let first = once(0, &room, &seventh, "1").await;
    let between = publish(&fixture.bus(0), &room, "2").await;
    assert_eq!(once(1, &room, &seventh, "1").await, first, "the key was not known on another node");
    assert_eq!(once(0, &room, &seventh, "9").await, first, "what the event says made a difference");
    assert_eq!(
        once(0, &room, &eighth, "3").await.seq,
        between.seq + 1,
        "a second key was taken for the first"
    );
    assert_eq!(once(0, &other, &seventh, "4").await.seq, 1, "a key held beyond its channel");

    // At once, from both nodes: within a batch and across batches.
    let buses = [fixture.bus(0), fixture.bus(1)];
    let (event, text) = (event(), payload("5"));
    let racing = (0..40).map(|n| buses[n % 2].publish_once(&room, &event, &text, &tenth));
    let positions = futures::future::try_join_all(racing).await.unwrap();
    assert!(positions.iter().all(|position| position.seq == 4), "{positions:?}");

    let History::Page(events) = fixture.bus(1).history(&room, None, 100).await.unwrap() else { panic!() };
    let texts: Vec<_> = events.iter().map(|event| event.payload.as_str()).collect();
    assert_eq!(texts, ["1", "2", "3", "5"]);
    let mut live = fixture.bus(1).subscribe(&room, StartFrom::Oldest).await.unwrap();
    for seq in 1..=4 {
        assert_eq!(next_event(&mut live).await.position.seq, seq);
    }

    // A key that outlived its event would refer to nothing.
    fixture.prune(&room, 1).await;
    assert_eq!(once(0, &room, &seventh, "6").await.seq, 5, "a key outlived its event");
}

/// State that was read after the head, and the events after the head, leave nothing out.
pub async fn the_head_is_the_last_position<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let empty = fixture.bus(1).head(&room).await.unwrap();
    assert_eq!(empty.seq, 0);
    let mut from_nothing = fixture.bus(1).subscribe(&room, StartFrom::After(empty)).await.unwrap();
    let first = publish(&fixture.bus(0), &room, "1").await;
    assert_eq!(fixture.bus(1).head(&room).await.unwrap(), first, "an event that was committed was left out");
    let second = publish(&fixture.bus(1), &room, "2").await;
    assert_eq!(fixture.bus(0).head(&room).await.unwrap(), second);
    assert_eq!(next_event(&mut from_nothing).await.position, first);
    let mut from_first = fixture.bus(1).subscribe(&room, StartFrom::After(first)).await.unwrap();
    assert_eq!(next_event(&mut from_first).await.position, second);
    fixture.prune(&room, 0).await;
    assert_eq!(fixture.bus(0).head(&room).await.unwrap(), second, "pruning moved the head");
}
