//! Probes, and the list of members.

use serde_json::json;
use switchboard_core::health::Condition;
use switchboard_core::ports::{Registration, Registry};
use switchboard_core::types::{Identity, NodeId, Stats};
use switchboard_memory::Link;
use switchboard_testkit::{LONG, eventually};

use crate::server::{Server, TOKEN, answer, config};

#[tokio::test]
async fn before_there_is_anything_to_serve_the_process_is_live_and_not_ready() {
    let server = Server::start_empty(config()).await;
    server.gateway.starting("waiting for PostgreSQL: connection refused");
    assert_eq!(server.get("/livez").await.0, 200);
    for path in ["/readyz", "/health"] {
        let (status, body) = server.get(path).await;
        assert_eq!(status, 503);
        assert!(body.to_string().contains("starting: waiting for PostgreSQL: connection refused"), "{body}");
    }
    let (status, health) = server.get("/health").await;
    assert_eq!((status, &health["status"], &health["node_id"]), (503, &json!("unhealthy"), &json!("n1")));
    assert_eq!(server.get("/api/admin/cluster").await.0, 503);
    assert_eq!(server.post("room:1", r#"{"event":"message","payload":1}"#).await.0, 503);
}

#[tokio::test]
async fn a_healthy_node_tells_what_the_seed_asks_for() {
    let server = Server::start(config()).await;
    eventually(LONG, "healthy", async || server.get("/health").await.0 == 200).await;
    let (_, health) = server.get("/health").await;
    assert_eq!(health["status"], "healthy");
    assert_eq!((&health["cluster"]["size"], &health["cluster"]["peers"]), (&json!(1), &json!([])));
    assert!(health["cluster"]["heartbeat_age_ms"].as_u64().unwrap() < 600, "{health}");
    assert_eq!(health.as_object().unwrap().len(), 3, "{health}");
    assert_eq!(server.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn a_suspended_node_says_why_and_takes_no_work() {
    let server = Server::start(config()).await;
    server.registry.set_link(Link::Down);
    eventually(LONG, "suspended", async || {
        let (status, health) = server.get("/health").await;
        let reason = health["reason"].as_str().unwrap_or_default();
        status == 503
            && reason.starts_with("suspended: no heartbeat got through for ")
            && reason.contains("the registry is unavailable")
    })
    .await;
    assert_eq!(server.get("/livez").await.0, 200);
    let (status, problem) = server.post("room:1", r#"{"event":"message","payload":1}"#).await;
    assert_eq!(status, 503);
    assert!(problem["detail"].as_str().unwrap().contains("suspended"), "{problem}");
    server.registry.set_link(Link::Up);
    eventually(LONG, "healthy again", async || server.get("/health").await.0 == 200).await;
}

#[tokio::test]
async fn a_node_that_cannot_join_says_why() {
    let server = Server::start_cut_off().await;
    eventually(LONG, "the reason", async || {
        let (status, health) = server.get("/health").await;
        assert_eq!(status, 503);
        health["reason"].as_str().unwrap().starts_with("joining: the registry is unavailable")
    })
    .await;
    assert_eq!(server.get("/readyz").await.0, 503);
    assert_eq!(server.get("/livez").await.0, 200);
    assert_eq!(server.post("room:1", r#"{"event":"message","payload":1}"#).await.0, 503);
    server.registry.set_link(Link::Up);
    eventually(LONG, "joined", async || server.get("/health").await.0 == 200).await;
}

#[tokio::test]
async fn an_evicted_node_and_one_that_has_left_say_so() {
    let server = Server::start(config()).await;
    server.cluster.delete(&config().node_id);
    eventually(LONG, "evicted", async || {
        let (status, health) = server.get("/health").await;
        status == 503 && health["reason"].as_str().unwrap().starts_with("evicted: ")
    })
    .await;
    let server = Server::start(config()).await;
    server.node.leave(LONG).await;
    let (status, health) = server.get("/health").await;
    assert_eq!(status, 503);
    assert!(health["reason"].as_str().unwrap().starts_with("left: "), "{health}");
}

#[tokio::test]
async fn conditions_of_dependencies_are_warnings_or_reasons() {
    let server = Server::start(config()).await;
    server.health.check("listener", || Condition::Degraded("reconnecting".to_owned()));
    let (status, health) = server.get("/health").await;
    assert_eq!((status, &health["warnings"]), (200, &json!(["listener: reconnecting"])));
    server.health.check("listener", || Condition::Failed("gone".to_owned()));
    let (status, health) = server.get("/health").await;
    assert_eq!((status, &health["reason"]), (503, &json!("listener: gone")));
    assert_eq!(server.get("/readyz").await.0, 503);
}

#[tokio::test]
async fn b012_members_come_with_the_thresholds_that_judge_their_age() {
    let server = Server::start(config()).await;
    let (status, list) = server.get("/api/admin/cluster").await;
    assert_eq!(status, 200);
    assert_eq!(list["timing"], json!({"heartbeat_interval_ms": 200, "stale_threshold_ms": 600}));
    let member = &list["data"][0];
    assert_eq!((&member["node_id"], &member["endpoint"]), (&json!("n1"), &json!("127.0.0.1:4000")));
    for time in ["registered_at", "heartbeat"] {
        assert!(member[time].as_str().unwrap().ends_with('Z'), "{member}");
    }
    assert!(member["stats"].is_object() && member["heartbeat_age_ms"].is_u64());
    server.registry.set_link(Link::RequestsLost);
    let (status, problem) = server.get("/api/admin/cluster").await;
    assert_eq!(status, 503, "{problem}");
}

#[tokio::test]
async fn members_are_listed_in_the_order_in_which_they_first_came() {
    let server = Server::start(config()).await;
    let peers: Vec<_> = ["z", "a", "m"].map(|name| NodeId::parse(name).unwrap()).into_iter().collect();
    for (port, node_id) in (4001..).zip(&peers) {
        let registration = Registration {
            identity: Identity::fresh(node_id.clone()),
            endpoint: format!("127.0.0.1:{port}").parse().unwrap(),
            meta: Stats::default(),
            timing: config().timing,
        };
        server.cluster.registry().register(&registration).await.unwrap();
    }
    let (_, list) = server.get("/api/admin/cluster").await;
    let ids: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|member| member["node_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["n1", "z", "a", "m"]);
    eventually(LONG, "the view follows", async || {
        let (_, health) = server.get("/health").await;
        health["cluster"]["peers"] == json!(["z", "a", "m"]) && health["cluster"]["size"] == 4
    })
    .await;
}

#[tokio::test]
async fn a_draining_node_is_not_ready_at_once() {
    let server = Server::start(config()).await;
    server.gateway.drain();
    let (status, reason) = server.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(reason.as_str().unwrap().starts_with("draining"), "{reason}");
    assert_eq!(server.get("/livez").await.0, 200);
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_document() {
    let server = Server::start(config()).await;
    let (status, problem) = server.get("/nothing/here").await;
    assert_eq!((status, problem["status"].as_u64()), (404, Some(404)));
    let response = server.client.delete(server.events("room:1")).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["allow"], "GET,HEAD,POST,OPTIONS");
    assert_eq!(response.status(), 405);
    let odd = reqwest::Method::from_bytes("X".repeat(10_000).as_bytes()).unwrap();
    let response = server.client.request(odd, server.events("room:1")).send().await.unwrap();
    let (status, problem) = answer(response).await;
    assert_eq!(status, 405);
    assert!(problem["detail"].as_str().unwrap().len() < 200, "{problem}");
    assert_eq!(server.get("/api/channels//events").await.0, 422, "the empty channel name breaks its rule");
}

#[tokio::test]
async fn head_is_answered_as_get_without_a_body() {
    let server = Server::start(config()).await;
    for path in ["/livez", "/readyz", "/health", "/api/admin/cluster", "/api/channels/room:1/events"] {
        let request = server.client.head(format!("{}{path}", server.url)).bearer_auth(TOKEN);
        // A stream would have no end, and yet there is nothing to wait for.
        let response = request.header("accept", "text/event-stream").send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert!(!response.headers().contains_key("access-control-allow-origin"));
        assert_eq!(response.text().await.unwrap(), "", "{path}");
    }
    eventually(LONG, "nobody listens", async || server.stat("sse_clients") == 0).await;
}
