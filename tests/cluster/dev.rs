//! `switchboard dev`: everything it starts, it stops.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use switchboard_testkit::process::Process;
use switchboard_testkit::{LONG, eventually, http_client};
use tokio::process::Command;

use crate::node::{Cluster, TOKEN, binary};

/// A dev cluster on free ports.
pub(crate) async fn dev(arguments: &[&str]) -> Process {
    dev_at("127.0.0.1:0", arguments).await
}

async fn dev_at(http: &str, arguments: &[&str]) -> Process {
    let mut command = Command::new(binary());
    command.arg("dev").args(["--http", http]).args(arguments).stdin(Stdio::null());
    command.env_remove("DATABASE_URL").env_remove("ADMIN_TOKEN");
    let process = Process::start("dev", command);
    process.says("cluster ready: ").await;
    process
}

/// Every process below `pid`, whichever of its threads started it.
fn descendants(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children =
        threads.map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let direct: Vec<i32> = children
        .flat_map(|line| line.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect();
    direct.iter().flat_map(|child| [vec![*child], descendants(*child)].concat()).collect()
}

/// Gone, or waiting to be reaped by whoever inherited it.
fn gone(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_or(true, |stat| stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')))
}

/// URLs of the nodes in the table that dev prints.
fn urls(output: &str) -> Vec<String> {
    let mut urls: Vec<String> = output
        .split(|c: char| c.is_whitespace() || c == '│' || c == '|')
        .filter(|word| {
            word.starts_with("http://127.0.0.1:") && !word.ends_with("/demo") && !word.ends_with("/admin")
        })
        .map(|word| word.trim_end_matches(['/', '`']).to_owned())
        .collect();
    urls.sort();
    urls.dedup();
    urls
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_serves_three_nodes_and_a_signal_stops_everything() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut dev = dev(&[]).await;
        assert!(dev.output().contains("cluster ready: 3 nodes"), "{}", dev.output());
        let urls = urls(&dev.output());
        assert!(urls.len() >= 3, "{urls:?} in\n{}", dev.output());
        for url in urls.iter().take(3) {
            let health: serde_json::Value =
                http_client().get(format!("{url}/health")).send().await.unwrap().json().await.unwrap();
            assert_eq!(health["cluster"]["size"], 3, "{health}");
            assert_eq!(health["cluster"]["peers"].as_array().unwrap().len(), 2);
        }
        let family = descendants(dev.pid());
        assert!(family.len() > 4, "{family:?}");
        dev.signal(signal);
        assert_eq!(dev.wait(LONG).await.code(), Some(0), "{}", dev.output());
        eventually(Duration::from_secs(5), "nothing is left running", async || {
            family.iter().all(|pid| gone(*pid))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_that_is_killed_takes_everything_along() {
    let mut dev = dev(&["--nodes", "2"]).await;
    let family = descendants(dev.pid());
    dev.kill().await;
    eventually(LONG, "nothing is left running", async || family.iter().all(|pid| gone(*pid))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_dev_can_be_killed_and_the_others_go_on() {
    let mut dev = dev(&[]).await;
    let nodes: Vec<i32> = descendants(dev.pid())
        .into_iter()
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains("serve")
        })
        .collect();
    assert_eq!(nodes.len(), 3, "{}", dev.output());
    kill(Pid::from_raw(nodes[2]), Signal::SIGKILL).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(dev.ended(), None);
    assert!(!gone(nodes[0]) && !gone(nodes[1]));
    dev.signal(Signal::SIGINT);
    assert_eq!(dev.wait(LONG).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_ends_and_says_so_when_its_postgres_is_killed() {
    let mut dev = dev(&["--nodes", "1"]).await;
    assert!(dev.output().contains("cluster ready: 1 node\n"), "{}", dev.output());
    let family = descendants(dev.pid());
    let is_postmaster = |pid: &&i32| {
        let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.contains("/postgres\0-D")
    };
    let postmaster = *family.iter().find(is_postmaster).unwrap();
    kill(Pid::from_raw(postmaster), Signal::SIGKILL).unwrap();
    assert_eq!(dev.wait(LONG).await.code(), Some(1), "{}", dev.output());
    let output = dev.output();
    let errors: Vec<_> = output.lines().filter(|line| line.contains("error")).collect();
    assert!(matches!(errors[..], [line] if line.contains("the private PostgreSQL (")), "{output}");
    eventually(LONG, "nothing is left running", async || family.iter().all(|pid| gone(*pid))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_does_not_show_the_password_of_a_database_it_was_given() {
    let cluster = Cluster::with_own_server(&[]).await;
    let mut dev = dev(&["--nodes", "1", "--database-url", &cluster.url]).await;
    let (account, address) = cluster.url.rsplit_once('@').unwrap();
    let password = account.rsplit_once(':').unwrap().1;
    assert!(dev.output().contains(&format!("postgres://postgres@{address}")), "{}", dev.output());
    assert!(!dev.output().contains(password), "{}", dev.output());
    dev.signal(Signal::SIGTERM);
    assert_eq!(dev.wait(LONG).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_says_what_it_waits_for_and_whose_database_that_is() {
    let mut command = Command::new(binary());
    command.args(["dev", "--http", "127.0.0.1:0", "--nodes", "2"]).stdin(Stdio::null());
    command.env("DATABASE_URL", "postgres://nobody:secret@127.0.0.1:1/nothing").env_remove("ADMIN_TOKEN");
    let mut dev = Process::start("dev", command);
    dev.says("waits: starting: cannot use PostgreSQL yet").await;
    assert!(
        dev.output().contains("using postgres://nobody@127.0.0.1:1/nothing, as DATABASE_URL"),
        "{}",
        dev.output()
    );
    assert!(!dev.output().contains("secret"), "{}", dev.output());
    dev.signal(Signal::SIGTERM);
    assert_eq!(dev.wait(LONG).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_that_others_can_reach_wants_its_token() {
    let mut dev = dev_at("0.0.0.0:0", &["--nodes", "1", "--admin-token", TOKEN]).await;
    let events = format!("{}/api/channels/room:1/events", urls(&dev.output())[0]);
    let publish = || http_client().post(&events).json(&serde_json::json!({"event": "message", "payload": 1}));
    assert_eq!(publish().send().await.unwrap().status(), 401);
    assert_eq!(publish().bearer_auth(TOKEN).send().await.unwrap().status(), 201);
    dev.signal(Signal::SIGTERM);
    assert_eq!(dev.wait(LONG).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_keeps_its_data_where_it_is_told_to() {
    let directory = std::env::temp_dir().join(format!("switchboard dev {}", std::process::id()));
    let argument = directory.display().to_string();
    for expected in [0, 1] {
        let mut dev = dev(&["--nodes", "1", "--data-dir", &argument]).await;
        let url = urls(&dev.output())[0].clone();
        let events = format!("{url}/api/channels/room:1/events");
        let page: serde_json::Value = http_client().get(&events).send().await.unwrap().json().await.unwrap();
        assert_eq!(page["data"].as_array().unwrap().len(), expected, "{page}");
        let body = serde_json::json!({"event": "message", "payload": 1});
        let published = http_client().post(&events).json(&body).send().await.unwrap();
        assert_eq!(published.status(), 201);
        dev.signal(Signal::SIGTERM);
        assert_eq!(dev.wait(LONG).await.code(), Some(0));
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
