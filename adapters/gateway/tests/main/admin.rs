//! The dashboard's routes: signing in, and the list as it changes. What the page makes of it is tested in a real browser, in `tests/`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use switchboard_core::ports::{
    ChangeHints, Heartbeat, Member, Registered, Registration, Registry, RegistryError, Renewed,
};
use switchboard_core::types::Identity;
use switchboard_gateway::{GatewayConfig, Origins, Services};
use switchboard_memory::Link;
use switchboard_testkit::{LONG, eventually};
use tokio::time::timeout;

use crate::server::{Server, TOKEN, answer, config};

const FILES: [&str; 13] = [
    "/admin",
    "/admin/dashboard.css",
    "/admin/dashboard.js",
    "/admin/card.js",
    "/admin/dom.js",
    "/admin/fields.js",
    "/admin/history.js",
    "/admin/live.js",
    "/admin/mesh.js",
    "/admin/numbers.js",
    "/admin/session.js",
    "/admin/state.js",
    "/admin/icon.svg",
];

fn open() -> GatewayConfig {
    GatewayConfig { open_access: true, ..config() }
}

/// Asks as the node's own page does.
fn own(server: &Server, request: RequestBuilder) -> RequestBuilder {
    request.header("origin", &server.url).header("sec-fetch-site", "same-origin")
}

async fn login(server: &Server, token: &str) -> Response {
    let request = own(server, server.client.post(format!("{}/admin/login", server.url)));
    request.json(&json!({ "token": token })).send().await.unwrap()
}

/// The cookie of a new session, as a browser sends it back.
async fn cookie(server: &Server) -> String {
    let response = login(server, TOKEN).await;
    assert_eq!(response.status(), 204);
    let cookie = response.headers()["set-cookie"].to_str().unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

async fn access(server: &Server, cookie: &str) -> Value {
    let request = server.client.get(format!("{}/admin/session", server.url)).header("cookie", cookie);
    let (status, session) = answer(request.send().await.unwrap()).await;
    assert_eq!(status, 200, "{session}");
    session["access"].clone()
}

/// What somebody who watches is told.
struct Watcher {
    response: Response,
    text: String,
}

impl Watcher {
    async fn new(server: &Server) -> Self {
        let request = server.client.get(format!("{}/admin/stream", server.url)).bearer_auth(TOKEN);
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next event and its data.
    async fn hear(&mut self) -> (String, Value) {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                if let Some((kind, data)) = event.split_once('\n') {
                    let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                    return (kind.strip_prefix("event: ").unwrap().to_owned(), data);
                }
                continue;
            }
            let piece = timeout(LONG, self.response.chunk()).await.expect("nothing is said").unwrap();
            self.text += std::str::from_utf8(&piece.expect("the stream has ended")).unwrap();
        }
    }

    async fn hear_until(&mut self, wanted: &str) -> Value {
        loop {
            let (kind, data) = self.hear().await;
            if kind == wanted {
                return data;
            }
        }
    }
}

