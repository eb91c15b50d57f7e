//! The limit of open files, shared out: every connection is one.
//!
//! Invariant: however many HTTP clients there are, the connections to PostgreSQL can be opened anew. A node that cannot
//! is evicted, and whoever can reach its port could have that.

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// For all that is no connection: the runtime, logs, certificates, name lookups, gauges that read files.
const SPARE: u64 = 64;

/// How many HTTP connections there may be, `wanted` or fewer, next to `database` connections, after raising the limit as far as they need.
pub(super) fn for_http(wanted: usize, database: u32) -> anyhow::Result<usize> {
    let (wanted, others) = (u64::try_from(wanted)?, SPARE + u64::from(database));
    let limit = raise(wanted + others).context("cannot find out how many files may be open")?;
    let connections = share(limit, others, wanted);
    if connections < wanted {
        warn!(
            limit,
            wanted,
            connections,
            "fewer HTTP connections than HTTP_MAX_CONNECTIONS fit into the limit of open files (ulimit -Hn, LimitNOFILE)"
        );
    }
    Ok(usize::try_from(connections)?)
}

/// What is left for HTTP. At least one, or nobody could ask what is wrong.
fn share(limit: u64, others: u64, wanted: u64) -> u64 {
    limit.saturating_sub(others).clamp(1, wanted)
}

/// Raises the soft limit, which is low by custom and not for want of room, to what is needed. Answers what it is then.
fn raise(needed: u64) -> nix::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = needed.min(hard);
    if soft >= wanted {
        return Ok(soft);
    }
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => Ok(wanted),
        Err(errno) => {
            warn!(soft, wanted, %errno, "cannot raise the limit of open files");
            Ok(soft)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_gets_what_the_others_leave() {
        assert_eq!(share(1_000_000, 69, 12_000), 12_000);
        assert_eq!(share(1024, 69, 12_000), 955);
        assert_eq!(share(69, 69, 12_000), 1);
        assert_eq!(share(10, 69, 12_000), 1);
    }
}
