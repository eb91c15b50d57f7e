//! The gateway over real sockets, in front of the memory adapter.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod access;
mod admin;
mod auth;
mod buses;
mod channels;
mod client;
mod demo;
mod health;
mod metrics;
mod openapi;
mod origins;
mod outages;
mod rights;
mod secrecy;
mod server;
mod sockets;
mod streams;
mod tokens;