#[tokio::test]
async fn the_page_runs_its_own_scripts_alone_and_is_framed_by_nobody() {
    let server = Server::start(config()).await;
    for path in FILES.iter().chain(&["/admin/"]) {
        let response = server.client.get(format!("{}{path}", server.url)).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let headers = response.headers();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
        assert!(
            policy.contains("connect-src 'self';") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe") && !policy.contains(':') && !policy.contains('*'), "{policy}");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
    }
}

#[tokio::test]
async fn the_right_token_makes_a_session_and_a_wrong_one_does_not() {
    let server = Server::start(config()).await;
    assert_eq!(access(&server, "").await, "signed_out");
    for wrong in ["", "wrong", "the-admin-toke", "the-admin-token2"] {
        let response = login(&server, wrong).await;
        assert!(!response.headers().contains_key("set-cookie"));
        let (status, problem) = answer(response).await;
        assert_eq!((status, &problem["reason"]), (401, &json!("invalid")), "{wrong}");
    }
    let response = login(&server, TOKEN).await;
    let set = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(
        set.ends_with("; Max-Age=43200; Path=/admin; HttpOnly; SameSite=Strict") && !set.contains(TOKEN),
        "{set}"
    );
    let cookie = set.split(';').next().unwrap();
    assert_eq!(access(&server, cookie).await, "signed_in");
    assert_eq!(access(&server, &format!("switchboard_admin=1.x; {cookie}")).await, "signed_in");
    let (_, signature) = cookie.split_once('.').unwrap();
    assert_eq!(access(&server, &format!("switchboard_admin=99999999999.{signature}")).await, "signed_out");

    let stream = server.client.get(format!("{}/admin/stream", server.url));
    assert_eq!(stream.try_clone().unwrap().send().await.unwrap().status(), 401);
    assert_eq!(stream.header("cookie", cookie).send().await.unwrap().status(), 200);
    // What programs use is not for cookies.
    let list = server.client.get(format!("{}/api/admin/cluster", server.url)).header("cookie", cookie);
    assert_eq!(list.send().await.unwrap().status(), 401);

    let logout = own(&server, server.client.post(format!("{}/admin/logout", server.url)));
    let response = logout.send().await.unwrap();
    assert_eq!(response.status(), 204);
    let set = response.headers()["set-cookie"].to_str().unwrap();
    assert!(set.starts_with("switchboard_admin=; Max-Age=0; Path=/admin; "), "{set}");
}

#[tokio::test]
async fn a_session_counts_on_every_node_and_ends_with_the_token() {
    let (one, other) = (Server::start(config()).await, Server::start(config()).await);
    let changed = GatewayConfig { admin_token: Some("another-token".to_owned()), ..config() };
    let cookie = cookie(&one).await;
    assert_eq!(access(&other, &cookie).await, "signed_in");
    assert_eq!(access(&Server::start(changed).await, &cookie).await, "signed_out");
    let none = Server::start(GatewayConfig { admin_token: None, ..config() }).await;
    assert_eq!(access(&none, &cookie).await, "closed");
    assert_eq!(login(&none, "").await.status(), 403);
}

#[tokio::test]
async fn a_cookie_over_https_stays_there() {
    let server = Server::start(config()).await;
    let host = server.url.strip_prefix("http://").unwrap();
    for (origin, forwarded, expected) in [
        (format!("https://{host}"), "", true),
        (server.url.clone(), "https", true),
        (server.url.clone(), "http", false),
    ] {
        let request = server.client.post(format!("{}/admin/login", server.url)).header("origin", origin);
        let request = request.header("x-forwarded-proto", forwarded).json(&json!({ "token": TOKEN }));
        let response = request.send().await.unwrap();
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        assert_eq!(cookie.ends_with("; SameSite=Strict; Secure"), expected, "{cookie}");
    }
}

/// The browser sends the cookie along with whatever a page of the same site asks for: another port of the same host is one.
#[tokio::test]
async fn b114_foreign_pages_cannot_use_the_cookie() {
    const FOREIGN: [&str; 6] = [
        "https://evil.example",
        "https://listed.example",
        "http://127.0.0.1:1",
        "http://localhost:5173",
        "null",
        "",
    ];
    for origins in ["https://listed.example", "*"] {
        let server =
            Server::start(GatewayConfig { origins: Origins::parse(origins).unwrap(), ..config() }).await;
        let cookie = cookie(&server).await;
        let ask = |method: &str, path: &str| {
            let method = method.parse().unwrap();
            let request = server.client.request(method, format!("{}{path}", server.url));
            request.header("cookie", &cookie).json(&json!({ "token": TOKEN }))
        };
        for (method, path) in [
            ("GET", "/admin"),
            ("GET", "/admin/session"),
            ("GET", "/admin/stream"),
            ("POST", "/admin/login"),
            ("POST", "/admin/logout"),
        ] {
            for origin in FOREIGN {
                let response = ask(method, path).header("origin", origin).send().await.unwrap();
                assert!(!response.headers().contains_key("access-control-allow-origin"));
                assert!(!response.headers().contains_key("set-cookie"));
                let (status, problem) = answer(response).await;
                assert_eq!((status, &problem["reason"]), (403, &json!("origin")), "{path} from {origin:?}");
            }
            let twice = ask(method, path).header("origin", &server.url).header("origin", &server.url);
            assert_eq!(twice.send().await.unwrap().status(), 403, "{path}");
        }
        let preflight = ask("OPTIONS", "/admin/login").header("origin", "https://listed.example");
        let preflight = preflight.header("access-control-request-method", "POST").send().await.unwrap();
        assert_eq!(preflight.status(), 405);
        assert!(!preflight.headers().contains_key("access-control-allow-origin"));
        // Browsers always say where what changes something comes from.
        for path in ["/admin/login", "/admin/logout"] {
            assert_eq!(ask("POST", path).send().await.unwrap().status(), 403, "{path}");
            let form = own(&server, server.client.post(format!("{}{path}", server.url)));
            let form = form.header("content-type", "text/plain").body(r#"{"token":"x"}"#);
            assert_ne!(form.send().await.unwrap().status(), 200, "{path}");
        }
        // And of images and scripts at least whether they are of the same site.
        for path in ["/admin/session", "/admin/stream"] {
            for (site, expected) in
                [("cross-site", 403), ("same-site", 403), ("none", 200), ("same-origin", 200)]
            {
                let response = ask("GET", path).header("sec-fetch-site", site).send().await.unwrap();
                assert_eq!(response.status(), expected, "{path} from {site}");
            }
        }
    }
}

#[tokio::test]
async fn whoever_tries_tokens_is_slowed_down() {
    let server = Server::start(config()).await;
    let mut statuses = Vec::new();
    for _ in 0..15 {
        statuses.push(login(&server, "wrong").await.status().as_u16());
    }
    assert_eq!(statuses[..10], [401; 10]);
    assert_eq!(statuses[14], 429, "{statuses:?}");
    // Even with the right one, or guesses would be free.
    let refused = login(&server, TOKEN).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"10".parse().unwrap()));
}

