//! The process that publishes: as much as subscribers confirm, at a rate, or to nobody.

use std::str::SplitWhitespace;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::bus::{Bus, Way, channel};
use super::{payload, udp};

pub(crate) const EVENTS: &str = "room:1";
pub(crate) const CONFIRMED: &str = "confirmed";
const NOBODYS: &str = "room:2";

/// One event in so many is confirmed, and with it those before. Few, because it is not confirmations that are measured.
pub(crate) const CONFIRM: u64 = 256;
/// Longest wait for what is still on its way.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time since an epoch that all processes share, in nanoseconds.
pub(crate) fn now() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
    u64::try_from(time.as_nanos()).expect("it is not 2554")
}

/// Until its standard input ends. Each line there is something to do, and answered with one of figures.
pub(crate) async fn run(way: Way, url: &str, subscribers: usize) {
    let bus = Bus::open(way, url, "publisher").await;
    bus.reaches(subscribers).await;
    let mut publisher = Publisher { confirmed: Confirmed::listen(&bus, subscribers).await, bus, count: 0 };
    println!("ready");
    let mut requests = BufReader::new(stdin()).lines();
    while let Ok(Some(request)) = requests.next_line().await {
        let mut words = request.split_whitespace();
        match words.next() {
            Some("saturate") => {
                let (under_way, length) = (number(&mut words), Duration::from_millis(number(&mut words)));
                publisher.saturate(under_way, length).await;
            }
            Some("pace") => {
                let (rate, length) = (number(&mut words), Duration::from_millis(number(&mut words)));
                publisher.pace(u32::try_from(rate).expect("fits"), length).await;
            }
            Some("alone") => publisher.alone(number(&mut words), number(&mut words)).await,
            _ => panic!("nobody asks for {request:?}"),
        }
    }
}

fn number(words: &mut SplitWhitespace<'_>) -> u64 {
    words.next().and_then(|word| word.parse().ok()).expect("a number")
}

struct Publisher {
    bus: Bus,
    confirmed: Arc<Confirmed>,
    /// Events so far.
    count: u64,
}

impl Publisher {
    /// Answers how many events, and how many nanoseconds until all were confirmed.
    async fn saturate(&mut self, under_way: u64, length: Duration) {
        let (room, began, first) = (channel(EVENTS), Instant::now(), self.count);
        while !self.count.is_multiple_of(CONFIRM) || began.elapsed() < length {
            let needed = (self.count + 1).saturating_sub(under_way);
            if !self.confirmed.has(needed) && timeout(PATIENCE, self.confirmed.reaches(needed)).await.is_err()
            {
                // Events were lost; who counts what arrived will see.
                self.count = self.count.next_multiple_of(CONFIRM);
                break;
            }
            self.count += 1;
            self.bus.publish(&room, payload::write(0, self.count)).await;
        }
        let _ = timeout(PATIENCE, self.confirmed.reaches(self.count)).await;
        println!("{} {}", self.count - first, began.elapsed().as_nanos());
    }

    /// The same; one event after the other, evenly.
    async fn pace(&mut self, rate: u32, length: Duration) {
        let (room, began, first, pause) =
            (channel(EVENTS), Instant::now(), self.count, Duration::from_secs(1) / rate);
        let mut due = Duration::ZERO;
        while due < length || !self.count.is_multiple_of(CONFIRM) {
            if let Some(left) = due.checked_sub(began.elapsed()) {
                // Tokio's timers are too coarse. This thread has nothing else to do.
                tokio::task::block_in_place(|| thread::sleep(left));
            }
            self.count += 1;
            self.bus.publish(&room, payload::write(now(), self.count)).await;
            due += pause;
        }
        let _ = timeout(PATIENCE, self.confirmed.reaches(self.count)).await;
        println!("{} {}", self.count - first, began.elapsed().as_nanos());
    }

    /// Answers during how many bursts no datagram was sent, how many during the others, and how many events were sent.
    async fn alone(&mut self, bursts: u64, events: u64) {
        let Bus::Mesh(node, _) = &self.bus else { panic!("NATS does not know who is there") };
        let (room, sent, mut silent, mut datagrams) = (channel(NOBODYS), node.sent(), 0_u64, 0);
        for _ in 0..bursts {
            let before = udp::datagrams();
            for count in 0..events {
                self.bus.publish(&room, payload::write(0, count)).await;
            }
            // Long enough for what waits to leave.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let during = udp::datagrams() - before;
            silent += u64::from(during == 0);
            datagrams += during;
        }
        println!("{silent} {datagrams} {}", node.sent() - sent);
    }
}

/// What the subscribers have confirmed.
struct Confirmed {
    each: Vec<AtomicU64>,
    news: Notify,
}

impl Confirmed {
    async fn listen(bus: &Bus, subscribers: usize) -> Arc<Self> {
        let each = (0..subscribers).map(|_| AtomicU64::new(0)).collect();
        let confirmed = Arc::new(Self { each, news: Notify::new() });
        let (listener, mut events) = (Arc::clone(&confirmed), bus.subscribe(&channel(CONFIRMED)).await);
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let said = event.trim_matches(['[', ']']).split_once(',').expect("one of ours");
                let (who, count) = (said.0.parse::<usize>().expect("ours"), said.1.parse().expect("ours"));
                listener.each[who].store(count, Ordering::Release);
                listener.news.notify_one();
            }
        });
        confirmed
    }

    fn has(&self, count: u64) -> bool {
        self.each.iter().all(|each| each.load(Ordering::Acquire) >= count)
    }

    /// Waits until all have confirmed so many.
    async fn reaches(&self, count: u64) {
        while !self.has(count) {
            self.news.notified().await;
        }
    }
}
