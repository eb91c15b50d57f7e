//! A process that owns a private PostgreSQL and can be killed, and a look at what it leaves behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, Uid};

/// `nobody` on Linux; any id without a login will do.
const ORDINARY: u32 = 65_534;

/// A running example that has printed where its PostgreSQL is.
pub(crate) struct Owner {
    child: Child,
    pub(crate) url: String,
    pub(crate) home: PathBuf,
    /// The postmaster and its children when the owner was ready.
    pub(crate) processes: Vec<i32>,
}

impl Owner {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the example was built");
        let mut lines =
            BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let mut line = || lines.next().unwrap_or_default();
        let (url, pid, home) = (line(), line(), PathBuf::from(line()));
        let pid = pid.parse().unwrap_or_else(|_| panic!("the owner did not start: {url} {pid}"));
        // A frozen one says so when it is.
        if command.get_args().any(|argument| argument == "--freeze") {
            assert_eq!(line(), "frozen");
        }
        let processes = std::iter::once(pid).chain(children_of(pid)).collect();
        Self { child, url, home, processes }
    }

    /// kill -9.
    pub(crate) fn kill(mut self) -> Remains {
        self.child.kill().expect("it is running");
        self.child.wait().expect("it is ours");
        self.remains()
    }

    /// Ctrl-C in a terminal: the whole process group is interrupted.
    pub(crate) fn interrupt(mut self) -> Remains {
        let group = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        killpg(group, Signal::SIGINT).unwrap();
        self.child.wait().expect("it is ours");
        self.remains()
    }

    /// Its standard input ends, so it stops its PostgreSQL and exits.
    pub(crate) fn finish(mut self) -> Remains {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it is ours").success());
        self.remains()
    }

    fn remains(&self) -> Remains {
        Remains { home: self.home.clone(), processes: self.processes.clone() }
    }
}

/// What may be left of an owner.
pub(crate) struct Remains {
    pub(crate) home: PathBuf,
    processes: Vec<i32>,
}

impl Remains {
    /// Fails unless every process is gone in time, the watchdog included.
    pub(crate) fn are_gone_within(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            let mut alive: Vec<i32> = self.processes.iter().copied().filter(|pid| is_alive(*pid)).collect();
            alive.extend(started_with(&self.home));
            if alive.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "still running: {alive:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Fails unless every process that was started with a path below `dir` is gone in time.
pub(crate) fn none_started_below(dir: &Path, deadline: Instant) {
    while !started_with(dir).is_empty() {
        assert!(Instant::now() < deadline, "still running: {:?}", started_with(dir));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The example, as the user who runs the tests.
pub(crate) fn example() -> Command {
    let target = std::env::current_exe().expect("a test knows itself");
    let built =
        target.ancestors().nth(2).expect("it is in target/<profile>/deps").join("examples/private_postgres");
    assert!(built.is_file(), "{} is missing: run `cargo build --examples`", built.display());
    prepared(Command::new(built))
}

/// The example, as a user who is not root. `place` is where that user finds a copy of it.
pub(crate) fn example_as_ordinary_user(place: &Path) -> Command {
    if !Uid::effective().is_root() {
        return example();
    }
    let copy = place.join("private_postgres");
    // Copied by another process: see "text file busy" in the unit tests of the search.
    let copied = Command::new("cp").arg(example().get_program()).arg(&copy).status();
    assert!(copied.unwrap().success());
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = prepared(Command::new(copy));
    command.uid(ORDINARY).gid(ORDINARY).env_remove("HOME");
    command
}

fn prepared(mut command: Command) -> Command {
    command.process_group(0).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Runs an owner that is expected to give up, and returns what it said.
pub(crate) fn complaint(mut command: Command) -> String {
    let mut child = command.spawn().expect("the example was built");
    let mut said = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut said).unwrap();
    assert!(!child.wait().unwrap().success(), "it started: {said}");
    said
}

pub(crate) fn is_alive(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // Exited and waiting for init to reap it.
        Ok(stat) => !stat.contains(") Z "),
        Err(_) if Path::new("/proc/self/stat").exists() => false,
        Err(_) => kill(Pid::from_raw(pid), None).is_ok(),
    }
}

fn children_of(parent: i32) -> Vec<i32> {
    let parent = format!(" {parent} ");
    processes()
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, fields)| fields[1..].starts_with(&parent))
        })
        .collect()
}

/// Processes with this path among their arguments: the postmaster and the watchdog.
fn started_with(path: &Path) -> Vec<i32> {
    let path = path.to_str().expect("tests use UTF-8").to_owned();
    processes()
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains(&path)
        })
        .collect()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").ok().into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
