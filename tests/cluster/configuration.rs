//! Odd identities and addresses, end to end. The table of wrong values is tested where they are parsed.

use switchboard_testkit::process::Process;
use switchboard_testkit::{LONG, http_client};

use crate::node::{Cluster, Node};

#[tokio::test(flavor = "multi_thread")]
async fn b077_odd_node_ids_work_everywhere_or_are_refused_at_the_start() {
    let cluster = Cluster::new().await;
    let odd = ["a", "..", "a/b", "a%2Fb", "a?b#c", "<b>", "$(id)", &"x".repeat(128)];
    let mut nodes = Vec::new();
    for name in odd {
        nodes.push(cluster.start(name).await);
    }
    nodes[0].sees(odd.len()).await;
    let (_, list) = nodes[0].get("/api/admin/cluster").await.unwrap();
    let listed: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|member| member["node_id"].as_str().unwrap()).collect();
    for name in odd {
        assert!(listed.contains(&name), "{name} is not in {listed:?}");
    }
    for name in ["", " a", "a b", "a\nb", "🦀", "a\"b", &"x".repeat(129), &"x".repeat(100_000)] {
        refused(&cluster, "CLUSTER_NODE_ID", name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b077_odd_endpoints_work_or_are_refused_at_the_start() {
    let cluster = Cluster::new().await;
    for endpoint in ["[::1]:4433", "host.example.:4433", "a_b:1"] {
        let mut command = cluster.command("a");
        command.env("CLUSTER_ENDPOINT", endpoint);
        let mut node = Node::start("a", command).await;
        node.sees(1).await;
        let (_, list) = node.get("/api/admin/cluster").await.unwrap();
        assert_eq!(list["data"][0]["endpoint"], endpoint);
        node.process.terminate().await;
    }
    for endpoint in [
        "",
        "::1:4433",
        "host:0",
        "host:65536",
        "host",
        "http://host:1",
        "[fe80::1%eth0]:1",
        "0.0.0.0:4433",
        "[::]:1",
    ] {
        refused(&cluster, "CLUSTER_ENDPOINT", endpoint).await;
    }
}

/// The process exits with 2 and one message that names the variable.
async fn refused(cluster: &Cluster, variable: &str, value: &str) {
    let mut command = cluster.command("a");
    command.env(variable, value);
    let mut node = Process::start("a", command);
    assert_eq!(node.wait(LONG).await.code(), Some(2), "{value:?} was accepted: {}", node.output());
    let said = node.output();
    assert!(said.contains(variable) && said.len() < 2_000, "{said:.3000}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b134_a_password_with_special_characters_works_when_encoded() {
    let cluster = Cluster::with_own_server(&[]).await;
    let at = cluster.url.rsplit_once('@').unwrap().1;
    for (n, (password, encoded)) in [
        ("p@ss", "p%40ss"),
        ("a/b", "a%2Fb"),
        ("a#b", "a%23b"),
        ("a?b", "a%3Fb"),
        ("a%b", "a%25b"),
        ("a:b", "a%3Ab"),
        ("a b", "a%20b"),
        ("ü", "%C3%BC"),
        ("%41", "%2541"),
        ("$HOME", "$HOME"),
        ("\"'", "%22%27"),
    ]
    .into_iter()
    .enumerate()
    {
        let quoted = password.replace('\'', "''");
        cluster.sql(&format!("CREATE ROLE r{n} LOGIN SUPERUSER PASSWORD '{quoted}'")).await;
        let mut command = cluster.command("a");
        command.env("DATABASE_URL", format!("postgres://r{n}:{encoded}@{at}"));
        let mut node = Node::start("a", command).await;
        node.sees(1).await;
        assert_eq!(node.process.terminate().await.code(), Some(0));
        assert!(!node.process.output().contains(encoded), "{}", node.process.output());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b137_addresses_of_both_families_are_served_and_the_real_port_is_registered() {
    let cluster = Cluster::new().await;
    for (address, probe) in
        [("[::1]:0", "[::1]"), ("localhost:0", "127.0.0.1"), ("[::]:0", "127.0.0.1"), (":0", "[::1]")]
    {
        let mut command = cluster.command("a");
        command.env("HTTP_ADDR", address);
        let mut node = Node::start("a", command).await;
        let port = node.url.rsplit_once(':').unwrap().1.trim_end_matches('/').to_owned();
        let answer = http_client().get(format!("http://{probe}:{port}/livez")).send().await;
        assert!(answer.is_ok(), "{address}: {answer:?}");
        node.sees(1).await;
        let (_, list) = node.get("/api/admin/cluster").await.unwrap();
        assert!(list["data"][0]["endpoint"].as_str().unwrap().ends_with(&format!(":{port}")), "{list}");
        node.process.terminate().await;
    }
}
