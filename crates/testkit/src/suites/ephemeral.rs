//! The promises of [`EphemeralBus`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use switchboard_core::ports::{EphemeralBus, EphemeralError, EphemeralItem, EphemeralStream};
use switchboard_core::types::{EventName, Payload, PayloadLimits};
use tokio::time::timeout;

use super::values::{DELICATE, channel, difficult_names, event, payload, sized};
use crate::wait::LONG;

/// Two nodes of one cluster.
#[async_trait]
pub trait Fixture: Send + Sync + Sized {
    /// A cluster that nobody else uses.
    async fn new() -> Self;

    /// The bus of node 0 or node 1.
    fn bus(&self, node: usize) -> Arc<dyn EphemeralBus>;
}

/// Makes one test of each promise of [`EphemeralBus`], for the [`Fixture`] given.
#[macro_export]
macro_rules! ephemeral_suite {
    ($fixture:ty) => {
        $crate::suite_tests!(
            ephemeral,
            $fixture,
            [
                every_node_hears_an_event_once_the_publisher_included,
                one_publishers_events_come_in_order,
                a_subscription_hears_the_very_next_event,
                payloads_arrive_byte_for_byte,
                event_names_arrive_as_they_are,
                channels_are_told_apart_by_their_exact_names,
                equal_events_are_all_delivered,
                limits_are_exact,
                a_slow_subscriber_loses_its_own_oldest_and_slows_nobody,
                nothing_is_kept_for_those_who_come_later,
                many_subscribers_of_one_channel_all_hear,
                subscribers_that_come_and_go_cost_the_others_nothing,
            ]
        );
    };
}

async fn next(events: &mut EphemeralStream) -> Payload {
    match timeout(LONG, events.next()).await.expect("nothing arrives").expect("the stream ended") {
        EphemeralItem::Event(event) => event.payload.clone(),
        EphemeralItem::Lagged(missed) => panic!("{missed} events were dropped"),
    }
}

/// Publishes an event and waits until `events` has it, so that everything before it has arrived or never will.
async fn fence(bus: &Arc<dyn EphemeralBus>, name: &str, events: &mut EphemeralStream) {
    let last = payload("\"fence\"");
    bus.publish(&channel(name), &event(), &last).await.unwrap();
    let arrived = async {
        loop {
            if matches!(events.next().await, Some(EphemeralItem::Event(event)) if event.payload == last) {
                return;
            }
        }
    };
    timeout(LONG, arrived).await.expect("the fence does not arrive");
}

/// Subscribers of both nodes hear each event exactly once.
pub async fn every_node_hears_an_event_once_the_publisher_included<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut here = fixture.bus(0).subscribe(&room).await.unwrap();
    let mut there = fixture.bus(1).subscribe(&room).await.unwrap();
    for n in 0..100 {
        fixture.bus(0).publish(&room, &event(), &payload(&n.to_string())).await.unwrap();
    }
    for n in 0..100 {
        assert_eq!(next(&mut here).await, payload(&n.to_string()));
        assert_eq!(next(&mut there).await, payload(&n.to_string()));
    }
    fence(&fixture.bus(0), "room:1", &mut there).await;
    assert_eq!(next(&mut here).await, payload("\"fence\""));
    assert_eq!(here.next().now_or_never(), None, "an event came twice to its own node");
    assert_eq!(there.next().now_or_never(), None, "an event came twice to another node");
}

/// Order holds per publisher and channel, whatever others publish at the same time, large payloads among small ones included.
pub async fn one_publishers_events_come_in_order<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut events = fixture.bus(1).subscribe(&room).await.unwrap();
    let publishers = [0, 1].map(|publisher| {
        let (bus, room) = (fixture.bus(publisher), room.clone());
        tokio::spawn(async move {
            for n in 0..200 {
                let padding = "x".repeat(if n % 50 == 0 { 20_000 } else { n });
                let text = format!("[{publisher},{n},\"{padding}\"]");
                bus.publish(&room, &event(), &payload(&text)).await.unwrap();
                tokio::task::yield_now().await;
            }
        })
    });
    let mut expected = [0, 0];
    while expected != [200, 200] {
        let text = next(&mut events).await.to_string();
        let mut parts = text.trim_start_matches('[').split(',');
        let publisher: usize = parts.next().unwrap().parse().unwrap();
        let n: usize = parts.next().unwrap().parse().unwrap();
        assert_eq!(n, expected[publisher], "publisher {publisher} is out of order");
        expected[publisher] += 1;
    }
    for publisher in publishers {
        publisher.await.unwrap();
    }
}

/// What a node publishes after `subscribe` returned to it is heard.
pub async fn a_subscription_hears_the_very_next_event<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    for n in 0..50 {
        let mut events = fixture.bus(0).subscribe(&room).await.unwrap();
        fixture.bus(0).publish(&room, &event(), &payload(&n.to_string())).await.unwrap();
        // The stragglers of earlier rounds are no business of this one.
        while next(&mut events).await != payload(&n.to_string()) {}
    }
}

/// Nobody on the way re-encodes JSON.
pub async fn payloads_arrive_byte_for_byte<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut events = fixture.bus(1).subscribe(&room).await.unwrap();
    for text in [DELICATE, "null", "0", "\"\\n\"", "[]", "{\n\t\"a\" :\r\n1}"] {
        fixture.bus(0).publish(&room, &event(), &payload(text)).await.unwrap();
        assert_eq!(next(&mut events).await.as_str(), text);
    }
}

