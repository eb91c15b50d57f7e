//! A node as a process, and the cluster it belongs to.

use std::path::PathBuf;
use std::process::{Command as StdCommand, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use switchboard_testkit::postgres::{self, PrivatePostgres};
use switchboard_testkit::process::Process;
use switchboard_testkit::{LONG, eventually, http_client};
use tokio::process::Command;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) const HEARTBEAT: Duration = Duration::from_millis(500);
pub(crate) const THRESHOLD: Duration = Duration::from_secs(2);
/// Slack for a machine that few tests share, as those with namespaces do.
#[cfg(feature = "mesh")]
pub(crate) const SLACK: Duration = Duration::from_millis(1500);
/// Slack for a machine that fifty tests share, each with processes and servers of its own.
pub(crate) const CROWDED: Duration = Duration::from_secs(6);
pub(crate) const TOKEN: &str = "a-token-for-tests";

/// The binary of this very build. Cargo builds it with the workspace's tests; asking again costs little and is right when one
/// package is tested alone.
pub(crate) fn binary() -> &'static PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let mut build = StdCommand::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "switchboard"]);
        // What cargo says of this test is not true of that build, and has it build some crates anew, each time.
        let of_this_test =
            |name: &&str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
            if of_this_test(&name.as_str()) {
                build.env_remove(name);
            }
        }
        for (feature, wanted) in [("mesh", cfg!(feature = "mesh")), ("otlp", cfg!(feature = "otlp"))] {
            if wanted {
                build.args(["--features", feature]);
            }
        }
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the binary does not build");
        // target/<profile>/deps/<this test>
        let here = std::env::current_exe().unwrap();
        here.parent().and_then(|deps| deps.parent()).unwrap().join("switchboard")
    })
}

/// Nodes that are kept from their processor for longer than the threshold are evicted, as they should be: a test that takes all of the
/// machine runs alone. No test has two clusters: the second would wait for whoever waits to be alone.
static MACHINE: RwLock<()> = RwLock::const_new(());

enum Machine {
    Shared { _with: RwLockReadGuard<'static, ()> },
    Alone { _here: RwLockWriteGuard<'static, ()> },
}

/// One schema on one server, and how its nodes are started.
pub(crate) struct Cluster {
    pub(crate) url: String,
    pub(crate) schema: String,
    own: Option<PrivatePostgres>,
    _machine: Machine,
}

impl Cluster {
    /// On the server that all tests share.
    pub(crate) async fn new() -> Self {
        let machine = Machine::Shared { _with: MACHINE.read().await };
        Self { url: postgres::shared_url().await, schema: schema(), own: None, _machine: machine }
    }

    /// On a server of its own, for tests that stop, freeze or crash it.
    pub(crate) async fn with_own_server(configuration: &[(&str, &str)]) -> Self {
        let machine = Machine::Shared { _with: MACHINE.read().await };
        Self::on_own_server(configuration, machine).await
    }

    /// On a server of its own, and no other cluster beside it.
    pub(crate) async fn alone(configuration: &[(&str, &str)]) -> Self {
        let machine = Machine::Alone { _here: MACHINE.write().await };
        Self::on_own_server(configuration, machine).await
    }

    async fn on_own_server(configuration: &[(&str, &str)], machine: Machine) -> Self {
        let server = postgres::own(configuration).await;
        Self { url: server.url().to_owned(), schema: schema(), own: Some(server), _machine: machine }
    }

    pub(crate) fn server(&self) -> &PrivatePostgres {
        self.own.as_ref().expect("a cluster with its own server")
    }

    /// The command that runs a node; tests change it as they like.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(binary());
        command
            .arg("serve")
            .stdin(Stdio::null())
            .env_remove("RUST_BACKTRACE")
            .env("DATABASE_URL", &self.url)
            .env("CLUSTER_SCHEMA", &self.schema)
            .env("CLUSTER_NODE_ID", name)
            .env("CLUSTER_HEARTBEAT_INTERVAL", "500ms")
            .env("CLUSTER_STALE_THRESHOLD", "2s")
            .env("HTTP_ADDR", "127.0.0.1:0")
            .env("ADMIN_TOKEN", TOKEN);
        command
    }

    /// Starts a node, which may still be joining.
    pub(crate) async fn start(&self, name: &str) -> Node {
        Node::start(name, self.command(name)).await
    }

    /// Starts nodes and waits until each sees all.
    pub(crate) async fn nodes<const N: usize>(&self, names: [&str; N]) -> [Node; N] {
        let nodes = futures::future::join_all(names.map(|name| self.start(name))).await;
        for node in &nodes {
            node.sees(N).await;
        }
        nodes.try_into().unwrap_or_else(|_| unreachable!())
    }

    /// Runs a statement from outside; `{schema}` is replaced.
    pub(crate) async fn sql(&self, statement: &str) -> Vec<PgRow> {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        let statement = statement.replace("{schema}", &format!("\"{}\"", self.schema));
        sqlx::query(AssertSqlSafe(statement)).persistent(false).fetch_all(&mut connection).await.unwrap()
    }

    pub(crate) async fn count(&self, statement: &str) -> i64 {
        self.sql(statement).await[0].get(0)
    }

    /// How many rows a node id has.
    pub(crate) async fn rows(&self, name: &str) -> i64 {
        self.count(&format!("SELECT count(*) FROM {{schema}}.node_registry WHERE node_id = '{name}'")).await
    }
}

/// `command` as the last arguments of `wrapper`, with its environment.
pub(crate) fn wrapped(mut wrapper: Command, command: &Command) -> Command {
    let command = command.as_std();
    wrapper.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapper.env(name, value),
            None => wrapper.env_remove(name),
        };
    }
    wrapper
}

