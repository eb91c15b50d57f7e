//! The client libraries that exist, unmodified, against a real cluster: every row of the tables in `tests/clients` is green.

use std::path::PathBuf;
use std::process::{Command as StdCommand, Stdio};
use std::time::Duration;

use serde_json::json;
use switchboard_testkit::available;
use switchboard_testkit::process::Process;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::node::{Cluster, Node, binary};

const SECRET: &str = "a-secret-for-tests-that-is-long-enough";
static INSTALLED: OnceCell<()> = OnceCell::const_new();
const LIMIT: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn npm_phoenix_sees_what_it_expects() {
    every_row_is_green("phoenix.test.mjs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_supabase_realtime_js_sees_what_it_expects() {
    every_row_is_green("supabase.test.mjs").await;
}

/// Each table has a cluster of its own, of which it ends two nodes.
async fn every_row_is_green(table: &str) {
    if !available("Node.js 20 or newer with npm", node_is_new_enough() && runs("npm", &["--version"])) {
        return;
    }
    INSTALLED.get_or_init(install).await;
    let cluster = Cluster::new().await;
    let nodes = ["one", "other", "stopped", "killed"].map(|name| {
        let mut command = cluster.command(name);
        command.env("AUTH_JWT_SECRET", SECRET);
        Node::start(name, command)
    });
    let nodes = futures::future::join_all(nodes).await;
    for node in &nodes {
        node.sees(nodes.len()).await;
    }
    let addresses: Vec<_> =
        nodes.iter().map(|node| json!({"url": node.url, "pid": node.process.pid()})).collect();
    let mut command = Command::new("node");
    command
        .args(["--test", "--test-force-exit", "--test-reporter=spec", table])
        .current_dir(directory())
        .env("NODES", json!(addresses).to_string())
        .env("SWITCHBOARD", binary())
        .env("AUTH_JWT_SECRET", SECRET);
    let mut client = Process::start(table, command);
    let status = client.wait(LIMIT).await;
    assert!(status.success(), "{}", client.output());
}

fn node_is_new_enough() -> bool {
    runs("node", &["--eval", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)"])
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let status = StdCommand::new(program).args(arguments).stdout(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Installs what `package-lock.json` names, unless it is there.
async fn install() {
    let modified = |file| std::fs::metadata(directory().join(file)).and_then(|file| file.modified()).ok();
    if modified("node_modules/.package-lock.json") >= modified("package-lock.json") {
        return;
    }
    let mut command = Command::new("npm");
    command.args(["ci", "--no-audit", "--no-fund"]).current_dir(directory());
    let mut npm = Process::start("npm ci", command);
    let status = npm.wait(LIMIT).await;
    assert!(status.success(), "{}", npm.output());
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("clients")
}
