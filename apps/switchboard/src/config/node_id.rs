//! The node id of a node that was not given one: `hostname-PID`, bent into shape where the host name does not fit.

use std::ffi::OsStr;

use switchboard_core::types::{Invalid, NodeId};

/// The default id of this process.
pub(crate) fn default() -> Result<NodeId, Invalid> {
    derive(&gethostname::gethostname(), std::process::id())
}

/// Host names are bytes that somebody chose: what a node id cannot hold becomes a hyphen, what is too long is cut.
fn derive(hostname: &OsStr, pid: u32) -> Result<NodeId, Invalid> {
    let suffix = format!("-{pid}");
    let hostname = hostname.to_string_lossy();
    let host: String = hostname
        .chars()
        .map(|c| if c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '`') { c } else { '-' })
        .take(NodeId::MAX_BYTES - suffix.len())
        .collect();
    // Nothing but replacements says nothing.
    let host = if host.chars().all(|c| c == '-') { "node" } else { &host };
    NodeId::parse(&format!("{host}{suffix}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn b077_any_host_name_makes_a_valid_id() {
        for (hostname, id) in [
            (&b"web-1"[..], "web-1-42"),
            (b"web 1.local", "web-1.local-42"),
            (b"", "node-42"),
            (b"\xff\xfe", "node-42"),
            ("büro".as_bytes(), "b-ro-42"),
            (b"it's", "it-s-42"),
        ] {
            assert_eq!(derive(OsStr::from_bytes(hostname), 42).unwrap().as_str(), id);
        }
        let long = derive(OsStr::new(&"x".repeat(1000)), u32::MAX).unwrap();
        assert_eq!(long.as_str().len(), NodeId::MAX_BYTES);
        assert!(long.as_str().ends_with("-4294967295"));
    }

    #[test]
    fn the_default_of_this_process_ends_with_its_pid() {
        assert!(default().unwrap().as_str().ends_with(&format!("-{}", std::process::id())));
    }
}
