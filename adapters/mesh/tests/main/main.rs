//! The mesh over loopback, with nodes in this process and the registry in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod cluster;
mod fallback;
mod links;
mod strangers;
mod suites;
mod wire;
