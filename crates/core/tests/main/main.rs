//! The core against the memory adapter, with time under control.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod lifecycle;
mod pause;
mod presence;
mod reported_faults;
mod simulation;
