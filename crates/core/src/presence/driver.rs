//! Connects the replica to a bus, to membership and to the clock. All waiting is here, no decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant as StdInstant;

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::PresenceConfig;
use super::entry::{PresenceDiff, PresenceError, Presences};
use super::replica::{Counts, Output, Replica};
use super::wire::{self, Message};
use crate::fanout::Fanout;
use crate::membership::Membership;
use crate::ports::{EphemeralBus, EphemeralError, EphemeralItem, Suspects};
use crate::stats::StatsRegistry;
use crate::types::{Channel, EventName, Identity, Invalid};

/// Diffs that may wait for one subscriber: some seconds of a busy room. Beyond, a state is cheaper.
const MAILBOX: usize = 64;

/// What handles, guards and subscriptions share with the task.
pub(super) struct Shared {
    replica: Mutex<Replica>,
    changed: Notify,
    stopped: AtomicBool,
    settled: watch::Sender<bool>,
    suspects: Suspects,
    pub(super) fanout: Fanout<Arc<PresenceDiff>>,
}

impl Shared {
    pub(super) fn new(
        me: Identity,
        config: PresenceConfig,
        suspects: Suspects,
        stats: &StatsRegistry,
    ) -> Arc<Self> {
        let counts = Counts {
            diffs: stats.counter("presence_diffs_total"),
            syncs: stats.counter("presence_syncs_total"),
            answers: stats.counter("presence_answers_total"),
            garbage: stats.counter("presence_garbage_total"),
        };
        let now = Instant::now().into_std();
        let replica = Replica::new(me, rand::random(), config.grace, config.limits, counts, now);
        let shared = Arc::new(Self {
            replica: Mutex::new(replica),
            changed: Notify::new(),
            stopped: AtomicBool::new(false),
            settled: watch::Sender::new(false),
            suspects,
            fanout: Fanout::new(MAILBOX),
        });
        for (name, read) in [
            ("presence_entries", (|shared| shared.replica.lock().entries()) as fn(&Self) -> usize),
            ("presence_own_entries", |shared| shared.replica.lock().own_entries()),
            ("presence_suspect_entries", |shared| {
                shared.replica.lock().entries_of(&shared.suspects.borrow())
            }),
        ] {
            let shared = Arc::downgrade(&shared);
            stats.gauge(name, move || shared.upgrade().map(|shared| read(&shared)));
        }
        shared
    }

    /// Has the replica take something in, unless it has stopped.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Replica, StdInstant) -> T,
    ) -> Result<T, PresenceError> {
        let mut replica = self.replica.lock();
        if self.has_stopped() {
            return Err(PresenceError::Stopped);
        }
        let answer = change(&mut replica, Instant::now().into_std());
        drop(replica);
        self.changed.notify_one();
        Ok(answer)
    }

    pub(super) fn list(&self, channel: &Channel) -> Presences {
        self.replica.lock().rooms.list(channel)
    }

    pub(super) fn list_suspect(&self, channel: &Channel) -> Presences {
        self.replica.lock().rooms.list_of(channel, &self.suspects.borrow())
    }

    /// See [`Rooms::shown`](super::rooms::Rooms::shown).
    pub(super) fn shown(&self, channel: &Channel) -> (Arc<Presences>, u64) {
        self.replica.lock().rooms.shown(channel)
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns when this node knows what its peers had when it joined, or when that will not happen.
    pub(super) async fn settled(&self) {
        let mut settled = self.settled.subscribe();
        // The sender lives as long as this.
        let _ = settled.wait_for(|settled| *settled).await;
    }

    pub(super) fn close(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.settled.send_replace(true);
        self.fanout.close();
    }

    fn step(&self) -> (Output, Instant) {
        let mut replica = self.replica.lock();
        let output = replica.step(Instant::now().into_std());
        if replica.has_settled() {
            self.settled.send_if_modified(|settled| !std::mem::replace(settled, true));
        }
        (output, Instant::from_std(replica.wake_at()))
    }

    /// Nothing is tracked after the farewell.
    fn farewell(&self) -> Vec<Message> {
        let mut replica = self.replica.lock();
        self.close();
        replica.farewell()
    }
}

pub(super) struct Driver {
    bus: Arc<dyn EphemeralBus>,
    membership: watch::Receiver<Arc<Membership>>,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Driver {
    pub(super) fn new(
        bus: Arc<dyn EphemeralBus>,
        membership: watch::Receiver<Arc<Membership>>,
        shared: Arc<Shared>,
        stop: CancellationToken,
    ) -> Self {
        Self { bus, membership, shared, stop }
    }

    /// Until it is stopped, or the bus is closed.
    pub(super) async fn run(mut self) {
        if let Err(error) = self.exchange().await {
            warn!(%error, "presence has stopped");
        }
        self.shared.close();
    }

    async fn exchange(&mut self) -> Result<(), PresenceFailure> {
        let (channel, event) = (Channel::parse(wire::CHANNEL)?, EventName::parse(wire::EVENT)?);
        let mut messages = self.bus.subscribe(&channel).await?;
        self.look_around();
        loop {
            let (output, wake_at) = self.shared.step();
            for diff in output.diffs {
                let diff = Arc::new(diff);
                self.shared.fanout.deliver(diff.channel.as_str(), &diff);
            }
            self.send(&channel, &event, output.messages).await?;
            tokio::select! {
                () = self.stop.cancelled() => {
                    let farewell = self.shared.farewell();
                    return self.send(&channel, &event, farewell).await;
                }
                item = messages.next() => match item {
                    Some(EphemeralItem::Event(event)) => {
                        let now = Instant::now().into_std();
                        self.shared.replica.lock().receive(&event.payload, now);
                    }
                    // The gap is found with the next message of whomever it concerns.
                    Some(EphemeralItem::Lagged(_)) => {}
                    None => return Ok(()),
                },
                // Once the node has ended there are no more changes.
                Ok(()) = self.membership.changed() => self.look_around(),
                () = self.shared.changed.notified() => {}
                () = sleep_until(wake_at) => {}
            }
        }
    }

    fn look_around(&mut self) {
        let view = Arc::clone(&self.membership.borrow_and_update());
        let members = view.peers().iter().map(|member| &member.identity);
        let now = Instant::now().into_std();
        let mut replica = self.shared.replica.lock();
        replica.members(view.me(), members, now);
        if view.has_joined() {
            replica.joined(now);
        }
    }

    async fn send(
        &self,
        channel: &Channel,
        event: &EventName,
        messages: Vec<Message>,
    ) -> Result<(), PresenceFailure> {
        for message in messages {
            match self.bus.publish(channel, event, &message.encode()?).await {
                // The bus accepts less than every bus promises. Peers will miss it, and ask.
                Err(EphemeralError::Rejected(error)) => warn!(%error, "cannot tell peers of presence"),
                published => published?,
            }
        }
        Ok(())
    }
}

/// Why presence stopped by itself.
#[derive(Debug, thiserror::Error)]
enum PresenceFailure {
    #[error(transparent)]
    Bus(#[from] EphemeralError),
    #[error(transparent)]
    Name(#[from] Invalid),
    #[error("a message cannot be written: {0}")]
    Encode(#[from] serde_json::Error),
}
