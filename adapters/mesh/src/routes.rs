//! Where an event goes: over which links, and to whom by the fallback.
//!
//! Invariant: at any moment there is exactly one way to each peer, so that no peer gets an event twice. All changes happen under one lock,
//! which publishers read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use switchboard_core::types::{Channel, Identity, Incarnation};
use tokio::sync::watch;

use crate::link::Link;
use crate::links::LinkId;
use crate::members::View;

/// A peer that is reached by the fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addressee {
    pub(crate) incarnation: Incarnation,
    /// Era of the last link that events went over: once those of a later one arrive, this event comes too late.
    pub(crate) after: u64,
}

/// How an event travels.
pub(crate) enum Way {
    /// As a plain event of the fallback, which everybody hears: there are peers that hear nothing else.
    Plain,
    /// It was queued on the links of those who want it. The others are to be written to, if there are any.
    Mesh(Arc<[Addressee]>),
}

pub(crate) struct Routes {
    pub(crate) me: Identity,
    /// Peers without a mesh.
    others: usize,
    peers: Vec<Identity>,
    links: HashMap<LinkId, Arc<Link>>,
    wanted: HashMap<Channel, Vec<Arc<Link>>>,
    /// Era of the last link to each peer that was ready.
    used: HashMap<Identity, u64>,
    addressees: Arc<[Addressee]>,
    /// Peers that had a link once, and have none now.
    pub(crate) suspects: watch::Sender<Arc<HashSet<Incarnation>>>,
}

impl Routes {
    pub(crate) fn new(me: Identity) -> Self {
        Self {
            me,
            others: 0,
            peers: Vec::new(),
            links: HashMap::new(),
            wanted: HashMap::new(),
            used: HashMap::new(),
            addressees: Arc::default(),
            suspects: watch::Sender::default(),
        }
    }

    /// Who is in the cluster.
    pub(crate) fn members(&mut self, me: Identity, view: &View) {
        self.me = me;
        self.others = view.others.len();
        self.peers = view.targets.iter().map(|target| target.identity.clone()).collect();
        let listed: HashSet<_> = self.peers.iter().collect();
        self.used.retain(|peer, _| listed.contains(peer));
        self.address();
    }

    /// Whether it is a peer with a mesh.
    pub(crate) fn lists(&self, peer: Incarnation) -> bool {
        self.peers.iter().any(|listed| listed.incarnation == peer)
    }

    /// Adds a link, which carries nothing until it is ready.
    pub(crate) fn link(&mut self, link: &Arc<Link>) {
        self.links.insert(link.id, Arc::clone(link));
    }

    /// From now on events for its peer go over it.
    pub(crate) fn ready(&mut self, link: &Arc<Link>) {
        if self.links.contains_key(&link.id) && !link.is_ready() {
            link.set_ready();
            self.used.insert(link.peer.clone(), link.era);
            self.address();
        }
    }

    pub(crate) fn unlink(&mut self, link: &Link) {
        if self.links.remove(&link.id).is_none() {
            return;
        }
        link.end();
        self.wanted.retain(|_, links| {
            links.retain(|other| other.id != link.id);
            !links.is_empty()
        });
        self.address();
    }

    /// What the peer wants, from now on.
    pub(crate) fn interest(&mut self, link: &Arc<Link>, add: Vec<Channel>, remove: &[Channel]) {
        if !self.links.contains_key(&link.id) {
            return;
        }
        for channel in add {
            let links = self.wanted.entry(channel).or_default();
            if !links.iter().any(|other| other.id == link.id) {
                links.push(Arc::clone(link));
            }
        }
        for channel in remove {
            if let Some(links) = self.wanted.get_mut(channel) {
                links.retain(|other| other.id != link.id);
                if links.is_empty() {
                    self.wanted.remove(channel);
                }
            }
        }
    }

    /// Queues an event on the links of those who want it; `frame` is asked for only if there are any.
    pub(crate) fn send<'a>(&self, channel: &Channel, plain: bool, frame: impl FnOnce() -> &'a [u8]) -> Way {
        if self.others > 0 && plain {
            return Way::Plain;
        }
        let mut links =
            self.wanted.get(channel).into_iter().flatten().filter(|link| link.is_ready()).peekable();
        if links.peek().is_some() {
            let frame = frame();
            links.for_each(|link| link.outbox.push(frame));
        }
        Way::Mesh(Arc::clone(&self.addressees))
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        self.links.values()
    }

    pub(crate) fn unreached(&self) -> usize {
        self.addressees.len()
    }

    pub(crate) fn others(&self) -> usize {
        self.others
    }

    fn address(&mut self) {
        let linked: HashSet<_> =
            self.links.values().filter(|link| link.is_ready()).map(|link| &link.peer).collect();
        self.addressees = self
            .peers
            .iter()
            .filter(|peer| !linked.contains(peer))
            .map(|peer| Addressee {
                incarnation: peer.incarnation,
                after: self.used.get(peer).copied().unwrap_or_default(),
            })
            .collect();
        let unlinked =
            self.peers.iter().filter(|peer| self.used.contains_key(peer) && !linked.contains(peer));
        let suspects = Arc::new(unlinked.map(|peer| peer.incarnation).collect());
        self.suspects.send_if_modified(|before| {
            let changed = *before != suspects;
            *before = suspects;
            changed
        });
    }
}
