//! Clients that hold connections and say nothing. Anybody who reaches the port can be one.

use switchboard_testkit::{LONG, eventually};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::node::{Cluster, Node, wrapped};

/// More than a node may have open files, and few enough that the kernel keeps those waiting whom it does not accept.
const STRANGERS: usize = 150;

/// A node that starts under a limit of 128 open files, as `ulimit` sets it with this flag.
async fn limited(cluster: &Cluster, name: &str, flag: &str) -> Node {
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(format!(r#"ulimit {flag} 128 && exec "$0" "$@""#));
    Node::start(name, wrapped(limited, &cluster.command(name))).await
}

async fn strangers(node: &Node) -> Vec<TcpStream> {
    let address = node.url.strip_prefix("http://").unwrap();
    let mut strangers = Vec::new();
    for _ in 0..STRANGERS {
        strangers.push(TcpStream::connect(address).await.unwrap());
    }
    strangers
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_do_not_take_the_files_that_the_heartbeat_needs() {
    let cluster = Cluster::with_own_server(&[]).await;
    // The hard limit stays; a soft one is raised.
    for (name, flag) in [("hard", "-n"), ("soft", "-Sn")] {
        let mut node = limited(&cluster, name, flag).await;
        node.sees(1).await;
        let strangers = strangers(&node).await;
        cluster
            .sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
            .await;
        let cut = cluster.count("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").await;
        eventually(LONG, "its heart beats again", async || {
            let renewed = format!(
                "SELECT count(*) FROM {{schema}}.node_registry WHERE extract(epoch FROM heartbeat) * 1000 > {cut}"
            );
            cluster.count(&renewed).await == 1
        })
        .await;
        assert!(!node.process.output().contains("Too many open files"), "{}", node.process.output());
        // The probe is served, however many have been there before.
        node.sees(1).await;
        drop(strangers);
        node.process.terminate().await;
    }
}
