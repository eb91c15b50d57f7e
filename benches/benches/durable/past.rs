//! What the past costs: catching up with a million events, and a million channels that nobody here listens to.

use std::time::{Duration, Instant};

use futures::StreamExt;
use switchboard_core::ports::{DurableItem, DurableStream, StartFrom};
use switchboard_core::types::Channel;
use switchboard_postgres::sqlx::postgres::PgConnection;
use switchboard_postgres::sqlx::{Connection, query};
use tokio::time::sleep;

use super::bus::Bus;
use super::figures::Figures;

const MISSED: u64 = 1_000_000;
const BATCH: u64 = 2_000;
const KNOWN: u64 = 1_000_000;
const SUBSCRIBED: u64 = 10_000;

/// One subscriber reads a million events that it missed.
#[allow(clippy::cast_precision_loss, reason = "counts")]
pub(crate) async fn catch_up(url: &str, bus: &Bus, rounds: usize) {
    let mut server = PgConnection::connect(url).await.expect("connects");
    let batch = "SELECT count(*) FROM switchboard.publish_batch(array_fill('missed'::text, ARRAY[$1]), \
         array_fill('message'::text, ARRAY[$1]), array_fill(('\"' || repeat('x', 62) || '\"')::json, ARRAY[$1]))";
    for _ in 0..MISSED / BATCH {
        let size = i32::try_from(BATCH).expect("small");
        query(batch).bind(size).execute(&mut server).await.expect("stores");
    }
    let channel = Channel::parse("missed").expect("valid");
    let (mut rates, mut grown) = (Figures::default(), Figures::default());
    for _ in 0..rounds {
        let before = resident();
        let began = Instant::now();
        let mut events = bus.node(0).subscribe(&channel, StartFrom::Oldest).await.expect("subscribes");
        let mut most = before;
        for expected in 1..=MISSED {
            match events.next().await {
                Some(DurableItem::Event(event)) if event.position.seq == expected => {}
                other => panic!("{other:?} instead of event {expected}"),
            }
            if expected % 10_000 == 0 {
                most = most.max(resident());
            }
        }
        rates.push(MISSED as f64 / began.elapsed().as_secs_f64());
        grown.push(most.saturating_sub(before) as f64 / 1e6);
    }
    println!(
        "  one subscriber, {MISSED} events: {} events/s, {} MB more memory",
        rates.show(0),
        grown.show(1)
    );
}

/// A node knows nothing of a channel until somebody here listens to it.
#[allow(clippy::cast_precision_loss, reason = "counts")]
pub(crate) async fn memory(url: &str, bus: &Bus) {
    let mut server = PgConnection::connect(url).await.expect("connects");
    let before = resident();
    let known = "INSERT INTO switchboard.channel_head SELECT 'known:' || n, switchboard.epoch(), 1 FROM generate_series(1, $1) n";
    query(known).bind(i64::try_from(KNOWN).expect("fits")).execute(&mut server).await.expect("stores");
    let with_known = resident();
    let mut streams: Vec<DurableStream> = Vec::new();
    let began = Instant::now();
    for n in 1..=SUBSCRIBED {
        let channel = Channel::parse(&format!("known:{n}")).expect("valid");
        streams.push(bus.node(0).subscribe(&channel, StartFrom::Now).await.expect("subscribes"));
    }
    let took = began.elapsed();
    // Two looks at all heads.
    sleep(Duration::from_secs(21)).await;
    let with_subscribers = resident();
    println!(
        "  {KNOWN} known channels: {:.1} MB more memory",
        with_known.saturating_sub(before) as f64 / 1e6
    );
    println!(
        "  {SUBSCRIBED} of them subscribed to within {:.1} s: {:.0} bytes each",
        took.as_secs_f64(),
        with_subscribers.saturating_sub(with_known) as f64 / SUBSCRIBED as f64
    );
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}
