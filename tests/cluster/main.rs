//! Clusters of real processes on a real PostgreSQL.
//!
//! The tests run the binary that this build made; how it is found is in `node.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod browser;
mod clients;
mod clocks;
mod configuration;
mod dashboard;
mod database;
mod demo;
mod dev;
mod eviction;
mod flapping;
#[cfg(feature = "mesh")]
mod floods;
mod lame_duck;
mod logs;
#[cfg(feature = "mesh")]
mod mesh;
mod metrics;
mod node;
mod openapi;
mod scale;
#[cfg(feature = "mesh")]
mod segments;
mod signals;
mod strangers;
mod top;
#[cfg(feature = "otlp")]
mod traces;
