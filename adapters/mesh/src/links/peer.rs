//! What is known of one peer: one process, that is. Its successor under the same name is another one.

use std::time::Instant;

use super::{LinkId, Rank, Target};

pub(super) struct Peer {
    pub(super) target: Target,
    /// The link in use.
    pub(super) current: Option<(LinkId, Rank)>,
    pub(super) dial: Option<Dial>,
    /// Whether it has said good-bye: this process does not come back.
    pub(super) gone: bool,
    /// The last generation that was established.
    pub(super) generation: u64,
    attempts: u64,
    pub(super) failures: u32,
    /// When to dial next, if there is no link by then.
    pub(super) due: Instant,
}

/// A dial under way.
pub(super) struct Dial {
    pub(super) link: LinkId,
    pub(super) rank: Rank,
    pub(super) since: Instant,
}

impl Peer {
    pub(super) fn new(target: Target, due: Instant) -> Self {
        Self { target, current: None, dial: None, gone: false, generation: 0, attempts: 0, failures: 0, due }
    }

    /// Whether a dial is called for, sooner or later.
    pub(super) fn wants_dial(&self) -> bool {
        self.current.is_none() && self.dial.is_none() && !self.gone
    }

    /// The rank of the next attempt.
    pub(super) fn next_rank(&mut self, by_lesser: bool) -> Rank {
        self.attempts += 1;
        Rank { generation: self.generation.saturating_add(1), by_lesser, attempt: self.attempts }
    }

    /// Makes `link` the one in use; answers the one before.
    pub(super) fn establish(&mut self, link: LinkId, rank: Rank) -> Option<LinkId> {
        self.generation = self.generation.max(rank.generation);
        self.failures = 0;
        self.current.replace((link, rank)).map(|(before, _)| before)
    }
}
