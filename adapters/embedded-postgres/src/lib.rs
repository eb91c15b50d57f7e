//! A private PostgreSQL that asks for nothing: found or fetched, started, and gone without a trace.
//!
//! `switchboard dev` and every test that needs a real PostgreSQL run one through [`PrivatePostgres`]. The crate knows
//! nothing of Switchboard itself. It deliberately does not manage databases, roles or upgrades: whoever has the URL is
//! superuser and does that in SQL.
//!
//! Invariants:
//! - **Nothing is left running.** A watchdog process outlives the owner, however the owner dies, and stops PostgreSQL
//!   and removes what was temporary (`watchdog.sh`).
//! - **No process ever runs unguarded.** A child starts only after the watchdog knows its pid (`guarded.rs`).
//! - **PostgreSQL never runs as root.** A root caller's instance runs as an unprivileged account (`account.rs`).
//!
//! ```no_run
//! # async fn example() -> Result<(), switchboard_embedded_postgres::Error> {
//! use switchboard_embedded_postgres::{Options, PrivatePostgres};
//!
//! let postgres = PrivatePostgres::start(Options::default()).await?;
//! println!("psql {}", postgres.url());
//! postgres.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Unix only: PostgreSQL's processes are told to stop, freeze and continue by signals.

mod account;
mod cluster;
mod download;
mod error;
mod find;
mod guarded;
mod home;
mod installation;
mod options;
mod port;
mod private;
mod process;
mod server;
mod watchdog;

pub use error::Error;
pub use find::BIN_DIR_VARIABLE;
pub use installation::Installation;
pub use options::{Binaries, Options, StopMode};
pub use port::free_port;
pub use private::PrivatePostgres;
