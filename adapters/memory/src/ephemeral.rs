//! Ephemeral events: straight into the fan-out.

use std::sync::Arc;

use async_trait::async_trait;
use switchboard_core::fanout::EphemeralFanout;
use switchboard_core::ports::{EphemeralBus, EphemeralError, EphemeralStream};
use switchboard_core::types::{Channel, EphemeralEvent, EventName, Payload, PayloadLimits};

/// The `EphemeralBus` of every node of a [`MemoryCluster`](crate::MemoryCluster).
pub struct MemoryEphemeral {
    fanout: EphemeralFanout,
    limits: PayloadLimits,
}

impl MemoryEphemeral {
    pub(crate) fn new(fanout: EphemeralFanout, limits: PayloadLimits) -> Self {
        Self { fanout, limits }
    }
}

#[async_trait]
impl EphemeralBus for MemoryEphemeral {
    async fn publish(
        &self,
        channel: &Channel,
        event: &EventName,
        payload: &Payload,
    ) -> Result<(), EphemeralError> {
        payload.within(self.limits.ephemeral)?;
        let event =
            EphemeralEvent { channel: channel.clone(), event: event.clone(), payload: payload.clone() };
        self.fanout.deliver(channel.as_str(), &Arc::new(event));
        Ok(())
    }

    async fn subscribe(&self, channel: &Channel) -> Result<EphemeralStream, EphemeralError> {
        Ok(self.fanout.stream(channel))
    }
}