#[tokio::test]
async fn what_is_no_login_is_refused_without_being_repeated() {
    let server = Server::start(config()).await;
    for body in ["", "secret-1", r#"{"token": 7}"#, r#"{"token":"secret-1""#] {
        let request = own(&server, server.client.post(format!("{}/admin/login", server.url)));
        let request = request.header("content-type", "application/json").body(body);
        let (status, problem) = answer(request.send().await.unwrap()).await;
        assert_eq!(status, 422, "{body}");
        assert!(!problem.to_string().contains("secret-1"), "{problem}");
    }
    let request = own(&server, server.client.post(format!("{}/admin/login", server.url)));
    let request = request.json(&json!({ "token": "x".repeat(20_000) }));
    assert_eq!(answer(request.send().await.unwrap()).await.0, 413);
    let get = server.client.get(format!("{}/admin/login", server.url));
    assert_eq!(answer(get.send().await.unwrap()).await.0, 405);
}

#[tokio::test]
async fn open_access_needs_no_login_but_a_local_name() {
    let server = Server::start(open()).await;
    assert_eq!(access(&server, "").await, "open");
    for (host, expected) in [("localhost", 200), ("evil.example", 403)] {
        for path in ["/admin/session", "/admin/stream"] {
            let request = server.client.get(format!("{}{path}", server.url)).header("host", host);
            assert_eq!(request.send().await.unwrap().status(), expected, "{path} at {host}");
        }
    }
}

#[tokio::test]
async fn a_watcher_is_told_of_everything_as_it_changes() {
    let server = Server::start(config()).await;
    let mut watcher = Watcher::new(&server).await;
    let list = watcher.hear_until("cluster").await;
    let (_, same) = server.get("/api/admin/cluster").await;
    assert_eq!(list["timing"], json!({"heartbeat_interval_ms": 200, "stale_threshold_ms": 600}));
    assert_eq!(list["timing"], same["timing"]);
    let keys = |list: &Value| list["data"][0].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&list), keys(&same));
    server.stats.gauge("unheard_of", || "a new key");
    while watcher.hear_until("cluster").await["data"][0]["stats"]["unheard_of"] != "a new key" {}
    server.gateway.drain();
    assert_eq!(server.stat("draining"), true);
}

