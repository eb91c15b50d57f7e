//! One node's session with the table of nodes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use parking_lot::Mutex;
use switchboard_core::claim::{Claim, Lock, judge};
use switchboard_core::ports::{
    ChangeHints, Heartbeat, Member, Registered, Registration, Registry, RegistryError, Renewed,
};
use switchboard_core::types::Identity;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::WatchStream;

use crate::link::Link;
use crate::table::{SessionId, Table};

/// As the PostgreSQL adapter: how long a live holder is given to show itself or go away.
const HOLDER_PATIENCE: Duration = Duration::from_secs(2);
const HOLDER_POLL: Duration = Duration::from_millis(50);

/// The `Registry` of one node.
pub struct MemoryRegistry {
    table: Arc<Table>,
    session: SessionId,
    everybodys_link: watch::Receiver<Link>,
    link: watch::Sender<Link>,
    latency: Mutex<Duration>,
}

impl MemoryRegistry {
    pub(crate) fn new(table: Arc<Table>, everybodys_link: watch::Receiver<Link>) -> Self {
        let (link, latency) = (watch::Sender::new(Link::Up), Mutex::default());
        Self { table, session: rand::random(), everybodys_link, link, latency }
    }

    /// Changes the state of the path to the registry, also for calls that are under way.
    pub fn set_link(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// How long every request and every answer is on its way from now on. At first: no time.
    pub fn set_latency(&self, latency: Duration) {
        *self.latency.lock() = latency;
    }

    fn links(&self) -> [Link; 2] {
        [*self.everybodys_link.borrow(), *self.link.borrow()]
    }

    /// Ends the session, as a lost connection does: the locks it held are free. The next call begins another.
    pub fn lose_session(&self) {
        self.table.unlock(self.session);
    }

    /// Has the registry do something, if the link allows. As with a server, what has been sent is carried out even if the caller gives
    /// up waiting.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Table) -> T + Send + 'static,
    ) -> Result<T, RegistryError> {
        if self.links().contains(&Link::Down) {
            return Err(RegistryError::Unavailable("connection refused".into()));
        }
        if self.links().contains(&Link::RequestsLost) {
            std::future::pending::<()>().await;
        }
        let (table, latency) = (Arc::clone(&self.table), *self.latency.lock());
        let on_its_way = [self.link.subscribe(), self.everybodys_link.clone()];
        let carried_out = tokio::spawn(async move {
            take(latency).await;
            for mut link in on_its_way {
                // The process is gone, or the cluster: then nothing holds the request back any more.
                let _ = link.wait_for(|link| *link != Link::RequestsHeld).await;
            }
            work(&table)
        });
        let answer = carried_out.await.map_err(|error| RegistryError::Unavailable(error.into()))?;
        take(latency).await;
        if self.links() != [Link::Up; 2] {
            std::future::pending::<()>().await;
        }
        Ok(answer)
    }
}

#[async_trait]
impl Registry for MemoryRegistry {
    async fn register(&self, registration: &Registration) -> Result<Registered, RegistryError> {
        let (started, session) = (Instant::now(), self.session);
        let identity = &registration.identity;
        let (mut lock, mut first_seen) = (None, None);
        loop {
            let (node_id, threshold) = (identity.node_id.clone(), registration.timing.stale_threshold());
            let me = identity.incarnation;
            let look = self.call(move |table| {
                table.lock(me, session);
                let holder = table.holder(&node_id, threshold);
                (holder.as_ref().is_none_or(|holder| table.is_free(holder.incarnation)), holder)
            });
            let (free, holder) = look.await?;
            let now = Lock::seen(free, lock);
            let waited = started.elapsed() >= HOLDER_PATIENCE;
            match judge(identity.incarnation, holder.as_ref(), first_seen.as_ref(), now, waited) {
                Claim::Take => {
                    let (registration, seen) = (registration.clone(), holder.clone());
                    if let Some(registered) =
                        self.call(move |table| table.take_row(&registration, seen.as_ref())).await?
                    {
                        return Ok(registered);
                    }
                }
                Claim::Taken(endpoint) => {
                    return Err(RegistryError::NodeIdTaken { node_id: identity.node_id.clone(), endpoint });
                }
                Claim::Wait => sleep(HOLDER_POLL).await,
            }
            lock = holder.is_some().then_some(now);
            first_seen = first_seen.or(holder);
        }
    }

    async fn renew(&self, heartbeat: &Heartbeat) -> Result<Renewed, RegistryError> {
        let (sent, session) = (heartbeat.clone(), self.session);
        let renewed = self.call(move |table| {
            table.lock(sent.identity.incarnation, session);
            table.renew(&sent)
        });
        renewed.await?.ok_or_else(|| RegistryError::Evicted(heartbeat.identity.clone()))
    }

    async fn members(&self) -> Result<Vec<Member>, RegistryError> {
        self.call(Table::members).await
    }

    async fn deregister(&self, identity: &Identity) -> Result<(), RegistryError> {
        let identity = identity.clone();
        self.call(move |table| table.remove(&identity)).await
    }

    fn changes(&self) -> ChangeHints {
        WatchStream::from_changes(self.table.moved()).boxed()
    }
}

/// Even a sleep of no time waits for the next tick of the timer.
async fn take(latency: Duration) {
    if !latency.is_zero() {
        sleep(latency).await;
    }
}

impl Drop for MemoryRegistry {
    fn drop(&mut self) {
        self.table.end_session(self.session);
    }
}
