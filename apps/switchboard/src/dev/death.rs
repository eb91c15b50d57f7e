//! The end of a node's process, in words.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::sys::signal::Signal;

/// A node that ended although nobody asked it to.
#[derive(Debug)]
pub(crate) struct Death {
    pub(super) node_id: String,
    pub(super) pid: u32,
    pub(super) status: ExitStatus,
    /// What it logged last.
    pub(super) last_words: Vec<String>,
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}) {}", self.node_id, self.pid, how(self.status))?;
        if !self.last_words.is_empty() {
            f.write_str("; it logged last:")?;
        }
        self.last_words.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("was killed by {signal}"),
            Err(_) => format!("was killed by signal {number}"),
        },
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_node_is_told_from_one_that_exited() {
        assert_eq!(how(ExitStatus::from_raw(9)), "was killed by SIGKILL");
        assert_eq!(how(ExitStatus::from_raw(1 << 8)), "exited with code 1");
    }
}
