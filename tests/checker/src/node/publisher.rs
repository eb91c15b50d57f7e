//! Publishers, of the three kinds there are: through the bus, in transactions of their own, in single statements.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use sqlx::postgres::PgConnectOptions;
use switchboard_core::ports::{DurableBus, DurableError};
use switchboard_core::types::{Channel, EventName, Payload, Position};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::recorder::{Operation, Operations};
use super::session::{Failure, Session};
use crate::payload;
use crate::wire::Plan;

/// How often a transaction is rolled back although nothing is wrong.
const ROLLBACKS: f64 = 0.2;
/// How often a transaction publishes in an order in which it can deadlock with others.
const DISORDER: f64 = 0.05;
/// Longest pause, between operations and within them, in milliseconds.
const PAUSE: u64 = 20;
/// Pause after the bus could not say whether it stored an event.
const OUTAGE: Duration = Duration::from_millis(500);

pub(crate) struct Publisher {
    channels: Vec<Channel>,
    operations: Operations,
    rng: StdRng,
    session: Session,
    event: EventName,
}

impl Publisher {
    pub(crate) fn new(
        plan: &Plan,
        channels: Vec<Channel>,
        operations: Operations,
        rng: StdRng,
    ) -> anyhow::Result<Self> {
        let options: PgConnectOptions = plan.url.parse()?;
        let options = options.application_name(&format!("switchboard publisher {}", plan.name));
        let session = Session::new(options, &plan.schema);
        Ok(Self { channels, operations, rng, session, event: EventName::parse("message")? })
    }

    /// Publishes until it shall be quiet, and finishes what it has begun.
    pub(crate) async fn run(mut self, number: u16, bus: Arc<dyn DurableBus>, quiet: CancellationToken) {
        while !quiet.is_cancelled() {
            match number % 3 {
                0 => self.through_the_bus(&bus).await,
                1 => self.in_a_transaction().await,
                _ => self.in_a_statement().await,
            }
            self.pause().await;
        }
    }

    /// Several at once, so that they share a commit.
    async fn through_the_bus(&mut self, bus: &Arc<dyn DurableBus>) {
        let channels = self.choose(8);
        let (operations, event) = (&self.operations, &self.event);
        join_all(channels.into_iter().map(|channel| async move {
            let operation = operations.begin();
            let tokens = operation.invoke(std::slice::from_ref(&channel));
            let payload = tokens.first().and_then(|token| Payload::parse(&payload::write(*token)).ok());
            let Some(payload) = payload else { return operation.failed() };
            match bus.publish(&channel, event, &payload).await {
                Ok(position) => operation.committed(vec![position]),
                Err(DurableError::Rejected(_)) => operation.failed(),
                Err(DurableError::Unavailable(_)) => {
                    operation.unknown();
                    // An outage shall not be all that the history tells of.
                    sleep(OUTAGE).await;
                }
            }
        }))
        .await;
    }

    /// Several calls, with pauses, and not always a commit.
    async fn in_a_transaction(&mut self) {
        if self.session.open().await.is_err() {
            return;
        }
        let operation = self.operations.begin();
        let Ok(positions) = self.write(&operation).await else {
            // Without COMMIT there is no doubt. If the session is still good, it has to leave the transaction.
            let _ = self.session.execute("ROLLBACK").await;
            return operation.failed();
        };
        if self.rng.random_bool(ROLLBACKS) {
            let _ = self.session.execute("ROLLBACK").await;
            return operation.failed();
        }
        match self.session.execute("COMMIT").await {
            Ok(()) => operation.committed(positions),
            Err(Failure::Refused | Failure::Lost) => operation.unknown(),
        }
    }

    async fn write(&mut self, operation: &Operation) -> Result<Vec<Position>, Failure> {
        self.session.execute("BEGIN").await?;
        let mut channels = self.choose(20);
        if !self.rng.random_bool(DISORDER) {
            channels.sort();
        }
        let mut positions = Vec::new();
        while !channels.is_empty() {
            let rest = channels.split_off(self.rng.random_range(1..=channels.len()));
            let tokens = operation.invoke(&channels);
            positions.extend(self.session.publish(&channels, &tokens).await?);
            channels = rest;
            self.pause().await;
        }
        Ok(positions)
    }

    async fn in_a_statement(&mut self) {
        if self.session.open().await.is_err() {
            return;
        }
        let operation = self.operations.begin();
        let channels = self.choose(5);
        let tokens = operation.invoke(&channels);
        match self.session.publish(&channels, &tokens).await {
            Ok(positions) => operation.committed(positions),
            Err(Failure::Refused) => operation.failed(),
            Err(Failure::Lost) => operation.unknown(),
        }
    }

    /// One to `most` channels, some of them several times.
    fn choose(&mut self, most: usize) -> Vec<Channel> {
        let count = self.rng.random_range(1..=most);
        (0..count).filter_map(|_| self.channels.choose(&mut self.rng).cloned()).collect()
    }

    async fn pause(&mut self) {
        sleep(Duration::from_millis(self.rng.random_range(0..=PAUSE))).await;
    }
}
