//! What the log forgets, and that nobody else notices.

use std::time::Duration;

use futures::StreamExt;
use switchboard_core::ports::{DurableItem, History, StartFrom};
use switchboard_core::types::ChannelPattern;
use switchboard_postgres::{Retention, RetentionRule};
use switchboard_testkit::suites::{channel, event, payload};
use switchboard_testkit::{LONG, eventually};
use tokio::time::timeout;

use crate::cluster::{Cluster, Member};

fn rule(pattern: &str, age: Option<Duration>, count: Option<u64>) -> RetentionRule {
    RetentionRule { channels: ChannelPattern::parse(pattern).unwrap(), age, count }
}

async fn node(cluster: &Cluster, name: &str, age: Option<Duration>, rules: Vec<RetentionRule>) -> Member {
    let mut config = cluster.config(name);
    config.retention = Retention { age, rules };
    let member = cluster.start(config).await;
    member.node.joined().await.unwrap();
    member
}

async fn publish(member: &Member, room: &str, count: usize) {
    let bus = member.ports.durable();
    for n in 1..=count {
        bus.publish(&channel(room), &event(), &payload(&n.to_string())).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_past_their_age_go_with_their_segment_and_their_readers_are_told() {
    let cluster = Cluster::new().await;
    let member = node(&cluster, "n1", Some(Duration::from_secs(2)), vec![]).await;
    let (bus, room) = (member.ports.durable(), channel("room:1"));
    let first = bus.publish(&room, &event(), &payload("1")).await.unwrap();
    publish(&member, "room:1", 9).await;
    let mut live = bus.subscribe(&room, StartFrom::After(first)).await.unwrap();
    eventually(LONG, "the log is empty", async || {
        cluster.count("SELECT count(*) FROM {schema}.event_log").await == 0
    })
    .await;
    let gone = bus.history(&room, Some(first), 10).await.unwrap();
    assert!(matches!(gone, History::Pruned { oldest } if oldest.seq == 11), "{gone:?}");
    assert!(matches!(live.next().await, Some(DurableItem::Pruned { oldest }) if oldest.seq == 11));
    // Positions go on, segment after segment, for several turns of all of them.
    for seq in 11..=30 {
        let position = bus.publish(&room, &event(), &payload("2")).await.unwrap();
        assert_eq!(position.seq, seq);
        match timeout(LONG, live.next()).await.expect("nothing arrives") {
            Some(DurableItem::Event(event)) => assert_eq!(event.position, position),
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let stats = serde_json::Value::Object(member.stats.collect().0);
    assert!(stats["durable"]["segments_emptied_total"].as_u64().unwrap() > 8, "{stats}");
    assert_eq!(stats["durable"]["pruned_total"], 0, "{stats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rule_that_fits_a_channel_holds() {
    let cluster = Cluster::new().await;
    let rules = vec![
        rule("room:*", None, Some(3)),
        rule("*:1", None, None),
        rule("cursor%*", Some(Duration::from_secs(1)), None),
    ];
    let member = node(&cluster, "n1", Some(Duration::from_secs(2)), rules).await;
    for room in ["room:1", "audit:1", "cursor%a", "cursor_a", "other"] {
        publish(&member, room, 10).await;
    }
    for (room, kept) in [("room:1", 3), ("cursor%a", 0), ("cursor_a", 0), ("other", 0)] {
        let count = format!("SELECT count(*) FROM {{schema}}.event_log WHERE channel = '{room}'");
        eventually(LONG, room, async || cluster.count(&count).await == kept).await;
    }
    let History::Page(events) = member.ports.durable().history(&channel("room:1"), None, 10).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(events.iter().map(|event| event.position.seq).collect::<Vec<_>>(), [8, 9, 10]);
    let History::Page(events) = member.ports.durable().history(&channel("audit:1"), None, 100).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(events.len(), 10, "a channel that is kept for ever lost events");
}

#[tokio::test(flavor = "multi_thread")]
async fn b080_a_reader_that_comes_too_late_is_told_where_the_log_begins() {
    let cluster = Cluster::new().await;
    let member =
        node(&cluster, "n1", Some(Duration::from_mins(1)), vec![rule("room:*", None, Some(5))]).await;
    let (bus, room) = (member.ports.durable(), channel("room:1"));
    let first = bus.publish(&room, &event(), &payload("0")).await.unwrap();
    publish(&member, "room:1", 11).await;
    eventually(LONG, "seven of twelve are gone", async || {
        cluster.count("SELECT count(*) FROM {schema}.event_log").await == 5
    })
    .await;
    for seq in 1..=6 {
        let after = switchboard_core::types::Position { seq, ..first };
        let page = bus.history(&room, Some(after), 100).await.unwrap();
        assert!(matches!(page, History::Pruned { oldest } if oldest.seq == 8), "after {seq}: {page:?}");
    }
    let mut late = bus.subscribe(&room, StartFrom::After(first)).await.unwrap();
    assert!(matches!(late.next().await, Some(DurableItem::Pruned { oldest }) if oldest.seq == 8));
    for seq in 8..=12 {
        assert!(matches!(late.next().await, Some(DurableItem::Event(event)) if event.position.seq == seq));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_in_the_log_is_told_to_its_readers() {
    let cluster = Cluster::new().await;
    let member = cluster.node("n1").await;
    publish(&member, "room:1", 10).await;
    cluster.sql("DELETE FROM {schema}.event_log WHERE seq BETWEEN 4 AND 6").await;
    let (bus, room) = (member.ports.durable(), channel("room:1"));
    let mut events = bus.subscribe(&room, StartFrom::Oldest).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 8 {
        seen.push(match timeout(LONG, events.next()).await.expect("nothing arrives").unwrap() {
            DurableItem::Event(event) => event.position.seq.to_string(),
            DurableItem::Pruned { oldest } => format!("pruned {}", oldest.seq),
            DurableItem::Reset { head } => format!("reset {head}"),
        });
    }
    assert_eq!(seen, ["1", "2", "3", "pruned 7", "7", "8", "9", "10"]);
}

/// Somebody's long transaction holds on to the oldest events: they stay, and nobody waits.
#[tokio::test(flavor = "multi_thread")]
async fn b084_retention_waits_for_no_lock_and_publishing_not_for_retention() {
    let cluster = Cluster::new().await;
    let member =
        node(&cluster, "n1", Some(Duration::from_secs(2)), vec![rule("counted:*", None, Some(10))]).await;
    publish(&member, "aged", 100).await;
    let mut holder = cluster.connection().await;
    cluster.sql_on(&mut holder, "BEGIN").await;
    cluster.sql_on(&mut holder, "SELECT 1 FROM {schema}.event_log ORDER BY seq LIMIT 100 FOR UPDATE").await;
    publish(&member, "counted:1", 200).await;
    let retained = "SELECT count(*) FROM {schema}.event_log WHERE channel = 'counted:1'";
    eventually(LONG, "what nobody holds is deleted", async || cluster.count(retained).await == 10).await;
    // Segments fall due and stay, while two hundred events a second pass.
    let (bus, room) = (member.ports.durable(), channel("busy"));
    let mut slowest = Duration::ZERO;
    for _ in 0..600 {
        let began = tokio::time::Instant::now();
        bus.publish(&room, &event(), &payload("1")).await.unwrap();
        slowest = slowest.max(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(slowest < Duration::from_secs(2), "an event waited {slowest:?}");
    assert_eq!(cluster.count("SELECT count(*) FROM {schema}.event_log WHERE channel = 'aged'").await, 100);
    cluster.sql_on(&mut holder, "ROLLBACK").await;
    eventually(LONG, "the held events go, too", async || {
        cluster.count("SELECT count(*) FROM {schema}.event_log WHERE channel = 'aged'").await == 0
    })
    .await;
}
