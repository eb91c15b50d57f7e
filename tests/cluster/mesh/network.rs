//! A network of a test's own: a switch, PostgreSQL beside it, and each node in a namespace with an address of its own.
//!
//! Invariant: nothing of it is seen outside, and nothing outlives the test, however that ends. The namespaces have no names: they go with the
//! thread of the test, with the files that hold them, and with the processes in them, which are killed with that thread.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::{Command as StdCommand, Stdio};
use std::thread;

use futures::future::join_all;
use nix::sched::{CloneFlags, unshare};
use switchboard_testkit::process::Process;
use switchboard_testkit::proxy::Proxy;
use switchboard_testkit::{LONG, available, eventually};
use tokio::process::Command;

use crate::node::{Cluster, Node, binary, wrapped};

/// The nodes of a network are the first of these.
pub(super) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Number of the switch on the network; nodes have 1, 2, 3 …
const SWITCH: u8 = 254;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

/// Runs `story` in a network namespace of its own, where it may build a [`Network`].
pub(super) fn apart(story: impl AsyncFnOnce() + Send) {
    // One question: whether this user may make interfaces, and whether the programs are there.
    let tried = "ip link add port1 type veth && nft list ruleset && setpriv --pdeathsig KILL true";
    let tried = StdCommand::new("unshare").args(["--net", "sh", "-c", tried]).stderr(Stdio::null()).status();
    if !available("network namespaces (root, iproute2, nftables)", tried.is_ok_and(|status| status.success()))
    {
        return;
    }
    // There may be something to fetch, and there is no network in there.
    binary();
    let there = move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip(None, "link set lo up");
        // Its threads are in the namespace of the one that makes it.
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(story());
    };
    if let Err(panic) = thread::scope(|scope| scope.spawn(there).join()) {
        std::panic::resume_unwind(panic);
    }
}

/// A switch that nodes are plugged into. It forwards each packet on its own, as wires do, and what its rules let through.
pub(super) struct Network {
    pub(super) cluster: Cluster,
    family: Family,
    hosts: Vec<File>,
    /// PostgreSQL as nodes reach it.
    database: String,
    _proxy: Proxy,
}