/// A registry that counts how often it is read.
struct Counting {
    inner: Arc<dyn Registry>,
    reads: AtomicUsize,
}

#[async_trait]
impl Registry for Counting {
    async fn register(&self, registration: &Registration) -> Result<Registered, RegistryError> {
        self.inner.register(registration).await
    }

    async fn renew(&self, heartbeat: &Heartbeat) -> Result<Renewed, RegistryError> {
        self.inner.renew(heartbeat).await
    }

    async fn members(&self) -> Result<Vec<Member>, RegistryError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.inner.members().await
    }

    async fn deregister(&self, identity: &Identity) -> Result<(), RegistryError> {
        self.inner.deregister(identity).await
    }

    fn changes(&self) -> ChangeHints {
        self.inner.changes()
    }
}

#[tokio::test]
async fn many_watchers_cost_one_reader_and_none_costs_nothing() {
    let server = Server::start_empty(config()).await;
    server.node.joined().await.unwrap();
    let registry = Arc::new(Counting { inner: server.registry.clone(), reads: AtomicUsize::new(0) });
    server.gateway.attach(Services {
        node: server.node.clone(),
        registry: registry.clone(),
        durable: server.cluster.durable(),
        ephemeral: server.cluster.ephemeral(),
        presence: server.presence.clone(),
        health: server.health.clone(),
    });
    let reads = || registry.reads.load(Ordering::Relaxed);
    assert_eq!(reads(), 0);
    let mut watchers = Vec::new();
    for _ in 0..20 {
        let mut watcher = Watcher::new(&server).await;
        watcher.hear_until("cluster").await;
        watchers.push(watcher);
    }
    let before = reads();
    for _ in 0..3 {
        for watcher in &mut watchers {
            watcher.hear_until("cluster").await;
        }
    }
    let during = reads() - before;
    assert!((1..15).contains(&during), "{during} reads for three lists");
    drop(watchers);
    eventually(LONG, "nobody reads any more", async || {
        let before = reads();
        tokio::time::sleep(Duration::from_secs(2)).await;
        reads() == before
    })
    .await;
    Watcher::new(&server).await.hear_until("cluster").await;
}

#[tokio::test]
async fn b036_while_the_registry_cannot_be_read_the_last_list_stays_with_its_age() {
    let server = Server::start(config()).await;
    let mut watcher = Watcher::new(&server).await;
    watcher.hear_until("cluster").await;
    server.registry.set_link(Link::Down);
    let failure = watcher.hear_until("failure").await;
    assert!(failure["detail"].as_str().unwrap().contains("connection refused"), "{failure}");
    let age = failure["list_age_ms"].as_u64().unwrap();
    let older = watcher.hear_until("failure").await["list_age_ms"].as_u64().unwrap();
    assert!(older > age, "{age} {older}");
    // Somebody who comes later is shown what there is, and what it is.
    let mut late = Watcher::new(&server).await;
    assert_eq!(late.hear().await.1["data"][0]["node_id"], "n1");
    assert_eq!(late.hear().await.0, "failure");
    server.registry.set_link(Link::Up);
    assert_eq!(watcher.hear_until("cluster").await["data"][0]["node_id"], "n1");
    assert_eq!(late.hear_until("cluster").await["data"][0]["node_id"], "n1");
}

#[tokio::test]
async fn before_the_node_has_anything_to_show_a_watcher_is_told_why() {
    let server = Server::start_empty(config()).await;
    server.gateway.starting("cannot use PostgreSQL yet");
    let mut watcher = Watcher::new(&server).await;
    let failure = watcher.hear_until("failure").await;
    assert!(failure["detail"].as_str().unwrap().contains("cannot use PostgreSQL yet"), "{failure}");
    assert_eq!(failure["list_age_ms"], Value::Null);
    server.attach();
    watcher.hear_until("cluster").await;
}
