//! The whole system in three traits.
//!
//! [`Registry`] says who is in the cluster, [`DurableBus`] moves events that must not be lost, [`EphemeralBus`]
//! moves events that are not worth storing. Adapters implement them, everything else is written against them.
//! All are object-safe: hold them as `Arc<dyn Registry>` and so on.
//!
#![cfg_attr(feature = "mock", doc = include_str!("mocks.md"))]

mod durable_bus;
mod ephemeral_bus;
mod registry;

pub use durable_bus::{DurableBus, DurableError, DurableItem, DurableStream, History, StartFrom};
pub use ephemeral_bus::{EphemeralBus, EphemeralError, EphemeralItem, EphemeralStream};
pub use registry::{
    ChangeHints, Heartbeat, Member, Registered, Registration, Registry, RegistryError, Renewed, SweepScope,
    Swept,
};

#[cfg(feature = "mock")]
pub use {durable_bus::MockDurableBus, ephemeral_bus::MockEphemeralBus, registry::MockRegistry};

/// Why an adapter could not do its work, kept for logs; callers decide by the variant that carries it.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;
