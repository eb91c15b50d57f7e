//! The `EphemeralBus` of one node, and what its links hand on to it.
//!
//! An event reaches local subscribers directly and each peer in exactly one way: over a link that is ready, or else by the fallback, in an
//! envelope that names its addressees. While there are peers that have no mesh at all, events go as plain events of the fallback,
//! which everybody hears; so every subscription listens to the fallback as well.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use parking_lot::{Mutex, RwLock};
use switchboard_core::fanout::{EPHEMERAL_MAILBOX, EphemeralFanout};
use switchboard_core::ports::{EphemeralBus, EphemeralError, EphemeralItem, EphemeralStream, Suspects};
use switchboard_core::stats::Counter;
use switchboard_core::types::{Channel, EphemeralEvent, EventName, Identity, Incarnation, Payload};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::envelope::{self, ADDRESSEES, Envelope};
use crate::frame::{self, Event, Frame, Names};
use crate::interest::Interest;
use crate::link::{Hearing, Link};
use crate::routes::{Addressee, Routes, Way};

/// Longest wait for peers to know of a new subscription. One that does not answer for so long is about to be suspected.
const TOLD: Duration = Duration::from_secs(1);

/// The channel and event name of envelopes.
pub(crate) struct Post {
    pub(crate) bus: Arc<dyn EphemeralBus>,
    pub(crate) channel: Channel,
    pub(crate) event: EventName,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) published: Counter,
    pub(crate) received: Counter,
    /// Events that went by the fallback, plain or in envelopes.
    pub(crate) fallback_sent: Counter,
    /// Events that came in envelopes.
    pub(crate) fallback_received: Counter,
    /// Events that came when later ones had arrived already.
    pub(crate) late: Counter,
    /// What no node sends.
    pub(crate) foreign: Counter,
    /// Of links that have ended.
    pub(crate) dropped: Counter,
}

/// The latest [`Place`] that events of one peer came from. Held while one is delivered: links and envelopes are read at the same time, and
/// whoever comes later must not be delivered before.
pub(crate) type Heard = Arc<Mutex<Place>>;

/// A way that a peer's events take, in the order in which it takes them: its links, and after each the fallback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    era: u64,
    by_fallback: bool,
}

/// What the bus, its links and the driver share.
pub(crate) struct Shared {
    pub(crate) fanout: EphemeralFanout,
    pub(crate) routes: RwLock<Routes>,
    pub(crate) interest: Interest,
    pub(crate) post: Option<Post>,
    pub(crate) counts: Counts,
    limit: usize,
    /// Where in the course of each peer's ways its last event came from.
    heard: Mutex<HashMap<Incarnation, Heard>>,
    /// A peer has seen our interest, or will send no more.
    told: Notify,
    closed: AtomicBool,
}

impl Shared {
    pub(crate) fn new(me: Identity, limit: usize, post: Option<Post>) -> Arc<Self> {
        Arc::new(Self {
            fanout: EphemeralFanout::new(EPHEMERAL_MAILBOX),
            routes: RwLock::new(Routes::new(me)),
            interest: Interest::default(),
            post,
            counts: Counts::default(),
            limit,
            heard: Mutex::default(),
            told: Notify::new(),
            closed: AtomicBool::new(false),
        })
    }

    /// A link begins.
    pub(crate) fn link(&self, link: &Arc<Link>) {
        self.routes.write().link(link);
        self.interest.attach(link);
    }

    /// Nothing goes over the link any more.
    pub(crate) fn unlink(&self, link: &Link) {
        self.routes.write().unlink(link);
        self.interest.detach(link);
        self.counts.dropped.add(link.outbox.forget_dropped());
        self.told.notify_waiters();
    }

    fn heard_from(&self, peer: Incarnation) -> Heard {
        Arc::clone(self.heard.lock().entry(peer).or_default())
    }

    /// This node has another incarnation, with which its peers count anew.
    pub(crate) fn begin_anew(&self) {
        self.heard.lock().clear();
    }

    /// Forgets what was heard of those who are gone.
    pub(crate) fn remember(&self, peers: &[Incarnation]) {
        self.heard.lock().retain(|peer, _| peers.contains(peer));
    }

    /// A frame has arrived.
    pub(crate) fn take(&self, link: &Arc<Link>, frame: Frame<'_>, hearing: &mut Hearing) {
        match frame {
            Frame::Event(event) => {
                link.received.increment();
                let Hearing { names, heard } = hearing;
                let heard = heard.get_or_insert_with(|| self.heard_from(link.peer.incarnation));
                let mut latest = heard.lock();
                let place = Place { era: link.era, by_fallback: false };
                if place < *latest {
                    return self.counts.late.increment();
                }
                *latest = place;
                self.counts.received.increment();
                self.hear(&event, names);
            }
            Frame::Interest(interest) => {
                let mut routes = self.routes.write();
                routes.interest(link, interest.add, &interest.remove);
                if interest.version > 0 {
                    routes.ready(link);
                    drop(routes);
                    link.outbox.seen(interest.version);
                }
            }
            Frame::Seen(version) => {
                link.saw(version);
                self.told.notify_waiters();
            }
            Frame::Arrived(events) => link.arrived(events),
            // Said once already.
            Frame::Hello(_) => {}
        }
    }

