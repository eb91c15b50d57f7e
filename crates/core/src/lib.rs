//! The domain of Switchboard: a cluster of realtime servers whose only coordinator is a PostgreSQL.
//!
//! This crate knows no database, no network and no HTTP. It holds
//!
//! - [`types`]: values that cannot be wrong,
//! - [`ports`]: the three traits that adapters implement, which are the whole system in short,
//! - [`lease`], [`membership`], [`timing`], [`claim`]: the rules of liveness as pure functions and state machines,
//! - [`node`]: the life of one node, which drives those rules against a [`Registry`](ports::Registry),
//! - [`access`]: who may do what in which channel,
//! - [`fanout`]: the local end of both buses, shared by every adapter,
//! - [`presence`]: who is there, the same on every node, over any [`EphemeralBus`](ports::EphemeralBus),
//! - [`stats`] and [`health`]: what a node tells about itself.
//!
//! Time comes from Tokio, so that simulations can pause it.

pub mod access;
pub mod claim;
pub mod fanout;
pub mod health;
pub mod lease;
pub mod membership;
pub mod node;
pub mod ports;
pub mod presence;
pub mod stats;
pub mod timing;
pub mod types;
