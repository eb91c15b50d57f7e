//! Who may do what.

use crate::server::{Server, TOKEN, answer, config};
use switchboard_gateway::GatewayConfig;

const BODY: &str = r#"{"event":"message","payload":1}"#;

/// Status of an admin request and of a publish, with this authorization.
async fn statuses(server: &Server, authorization: Option<&str>) -> (u16, u16) {
    let with = |request: reqwest::RequestBuilder| match authorization {
        Some(value) => request.header("authorization", value),
        None => request,
    };
    let admin = with(server.client.get(format!("{}/api/admin/cluster", server.url))).send().await.unwrap();
    let publish =
        server.client.post(server.events("room:1")).header("content-type", "application/json").body(BODY);
    let publish = with(publish).send().await.unwrap();
    (admin.status().as_u16(), publish.status().as_u16())
}

#[tokio::test]
async fn only_the_right_token_opens_anything() {
    let server = Server::start(config()).await;
    assert_eq!(statuses(&server, Some(&format!("Bearer {TOKEN}"))).await, (200, 201));
    assert_eq!(statuses(&server, Some(&format!("bearer {TOKEN}"))).await, (200, 201));
    for wrong in [
        None,
        Some(""),
        Some("Bearer"),
        Some("Bearer "),
        Some("Bearer wrong"),
        Some("Basic dGhlOmFkbWlu"),
        Some(TOKEN),
        Some("Bearer the-admin-toke"),
        Some("Bearer the-admin-token2"),
        Some("Bearer THE-ADMIN-TOKEN"),
    ] {
        assert_eq!(statuses(&server, wrong).await, (401, 401), "{wrong:?}");
    }
    let in_url = server.client.get(format!("{}/api/admin/cluster?token={TOKEN}&apikey={TOKEN}", server.url));
    let response = in_url.send().await.unwrap();
    assert_eq!(response.headers()["www-authenticate"], "Bearer");
    let (status, problem) = answer(response).await;
    assert_eq!(status, 401);
    assert!(!problem.to_string().contains(TOKEN));
}

#[tokio::test]
async fn without_a_token_configured_nobody_passes_and_the_variable_is_named() {
    let server = Server::start(GatewayConfig { admin_token: None, ..config() }).await;
    for authorization in [None, Some("Bearer "), Some("Bearer x")] {
        assert_eq!(statuses(&server, authorization).await, (403, 403), "{authorization:?}");
    }
    let (_, problem) = server.get("/api/admin/cluster").await;
    assert!(problem["detail"].as_str().unwrap().contains("ADMIN_TOKEN"), "{problem}");
}

#[tokio::test]
async fn an_empty_token_is_none_and_a_token_need_not_be_ascii() {
    let server = Server::start(GatewayConfig { admin_token: Some(String::new()), ..config() }).await;
    for authorization in [None, Some("Bearer"), Some("Bearer ")] {
        assert_eq!(statuses(&server, authorization).await, (403, 403), "{authorization:?}");
    }
    let server = Server::start(GatewayConfig { admin_token: Some("zwölf".to_owned()), ..config() }).await;
    let value = reqwest::header::HeaderValue::from_bytes("Bearer zwölf".as_bytes()).unwrap();
    let request = server.client.get(format!("{}/api/admin/cluster", server.url));
    assert_eq!(request.header("authorization", value).send().await.unwrap().status(), 200);
}

/// Whoever is refused is refused before the body is read, and hears of it whatever the size of the body.
#[tokio::test]
async fn a_stranger_with_a_large_body_is_refused_and_told() {
    let server = Server::start(config()).await;
    for _ in 0..10 {
        let request = server.client.post(server.events("room:1")).body(vec![b' '; 8 * 1024 * 1024]);
        assert_eq!(request.send().await.unwrap().status(), 401);
    }
}

#[tokio::test]
async fn open_access_is_for_clients_and_not_for_the_admin_route() {
    let server = Server::start(GatewayConfig { open_access: true, ..config() }).await;
    assert_eq!(statuses(&server, None).await, (401, 201));
}

/// Its name leads to this machine by now, so a browser takes the node for its own server, and the token of a node for
/// development can be guessed.
#[tokio::test]
async fn a_foreign_page_that_rebinds_its_name_is_refused() {
    let server = Server::start(GatewayConfig { open_access: true, ..config() }).await;
    let status = async |path: &str, host: &str| {
        let request =
            server.client.get(format!("{}{path}", server.url)).bearer_auth(TOKEN).header("host", host);
        request.send().await.unwrap().status().as_u16()
    };
    for path in ["/api/channels/room:1/events", "/api/admin/cluster"] {
        for host in [
            "evil.example",
            "evil.example:4000",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "[x]",
            "",
        ] {
            assert_eq!(status(path, host).await, 403, "{path} at {host:?}");
        }
        for host in ["localhost", "LocalHost:4000", "127.0.0.1", "127.0.0.1:4000", "[::1]:4000"] {
            assert_eq!(status(path, host).await, 200, "{path} at {host:?}");
        }
    }
    assert_eq!(status("/livez", "evil.example").await, 200);
}

#[tokio::test]
async fn a_form_of_a_foreign_page_cannot_publish() {
    let server = Server::start(GatewayConfig { open_access: true, ..config() }).await;
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""]
    {
        let request = server.client.post(server.events("room:1")).header("content-type", kind).body(BODY);
        assert_eq!(request.send().await.unwrap().status(), 415, "{kind:?}");
    }
    let request = server.client.post(server.events("room:1")).header("content-type", "x".repeat(10_000));
    let (status, problem) = answer(request.body(BODY).send().await.unwrap()).await;
    assert_eq!(status, 415);
    assert!(problem["detail"].as_str().unwrap().len() < 200, "{problem}");
    let request =
        server.client.post(server.events("room:1")).header("content-type", "Application/JSON; charset=utf-8");
    assert_eq!(request.body(BODY).send().await.unwrap().status(), 201);
}
