//! What can go wrong, and how likely it is.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use switchboard_memory::Link;

/// One thing that goes wrong. Those that last are mended by the world.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The registry answers nobody, and carries out later what it was asked meanwhile.
    Stall,
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
            0..14 => Self::Stall,
            14..16 => Self::Crash,
            16..28 => Self::Kill,
            28..42 => Self::Pause,
            42..50 => Self::Leave,
            50..80 => Self::Partition(pick(
                rng,
                &[Link::Down, Link::RequestsLost, Link::RequestsHeld, Link::AnswersLost],
            )),
            80..86 => Self::LoseSession,
            86..92 => Self::Delete,
            _ => Self::Rival,
        }
    }
}

/// How long a fault lasts: mostly about as long as the thresholds allow, sometimes until everybody is a ghost.
pub(super) fn duration(rng: &mut StdRng) -> Duration {
    let longest = if rng.random_range(0..10) == 0 { 45_000 } else { 8_000 };
    up_to(rng, longest)
}

pub(super) fn up_to(rng: &mut StdRng, longest_ms: u64) -> Duration {
    Duration::from_millis(rng.random_range(0..longest_ms))
}

fn pick<T: Copy>(rng: &mut impl Rng, among: &[T]) -> T {
    among[rng.random_range(0..among.len())]
}
