//! What Switchboard's tests share.
//!
//! - [`suites`]: one conformance suite per port, written from the promises in the port's documentation. Every adapter runs all of it.
//! - [`history`]: a checker in the manner of Jepsen's, for what was published and what was received on a durable bus.
//! - [`proxy`]: a TCP proxy that cuts, resets, stalls and refuses.
//! - [`process`]: real processes that can be killed, frozen and asked to stop.
//! - `postgres` (feature): a private PostgreSQL per test process, shared, or one of its own for tests that hurt it.
//!
//! Everything here panics with a message where something is wrong: it is for tests alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::print_stderr,
    reason = "tests stop at the first surprise"
)]

pub mod history;
mod http;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod suites;
mod tools;
mod wait;

pub use http::{http_client, patient_http_client};
pub use tools::{available, on_path};
pub use wait::{LONG, eventually};

// For the macros.
#[doc(hidden)]
pub use tokio;
