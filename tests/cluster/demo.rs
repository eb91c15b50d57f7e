//! The demo page in a real browser: two windows on two nodes, driven by `tests/browser/`.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use switchboard_testkit::LONG;

use crate::browser::{Browser, words};
use crate::dev::dev;

/// Node ids, processes and URLs stand in the table that dev prints.
fn nodes(output: &str) -> Vec<Value> {
    let rows = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter_map(|row| match row[..] {
        [id, pid, url] if id.starts_with("node-") && url.starts_with("http://") => {
            Some(json!({"url": url, "pid": pid.parse::<i32>().ok()?}))
        }
        _ => None,
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b120_two_windows_on_two_nodes_talk_and_survive_the_end_of_both() {
    let Some(browser) = Browser::find() else { return };
    let mut dev = dev(&[]).await;
    let nodes = nodes(&dev.output());
    assert_eq!(nodes.len(), 3, "{}", dev.output());
    assert!(
        dev.output().contains(&format!("{}/demo", nodes[0]["url"].as_str().unwrap())),
        "{}",
        dev.output()
    );
    let output = browser.run("demo.test.mjs", &[("DEMO_NODES", Value::from(nodes).to_string())]).await;
    assert!(output.status.success(), "{}\n{}", words(&output), dev.output());
    dev.signal(Signal::SIGTERM);
    assert_eq!(dev.wait(LONG).await.code(), Some(0));
}
