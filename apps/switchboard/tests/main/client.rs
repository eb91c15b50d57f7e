//! `nodes`, `publish`, `tail` and `health` against servers that are not there, are no nodes, or say no.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread::JoinHandle;

use crate::{refusal, run, stdout, switchboard};

/// Serves one request with `answer`, and returns the request's head.
fn server(answer: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let head = read_head(&mut stream);
        stream.write_all(answer.as_bytes()).unwrap();
        head
    });
    (url, served)
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn a_node_that_is_not_there_is_named() {
    for command in [&["nodes"][..], &["publish", "room:1", "message", "{}"], &["tail", "room:1"]] {
        let message = refusal(switchboard(command).args(["--url", "http://127.0.0.1:1"]), 1);
        assert!(message.contains("http://127.0.0.1:1"), "{message}");
        assert!(message.contains("is a node running there?"), "{message}");
    }
}

#[test]
fn a_missing_token_is_asked_for() {
    let (url, _served) = server("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
    let message = refusal(switchboard(&["nodes", "--url", &url]).env_remove("SWITCHBOARD_TOKEN"), 1);
    assert!(message.contains("set SWITCHBOARD_TOKEN"), "{message}");
}

#[test]
fn a_token_is_sent_and_not_shown() {
    let (url, served) = server("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n");
    let message = refusal(switchboard(&["nodes", "--url", &url]).env("SWITCHBOARD_TOKEN", "hunter2"), 1);
    assert!(message.contains("another token"), "{message}");
    let request = served.join().unwrap().to_lowercase();
    assert!(request.contains("authorization: bearer hunter2"), "{request}");
}

#[test]
fn a_server_that_is_no_node_is_recognised() {
    let (url, _served) = server("HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n<html></html>");
    let message = refusal(&mut switchboard(&["nodes", "--url", &url]), 1);
    assert!(message.contains("not that of a node"), "{message}");
}

#[test]
fn the_reason_of_a_refusal_is_passed_on() {
    let body = r#"{"title":"x","status":503,"detail":"draining: this node is about to stop"}"#;
    let answer = format!("HTTP/1.1 503 Unavailable\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (url, _served) = server(answer.leak());
    let message = refusal(&mut switchboard(&["publish", "a", "b", "1", "--url", &url]), 1);
    assert!(message.contains("503") && message.contains("about to stop"), "{message}");
}

#[test]
fn a_negative_number_is_a_payload_and_no_flag() {
    for number in ["-1", "-1.5e3"] {
        let mut publish =
            switchboard(&["publish", "room:1", "message", number, "--url", "http://127.0.0.1:1"]);
        let message = refusal(&mut publish, 1);
        assert!(message.contains("is a node running there?"), "{message}");
    }
}

#[test]
fn what_cannot_be_published_is_refused_before_anything_is_sent() {
    let mut not_json = switchboard(&["publish", "room:1", "message", "{oops"]);
    assert!(refusal(&mut not_json, 2).contains("must be JSON"));
    for wrong in [&["publish", "", "message", "{}"][..], &["publish", "room:1", "", "{}"]] {
        assert_eq!(run(&mut switchboard(wrong)).status.code(), Some(2));
    }
    let message = refusal(&mut switchboard(&["nodes", "--url", "127.0.0.1:4000"]), 2);
    assert!(message.contains("--url") && message.contains("such as http://127.0.0.1:4000"), "{message}");
}

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n\
    retry: 1000\nevent: listening\nid: 0123456789abcdef-1\ndata: {\"after\":\"0123456789abcdef-1\"}\n\n\
    id: 0123456789abcdef-41\nevent: pruned\ndata: {\"oldest\":\"0123456789abcdef-42\"}\n\n\
    id: 0123456789abcdef-42\ndata: {\"channel\":\"c\",\"event\":\"message\",\"position\":\"0123456789abcdef-42\",\
    \"payload\":{\"n\":\ndata: 9007199254740993}}\n\n\
    data: {\"channel\":\"c\",\"event\":\"typing\",\"payload\":null}\n\n";

#[test]
fn tail_prints_one_line_an_event_and_goes_on_after_the_last_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut tail = switchboard(&["tail", "c", "--url", &url, "--after", "0123456789abcdef-1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    let (mut first, _) = listener.accept().unwrap();
    let head = read_head(&mut first).to_lowercase();
    assert!(head.contains("last-event-id: 0123456789abcdef-1\r\n"), "{head}");
    first.write_all(STREAM.as_bytes()).unwrap();
    drop(first);

    let (mut second, _) = listener.accept().unwrap();
    let head = read_head(&mut second).to_lowercase();
    assert!(head.contains("last-event-id: 0123456789abcdef-42\r\n"), "{head}");
    // One that will not change its mind ends the tail.
    second.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").unwrap();

    let (mut printed, mut said) = (String::new(), String::new());
    tail.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    tail.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(printed, "0123456789abcdef-42\tmessage\t{\"n\": 9007199254740993}\n-\ttyping\tnull\n");
    assert!(said.contains("pruned") && said.contains("trying again"), "{said}");
    assert_eq!(tail.wait().unwrap().code(), Some(1));
}

#[test]
fn nobody_reading_the_output_is_a_normal_end() {
    let (url, _served) = server(STREAM);
    let mut tail = switchboard(&["tail", "c", "--url", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(tail.stdout.take());
    let mut said = String::new();
    tail.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(tail.wait().unwrap().code(), Some(0), "{said}");
    assert!(!said.contains("panic") && !said.contains("error"), "{said}");
}

#[test]
fn nodes_passes_everything_on_as_json() {
    let body = r#"{"data": [], "timing": {"stale_threshold_ms": 30000}}"#;
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (url, _served) = server(answer.leak());
    let output = run(&mut switchboard(&["nodes", "--json", "--url", &url]));
    assert!(output.status.success());
    assert!(stdout(&output).contains("\"stale_threshold_ms\": 30000"), "{}", stdout(&output));
}

#[test]
fn a_probe_finds_the_node_by_its_own_setting_and_says_what_it_says() {
    for (arguments, route) in [(&["health"][..], "/readyz"), (&["health", "--live"][..], "/livez")] {
        let (url, served) = server("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n");
        let port = url.rsplit(':').next().unwrap();
        let output = run(switchboard(arguments).env("HTTP_ADDR", format!(":{port}")));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(stdout(&output), "ok\n");
        assert!(served.join().unwrap().starts_with(&format!("GET {route} ")));
    }
}

#[test]
fn a_probe_of_a_node_that_is_not_ready_fails_and_says_why() {
    let (url, _served) = server("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\nstarting\n");
    let message = refusal(&mut switchboard(&["health", "--url", &url]), 1);
    assert!(message.contains("503") && message.contains("starting"), "{message}");
    let message = refusal(switchboard(&["health"]).env("HTTP_ADDR", "127.0.0.1:1"), 1);
    assert!(message.contains("http://127.0.0.1:1"), "{message}");
    let message = refusal(switchboard(&["health"]).env("HTTP_ADDR", "4000"), 2);
    assert!(message.contains("HTTP_ADDR"), "{message}");
}
