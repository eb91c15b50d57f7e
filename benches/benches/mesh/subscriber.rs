//! A process that hears every event, confirms it now and then, and reports how many there were and how long those took that say when they were sent.

use std::time::Duration;

use futures::StreamExt;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use super::bus::{Bus, Way, channel};
use super::figures::quantile;
use super::payload;
use super::publisher::{CONFIRM, CONFIRMED, EVENTS, now};

/// Until its standard input ends. Each line there asks for a report: events, and p50 and p99 of how long they took in nanoseconds.
pub(crate) async fn run(way: Way, url: &str, number: usize) {
    let bus = Bus::open(way, url, &format!("subscriber-{number}")).await;
    let (confirmed, mut events) = (channel(CONFIRMED), bus.subscribe(&channel(EVENTS)).await);
    println!("ready");
    let (mut requests, mut heard, mut latencies) =
        (BufReader::new(stdin()).lines(), 0, Vec::<Duration>::new());
    loop {
        tokio::select! {
            request = requests.next_line() => {
                let Ok(Some(_)) = request else { return };
                let [p50, p99] = [0.5, 0.99].map(|q| quantile(&latencies, q).as_nanos());
                println!("{heard} {p50} {p99}");
                (heard, latencies) = (0, Vec::new());
            }
            Some(event) = events.next() => {
                let (at, count) = payload::read(&event);
                heard += 1;
                if at > 0 {
                    latencies.push(Duration::from_nanos(now().saturating_sub(at)));
                }
                if count.is_multiple_of(CONFIRM) {
                    bus.publish(&confirmed, format!("[{number},{count}]")).await;
                }
            }
        }
    }
}
