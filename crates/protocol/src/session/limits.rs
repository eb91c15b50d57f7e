//! Bounds on what one client may ask for, and the bucket that measures rates.

use std::time::{Duration, Instant};

/// How often something may happen: `burst` at once, and `per_second` in the long run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// In the long run.
    pub per_second: u32,
    /// At once, after a pause. At least 1, or nothing is ever allowed.
    pub burst: u32,
}

/// What one socket may do. What is refused gets an error reply with a reason of its own; what goes on regardless, a close code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest message in bytes. Enforced by whoever reads the socket, before it buffers more: close code 1009.
    pub message_bytes: usize,
    /// Channels joined at the same time: `too_many_channels`.
    pub channels: usize,
    /// Joins: `too_many_joins`, with a hint when to try again.
    pub joins: Rate,
    /// Messages of any kind: `too_many_messages`, with a hint when to try again. Who has overdrawn by another `burst` is closed with
    /// [`close::FLOOD`](super::close::FLOOD).
    pub messages: Rate,
    /// Requests whose answers are outstanding: `busy`.
    pub pending: usize,
    /// How long a socket may go without any valid token: [`close::UNAUTHENTICATED`](super::close::UNAUTHENTICATED).
    pub unauthenticated: Duration,
    /// Silence after which the client is pinged.
    pub ping_after: Duration,
    /// Silence after which it is given up: [`close::IDLE`](super::close::IDLE). Longer than `ping_after`.
    pub idle: Duration,
}

impl Default for Limits {
    /// 1 MiB + 16 KiB a message; 100 channels; 20 joins/s in bursts of 100 and 100 messages/s in bursts of 200 (a reconnect joins
    /// everything at once); 256 pending; 10 s without a token; ping after 40 s, given up after 60 s of silence. The usual clients speak
    /// every 25 or 30 s and are never pinged; others are before proxies that drop what is idle for a minute.
    fn default() -> Self {
        Self {
            message_bytes: 1024 * 1024 + 16 * 1024,
            channels: 100,
            joins: Rate { per_second: 20, burst: 100 },
            messages: Rate { per_second: 100, burst: 200 },
            pending: 256,
            unauthenticated: Duration::from_secs(10),
            ping_after: Duration::from_secs(40),
            idle: Duration::from_mins(1),
        }
    }
}

/// A token bucket that can be overdrawn by as much as it holds.
#[derive(Debug)]
pub struct Bucket {
    rate: Rate,
    level: f64,
    filled: Instant,
}

/// What a bucket says to one too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdrawn {
    /// When there is room again.
    pub wait: Duration,
    /// It was overdrawn by as much as it holds.
    pub flood: bool,
}

impl Bucket {
    /// A full one.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, level: f64::from(rate.burst), filled: now }
    }

    /// Takes one out, if there is one. A clock that goes back fills nothing.
    pub fn take(&mut self, now: Instant) -> Result<(), Overdrawn> {
        let (per_second, burst) = (f64::from(self.rate.per_second), f64::from(self.rate.burst));
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        self.level = (self.level + passed * per_second).min(burst) - 1.0;
        if self.level >= 0.0 {
            return Ok(());
        }
        let flood = self.level <= -burst;
        // Whoever stops flooding waits for as long as this hole takes to fill, and no longer.
        self.level = self.level.max(-burst);
        let wait = Duration::try_from_secs_f64(-self.level / per_second).unwrap_or(Duration::MAX);
        Err(Overdrawn { wait, flood })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_allows_a_burst_then_its_rate_then_loses_patience() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Rate { per_second: 10, burst: 3 }, start);
        for _ in 0..3 {
            assert_eq!(bucket.take(start), Ok(()));
        }
        for (wait, flood) in [(100, false), (200, false), (300, true), (300, true)] {
            assert_eq!(bucket.take(start), Err(Overdrawn { wait: Duration::from_millis(wait), flood }));
        }
        assert!(bucket.take(start + Duration::from_millis(399)).is_err());
        assert_eq!(bucket.take(start + Duration::from_secs(1)), Ok(()));
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_fills_nothing() {
        let earlier = Instant::now();
        let start = earlier + Duration::from_secs(5);
        let mut bucket = Bucket::new(Rate { per_second: 1000, burst: 1 }, start);
        assert_eq!(bucket.take(start), Ok(()));
        assert!(bucket.take(earlier).is_err());
        assert!(bucket.take(start).is_err());
    }
}
