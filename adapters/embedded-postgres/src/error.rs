//! What can go wrong, in words that tell the person at the terminal what to do next.
//!
//! Most of these end up verbatim on someone's first screen of Switchboard, so each names the value, the rule and, where
//! there is one, the way out.

use std::path::{Path, PathBuf};

use crate::find::BIN_DIR_VARIABLE;

/// How to get PostgreSQL on the systems we know, shown whenever there is none.
const INSTALL_HINT: &str = "\
install PostgreSQL 14 or newer and try again:
  Debian, Ubuntu   apt install postgresql
  Fedora, RHEL     dnf install postgresql-server
  Arch             pacman -S postgresql
  macOS            brew install postgresql
or point SWITCHBOARD_PG_BIN at the directory that holds initdb, pg_ctl and postgres";

/// Why a private PostgreSQL could not be found, started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `SWITCHBOARD_PG_BIN`, or a directory given explicitly, does not hold a usable PostgreSQL. Not worth a retry.
    #[error(
        "{origin} {value:?} is not usable: {reason}; it must be a directory that holds initdb, pg_ctl and postgres of PostgreSQL 14 or newer"
    )]
    WrongBinDir {
        /// Where the value comes from: the variable, or what it stands for.
        origin: String,
        /// The directory as given.
        value: PathBuf,
        /// Which part of the rule it breaks.
        reason: String,
    },

    /// Nothing usable is installed and fetching it failed.
    #[error("no usable PostgreSQL{} is installed and downloading it failed: {reason}{}\n{INSTALL_HINT}", of_major(*major), list_of(rejected))]
    Unobtainable {
        /// The major version that an existing data directory asks for.
        major: Option<u32>,
        /// Why the download failed.
        reason: String,
        /// Installations that were found but cannot be used, each with the reason.
        rejected: Vec<String>,
    },

    /// The data directory was written by another major version than the only binaries allowed.
    #[error("{} was written by PostgreSQL {wrote}, but {} is PostgreSQL {found}; set {BIN_DIR_VARIABLE} to binaries of PostgreSQL {wrote}, or choose another data directory", data_dir.display(), bin_dir.display())]
    WrongMajor {
        /// The private directory.
        data_dir: PathBuf,
        /// The major version that wrote it.
        wrote: u32,
        /// The binaries that were to be used.
        bin_dir: PathBuf,
        /// Their major version.
        found: u32,
    },

    /// The caller is root and neither `postgres` nor `nobody` exists, or this process may not become that user.
    #[error("PostgreSQL refuses to run as root and this process cannot start it as user {user}: {reason}")]
    NoAccount {
        /// The unprivileged user that was tried.
        user: String,
        /// What stands in the way.
        reason: String,
    },

    /// The unprivileged user cannot get at a path that PostgreSQL needs.
    #[error("PostgreSQL runs as user {user} because the caller is root, and that user cannot use {}: {reason}", path.display())]
    Unreachable {
        /// The user PostgreSQL runs as.
        user: String,
        /// What it must reach.
        path: PathBuf,
        /// What stands in the way.
        reason: String,
    },

    /// The directory holds something that this crate did not write; it is left alone.
    #[error("{} is not empty and was not made by this program: {reason}; give an empty or a new directory", path.display())]
    ForeignDataDir {
        /// The directory as given.
        path: PathBuf,
        /// What was found in it.
        reason: String,
    },

    /// Another live process runs a private PostgreSQL in this directory.
    #[error("{} is in use by another running instance{}", path.display(), holder.map(|pid| format!(" (postmaster pid {pid})")).unwrap_or_default())]
    DataDirInUse {
        /// The directory as given.
        path: PathBuf,
        /// The postmaster, where it is known.
        holder: Option<i32>,
    },

    /// Something else listens on the port that was asked for.
    #[error("port {port} on 127.0.0.1 is already in use; choose another, or 0 for any free port")]
    PortInUse {
        /// The port as asked for.
        port: u16,
    },

    /// `initdb` or `postgres` gave up, or was not ready in time. The end of its log says why.
    #[error("{program} {outcome}; the end of its log ({}):\n{log}", log_file.display())]
    Failed {
        /// The program.
        program: &'static str,
        /// How it ended.
        outcome: String,
        /// Where the whole log is, unless the instance was temporary.
        log_file: PathBuf,
        /// The last lines of the log.
        log: String,
    },

    /// PostgreSQL does not go away although it was killed. A process stuck in the kernel is the only known cause.
    #[error("PostgreSQL (pid {pid}) is still there after it was killed")]
    WillNotDie {
        /// The postmaster.
        pid: i32,
    },

    /// The instance was stopped for good and cannot be started again.
    #[error("this private PostgreSQL was stopped for good")]
    Stopped,

    /// The operating system refused something that has to work.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said. Not called `source`: the message holds it, and those who print causes would show it twice.
        reason: std::io::Error,
    },

    /// The blocking half was cancelled because the Tokio runtime is shutting down.
    #[error("the Tokio runtime shut down while PostgreSQL was being handled")]
    RuntimeGone,
}

impl Error {
    /// For `map_err`: names what was tried on which path.
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        move |reason| Self::Io { action, path: path.as_ref().to_owned(), reason }
    }
}

fn of_major(major: Option<u32>) -> String {
    major.map(|major| format!(" {major} (which wrote the data directory)")).unwrap_or_default()
}

fn list_of(rejected: &[String]) -> String {
    rejected.iter().fold(String::new(), |list, entry| list + "\nfound, but not usable: " + entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_download_says_what_to_install_and_what_was_rejected() {
        let message = Error::Unobtainable {
            major: None,
            reason: "dns error".into(),
            rejected: vec!["/opt/pg13/bin: PostgreSQL 13 is older than 14".into()],
        }
        .to_string();
        for part in [
            "dns error",
            "/opt/pg13/bin: PostgreSQL 13 is older than 14",
            "apt install postgresql",
            "dnf install postgresql-server",
            "pacman -S postgresql",
            "brew install postgresql",
            BIN_DIR_VARIABLE,
        ] {
            assert!(message.contains(part), "{part:?} is missing in:\n{message}");
        }
    }
}
