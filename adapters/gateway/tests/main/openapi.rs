//! The description of the API against the router itself. Answers are checked against it in the workspace's `tests`.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value;

use crate::server::{Server, config};

/// Pages for people, and what belongs to them.
const PAGES: [&str; 2] = ["/admin", "/demo"];

/// Whoever lists the same path under one method or another asks this.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

async fn document(server: &Server) -> Value {
    let response = server.client.get(format!("{}/api/openapi.json", server.url)).send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.json().await.unwrap()
}

/// The paths that the router knows, which it shows when it is debugged, before those of its fallback.
fn routed(server: &Server) -> BTreeSet<String> {
    let shown = format!("{:?}", server.gateway.router());
    let (paths, _fallback) = shown.split_once("fallback_router").unwrap();
    let quoted = paths.split('"').skip(1).step_by(2);
    quoted.filter(|text| text.starts_with('/')).map(str::to_owned).collect()
}

#[tokio::test]
async fn every_route_is_described_and_nothing_else() {
    let server = Server::start(config()).await;
    let document = document(&server).await;
    let described: BTreeSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
    let is_page = |path: &&String| {
        PAGES
            .iter()
            .any(|page| path.strip_prefix(page).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    };
    let routed: BTreeSet<String> = routed(&server).iter().filter(|path| !is_page(path)).cloned().collect();
    assert!(routed.contains("/livez"), "{routed:?}");
    assert_eq!(described, routed);
}

#[tokio::test]
async fn every_method_is_described_and_nothing_else() {
    let server = Server::start(config()).await;
    let document = document(&server).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        let url = format!("{}{}", server.url, path.replace(['{', '}'], ""));
        for method in METHODS {
            let request = server.client.request(Method::from_bytes(method.as_bytes()).unwrap(), &url);
            let status = request.send().await.unwrap().status().as_u16();
            let is_described = item[method.to_lowercase()].is_object();
            assert_eq!(status != 405, is_described, "{method} {path} is answered with {status}");
        }
    }
}

#[tokio::test]
async fn what_is_described_is_explained() {
    let server = Server::start(config()).await;
    let document = document(&server).await;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(operation["summary"].is_string(), "{method} {path}");
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(!response["description"].as_str().unwrap().is_empty(), "{method} {path}: {status}");
                let is_probe = path == "/readyz" || path == "/health";
                let is_problem = status.starts_with(['4', '5']) && !is_probe;
                let is_described_as_one = response["content"]["application/problem+json"].is_object();
                assert_eq!(is_problem, is_described_as_one, "{method} {path}: {status}");
            }
        }
    }
}
