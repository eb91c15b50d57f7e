//! One link at work: what waits in its outbox is written, what arrives is handed on, until either end is done with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use quinn::{Connection, RecvStream, SendStream};
use switchboard_core::stats::Counter;
use switchboard_core::types::Identity;
use tokio::task::coop::consume_budget;
use tokio::time::interval;
use tracing::{debug, info};

use crate::bus::{Heard, Shared};
use crate::frame::{Frame, Hello, Names, Reader};
use crate::handshake::{Candidate, close, told};
use crate::links::{CloseReason, LinkId};
use crate::outbox::Outbox;
use crate::progress::{Counts, LOOK, Progress};

/// Most bytes taken from the stream at once.
const PIECE: usize = 64 * 1024;

/// A link between this process and a peer.
pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) peer: Identity,
    /// Of its rank.
    pub(crate) era: u64,
    pub(crate) connection: Connection,
    pub(crate) outbox: Outbox,
    /// Events that came over it.
    pub(crate) received: Counter,
    /// Whether events go over it: once all of the peer's interest is known.
    ready: AtomicBool,
    /// The state of our interest that the peer has seen.
    seen: AtomicU64,
    /// Events that have come to the peer over it, as far as it has told.
    arrived: AtomicU64,
    ended: AtomicBool,
}

impl Link {
    /// `answer`: to the hello of a peer that has dialled.
    pub(crate) fn new(
        id: LinkId,
        peer: Identity,
        era: u64,
        connection: Connection,
        answer: Option<Hello>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            peer,
            era,
            connection,
            outbox: Outbox::new(answer),
            received: Counter::default(),
            ready: AtomicBool::new(false),
            seen: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Whether the peer knows our interest as of `version`, or has nothing to send it over any more.
    pub(crate) fn knows(&self, version: u64) -> bool {
        self.ended.load(Ordering::Acquire) || self.seen.load(Ordering::Acquire) >= version
    }

    pub(crate) fn saw(&self, version: u64) {
        self.seen.fetch_max(version, Ordering::AcqRel);
    }

    pub(crate) fn arrived(&self, events: u64) {
        self.arrived.fetch_max(events, Ordering::AcqRel);
    }

    fn counts(&self) -> Counts {
        // What has arrived is read first: it was sent before.
        let arrived = self.arrived.load(Ordering::Acquire);
        let lost = self.connection.stats().path.lost_packets;
        Counts { sent: self.outbox.sent.get(), arrived, lost }
    }

    /// From now on nothing goes over it.
    pub(crate) fn end(&self) {
        self.ready.store(false, Ordering::Release);
        self.ended.store(true, Ordering::Release);
        self.outbox.discard();
    }
}

/// Runs the link to its end; answers whether the peer said good-bye.
pub(crate) async fn run(link: Arc<Link>, candidate: Candidate, shared: Arc<Shared>) -> bool {
    let Candidate { connection, send, recv, rest } = candidate;
    tokio::select! {
        () = read(&link, recv, &rest, &shared) => {}
        () = write(&link, send) => {}
        () = watch(&link) => {}
    }
    // One direction may end before the other: the connection decides.
    let reason = connection.closed().await;
    shared.unlink(&link);
    info!(peer = %link.peer, %reason, "link ended");
    told(&reason) == Some(CloseReason::Leaving)
}

/// Ends when nothing more can arrive.
async fn read(link: &Arc<Link>, mut recv: RecvStream, rest: &[u8], shared: &Shared) {
    let (mut reader, mut hearing) = (Reader::default(), Hearing::default());
    let mut each = |frame: Frame<'_>| shared.take(link, frame, &mut hearing);
    let mut read = reader.feed(rest, &mut each);
    while read.is_ok() {
        match recv.read_chunk(PIECE, true).await {
            Ok(Some(chunk)) => read = reader.feed(&chunk.bytes, &mut each),
            // A peer that leaves has nothing more to say; it closes when it has heard us out.
            Ok(None) => return std::future::pending().await,
            Err(_) => return,
        }
        // A peer that never pauses must not keep this thread from everybody else.
        consume_budget().await;
    }
    if let Err(error) = read {
        debug!(peer = %link.peer, %error, "closing a link");
        close(&link.connection, CloseReason::Protocol);
    }
}

/// Ends when nothing more can leave, or all has left.
async fn write(link: &Link, mut send: SendStream) {
    loop {
        let mut batch = link.outbox.next().await;
        if batch.is_empty() {
            // All has left once the peer's side says so.
            if send.finish().is_ok() {
                let _ = send.stopped().await;
            }
            return link.outbox.flushed.notify_one();
        }
        if send.write_all_chunks(&mut batch).await.is_err() {
            return;
        }
    }
}

/// Tells the peer what has come. Ends when what is sent does not arrive.
async fn watch(link: &Link) {
    let (mut progress, mut told, mut look) = (Progress::new(Instant::now()), 0, interval(LOOK));
    loop {
        look.tick().await;
        let received = link.received.get();
        if received != told {
            link.outbox.arrived(received);
            told = received;
        }
        if !progress.look(Instant::now(), link.counts()) {
            info!(peer = %link.peer, "packets are lost and nothing arrives; giving the link up");
            return close(&link.connection, CloseReason::Losing);
        }
    }
}

/// What a reader remembers from one event to the next.
#[derive(Default)]
pub(crate) struct Hearing {
    pub(crate) names: Names,
    /// Of the peer, over whichever way; asked for once.
    pub(crate) heard: Option<Heard>,
}