impl Network {
    /// With places for the first `size` of [`NAMES`], whose links all take packets of `mtu` bytes.
    pub(super) async fn new(size: u8, family: Family, mtu: u16) -> Self {
        let cluster = Cluster::alone(&[]).await;
        let hosts: Vec<_> = (0..size).map(|_| namespace()).collect();
        let mut switch = format!(
            "link add switch type bridge\naddr add {} dev switch\nlink set switch up\n",
            on_link(family, SWITCH)
        );
        for (number, host) in (1..).zip(&hosts) {
            let end = path(host);
            // Without segmentation offload, or one packet would be what is many on a wire.
            let _ = write!(
                switch,
                "link add port{number} type veth peer name eth0 netns {end}\n\
                 link set port{number} master switch up mtu {mtu} gso_max_segs 1\n"
            );
        }
        ip(None, &switch);
        for (number, host) in (1..).zip(&hosts) {
            let address = on_link(family, number);
            let end = format!(
                "link set lo up\naddr add {address} dev eth0\nlink set eth0 up mtu {mtu} gso_max_segs 1\n"
            );
            ip(Some(host), &end);
        }
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, cluster.server().port()));
        let proxy = Proxy::on(address(family, SWITCH), server).await;
        let database = cluster.url.replace(&server.to_string(), &proxy.address().to_string());
        Self { cluster, family, hosts, database, _proxy: proxy }
    }

    pub(super) fn names(&self) -> &'static [&'static str] {
        &NAMES[..self.hosts.len()]
    }

    pub(super) fn address(&self, name: &str) -> IpAddr {
        address(self.family, number(name))
    }

    /// The command that runs a node in its place; tests change it as they like.
    pub(super) fn command(&self, name: &str) -> Command {
        let mut command = self.cluster.command(name);
        command
            .env("DATABASE_URL", &self.database)
            .env("CLUSTER_EPHEMERAL", "mesh")
            // None of this is about eviction, and five nodes at once are a lot for a busy machine.
            .env("CLUSTER_STALE_THRESHOLD", "10s")
            .env("HTTP_ADDR", SocketAddr::from((self.address(name), 0)).to_string());
        command
    }

    pub(super) fn host(&self, name: &str) -> &File {
        &self.hosts[usize::from(number(name)) - 1]
    }

    /// `command` in the place of `name`.
    pub(super) fn inside(&self, name: &str, command: &Command) -> Command {
        inside(self.host(name), command)
    }

    /// Starts `command` in the place of `name`, and waits until it serves HTTP.
    pub(super) async fn run(&self, name: &str, command: &Command) -> Node {
        Node::start(name, self.inside(name, command)).await
    }

    pub(super) async fn start(&self, name: &str) -> Node {
        self.run(name, &self.command(name)).await
    }

    /// Starts a node in every place, and waits until all serve HTTP.
    pub(super) async fn start_all(&self) -> Vec<Node> {
        join_all(self.names().iter().map(|name| self.start(name))).await
    }

    /// The same, with processes that wait for one gate, which is opened when all of them are there.
    pub(super) async fn start_together(&self) -> Vec<Node> {
        let (gate, opener) = std::io::pipe().unwrap();
        let waiting = self.names().iter().map(|name| {
            let mut shell = Command::new("sh");
            shell.args(["-c", r#"read -r gate; exec "$0" "$@" </dev/null"#]);
            let mut waiting = self.inside(name, &wrapped(shell, &self.command(name)));
            waiting.stdin(gate.try_clone().unwrap());
            Process::start(name, waiting)
        });
        let waiting: Vec<_> = waiting.collect();
        let is_there = |process: &Process| {
            std::fs::read_to_string(format!("/proc/{}/comm", process.pid())).unwrap().trim() == "sh"
        };
        eventually(LONG, "all wait for the gate", async || waiting.iter().all(is_there)).await;
        drop(opener);
        join_all(waiting.into_iter().map(Node::serving)).await
    }

    /// What happens to UDP between nodes from now on, as the rules of an nftables chain; everything else passes.
    #[allow(
        clippy::unused_self,
        reason = "there is one network in this test's namespace, and it must be there"
    )]
    pub(super) fn rules(&self, rules: &[String]) {
        let rules: Vec<_> = rules.iter().map(|rule| format!("meta l4proto udp {rule}")).collect();
        let table = format!(
            "add table bridge wire\ndelete table bridge wire\n\
             table bridge wire {{\nchain forward {{\ntype filter hook forward priority 0\n{}\n}}\n}}\n",
            rules.join("\n")
        );
        feed(StdCommand::new("nft").args(["-f", "-"]), &table);
    }

    /// Lets no UDP through from the first of each pair to the second.
    pub(super) fn cut(&self, pairs: &[(&str, &str)]) {
        let drop = |(from, to): &(&str, &str)| format!("{} drop", self.between(from, to));
        self.rules(&pairs.iter().map(drop).collect::<Vec<_>>());
    }

    pub(super) fn heal(&self) {
        self.rules(&[]);
    }

    /// Whether the rules as they are now, with their counters, contain `text`.
    #[allow(clippy::unused_self, reason = "as above")]
    pub(super) fn has_rule(&self, text: &str) -> bool {
        let listed = StdCommand::new("nft").args(["list", "ruleset"]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().contains(text)
    }

    /// A match for what goes from one place to another.
    pub(super) fn between(&self, from: &str, to: &str) -> String {
        let ip = if self.family == Family::V4 { "ip" } else { "ip6" };
        format!("{ip} saddr {} {ip} daddr {}", self.address(from), self.address(to))
    }
}

/// A network namespace that lasts as long as the file and the processes in it.
pub(super) fn namespace() -> File {
    let make = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        File::open("/proc/thread-self/ns/net").unwrap()
    };
    thread::spawn(make).join().unwrap()
}

/// `command` in there, and no longer than this thread.
pub(super) fn inside(namespace: &File, command: &Command) -> Command {
    let mut inside = Command::new("nsenter");
    inside.arg(format!("--net={}", path(namespace))).args(["setpriv", "--pdeathsig", "KILL"]);
    wrapped(inside, command)
}

/// How other processes find it.
pub(super) fn path(namespace: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd())
}

fn number(name: &str) -> u8 {
    let place = NAMES.iter().position(|known| *known == name).unwrap();
    u8::try_from(place + 1).unwrap()
}

fn address(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 0, 0, number).into(),
        Family::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()).into(),
    }
}

/// As `ip addr add` takes it. Nobody else can have the address: it can be used at once.
fn on_link(family: Family, number: u8) -> String {
    match address(family, number) {
        IpAddr::V4(ip) => format!("{ip}/24"),
        IpAddr::V6(ip) => format!("{ip}/64 nodad"),
    }
}

/// Has `ip` carry out these commands, in a namespace or in that of the test.
pub(super) fn ip(namespace: Option<&File>, commands: &str) {
    let mut ip = StdCommand::new("ip");
    if let Some(namespace) = namespace {
        ip = StdCommand::new("nsenter");
        ip.arg(format!("--net={}", path(namespace))).arg("ip");
    }
    feed(ip.args(["-batch", "-"]), commands);
}

/// Runs `command` with `text` to read.
pub(super) fn feed(command: &mut StdCommand, text: &str) {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{command:?} refused:\n{text}");
}
