//! What a caller may choose about a private PostgreSQL. Everything has a default that is right for a test.

use std::path::PathBuf;

/// How to run a private PostgreSQL. The default is a temporary instance on a free port.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where the instance lives. `None`: a temporary directory that is removed when it stops; writes are not flushed to
    /// disk, since nothing outlives a power cut anyway. `Some`: created if absent, kept, and used again by the next
    /// start, also after an unclean stop; PostgreSQL's usual durability applies.
    ///
    /// The directory holds the data in `data`, the log in `postgres.log` and the superuser's password in `password`.
    pub data_dir: Option<PathBuf>,
    /// The port on 127.0.0.1; 0 takes a free one outside the system's ephemeral range.
    pub port: u16,
    /// Settings for `postgresql.conf`, as `("max_connections", "300")`. They win over this crate's choices, except for
    /// where PostgreSQL listens.
    pub configuration: Vec<(String, String)>,
    /// Which binaries to run.
    pub binaries: Binaries,
}

/// Where PostgreSQL's binaries come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Binaries {
    /// Those that are installed (see [`Installation::find`](crate::Installation::find)); if there are none, they are
    /// downloaded once and kept in the user's cache directory.
    #[default]
    FindOrDownload,
    /// Those in this directory, nothing else.
    In(PathBuf),
    /// Always those from the cache directory, downloaded if need be.
    Download,
}

/// How PostgreSQL is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Sessions are terminated, data is written back, the next start needs no recovery.
    Fast,
    /// As in a crash: nothing is written back, the next start recovers from the log and UNLOGGED tables come back empty.
    Immediate,
}
