//! Events as they are sent, shared among all sockets of a node that are sent the same: encoded once, however many there are.
//!
//! The buses hand the same `Arc` of an event to every subscriber, so its address says which event it is, for as long as it is kept here. Events come
//! in short bursts to many sockets; a few places, taken by whatever came last, are enough. Whoever comes too late encodes anew.

use std::sync::Arc;

use parking_lot::Mutex;
use switchboard_core::presence::{PresenceDiff, Presences};
use switchboard_core::types::{DurableEvent, EphemeralEvent};
use switchboard_protocol::{Outgoing, PresenceEntry, PresenceMeta};

/// Events that are kept at once.
const PLACES: usize = 64;
/// Larger payloads are kept in one place that all of them share: what is kept stays below some megabytes.
const LARGE: usize = 16 * 1024;

/// The places.
pub(crate) struct Encoded {
    places: [Mutex<Option<Place>>; PLACES],
}

type Place = (Source, Arc<Outgoing>);

/// What an outgoing event was made of. Kept, so that nothing else can have its address.
enum Source {
    Ephemeral(Arc<EphemeralEvent>),
    Durable(Arc<DurableEvent>, bool),
    Presence(Arc<PresenceDiff>),
}

impl Default for Encoded {
    fn default() -> Self {
        Self { places: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Encoded {
    pub(super) fn ephemeral(&self, event: Arc<EphemeralEvent>) -> Arc<Outgoing> {
        self.get(Source::Ephemeral(event))
    }

    pub(super) fn durable(&self, event: Arc<DurableEvent>, replayed: bool) -> Arc<Outgoing> {
        self.get(Source::Durable(event, replayed))
    }

    pub(super) fn presence(&self, diff: Arc<PresenceDiff>) -> Arc<Outgoing> {
        self.get(Source::Presence(diff))
    }

    fn get(&self, source: Source) -> Arc<Outgoing> {
        let mut place = self.places[source.place()].lock();
        if let Some((kept, outgoing)) = &*place
            && kept.is(&source)
        {
            return Arc::clone(outgoing);
        }
        let outgoing = Arc::new(source.encode());
        *place = Some((source, Arc::clone(&outgoing)));
        outgoing
    }
}

impl Source {
    fn address(&self) -> usize {
        match self {
            Self::Ephemeral(event) => Arc::as_ptr(event).addr(),
            Self::Durable(event, _) => Arc::as_ptr(event).addr(),
            Self::Presence(diff) => Arc::as_ptr(diff).addr(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        let alike = match (self, other) {
            (Self::Durable(_, one), Self::Durable(_, other)) => one == other,
            (Self::Ephemeral(_), Self::Ephemeral(_)) | (Self::Presence(_), Self::Presence(_)) => true,
            _ => false,
        };
        alike && self.address() == other.address()
    }

    fn place(&self) -> usize {
        let size = match self {
            Self::Ephemeral(event) => event.payload.len(),
            Self::Durable(event, _) => event.payload.len(),
            Self::Presence(diff) => {
                let metas = diff.joins.values().chain(diff.leaves.values()).flatten();
                metas.map(|meta| meta.payload.len()).sum()
            }
        };
        if size > LARGE {
            return 0;
        }
        // The lowest bits are the same for all, and neighbours are allocated one after the other.
        1 + (self.address() / align_of::<u128>()) % (PLACES - 1)
    }

    fn encode(&self) -> Outgoing {
        match self {
            Self::Ephemeral(event) => Outgoing::ephemeral(event),
            Self::Durable(event, replayed) => Outgoing::durable(event, *replayed),
            Self::Presence(diff) => {
                Outgoing::presence_diff(&diff.channel, &entries(&diff.joins), &entries(&diff.leaves))
            }
        }
    }
}

/// Who is there, in the words of the protocol.
pub(super) fn entries(presences: &Presences) -> Vec<PresenceEntry> {
    let entries = presences.iter().map(|(key, metas)| {
        let metas = metas.iter().map(|meta| PresenceMeta {
            reference: meta.reference.to_string(),
            previous: meta.previous.map(|previous| previous.to_string()),
            meta: meta.payload.clone(),
        });
        PresenceEntry { key: key.to_string(), metas: metas.collect() }
    });
    entries.collect()
}
