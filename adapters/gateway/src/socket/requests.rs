//! What a client asks for and is answered later: publishing, and the tokens it brings.

use std::sync::Arc;
use std::time::Duration;

use switchboard_core::access::{AuthError, Grant};
use switchboard_core::types::{Channel, EventName, IdempotencyKey, Payload, Position};
use switchboard_protocol::session::{Refusal, Token};
use tokio::time::timeout;

use crate::state::Gateway;

/// Longest wait for a bus. Clients wait for 10 s by themselves.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// An event to be published.
pub(super) struct Publication {
    pub(super) channel: Channel,
    pub(super) event: EventName,
    pub(super) payload: Payload,
}

impl Publication {
    /// Queues an ephemeral event.
    pub(super) async fn send(self, gateway: Gateway) -> Result<(), Refusal> {
        let bus = Arc::clone(&gateway.ready().map_err(Refusal::unavailable)?.ephemeral);
        bus.publish(&self.channel, &self.event, &self.payload).await?;
        gateway.counts().published_ephemeral.increment();
        Ok(())
    }

    /// Stores a durable event. After a time-out it may be stored nevertheless, which a key makes harmless.
    pub(super) async fn store(
        self,
        gateway: Gateway,
        key: Option<IdempotencyKey>,
    ) -> Result<Position, Refusal> {
        let bus = Arc::clone(&gateway.ready().map_err(Refusal::unavailable)?.durable);
        let Self { channel, event, payload } = &self;
        let publish = match &key {
            Some(key) => bus.publish_once(channel, event, payload, key),
            None => bus.publish(channel, event, payload),
        };
        let position = timeout(LIMIT, publish).await.map_err(|_elapsed| {
            Refusal::unavailable(format!("no answer within {LIMIT:?}; the event may be stored nevertheless"))
        })??;
        gateway.counts().published_durable.increment();
        Ok(position)
    }
}

/// What a token that a client sent over its socket is worth.
pub(super) fn authorize(gateway: &Gateway, token: &Token) -> Result<Grant, AuthError> {
    if gateway.config().open_access {
        return Ok(Grant::everything());
    }
    gateway.verify(token.expose().as_bytes())
}
