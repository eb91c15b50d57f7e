//! One channel and its subscribers: how many deliveries a second at the most, and how long they take when it is calm.

use std::time::{Duration, Instant};

use super::client::Client;
use super::crowd::Crowd;
use super::node::Server;
use super::speech::{Speech, payload};

pub(crate) const CHANNEL: &str = "crowded";

/// How long deliveries may take to come to an end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A channel that is full, and somebody who publishes to it.
pub(crate) struct Audience {
    speech: Speech,
    pub(crate) crowd: Crowd,
    size: u64,
    publisher: Client,
}

impl Audience {
    pub(crate) fn gather(speech: Speech, server: &Server, size: usize) -> Self {
        let crowd = Crowd::join(speech, server.address, &server.token, size, |_| CHANNEL.to_owned());
        let mut publisher = Client::open(server.address, &speech.path(&server.token), None);
        if speech == Speech::Phoenix {
            // Whoever publishes must have joined, and is not sent its own events.
            publisher.join(speech, CHANNEL);
        } else {
            publisher.join(speech, "elsewhere");
        }
        publisher.wait_no_more();
        Self { speech, crowd, size: size as u64, publisher }
    }

    /// Deliveries/s while there are always `under_way` events that somebody has not got yet.
    #[allow(clippy::cast_precision_loss, reason = "a count of events")]
    pub(crate) fn saturate(&mut self, under_way: u64, length: Duration) -> f64 {
        let (began, first, mut published) = (Instant::now(), self.crowd.heard.events, 0);
        loop {
            let delivered = self.crowd.heard.events - first;
            let over = began.elapsed() >= length;
            while !over && published < delivered / self.size + under_way {
                self.publish();
                published += 1;
            }
            if over && delivered == published * self.size {
                return delivered as f64 / began.elapsed().as_secs_f64();
            }
            assert!(began.elapsed() < length + PATIENCE, "{delivered} of {published} events arrived");
            self.crowd.turn(Duration::from_millis(10));
        }
    }

    /// How long deliveries take while `rate` events are published a second.
    pub(crate) fn pace(&mut self, rate: u32, length: Duration) -> Vec<Duration> {
        let (began, first, pause) = (Instant::now(), self.crowd.heard.events, Duration::from_secs(1) / rate);
        self.crowd.heard.latencies = Some(Vec::new());
        let mut published = 0;
        while began.elapsed() < length {
            match (pause * published).checked_sub(began.elapsed()) {
                Some(left) if !left.is_zero() => self.crowd.turn(left),
                _ => {
                    self.publish();
                    published += 1;
                }
            }
        }
        while self.crowd.heard.events - first < u64::from(published) * self.size {
            assert!(began.elapsed() < length + PATIENCE, "events are missing");
            self.crowd.turn(Duration::from_millis(10));
        }
        self.crowd.heard.latencies.take().unwrap_or_default()
    }

    fn publish(&mut self) {
        let event = self.speech.publish(CHANNEL, &payload(self.crowd.now()));
        self.publisher.say(&event);
    }
}
