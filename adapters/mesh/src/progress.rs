//! Whether what is sent over a link arrives. Pure: counts and time come in as arguments.
//!
//! A path may carry small packets and swallow large ones, in one direction: keep-alives pass, so the link is not silent, and yet no event
//! arrives. QUIC sends smaller packets then, but never smaller than 1200 bytes. So each end tells how many events have come, and a link
//! that loses packets and delivers nothing is given up. One whose peer does not read loses no packets, and is kept.

use std::time::{Duration, Instant};

/// How often each end looks, and tells what has come if there was anything.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// How long nothing may arrive while packets are lost.
const STALLED: Duration = Duration::from_secs(3);
/// Packets that may be lost meanwhile: a few are on any path.
const LOST: u64 = 3;

/// Counts of one link, as of now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    /// Events that were sent, and those of them that the peer has told of.
    pub(crate) sent: u64,
    pub(crate) arrived: u64,
    /// Packets, of whatever kind.
    pub(crate) lost: u64,
}

/// What was seen when something last arrived, or nothing was under way.
#[derive(Debug)]
pub(crate) struct Progress {
    since: Instant,
    arrived: u64,
    lost: u64,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, arrived: 0, lost: 0 }
    }

    /// Whether the link is of use.
    pub(crate) fn look(&mut self, now: Instant, counts: Counts) -> bool {
        let Counts { sent, arrived, lost } = counts;
        if arrived != self.arrived || arrived >= sent {
            *self = Self { since: now, arrived, lost };
            return true;
        }
        now - self.since < STALLED || lost.saturating_sub(self.lost) < LOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks once per half a second; answers after which time the link was given up, if it was.
    fn given_up(counts: impl Fn(u64) -> Counts) -> Option<Duration> {
        let begin = Instant::now();
        let mut progress = Progress::new(begin);
        let looks = (0..60_u64).map(|look| (look, LOOK * u32::try_from(look).unwrap()));
        looks.into_iter().find(|(look, at)| !progress.look(begin + *at, counts(*look))).map(|(_, at)| at)
    }

    #[test]
    fn a_link_that_loses_everything_is_given_up() {
        let at = given_up(|look| Counts { sent: 10 * look, arrived: 0, lost: look });
        assert_eq!(at, Some(STALLED));
    }

    #[test]
    fn a_link_that_loses_much_and_delivers_something_is_kept() {
        assert_eq!(given_up(|look| Counts { sent: 100 * look, arrived: look / 4, lost: 50 * look }), None);
    }

    #[test]
    fn a_peer_that_does_not_read_is_waited_for() {
        assert_eq!(given_up(|look| Counts { sent: 10 * look, arrived: 0, lost: 2 }), None);
    }

    #[test]
    fn an_idle_link_may_lose_its_keep_alives() {
        assert_eq!(given_up(|look| Counts { sent: 7, arrived: 7, lost: look }), None);
    }
}