fn schema() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("p_{}_{number}", std::process::id())
}

/// A node's process and its HTTP address.
pub(crate) struct Node {
    pub(crate) process: Process,
    pub(crate) url: String,
    client: reqwest::Client,
}

impl Node {
    /// Starts the process and waits until it serves HTTP.
    pub(crate) async fn start(name: &str, command: Command) -> Self {
        Self::serving(Process::start(name, command)).await
    }

    /// Waits until `process` serves HTTP.
    pub(crate) async fn serving(process: Process) -> Self {
        process.says("serving HTTP").await;
        let output = process.output();
        let line = output.lines().find(|line| line.contains("serving HTTP")).unwrap();
        let start = line.find("http://").unwrap();
        let url = line[start..].split(['"', ' ']).next().unwrap().to_owned();
        Self { process, url, client: http_client() }
    }

    /// Status and body of a GET with the admin token; `None` if nobody answers.
    pub(crate) async fn get(&self, path: &str) -> Option<(u16, Value)> {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(TOKEN);
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let text = response.text().await.ok()?;
        Some((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    pub(crate) async fn health(&self) -> Option<(u16, Value)> {
        self.get("/health").await
    }

    /// Publishes and answers status and body.
    pub(crate) async fn publish(&self, channel: &str, body: &Value) -> (u16, Value) {
        let request =
            self.client.post(format!("{}/api/channels/{channel}/events", self.url)).bearer_auth(TOKEN);
        let response = request.json(body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap_or(Value::Null))
    }

    /// Waits until this node is healthy and sees `size` nodes.
    pub(crate) async fn sees(&self, size: usize) {
        let seen = eventually(
            LONG * 2,
            "seen",
            async || matches!(self.health().await, Some((200, health)) if health["cluster"]["size"] == size),
        );
        let seen = tokio::time::timeout(LONG, seen).await.is_ok();
        let health = self.health().await;
        assert!(seen, "{} is not healthy among {size}: {health:?}\n{}", self.url, self.process.output());
    }

    /// Waits until `/health` answers 503 with a reason that contains `text`.
    pub(crate) async fn unhealthy(&self, text: &str) {
        eventually(LONG, &format!("{} is unhealthy because of {text:?}", self.url), async || {
            let Some((503, health)) = self.health().await else { return false };
            health["status"] == "unhealthy" && health["reason"].as_str().unwrap().contains(text)
        })
        .await;
    }

    /// The node ids it sees besides its own.
    pub(crate) async fn peers(&self) -> Vec<String> {
        let Some((_, health)) = self.health().await else { return Vec::new() };
        let peers = health["cluster"]["peers"].as_array().unwrap().iter();
        peers.map(|peer| peer.as_str().unwrap().to_owned()).collect()
    }
}