    fn hear(&self, event: &Event<'_>, names: &mut Names) {
        self.fanout.deliver_with(event.channel, || {
            let checked = event.checked(names, self.limit).map(Arc::new);
            if checked.is_none() {
                self.counts.foreign.increment();
            }
            checked
        });
    }

    /// An envelope has arrived.
    pub(crate) fn open(&self, sealed: &Payload) {
        let Some(envelope) = Envelope::open(sealed) else { return self.counts.foreign.increment() };
        let routes = self.routes.read();
        let Some((from, after)) = envelope.addressed_to(routes.me.incarnation) else { return };
        // A newcomer may be heard before it is listed, and has no link yet. Nothing is kept of it: anybody can write envelopes in any name.
        let heard = if routes.lists(from) { self.heard_from(from) } else { Heard::default() };
        drop(routes);
        let mut latest = heard.lock();
        let place = Place { era: after, by_fallback: true };
        if place < *latest {
            return self.counts.late.increment();
        }
        *latest = place;
        self.counts.fallback_received.increment();
        let event = envelope.event();
        if event.payload.within(self.limit).is_ok() {
            let channel = event.channel.clone();
            self.fanout.deliver(channel.as_str(), &Arc::new(event));
        }
    }

    /// Writes to those who have no link.
    async fn write_to(&self, post: &Post, to: &[Addressee], event: &EphemeralEvent) {
        let from = self.routes.read().me.incarnation;
        for to in to.chunks(ADDRESSEES) {
            let Some(sealed) = envelope::seal(from, to, event) else { continue };
            match post.bus.publish(&post.channel, &post.event, &sealed).await {
                Ok(()) => self.counts.fallback_sent.increment(),
                // At most once, and this one not at all.
                Err(_) => self.counts.dropped.increment(),
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

/// The port.
pub(crate) struct MeshBus(pub(crate) Arc<Shared>);

#[async_trait]
impl EphemeralBus for MeshBus {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<(), EphemeralError> {
        let shared = &self.0;
        payload.within(shared.limit)?;
        if shared.is_closed() {
            return Err(EphemeralError::Closed);
        }
        shared.counts.published.increment();
        let mut bytes = Vec::new();
        let way = shared.routes.read().send(channel, shared.post.is_some(), || {
            let (channel, name) = (channel.as_str(), event.as_str());
            frame::write_event(&Event { channel, name, payload: payload.as_str() }, &mut bytes);
            &bytes
        });
        // Often there is nobody here to have it.
        let whole =
            || EphemeralEvent { channel: channel.clone(), event: event.clone(), payload: payload.clone() };
        match (way, &shared.post) {
            (Way::Plain, Some(post)) => {
                shared.counts.fallback_sent.increment();
                // It has local subscribers hear it, too.
                return post.bus.publish(channel, event, payload).await;
            }
            (Way::Mesh(to), Some(post)) if !to.is_empty() => shared.write_to(post, &to, &whole()).await,
            _ => {}
        }
        shared.fanout.deliver_with(channel.as_str(), || Some(Arc::new(whole())));
        Ok(())
    }

    /// Waits until the peers know, which is one round trip where nobody here listened to the channel before.
    async fn subscribe(&self, channel: &Channel) -> Result<EphemeralStream, EphemeralError> {
        let shared = &self.0;
        if shared.is_closed() {
            return Err(EphemeralError::Closed);
        }
        let mut events = shared.fanout.stream(channel);
        if let Some(post) = &shared.post {
            events = stream::select(events, post.bus.subscribe(channel).await?).boxed();
        }
        let (version, links) = shared.interest.want(channel);
        let told = async {
            loop {
                let news = shared.told.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                if links.iter().all(|link| link.knows(version)) {
                    return;
                }
                news.await;
            }
        };
        // Who has not answered by then hears of it later.
        let _ = timeout(TOLD, told).await;
        Ok(events)
    }

    fn suspects(&self) -> Suspects {
        self.0.routes.read().suspects.subscribe()
    }
}

/// Opens what comes by the fallback, until it is closed.
pub(crate) async fn open_envelopes(shared: Arc<Shared>, mut envelopes: EphemeralStream) {
    while let Some(item) = envelopes.next().await {
        match item {
            EphemeralItem::Event(event) => shared.open(&event.payload),
            EphemeralItem::Lagged(missed) => shared.counts.dropped.add(missed),
        }
    }
}
