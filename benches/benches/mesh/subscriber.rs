//! A process that hears every event, confirms it now and then, and reports how many there were and how long they took.

use std::time::Duration;

use futures::StreamExt;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use super::bus::{Bus, Way, channel};
use super::figures::quantile;
use super::publisher::{CONFIRM, CONFIRMED, EVENTS, now};

/// Until its standard input ends. Each line there asks for a report: events, and p50 and p99 of how long they took in nanoseconds.
pub(crate) async fn run(way: Way, url: &str, number: usize) {
    let bus = Bus::open(way, url, &format!("subscriber-{number}")).await;
    let (confirmed, mut events) = (channel(CONFIRMED), bus.subscribe(&channel(EVENTS)).await);
    println!("ready");
    let (mut requests, mut latencies) = (BufReader::new(stdin()).lines(), Vec::<Duration>::new());
    loop {
        tokio::select! {
            request = requests.next_line() => {
                let Ok(Some(_)) = request else { return };
                let [p50, p99] = [0.5, 0.99].map(|q| quantile(&latencies, q).as_nanos());
                println!("{} {p50} {p99}", latencies.len());
                latencies.clear();
            }
            Some(event) = events.next() => {
                let (sent, count) = read(&event);
                latencies.push(now().saturating_sub(sent));
                if count.is_multiple_of(CONFIRM) {
                    bus.publish(&confirmed, format!("[{number},{count}]")).await;
                }
            }
        }
    }
}

/// When it was sent, and its number.
fn read(event: &str) -> (Duration, u64) {
    let sent = event.get(7..27).and_then(|nanos| nanos.parse().ok());
    let number = event.get(34..58).and_then(|number| number.parse().ok());
    (Duration::from_nanos(sent.expect("it is one of ours")), number.expect("it is one of ours"))
}
