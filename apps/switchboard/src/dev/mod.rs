//! The parts of `switchboard dev`: which ports, which processes, what is shown while they start.
//!
//! Invariant: everything that is started ends with `dev`, however `dev` ends. Nodes hold the reading end of a pipe whose other
//! end only `dev` has; PostgreSQL has a watchdog of its own.

mod death;
mod nodes;
mod ports;
mod progress;
mod ready;
mod summary;

pub(crate) use nodes::{Nodes, Recipe};
pub(crate) use ports::choose as choose_ports;
pub(crate) use progress::Progress;
pub(crate) use ready::wait_until_ready;
pub(crate) use summary::summary;
