//! The adapter on a real PostgreSQL.

mod bus_faults;
mod cluster;
mod failover;
mod registry_faults;
mod support;
