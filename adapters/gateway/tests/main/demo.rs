//! The demo page, as far as it can be judged without a browser. What it does is tested in a real one, in `tests/`.

use serde_json::json;
use switchboard_gateway::GatewayConfig;

use crate::server::{Server, config};

const FILES: [&str; 9] = [
    "/demo",
    "/demo/demo.css",
    "/demo/demo.js",
    "/demo/fading.js",
    "/demo/nodes.js",
    "/demo/view.js",
    "/demo/icon.svg",
    "/demo/phoenix.mjs",
    "/demo/phoenix.LICENSE.md",
];

fn open() -> GatewayConfig {
    GatewayConfig { open_access: true, ..config() }
}

#[tokio::test]
async fn there_is_a_demo_under_open_access_alone() {
    let (open, closed) = (Server::start(open()).await, Server::start(config()).await);
    for path in FILES.into_iter().chain(["/demo/nodes"]) {
        for (server, expected) in [(&open, 200), (&closed, 404)] {
            let response = server.client.get(format!("{}{path}", server.url)).send().await.unwrap();
            assert_eq!(response.status(), expected, "{path}");
        }
    }
}

/// Nothing that a message could smuggle in is run, and nothing is told to anybody else.
#[tokio::test]
async fn the_page_runs_its_own_scripts_alone_and_speaks_to_nobody_else() {
    let server = Server::start(open()).await;
    for path in FILES {
        let response = server.client.get(format!("{}{path}", server.url)).send().await.unwrap();
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("data:"), "{policy}");
        assert_eq!(response.headers()["referrer-policy"], "no-referrer");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    }
}

#[tokio::test]
async fn the_page_is_told_where_it_may_go() {
    let server = Server::start(open()).await;
    let (status, nodes) = server.get("/demo/nodes").await;
    assert_eq!((status, nodes), (200, json!({"node_id": "n1", "peers": []})));
}

/// A page that had its own name resolved to this machine.
#[tokio::test]
async fn a_foreign_name_is_not_told_who_is_in_the_cluster() {
    let server = Server::start(open()).await;
    let request = server.client.get(format!("{}/demo/nodes", server.url)).header("host", "evil.example");
    assert_eq!(request.send().await.unwrap().status(), 403);
}
