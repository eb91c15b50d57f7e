//! The dashboard in a real browser, against a real cluster, driven by `tests/browser/`.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::browser::{Browser, words};
use crate::node::{Cluster, Node, TOKEN};

/// Who watches `three` takes it for stale after 4 s, and has to leave it for another 4 s: its own threshold is longer. So there is time to see.
const THRESHOLDS: [(&str, &str); 4] = [("one", "4s"), ("two", "4s"), ("three", "8s"), ("four", "4s")];

#[tokio::test(flavor = "multi_thread")]
async fn b010_b012_b036_b114_b128_the_dashboard_shows_the_cluster_as_it_is() {
    let Some(browser) = Browser::find() else { return };
    check(&browser, "pg").await;
}

#[cfg(feature = "mesh")]
#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_shows_the_mesh_and_who_is_not_in_it() {
    let Some(browser) = Browser::find() else { return };
    check(&browser, "mesh").await;
}

/// Everybody's clock shows another time: PostgreSQL's sessions, the nodes, and the browser.
async fn check(browser: &Browser, ephemeral: &str) {
    let cluster = Cluster::with_own_server(&[("timezone", "Asia/Kolkata")]).await;
    let mut nodes = Vec::new();
    for (name, _) in &THRESHOLDS[..3] {
        // One after the other, so that their order is known.
        let node = start(&cluster, name, ephemeral).await;
        node.sees(nodes.len() + 1).await;
        nodes.push(node);
    }
    let told: Vec<_> = nodes.iter().map(|node| json!({"url": node.url, "pid": node.process.pid()})).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let environment = [
        ("NODES", Value::from(told).to_string()),
        ("ADMIN_TOKEN", TOKEN.to_owned()),
        ("EPHEMERAL", ephemeral.to_owned()),
        ("OUTSIDE", listener.local_addr().unwrap().port().to_string()),
    ];
    let output = tokio::select! {
        output = browser.run("dashboard.test.mjs", &environment) => output,
        () = obey(&listener, &cluster, ephemeral) => unreachable!("it goes on for ever"),
    };
    let said: String = nodes.iter().map(|node| node.process.output()).collect();
    assert!(output.status.success(), "{}\n{said}", words(&output));
    assert!(!said.contains(TOKEN), "b128: a node has logged the token");
}

async fn start(cluster: &Cluster, name: &str, ephemeral: &str) -> Node {
    let (_, threshold) = THRESHOLDS.iter().find(|(known, _)| *known == name).unwrap();
    let mut command = cluster.command(name);
    command.env("CLUSTER_STALE_THRESHOLD", threshold).env("TZ", "America/St_Johns").env("LOG_LEVEL", "debug");
    if ephemeral == "mesh" {
        // The last one to come has none.
        command.env("CLUSTER_EPHEMERAL", if name == "four" { "pg" } else { "mesh" });
    }
    Node::start(name, command).await
}

/// Does what the browser's test cannot: `{"sql": statement}` or `{"start": node}`, a line each, answered with a line.
async fn obey(listener: &TcpListener, cluster: &Cluster, ephemeral: &str) {
    let mut started = Vec::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let wish = line(&mut stream).await;
        let answer = if let Some(statement) = wish["sql"].as_str() {
            cluster.sql(statement).await;
            json!({})
        } else {
            let node = start(cluster, wish["start"].as_str().unwrap(), ephemeral).await;
            let answer = json!({"url": node.url, "pid": node.process.pid()});
            started.push(node);
            answer
        };
        stream.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
}

async fn line(stream: &mut TcpStream) -> Value {
    let mut text = String::new();
    BufReader::new(stream).read_line(&mut text).await.unwrap();
    serde_json::from_str(&text).unwrap()
}
