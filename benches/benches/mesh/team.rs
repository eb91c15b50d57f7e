//! The processes of one system: those that are measured, and what they report.

#![allow(clippy::cast_precision_loss, reason = "counts and nanoseconds of seconds")]

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use super::bus::Way;
use super::process::Process;

/// How often a burst goes to nobody, and how many events it has.
const BURSTS: u64 = 200;
const BURST: u64 = 1000;

pub(crate) struct Team {
    way: Way,
    server: Option<Process>,
    publisher: Worker,
    subscribers: Vec<Worker>,
}

/// As much as the system carries.
pub(crate) struct Load {
    /// Per second and subscriber.
    pub(crate) deliveries: f64,
    /// Processor time of all processes, in microseconds.
    pub(crate) per_event: f64,
    pub(crate) per_delivery: f64,
}

/// What it is like at a rate, in microseconds.
pub(crate) struct Pace {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) per_event: f64,
}

impl Team {
    pub(crate) fn gather(way: Way, server: Option<Process>, url: &str, subscribers: usize) -> Self {
        let subscribers: Vec<_> =
            (0..subscribers).map(|number| Worker::start(way, "subscriber", url, number)).collect();
        let publisher = Worker::start(way, "publisher", url, subscribers.len());
        Self { way, server, publisher, subscribers }
    }

    pub(crate) fn name(&self) -> String {
        match self.way {
            Way::Mesh => format!("mesh, {} peers", self.subscribers.len()),
            Way::Nats => format!("NATS, {} subscribers", self.subscribers.len()),
        }
    }

    pub(crate) fn saturate(&mut self, under_way: u64, length: Duration) -> Load {
        let before = self.time();
        let [events, nanos] = self.publisher.ask(&format!("saturate {under_way} {}", length.as_millis()));
        let time = self.time() - before;
        let heard: Vec<_> = self.subscribers.iter_mut().map(|worker| worker.ask::<3>("report")[0]).collect();
        assert!(heard.iter().all(|heard| *heard > events / 100 * 99), "{heard:?} of {events} events arrived");
        let (total, subscribers) = (heard.iter().sum::<u64>() as f64, heard.len() as f64);
        Load {
            deliveries: total / subscribers / (nanos as f64 / 1e9),
            per_event: time / events as f64,
            per_delivery: time / total,
        }
    }

    pub(crate) fn pace(&mut self, rate: u32, length: Duration) -> Pace {
        let before = self.time();
        let [events, _] = self.publisher.ask(&format!("pace {rate} {}", length.as_millis()));
        let time = self.time() - before;
        let reports: Vec<[u64; 3]> = self.subscribers.iter_mut().map(|worker| worker.ask("report")).collect();
        assert!(reports.iter().all(|report| report[0] == events), "{reports:?} of {events} events arrived");
        // Of the subscriber that waited longest.
        let most =
            |place: usize| reports.iter().map(|report| report[place]).max().unwrap_or_default() as f64 / 1e3;
        Pace { p50: most(1), p99: most(2), per_event: time / events as f64 }
    }

    /// Events, bursts, bursts without a datagram, datagrams during the others, events that were sent.
    pub(crate) fn alone(&mut self) -> [u64; 5] {
        let [silent, datagrams, sent] = self.publisher.ask(&format!("alone {BURSTS} {BURST}"));
        [BURSTS * BURST, BURSTS, silent, datagrams, sent]
    }

    /// Processor time of all processes, in microseconds.
    fn time(&self) -> f64 {
        self.processes().map(Process::time).sum::<Duration>().as_secs_f64() * 1e6
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        let workers = self.subscribers.iter().chain([&self.publisher]).map(|worker| &worker.process);
        workers.chain(&self.server)
    }
}

/// A process of this program.
struct Worker {
    process: Process,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(way: Way, role: &str, url: &str, number: usize) -> Self {
        let own = env::current_exe().expect("we are a file");
        let mut command = Command::new(own);
        command.args(["--role", role, "--way", &way.to_string(), "--url", url]);
        command.args(["--number", &number.to_string()]).stdout(Stdio::piped());
        let mut process = Process::start(&mut command);
        let answers = BufReader::new(process.0.stdout.take().expect("it is piped"));
        let mut worker = Self { process, answers };
        assert_eq!(worker.hear(), "ready");
        worker
    }

    fn ask<const FIGURES: usize>(&mut self, what: &str) -> [u64; FIGURES] {
        let input = self.process.0.stdin.as_mut().expect("it is piped");
        writeln!(input, "{what}").expect("it listens");
        let answer = self.hear();
        let figures: Vec<_> =
            answer.split(' ').map(|figure| figure.parse().expect("it answers with figures")).collect();
        figures.try_into().expect("as many as were asked for")
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it speaks");
        line.trim().to_owned()
    }
}
