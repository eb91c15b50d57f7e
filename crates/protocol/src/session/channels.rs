//! The topics that a socket has joined or is joining. At most one join per topic at a time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use switchboard_core::access::Grant;
use switchboard_core::types::Channel;

use super::action::SubscriptionId;
use super::now::{Deadline, Now};
use super::params::JoinParams;
use crate::codec::Frame;

/// Where messages about a topic go: the topic as the client spells it, and which of its joins.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) topic: Arc<str>,
    pub(super) join_ref: Option<Arc<str>>,
}

/// A message that waits for its reply, if the client gave it a reference.
#[derive(Debug, Clone)]
pub(super) struct ReplyTo {
    pub(super) address: Address,
    pub(super) reference: Option<Box<str>>,
}

/// Whose rights count in a channel.
#[derive(Debug, Clone)]
pub(super) enum Access {
    /// Those of the socket.
    Socket,
    /// Those of the token that came with the join.
    Own(Held),
}

/// A grant and its end.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) grant: Arc<Grant>,
    pub(super) expiry: Option<Deadline>,
}

impl Held {
    pub(super) fn new(grant: Grant, now: Now) -> Self {
        let expiry = grant.expires.map(|expires| Deadline::new(expires, now));
        Self { grant: Arc::new(grant), expiry }
    }

    pub(super) fn has_expired(&self, now: Now) -> bool {
        self.expiry.is_some_and(|expiry| expiry.has_passed(now))
    }

    /// When to look whether it has expired.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.expiry.and_then(|expiry| expiry.instant())
    }
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Whether it may join is not known yet; nothing was subscribed to.
    Proving(ReplyTo),
    /// The subscription is being made.
    Subscribing(ReplyTo),
    Joined,
}

#[derive(Debug)]
pub(super) struct Joined {
    pub(super) address: Address,
    pub(super) channel: Channel,
    pub(super) params: JoinParams,
    pub(super) access: Access,
    pub(super) phase: Phase,
    /// The key under which it is, or is about to be, among those who are present.
    pub(super) tracks: Option<String>,
    /// What was said before it was known whether the join succeeds, as it was received.
    pub(super) held: Vec<Frame>,
}

/// By subscription, in the order of joining, and by topic.
#[derive(Debug, Default)]
pub(super) struct Channels {
    /// Boxed: the map makes room for eleven at once, and most sockets join one.
    joined: BTreeMap<SubscriptionId, Box<Joined>>,
    topics: HashMap<Arc<str>, SubscriptionId>,
}

impl Channels {
    pub(super) fn insert(&mut self, subscription: SubscriptionId, joined: Joined) {
        self.topics.insert(Arc::clone(&joined.address.topic), subscription);
        self.joined.insert(subscription, Box::new(joined));
    }

    pub(super) fn remove(&mut self, subscription: SubscriptionId) -> Option<Joined> {
        let joined = self.joined.remove(&subscription)?;
        self.topics.remove(&joined.address.topic);
        Some(*joined)
    }

    pub(super) fn by_topic(&self, topic: &str) -> Option<SubscriptionId> {
        self.topics.get(topic).copied()
    }

    pub(super) fn get(&self, subscription: SubscriptionId) -> Option<&Joined> {
        self.joined.get(&subscription).map(|joined| &**joined)
    }

    pub(super) fn get_mut(&mut self, subscription: SubscriptionId) -> Option<&mut Joined> {
        self.joined.get_mut(&subscription).map(|joined| &mut **joined)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SubscriptionId, &Joined)> {
        self.joined.iter().map(|(subscription, joined)| (*subscription, &**joined))
    }

    /// How many messages are held, and how many bytes they have.
    pub(super) fn held(&self) -> (usize, usize) {
        let frames = self.joined.values().flat_map(|joined| &joined.held);
        frames.fold((0, 0), |(count, bytes), frame| (count + 1, bytes + frame.bytes().len()))
    }

    pub(super) fn len(&self) -> usize {
        self.joined.len()
    }
}
