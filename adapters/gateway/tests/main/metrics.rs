//! What Prometheus sees, and who else does. Names and meanings are checked against a real node in the workspace's `tests`.

use reqwest::header::CONTENT_TYPE;
use switchboard_core::health::Condition;
use switchboard_gateway::{GatewayConfig, MetricsAccess};
use switchboard_memory::Link;
use switchboard_testkit::{LONG, eventually};

use crate::server::{Server, TOKEN, config};

/// Status and text, asked for with this token.
async fn scrape(server: &Server, token: Option<&str>) -> (u16, String) {
    let request = server.client.get(format!("{}/metrics", server.url));
    let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let kind = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    let expected = if status == 200 { "text/plain; version=0.0.4" } else { "application/problem+json" };
    assert_eq!(kind, expected);
    (status, response.text().await.unwrap())
}

/// The sample of this name and these labels, as it is written.
fn sample<'a>(text: &'a str, series: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
}

fn with_access(metrics: MetricsAccess) -> GatewayConfig {
    GatewayConfig { metrics, ..config() }
}

#[tokio::test]
async fn metrics_open_to_the_admin_token_and_to_their_own_which_opens_nothing_else() {
    let scraper = "the-scraper's-token";
    let server =
        Server::start(with_access(MetricsAccess { token: Some(scraper.to_owned()), open: false })).await;
    for token in [TOKEN, scraper] {
        assert_eq!(scrape(&server, Some(token)).await.0, 200);
    }
    for wrong in [None, Some(""), Some("the-scraper's-toke"), Some("x")] {
        let (status, text) = scrape(&server, wrong).await;
        assert_eq!(status, 401, "{wrong:?}");
        assert!(!text.contains("scraper"), "{text}");
    }
    for path in ["/api/admin/cluster", "/api/channels/room:1/events"] {
        let request = server.client.get(format!("{}{path}", server.url)).bearer_auth(scraper);
        assert_eq!(request.send().await.unwrap().status(), 401, "{path}");
    }
}

#[tokio::test]
async fn metrics_without_any_token_configured_are_closed_until_they_are_opened() {
    let closed = Server::start(GatewayConfig { admin_token: None, ..config() }).await;
    let (status, text) = scrape(&closed, Some("")).await;
    assert_eq!(status, 403);
    for variable in ["METRICS_TOKEN", "ADMIN_TOKEN", "METRICS_OPEN"] {
        assert!(text.contains(variable), "{text}");
    }
    let metrics = MetricsAccess { token: None, open: true };
    let open = Server::start(GatewayConfig { admin_token: None, ..with_access(metrics) }).await;
    assert_eq!(scrape(&open, None).await.0, 200);
}

#[tokio::test]
async fn open_access_shows_metrics_to_this_machine_and_to_no_foreign_page() {
    let server = Server::start(GatewayConfig { open_access: true, ..config() }).await;
    assert_eq!(scrape(&server, None).await.0, 200);
    let rebound = server.client.get(format!("{}/metrics", server.url)).header("host", "evil.example");
    assert_eq!(rebound.send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn what_is_counted_shows_at_once_and_not_with_the_next_heartbeat() {
    let server = Server::start(config()).await;
    server.stats.gauge("odd thing_ms", || 250);
    server.health.check("listener", || Condition::Failed("it is deaf".to_owned()));
    server.health.check("queue", || Condition::Degraded("it fills".to_owned()));
    server.health.check("pool", || Condition::Ok);
    let (_, before) = scrape(&server, Some(TOKEN)).await;
    let (_, after) = scrape(&server, Some(TOKEN)).await;
    let requests = |text| sample(text, "switchboard_http_requests_total").unwrap().parse::<u32>().unwrap();
    assert_eq!(requests(&after), requests(&before) + 1);
    for (series, value) in [
        ("switchboard_odd_thing_seconds", "0.25"),
        ("switchboard_cluster_size", "1"),
        ("switchboard_ready", "0"),
        ("switchboard_check_state{check=\"listener\"}", "2"),
        ("switchboard_check_state{check=\"queue\"}", "1"),
        ("switchboard_check_state{check=\"pool\"}", "0"),
    ] {
        assert_eq!(sample(&after, series), Some(value), "{series} in\n{after}");
    }
    assert!(after.contains("switchboard_node_info{node_id=\"n1\",version=\""), "{after}");
}

#[tokio::test]
async fn a_node_that_starts_or_has_lost_its_registry_is_scraped_all_the_same() {
    let starting = Server::start_empty(config()).await;
    let (status, text) = scrape(&starting, Some(TOKEN)).await;
    assert_eq!((status, sample(&text, "switchboard_ready")), (200, Some("0")));
    let server = Server::start(config()).await;
    server.registry.set_link(Link::Down);
    eventually(LONG, "the failures show", async || {
        let (status, text) = scrape(&server, Some(TOKEN)).await;
        assert_eq!(status, 200);
        let failed = sample(&text, "switchboard_renewals_failed_total").unwrap();
        sample(&text, "switchboard_ready") == Some("0") && failed.parse::<u32>().unwrap() > 1
    })
    .await;
}
