//! What this node wants to hear, and what of that each peer has been told.
//!
//! Invariant: a link is told the whole interest when it begins and every change from then on, in order. Each change has a number, by which
//! a subscriber finds out that the peers know of it. Interest that has ended is taken back a moment later, so that who comes and
//! goes costs nothing.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use switchboard_core::types::Channel;

use crate::link::Link;

#[derive(Default)]
pub(crate) struct Interest(Mutex<Told>);

#[derive(Default)]
struct Told {
    /// Number of the last change.
    version: u64,
    /// The channels that peers are told of, and since which change.
    channels: HashMap<Channel, u64>,
    links: Vec<Arc<Link>>,
}

impl Interest {
    /// Tells the peers that `channel` is wanted, unless they were told; answers the links of those that may not know yet.
    pub(crate) fn want(&self, channel: &Channel) -> (u64, Vec<Arc<Link>>) {
        let mut told = self.0.lock();
        let version = told.channels.get(channel).copied().unwrap_or_else(|| {
            let version = told.next();
            told.channels.insert(channel.clone(), version);
            told.tell(&[(channel.clone(), true)], version);
            version
        });
        let ignorant = told.links.iter().filter(|link| !link.knows(version)).cloned().collect();
        (version, ignorant)
    }

    /// Takes back what nobody wants any more.
    pub(crate) fn forget(&self, is_wanted: impl Fn(&str) -> bool) {
        let mut told = self.0.lock();
        let unwanted: Vec<_> =
            told.channels.keys().filter(|channel| !is_wanted(channel.as_str())).cloned().collect();
        if unwanted.is_empty() {
            return;
        }
        let version = told.next();
        for channel in &unwanted {
            told.channels.remove(channel);
        }
        let changes: Vec<_> = unwanted.into_iter().map(|channel| (channel, false)).collect();
        told.tell(&changes, version);
    }

    /// A link begins.
    pub(crate) fn attach(&self, link: &Arc<Link>) {
        let mut told = self.0.lock();
        let version = told.next();
        link.outbox.interest(told.channels.keys().map(|channel| (channel.clone(), true)), version);
        told.links.push(Arc::clone(link));
    }

    /// A link has ended.
    pub(crate) fn detach(&self, link: &Link) {
        self.0.lock().links.retain(|other| other.id != link.id);
    }

    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        self.0.lock().links.clone()
    }
}

impl Told {
    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn tell(&self, changes: &[(Channel, bool)], version: u64) {
        for link in &self.links {
            link.outbox.interest(changes.iter().cloned(), version);
        }
    }
}
