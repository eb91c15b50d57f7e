//! Looks at processes and sends them signals. Linux is read through `/proc`, which slim containers have and `ps` they
//! may not; other systems through `ps`.
//!
//! A process that has exited but was not reaped counts as gone everywhere in this crate.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One line of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    /// `T` is stopped, `Z` exited and not reaped.
    pub(crate) state: char,
}

/// A process and its children, as far as they are alive. A postmaster's are all the processes of its instance.
pub(crate) fn family_of(head: Pid) -> Vec<Process> {
    let mut family = table();
    family.retain(|process| (process.pid == head || process.parent == head) && process.state != 'Z');
    family
}

/// Sends a signal; a process that is gone already is no error, it is what most callers want.
pub(crate) fn signal(pid: Pid, how: Signal) {
    if let Err(errno) = kill(pid, how) {
        tracing::debug!(%pid, signal = %how, %errno, "signal was not delivered");
    }
}

/// Sends a signal to each of these.
pub(crate) fn signal_all(processes: &[Process], how: Signal) {
    for process in processes {
        signal(process.pid, how);
    }
}

/// Whether this process was started with the given path as an argument. `None` where that cannot be known.
pub(crate) fn was_started_with(pid: Pid, path: &Path) -> Option<bool> {
    use std::os::unix::ffi::OsStrExt;
    if !Path::new("/proc/self/cmdline").exists() {
        return None;
    }
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(arguments.split(|byte| *byte == 0).any(|argument| argument == path.as_os_str().as_bytes()))
}

fn table() -> Vec<Process> {
    if Path::new("/proc/self/stat").exists() { table_of_proc() } else { table_of_ps() }
}

fn table_of_proc() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        .filter_map(|entry| parse_stat(&std::fs::read(entry.path().join("stat")).ok()?))
        .collect()
}

fn table_of_ps() -> Vec<Process> {
    let Ok(output) = std::process::Command::new("ps").args(["-A", "-o", "pid=,ppid=,state="]).output() else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout).lines().filter_map(parse_ps).collect()
}

/// `123 (any) thing) S 1 …`: the name may hold anything, so the fields are counted from the last parenthesis.
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let stat = String::from_utf8_lossy(stat);
    let (head, tail) = stat.rsplit_once(") ")?;
    let pid = head.split_once(' ')?.0;
    let mut fields = tail.split(' ');
    let state = fields.next()?;
    process_of(pid, fields.next()?, state)
}

fn parse_ps(line: &str) -> Option<Process> {
    let mut fields = line.split_whitespace();
    process_of(fields.next()?, fields.next()?, fields.next()?)
}

fn process_of(pid: &str, parent: &str, state: &str) -> Option<Process> {
    Some(Process {
        pid: Pid::from_raw(pid.parse().ok()?),
        parent: Pid::from_raw(parent.parse().ok()?),
        state: state.chars().next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, state: char) -> Process {
        Process { pid: Pid::from_raw(pid), parent: Pid::from_raw(parent), state }
    }

    #[test]
    fn a_process_name_may_look_like_anything() {
        assert_eq!(parse_stat(b"42 (postgres) S 7 42 42 0"), Some(process(42, 7, 'S')));
        assert_eq!(parse_stat(b"42 (a) Z 1 (b\n\xff) T 7 42"), Some(process(42, 7, 'T')));
        assert_eq!(parse_stat(b""), None);
        assert_eq!(parse_stat(b"42 (postgres"), None);
    }

    #[test]
    fn ps_states_carry_flags() {
        assert_eq!(parse_ps("  42     7 Ss+"), Some(process(42, 7, 'S')));
        assert_eq!(parse_ps(""), None);
    }

    #[test]
    fn a_family_is_a_process_and_its_living_children() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let is_family = |pid: Pid| family_of(Pid::this()).iter().any(|process| process.pid == pid);
        assert!(is_family(Pid::this()));
        assert!(is_family(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_family(pid));
    }
}