/// The name of an event is data too.
pub async fn event_names_arrive_as_they_are<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut events = fixture.bus(1).subscribe(&room).await.unwrap();
    for name in difficult_names() {
        fixture.bus(0).publish(&room, &EventName::parse(&name).unwrap(), &payload("1")).await.unwrap();
        match timeout(LONG, events.next()).await.expect("nothing arrives") {
            Some(EphemeralItem::Event(event)) => {
                assert_eq!((event.event.as_str(), &event.channel), (name.as_str(), &room));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Case, look-alikes, length and punctuation make different channels.
pub async fn channels_are_told_apart_by_their_exact_names<F: Fixture>(fixture: &F) {
    let mut streams = Vec::new();
    for name in difficult_names() {
        let stream = fixture.bus(1).subscribe(&channel(&name)).await.unwrap();
        streams.push((name, stream));
    }
    for (n, (name, _)) in streams.iter().enumerate() {
        fixture.bus(0).publish(&channel(name), &event(), &payload(&n.to_string())).await.unwrap();
    }
    for (n, (name, stream)) in streams.iter_mut().enumerate() {
        assert_eq!(next(stream).await, payload(&n.to_string()), "{name:?}");
    }
    for (name, stream) in &mut streams {
        assert_eq!(stream.next().now_or_never(), None, "{name:?} heard another channel");
    }
}

/// Equality is no reason to merge.
pub async fn equal_events_are_all_delivered<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut events = fixture.bus(1).subscribe(&room).await.unwrap();
    for _ in 0..1000 {
        fixture.bus(0).publish(&room, &event(), &payload("\"like\"")).await.unwrap();
    }
    for _ in 0..1000 {
        assert_eq!(next(&mut events).await, payload("\"like\""));
    }
}

/// The largest payload arrives, one byte more is refused with the limit, and nothing of it arrives.
pub async fn limits_are_exact<F: Fixture>(fixture: &F) {
    let (room, limit) = (channel("room:1"), PayloadLimits::default().ephemeral);
    let mut events = fixture.bus(1).subscribe(&room).await.unwrap();
    for size in [7_900, 7_999, 8_000, 8_001, 16_000, limit - 1, limit] {
        fixture.bus(0).publish(&room, &event(), &sized(size)).await.unwrap();
        assert_eq!(next(&mut events).await, sized(size));
    }
    let refused = fixture.bus(0).publish(&room, &event(), &sized(limit + 1)).await.unwrap_err();
    assert!(
        matches!(&refused, EphemeralError::Rejected(error) if error.to_string().contains(&limit.to_string())),
        "{refused}"
    );
    fence(&fixture.bus(0), "room:1", &mut events).await;
}

/// Who does not read is told how much it missed; others miss nothing, and publishing does not wait.
pub async fn a_slow_subscriber_loses_its_own_oldest_and_slows_nobody<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut slow = fixture.bus(1).subscribe(&room).await.unwrap();
    let mut quick = fixture.bus(1).subscribe(&room).await.unwrap();
    let total = 5_000_u64;
    for n in 0..total {
        let publish = async { fixture.bus(0).publish(&room, &event(), &payload(&n.to_string())).await };
        timeout(Duration::from_secs(5), publish)
            .await
            .expect("publishing waits for a slow subscriber")
            .unwrap();
        assert_eq!(next(&mut quick).await, payload(&n.to_string()));
    }
    let (mut missed, mut got) = (0, Vec::new());
    while let Some(Some(item)) = slow.next().now_or_never() {
        match item {
            EphemeralItem::Lagged(count) => missed += count,
            EphemeralItem::Event(event) => got.push(event.payload.clone()),
        }
    }
    assert!(missed > 0, "nothing was dropped: the queue is not bounded");
    assert_eq!(missed + got.len() as u64, total, "what was dropped was not counted");
    assert_eq!(got.last(), Some(&payload(&(total - 1).to_string())), "the newest was dropped");
}

/// Ephemeral means it.
pub async fn nothing_is_kept_for_those_who_come_later<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut early = fixture.bus(1).subscribe(&room).await.unwrap();
    fixture.bus(0).publish(&room, &event(), &payload("1")).await.unwrap();
    assert_eq!(next(&mut early).await, payload("1"));
    let mut late = fixture.bus(1).subscribe(&room).await.unwrap();
    fixture.bus(0).publish(&room, &event(), &payload("2")).await.unwrap();
    assert_eq!(next(&mut late).await, payload("2"));
}

/// One event, many subscribers.
pub async fn many_subscribers_of_one_channel_all_hear<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut streams = Vec::new();
    for _ in 0..500 {
        streams.push(fixture.bus(1).subscribe(&room).await.unwrap());
    }
    fixture.bus(0).publish(&room, &event(), &payload("1")).await.unwrap();
    for stream in &mut streams {
        assert_eq!(next(stream).await, payload("1"));
    }
}

/// Interest in a channel begins and ends all the time; who stays hears everything, once.
pub async fn subscribers_that_come_and_go_cost_the_others_nothing<F: Fixture>(fixture: &F) {
    let room = channel("room:1");
    let mut steady = fixture.bus(1).subscribe(&room).await.unwrap();
    for n in 0..300 {
        let passing = fixture.bus(1).subscribe(&room).await.unwrap();
        fixture.bus(0).publish(&room, &event(), &payload(&n.to_string())).await.unwrap();
        drop(passing);
    }
    for n in 0..300 {
        assert_eq!(next(&mut steady).await, payload(&n.to_string()));
    }
    assert_eq!(steady.next().now_or_never(), None);
}
