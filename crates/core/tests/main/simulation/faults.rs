//! What can go wrong, and how likely it is.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use switchboard_memory::Link;

/// One thing that goes wrong. Those that last are mended by the world.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The registry answers nobody: it is frozen, or gone, or cut off, for everybody alike.
    Outage(Link),
    /// The registry crashes, and with it its table.
    Crash,
    /// A process is killed: nobody is told.
    Kill,
    /// A process does not run, and does not know.
    Pause,
    /// A process is asked to leave.
    Leave,
    /// The link of a process is broken in some way.
    Partition(Link),
    /// The session of a process ends without its doing.
    LoseSession,
    /// Somebody deletes the row of a process.
    Delete,
    /// A second process with the same node id is started.
    Rival,
}

impl Fault {
    pub(super) fn random(rng: &mut StdRng) -> Self {
        match rng.random_range(0..100) {
            0..16 => Self::Outage(link(rng)),
            16..18 => Self::Crash,
            18..28 => Self::Kill,
            28..42 => Self::Pause,
            42..50 => Self::Leave,
            50..80 => Self::Partition(link(rng)),
            80..86 => Self::LoseSession,
            86..92 => Self::Delete,
            _ => Self::Rival,
        }
    }
}

/// How long a history is, and the faults in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Length {
    /// Faults last about as long as the thresholds allow.
    Short,
    /// Faults are rare, and some last until everybody is a ghost.
    Long,
}

impl Length {
    pub(super) fn random(rng: &mut StdRng) -> Self {
        if rng.random_range(0..20) == 0 { Self::Long } else { Self::Short }
    }

    pub(super) fn of_history(self) -> Duration {
        Duration::from_secs(match self {
            Self::Short => 12,
            Self::Long => 100,
        })
    }

    pub(super) fn of_peace(self, rng: &mut StdRng) -> Duration {
        match self {
            Self::Short => up_to(rng, 2_500),
            Self::Long => up_to(rng, 20_000),
        }
    }

    pub(super) fn of_fault(self, rng: &mut StdRng) -> Duration {
        match self {
            Self::Long if rng.random_range(0..4) == 0 => up_to(rng, 60_000),
            Self::Short | Self::Long => up_to(rng, 8_000),
        }
    }
}

pub(super) fn up_to(rng: &mut StdRng, longest_ms: u64) -> Duration {
    Duration::from_millis(rng.random_range(0..longest_ms))
}

fn link(rng: &mut StdRng) -> Link {
    let broken = [Link::Down, Link::RequestsLost, Link::RequestsHeld, Link::AnswersLost];
    broken[rng.random_range(0..broken.len())]
}
