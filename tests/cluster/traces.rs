//! Traces of durable events, as a collector gets them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use switchboard_testkit::{LONG, eventually, http_client};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::node::{Cluster, Node, TOKEN};

/// Takes what is exported, as JSON.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::<Mutex<Vec<Value>>>::default();
        let into = Arc::clone(&spans);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(collect(stream, Arc::clone(&into)));
            }
        });
        Self { url, spans, task }
    }

    /// The spans of this name, each with the node that sent it as `node`.
    fn spans(&self, name: &str) -> Vec<Value> {
        self.spans.lock().unwrap().iter().filter(|span| span["name"] == name).cloned().collect()
    }
}

/// Requests of one connection, to its end.
async fn collect(stream: TcpStream, spans: Arc<Mutex<Vec<Value>>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut line, mut length, mut first) = (String::new(), 0, String::new());
        while stream.read_line(&mut line).await.ok()? > 2 {
            let text = line.trim().to_ascii_lowercase();
            length = text.strip_prefix("content-length: ").map_or(length, |length| length.parse().unwrap());
            if first.is_empty() {
                first.clone_from(&text);
            }
            line.clear();
        }
        if first.is_empty() {
            return None;
        }
        assert_eq!(first, "post /v1/traces http/1.1");
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let body: Value = serde_json::from_slice(&body).unwrap();
        for resource in body["resourceSpans"].as_array().unwrap() {
            let node = attribute(&resource["resource"], "service.instance.id");
            for span in resource["scopeSpans"]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|scope| scope["spans"].as_array().unwrap())
            {
                let mut span = span.clone();
                span["node"] = node.clone();
                spans.lock().unwrap().push(span);
            }
        }
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}

fn attribute(of: &Value, key: &str) -> Value {
    let attributes = of["attributes"].as_array().unwrap().iter();
    attributes
        .clone()
        .find(|attribute| attribute["key"] == key)
        .map_or(Value::Null, |found| found["value"]["stringValue"].clone())
}

async fn start(cluster: &Cluster, name: &str, collector: &Collector) -> Node {
    let mut command = cluster.command(name);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    command.env("OTEL_BSP_SCHEDULE_DELAY", "100").env("NO_PROXY", "127.0.0.1");
    Node::start(name, command).await
}

/// Somebody who listens to `room:1`.
async fn listener(node: &Node) -> reqwest::Response {
    let request = http_client().get(format!("{}/api/channels/room:1/events", node.url));
    let mut response = request.bearer_auth(TOKEN).header("accept", "text/event-stream").send().await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_one_trace_from_the_node_that_published_it_to_those_that_deliver_it() {
    let cluster = Cluster::new().await;
    let collector = Collector::start().await;
    let mut a = start(&cluster, "a", &collector).await;
    let b = start(&cluster, "b", &collector).await;
    b.sees(2).await;
    let _listeners = [listener(&b).await, listener(&b).await];
    let body = json!({"event": "message", "payload": {"secret": "hunter2"}});
    let (_, first) = a.publish("room:1", &body).await;
    let (_, second) = a.publish("room:1", &body).await;
    eventually(LONG, "both deliveries", async || collector.spans("deliver").len() >= 2).await;
    eventually(LONG, "both publications", async || collector.spans("publish").len() >= 2).await;
    // The last words of a node that stops are sent, too.
    let (_, third) = a.publish("room:1", &body).await;
    assert!(a.process.terminate().await.success());
    eventually(LONG, "the last delivery", async || collector.spans("deliver").len() >= 3).await;
    let (published, delivered) = (collector.spans("publish"), collector.spans("deliver"));
    assert_eq!((published.len(), delivered.len()), (3, 3), "{published:?} {delivered:?}");
    for position in [first, second, third].map(|answer| answer["position"].clone()) {
        let of = |spans: &[Value]| {
            spans.iter().find(|span| attribute(span, "messaging.message.id") == position).unwrap().clone()
        };
        let (publish, deliver) = (of(&published), of(&delivered));
        assert_eq!((&publish["node"], &deliver["node"]), (&json!("a"), &json!("b")));
        assert_eq!(publish["traceId"], deliver["traceId"]);
        assert_eq!(publish["spanId"], deliver["parentSpanId"]);
        assert_eq!(attribute(&deliver, "messaging.destination.name"), "room:1");
        assert_eq!(attribute(&deliver, "switchboard.event"), "message");
        assert!(!format!("{publish}{deliver}").contains("hunter2"), "{publish} {deliver}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_there_holds_up_nothing() {
    let cluster = Cluster::new().await;
    let collector = Collector::start().await;
    collector.task.abort();
    let mut node = start(&cluster, "a", &collector).await;
    node.sees(1).await;
    let body = json!({"event": "message", "payload": 1});
    for _ in 0..20 {
        assert_eq!(node.publish("room:1", &body).await.0, 201);
    }
    node.process.says("the collector takes no traces").await;
    assert_eq!(node.publish("room:1", &body).await.0, 201);
    let stopping = std::time::Instant::now();
    assert!(node.process.terminate().await.success(), "{}", node.process.output());
    assert!(stopping.elapsed() < Duration::from_secs(5), "{:?}", stopping.elapsed());
    // However many batches it was offered.
    assert_eq!(node.process.output().matches("the collector").count(), 1, "{}", node.process.output());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_published_again_with_its_key_is_told_once() {
    let cluster = Cluster::new().await;
    let collector = Collector::start().await;
    let mut node = start(&cluster, "a", &collector).await;
    node.sees(1).await;
    let url = format!("{}/api/channels/room:1/events", node.url);
    for _ in 0..3 {
        let request = http_client().post(&url).bearer_auth(TOKEN).header("idempotency-key", "order-7");
        let answer = request.json(&json!({"event": "message", "payload": 7})).send().await.unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }
    assert!(node.process.terminate().await.success(), "{}", node.process.output());
    assert_eq!(collector.spans("publish").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_the_exporter_would_ignore_stops_the_start_with_its_name() {
    let cluster = Cluster::new().await;
    for (name, value) in [
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector"),
    ] {
        let mut command = cluster.command("a");
        command.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1").env(name, value);
        let mut node = switchboard_testkit::process::Process::start("a", command);
        assert_eq!(node.wait(LONG).await.code(), Some(2), "{}", node.output());
        assert!(node.output().contains(&format!("{name} is {value:?}: must")), "{}", node.output());
    }
}
