//! A process that is measured: started, read from `/proc`, and gone when it is dropped.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts it. It ends with its standard input at the latest.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).spawn().expect("it can be started"))
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib =
            line.and_then(|rest| rest.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<u64>().ok());
        kib.expect("Linux says so") * 1024
    }

    /// Processor time that it has used so far.
    pub(crate) fn time(&self) -> Duration {
        /// `USER_HZ`, the same on all that Linux runs on.
        const TICKS: u64 = 100;
        let stat = self.proc("stat");
        // The name, in brackets, may hold anything. After it, user time is the 12th field and system time the 13th.
        let (_, fields) = stat.rsplit_once(") ").expect("Linux says so");
        let ticks = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("a number"));
        Duration::from_millis(ticks.sum::<u64>() * 1000 / TICKS)
    }

    fn proc(&self, what: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{what}", self.0.id())).expect("it runs, on Linux")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which somebody else has noticed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
