//! The two durations everything about liveness derives from, and the derivations.

use std::time::Duration;

use serde::Serialize;

use crate::types::Invalid;

/// Heartbeat interval and stale threshold, checked against each other.
///
/// Every duration that must fit the two is derived here and nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Timing {
    heartbeat_interval: Duration,
    stale_threshold: Duration,
}

impl Timing {
    /// Shortest accepted heartbeat interval: below it, renewals would be all the registry does.
    pub const MIN_INTERVAL: Duration = Duration::from_millis(100);
    /// Longest accepted stale threshold: a dead node should not be believed alive for longer than a day.
    pub const MAX_THRESHOLD: Duration = Duration::from_hours(24);

    /// Refuses an interval below [`Self::MIN_INTERVAL`] and a threshold below two intervals or above
    /// [`Self::MAX_THRESHOLD`]: one lost heartbeat must never convict a node.
    pub fn new(heartbeat_interval: Duration, stale_threshold: Duration) -> Result<Self, Invalid> {
        if heartbeat_interval < Self::MIN_INTERVAL {
            let rule = format!("must be at least {:?}", Self::MIN_INTERVAL);
            return Err(Invalid::new("heartbeat interval", &format!("{heartbeat_interval:?}"), rule));
        }
        if stale_threshold > Self::MAX_THRESHOLD {
            let rule = format!("must be at most {:?}", Self::MAX_THRESHOLD);
            return Err(Invalid::new("stale threshold", &format!("{stale_threshold:?}"), rule));
        }
        // Compared by halves: doubling an absurd interval would overflow.
        if stale_threshold / 2 < heartbeat_interval {
            let rule = format!("must be at least two heartbeats (2 × {heartbeat_interval:?})");
            return Err(Invalid::new("stale threshold", &format!("{stale_threshold:?}"), rule));
        }
        Ok(Self { heartbeat_interval, stale_threshold })
    }

    /// As configured: the longest time between two heartbeats of a healthy node.
    pub fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_interval
    }

    /// As configured: the heartbeat age from which peers may sweep a node.
    pub fn stale_threshold(&self) -> Duration {
        self.stale_threshold
    }

    /// Time between two renewals: the interval, or a third of the threshold where that is shorter, so that two
    /// renewals can fail and a sweeper still has a window in which its own proof is worth something.
    pub fn cadence(&self) -> Duration {
        self.heartbeat_interval.min(self.stale_threshold / 3)
    }

    /// How recently a node must have got through to the registry for a stale peer row to be evidence.
    ///
    /// A healthy peer whose row is older than the threshold must have been kept from writing for at least
    /// `threshold - cadence`. Then so was the sweeper, and its own row shows it.
    pub fn proof_window(&self) -> Duration {
        // The cadence is at most a third of the threshold.
        self.stale_threshold.saturating_sub(self.cadence())
    }

    /// Heartbeat age from which a row is a ghost: a day, or ten thresholds where that is longer.
    ///
    /// A ghost needs no evidence but its age, so that age must be one that no outage reaches: suspended nodes keep trying
    /// for as long as the registry is away, and whoever starts just when it is back would sweep those who have not tried
    /// again yet. (Found by the simulation in `tests/main/simulation`, with ten thresholds alone.)
    pub fn ghost_threshold(&self) -> Duration {
        (self.stale_threshold * 10).max(Duration::from_hours(24))
    }

    /// How long one renewal may take before it counts as failed and its connection is given up.
    pub fn renewal_timeout(&self) -> Duration {
        self.stale_threshold / 6
    }

    /// Pause before renewal attempt `attempt` (1 = first retry) after failures: doubles from a thirtieth of the threshold up to a sixth, so
    /// that several attempts fit into what is left of the window.
    pub fn retry_pause(&self, attempt: u32) -> Duration {
        let first = self.stale_threshold / 30;
        (first * 2_u32.saturating_pow(attempt.saturating_sub(1).min(8))).min(self.stale_threshold / 6)
    }
}

impl Default for Timing {
    /// 10 s and 30 s.
    fn default() -> Self {
        Self { heartbeat_interval: Duration::from_secs(10), stale_threshold: Duration::from_secs(30) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_threshold_below_two_heartbeats_is_refused() {
        assert!(Timing::new(s(10), s(20)).is_ok());
        let error = Timing::new(s(10), s(5)).unwrap_err().to_string();
        assert_eq!(error, "stale threshold \"5s\": must be at least two heartbeats (2 × 10s)");
        assert!(Timing::new(Duration::ZERO, s(5)).is_err());
        assert!(Timing::new(Duration::MAX, Duration::MAX).is_err());
    }

    #[test]
    fn several_attempts_fit_between_a_missed_heartbeat_and_suspension() {
        for timing in
            [Timing::default(), Timing::new(s(10), s(20)).unwrap(), Timing::new(s(1), s(60)).unwrap()]
        {
            let left = timing.proof_window();
            let mut attempts = 0;
            let mut spent = Duration::ZERO;
            while spent < left {
                attempts += 1;
                spent += timing.retry_pause(attempts);
            }
            assert!(attempts >= 5, "only {attempts} attempts for {timing:?}");
        }
    }

    #[test]
    fn no_outage_makes_a_ghost() {
        for threshold in [s(1), s(30), s(3600)] {
            let timing = Timing::new(threshold / 2, threshold).unwrap();
            assert!(timing.ghost_threshold() >= Duration::from_hours(24));
            assert!(timing.ghost_threshold() >= threshold * 10);
        }
    }

    #[test]
    fn a_renewal_on_time_always_has_proof() {
        let timing = Timing::new(s(10), s(20)).unwrap();
        assert!(timing.proof_window() > timing.cadence());
    }
}
