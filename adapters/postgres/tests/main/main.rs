//! The adapter on a real PostgreSQL.

mod cluster;
mod registry_faults;
mod support;
