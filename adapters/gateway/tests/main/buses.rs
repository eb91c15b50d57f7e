//! Buses that misbehave.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use switchboard_core::ports::{
    DurableBus, DurableError, DurableStream, EphemeralBus, EphemeralError, EphemeralItem, EphemeralStream,
    History, StartFrom,
};
use switchboard_core::types::{Channel, EphemeralEvent, Epoch, EventName, IdempotencyKey, Payload, Position};
use tokio::sync::Notify;

/// A store that cannot be reached, and an ephemeral bus that was closed.
pub(crate) struct Broken;

#[async_trait]
impl DurableBus for Broken {
    async fn publish(&self, _: &Channel, _: &EventName, _: &Payload) -> Result<Position, DurableError> {
        Err(DurableError::Unavailable("connection refused".into()))
    }

    async fn publish_once(
        &self,
        _: &Channel,
        _: &EventName,
        _: &Payload,
        _: &IdempotencyKey,
    ) -> Result<Position, DurableError> {
        Err(DurableError::Unavailable("connection refused".into()))
    }

    async fn head(&self, _: &Channel) -> Result<Position, DurableError> {
        Err(DurableError::Unavailable("connection refused".into()))
    }

    async fn subscribe(&self, _: &Channel, _: StartFrom) -> Result<DurableStream, DurableError> {
        Err(DurableError::Unavailable("connection refused".into()))
    }

    async fn history(&self, _: &Channel, _: Option<Position>, _: usize) -> Result<History, DurableError> {
        Err(DurableError::Unavailable("connection refused".into()))
    }
}

#[async_trait]
impl EphemeralBus for Broken {
    async fn publish(&self, _: &Channel, _: &EventName, _: &Payload) -> Result<(), EphemeralError> {
        Err(EphemeralError::Closed)
    }

    async fn subscribe(&self, _: &Channel) -> Result<EphemeralStream, EphemeralError> {
        Err(EphemeralError::Closed)
    }
}

/// A store that takes its time: it says when it was asked, and answers when it is told to. Its streams have ended.
#[derive(Default)]
pub(crate) struct Slow {
    pub(crate) asked: Arc<Notify>,
    pub(crate) go_on: Arc<Notify>,
}

#[async_trait]
impl DurableBus for Slow {
    async fn publish(&self, _: &Channel, _: &EventName, _: &Payload) -> Result<Position, DurableError> {
        self.asked.notify_one();
        self.go_on.notified().await;
        Ok(Position::new(Epoch::from_bits(1), 1))
    }

    async fn publish_once(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        _: &IdempotencyKey,
    ) -> Result<Position, DurableError> {
        self.publish(channel, event, payload).await
    }

    async fn head(&self, _: &Channel) -> Result<Position, DurableError> {
        Ok(Position::new(Epoch::from_bits(1), 0))
    }

    async fn subscribe(&self, _: &Channel, _: StartFrom) -> Result<DurableStream, DurableError> {
        Ok(stream::empty().boxed())
    }

    async fn history(&self, _: &Channel, _: Option<Position>, _: usize) -> Result<History, DurableError> {
        Ok(History::Page(Vec::new()))
    }
}

/// An ephemeral bus on which something is said all the time.
pub(crate) struct Flood;

#[async_trait]
impl EphemeralBus for Flood {
    async fn publish(&self, _: &Channel, _: &EventName, _: &Payload) -> Result<(), EphemeralError> {
        Ok(())
    }

    async fn subscribe(&self, channel: &Channel) -> Result<EphemeralStream, EphemeralError> {
        let event = Arc::new(EphemeralEvent {
            channel: channel.clone(),
            event: EventName::parse("typing")?,
            payload: Payload::parse(&format!("\"{}\"", "x".repeat(60_000)))?,
        });
        Ok(stream::repeat(EphemeralItem::Event(event)).boxed())
    }
}
