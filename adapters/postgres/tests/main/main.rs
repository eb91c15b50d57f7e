//! The adapter on a real PostgreSQL.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod bus_faults;
mod cluster;
mod doctor;
mod failover;
mod listening;
mod pooler;
mod presence;
mod publishing;
mod registry_faults;
mod restore;
mod retention;
mod sessions;
mod suites;
