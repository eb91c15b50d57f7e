//! The gateway over real sockets, in front of the memory adapter.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod access;
mod buses;
mod channels;
mod health;
mod outages;
mod server;
mod streams;
