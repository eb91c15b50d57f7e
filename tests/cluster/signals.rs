//! Being asked to stop, in every state.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use switchboard_testkit::process::Process;
use switchboard_testkit::{LONG, available, http_client};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::sleep;

use crate::node::{Cluster, Node, TOKEN, wrapped};

/// An idle node is gone in less.
const QUICK: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn b030_a_node_that_is_asked_to_stop_is_gone_within_a_second_and_its_peers_know() {
    let cluster = Cluster::new().await;
    let [a, mut b] = cluster.nodes(["a", "b"]).await;
    b.process.signal(Signal::SIGTERM);
    let asked = Instant::now();
    a.sees(1).await;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(b.process.wait(QUICK).await.code(), Some(0));
    assert_eq!(cluster.rows("b").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b030_without_its_database_a_node_still_exits_in_time() {
    let cluster = Cluster::with_own_server(&[]).await;
    let mut command = cluster.command("a");
    command.env("CLUSTER_DRAIN_TIMEOUT", "3s");
    let mut node = Node::start("a", command).await;
    node.sees(1).await;
    cluster.server().freeze();
    node.process.signal(Signal::SIGTERM);
    assert_eq!(node.process.wait(Duration::from_secs(6)).await.code(), Some(0));
    cluster.server().thaw();
}

#[tokio::test(flavor = "multi_thread")]
async fn b020_stopping_at_any_moment_leaves_no_row_behind() {
    let cluster = Cluster::new().await;
    // What is left behind is not swept, so that it is seen; and who is kept waiting by nine others is not evicted.
    let start = |name| {
        let mut command = cluster.command(name);
        command.env("CLUSTER_STALE_THRESHOLD", "1m");
        Node::start(name, command)
    };
    let stays = start("stays").await;
    // Twenty times ten processes at once, each asked at another phase of its tick.
    for round in 0..20_u64 {
        let names = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"];
        let mut nodes = futures::future::join_all(names.map(start)).await;
        // Whoever does not come says why.
        for node in nodes.iter().chain([&stays]) {
            node.sees(11).await;
        }
        let ends = nodes.iter_mut().enumerate().map(|(n, node)| async move {
            sleep(Duration::from_millis(n as u64 * 50 + round * 7)).await;
            node.process.terminate().await
        });
        for status in futures::future::join_all(ends).await {
            assert_eq!(status.code(), Some(0));
        }
    }
    assert_eq!(cluster.count("SELECT count(*) FROM {schema}.node_registry").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b048_an_idle_node_stops_quickly_every_time() {
    let cluster = Cluster::new().await;
    for _ in 0..50 {
        let mut node = cluster.start("a").await;
        node.sees(1).await;
        let asked = Instant::now();
        let status = node.process.terminate().await;
        assert_eq!(status.code(), Some(0));
        assert!(asked.elapsed() < QUICK, "{:?}", asked.elapsed());
        assert!(!node.process.output().contains("panicked"), "{}", node.process.output());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_and_a_client_that_never_reads_do_not_hold_up_the_end() {
    let cluster = Cluster::new().await;
    let [mut node] = cluster.nodes(["a"]).await;
    let client = http_client();
    let mut streams = Vec::new();
    for _ in 0..5 {
        let request = client.get(format!("{}/api/channels/room:1/events", node.url)).bearer_auth(TOKEN);
        let mut stream = request.header("accept", "text/event-stream").send().await.unwrap();
        assert_eq!(stream.status(), 200);
        stream.chunk().await.unwrap();
        streams.push(stream);
    }
    let asked = Instant::now();
    assert_eq!(node.process.terminate().await.code(), Some(0));
    assert!(asked.elapsed() < QUICK, "{:?}", asked.elapsed());
    for mut stream in streams {
        while let Ok(Some(_)) = stream.chunk().await {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b138_a_node_stops_while_it_still_waits_for_postgresql() {
    let cluster = Cluster::with_own_server(&[]).await;
    cluster.server().freeze();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut node = cluster.start("a").await;
        node.unhealthy("starting").await;
        node.process.signal(signal);
        assert_eq!(node.process.wait(QUICK).await.code(), Some(0), "{signal}");
    }
    cluster.server().thaw();
}

#[tokio::test(flavor = "multi_thread")]
async fn b138_a_second_signal_ends_a_drain_at_once() {
    let cluster = Cluster::with_own_server(&[]).await;
    let mut command = cluster.command("a");
    command.env("CLUSTER_DRAIN_TIMEOUT", "1h");
    let mut node = Node::start("a", command).await;
    node.sees(1).await;
    // The farewell hangs.
    cluster.server().freeze();
    node.process.signal(Signal::SIGTERM);
    node.process.says("stopping").await;
    sleep(Duration::from_millis(200)).await;
    node.process.signal(Signal::SIGTERM);
    let status = node.process.wait(QUICK).await;
    assert_ne!(status.code(), Some(0));
    cluster.server().thaw();
}

/// As the first process of a container: no parent, no default action for signals.
#[tokio::test(flavor = "multi_thread")]
async fn b138_a_node_that_is_pid_1_stops_on_sigterm() {
    let namespaces = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let tried = std::process::Command::new("unshare").args(namespaces).arg("true").status();
    if !available("unshare with user namespaces", tried.is_ok_and(|status| status.success())) {
        return;
    }
    let cluster = Cluster::new().await;
    let mut isolated = Command::new("unshare");
    isolated.args(namespaces);
    let command = wrapped(isolated, &cluster.command("a"));
    let mut node = Node::start("pid 1", command).await;
    node.sees(1).await;
    let children =
        std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", node.process.pid())).unwrap();
    let inner: i32 = children.trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(inner), Signal::SIGTERM).unwrap();
    assert_eq!(node.process.wait(QUICK).await.code(), Some(0), "{}", node.process.output());
    assert_eq!(cluster.rows("a").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b138_a_closed_standard_output_is_no_reason_to_die() {
    let cluster = Cluster::new().await;
    let mut command = cluster.command("a");
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.env("HTTP_ADDR", "127.0.0.1:0");
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut errors = child.stderr.take().unwrap();
    let mut seen = String::new();
    while !seen.contains("joined the cluster") {
        let mut piece = [0; 4096];
        let read = errors.read(&mut piece).await.unwrap();
        assert!(read > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    drop((errors, child.stdout.take()));
    // Something to log.
    let mut other = cluster.start("b").await;
    other.sees(2).await;
    other.process.terminate().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(child.try_wait().unwrap(), None, "it died of its closed output");
    assert_eq!(cluster.rows("a").await, 1);
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    assert_eq!(tokio::time::timeout(LONG, child.wait()).await.unwrap().unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn b137_a_port_in_use_is_reported_before_anything_is_registered() {
    let cluster = Cluster::new().await;
    let [first] = cluster.nodes(["first"]).await;
    let mut command = cluster.command("second");
    command.env("HTTP_ADDR", first.url.strip_prefix("http://").unwrap());
    let mut second = Process::start("second", command);
    assert_ne!(second.wait(LONG).await.code(), Some(0));
    assert!(second.output().contains("HTTP_ADDR"), "{}", second.output());
    assert_eq!(cluster.rows("second").await, 0);
}
