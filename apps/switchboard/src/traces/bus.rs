//! A durable bus that tells of what passes through it, and otherwise is the one behind it.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use futures::StreamExt;
use switchboard_core::ports::{DurableBus, DurableError, DurableItem, DurableStream, History, StartFrom};
use switchboard_core::types::{Channel, EventName, IdempotencyKey, Payload, Position};

use super::tracer::Tracer;

pub(super) struct Traced {
    bus: Arc<dyn DurableBus>,
    tracer: Arc<Tracer>,
}

impl Traced {
    pub(super) fn new(bus: Arc<dyn DurableBus>, tracer: Arc<Tracer>) -> Self {
        Self { bus, tracer }
    }

    async fn publishing(
        &self,
        channel: &Channel,
        event: &EventName,
        publish: impl Future<Output = Result<Position, DurableError>>,
    ) -> Result<Position, DurableError> {
        let began = SystemTime::now();
        let published = publish.await;
        self.tracer.published(channel, event, began, &published);
        published
    }
}

#[async_trait]
impl DurableBus for Traced {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<Position, DurableError> {
        self.publishing(channel, event, self.bus.publish(channel, event, payload)).await
    }

    async fn publish_once(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
        key: &IdempotencyKey,
    ) -> Result<Position, DurableError> {
        self.publishing(channel, event, self.bus.publish_once(channel, event, payload, key)).await
    }

    async fn head(&self, channel: &Channel) -> Result<Position, DurableError> {
        self.bus.head(channel).await
    }

    async fn subscribe(&self, channel: &Channel, from: StartFrom) -> Result<DurableStream, DurableError> {
        let tracer = Arc::clone(&self.tracer);
        let items = self.bus.subscribe(channel, from).await?;
        let told = items.inspect(move |item| {
            if let DurableItem::Event(event) = item {
                tracer.delivered(event);
            }
        });
        Ok(told.boxed())
    }

    async fn history(
        &self,
        channel: &Channel,
        after: Option<Position>,
        limit: usize,
    ) -> Result<History, DurableError> {
        self.bus.history(channel, after, limit).await
    }
}
