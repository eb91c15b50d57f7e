//! The whole system in three traits.
//!
//! [`Registry`] says who is in the cluster, [`DurableBus`] moves events that must not be lost, [`EphemeralBus`]
//! moves events that are not worth storing. Adapters implement them, everything else is written against them.
//! All are object-safe: hold them as `Arc<dyn Registry>` and so on.
//!
//! # Testing code that uses them
//!
//! With the feature `mock` (in `[dev-dependencies]`: `switchboard-core = { …, features = ["mock"] }`) every port has a mock made by
//! [mockall](https://docs.rs/mockall): `MockRegistry`, `MockDurableBus`, `MockEphemeralBus`. A unit test says what it expects
//! of the bus, and what the bus answers, without any server:
//!
//! ```
//! # #[cfg(feature = "mock")]
//! # fn main() {
//! use std::sync::Arc;
//!
//! use futures::StreamExt;
//! use switchboard_core::ports::{
//!     DurableBus, DurableError, EphemeralBus, EphemeralItem, MockDurableBus, MockEphemeralBus, MockRegistry, Registry,
//! };
//! use switchboard_core::types::{Channel, Epoch, EphemeralEvent, EventName, Payload, Position};
//!
//! /// The code under test: stores a message, and tells its reader to try again if that cannot be done now.
//! async fn say(bus: &dyn DurableBus, room: &str, text: &str) -> Result<String, &'static str> {
//!     let channel = Channel::parse(room).map_err(|_| "no such room")?;
//!     let payload = Payload::parse(&format!("{text:?}")).map_err(|_| "cannot say that")?;
//!     let event = EventName::parse("message").map_err(|_| "a bug")?;
//!     match bus.publish(&channel, &event, &payload).await {
//!         Ok(position) => Ok(position.to_string()),
//!         Err(DurableError::Rejected(_)) => Err("too long"),
//!         Err(DurableError::Unavailable(_)) => Err("try again"),
//!     }
//! }
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! runtime.block_on(async {
//!     // It publishes once, to the right channel, and passes the position on.
//!     let mut bus = MockDurableBus::new();
//!     bus.expect_publish()
//!         .withf(|channel, event, payload| {
//!             (channel.as_str(), event.as_str(), payload.as_str()) == ("room:1", "message", "\"hi\"")
//!         })
//!         .once()
//!         .returning(|_, _, _| Ok(Position::new(Epoch::from_bits(1), 7)));
//!     assert_eq!(say(&bus, "room:1", "hi").await.as_deref(), Ok("0000000000000001-7"));
//!
//!     // An outage is no reason to lose the message.
//!     let mut bus = MockDurableBus::new();
//!     bus.expect_publish().returning(|_, _, _| Err(DurableError::Unavailable("down".into())));
//!     assert_eq!(say(&bus, "room:1", "hi").await, Err("try again"));
//!
//!     // A wrong name never reaches the bus: a mock without expectations panics when it is called.
//!     assert_eq!(say(&MockDurableBus::new(), "", "hi").await, Err("no such room"));
//!
//!     // A subscription is a stream, so any stream will do.
//!     let mut bus = MockEphemeralBus::new();
//!     bus.expect_subscribe().returning(|channel| {
//!         let event = EphemeralEvent {
//!             channel: channel.clone(),
//!             event: EventName::parse("typing").unwrap(),
//!             payload: Payload::parse("true").unwrap(),
//!         };
//!         let items = [EphemeralItem::Event(Arc::new(event)), EphemeralItem::Lagged(3)];
//!         Ok(futures::stream::iter(items).boxed())
//!     });
//!     let items: Vec<_> = bus.subscribe(&Channel::parse("room:1").unwrap()).await.unwrap().collect().await;
//!     assert!(matches!(items[..], [EphemeralItem::Event(_), EphemeralItem::Lagged(3)]));
//!
//!     let mut registry = MockRegistry::new();
//!     registry.expect_members().returning(|| Ok(Vec::new()));
//!     assert!(registry.members().await.unwrap().is_empty());
//! });
//! # }
//! # #[cfg(not(feature = "mock"))]
//! # fn main() {}
//! ```

mod durable_bus;
mod ephemeral_bus;
mod registry;

pub use durable_bus::{DurableBus, DurableError, DurableItem, DurableStream, History, StartFrom};
pub use ephemeral_bus::{EphemeralBus, EphemeralError, EphemeralItem, EphemeralStream, Suspects};
pub use registry::{
    ChangeHints, Heartbeat, Member, Registered, Registration, Registry, RegistryError, Renewed, SweepScope,
    Swept,
};

#[cfg(feature = "mock")]
pub use {durable_bus::MockDurableBus, ephemeral_bus::MockEphemeralBus, registry::MockRegistry};

/// Why an adapter could not do its work, kept for logs; callers decide by the variant that carries it.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;
