//! The demo page in a real browser: two windows on two nodes, driven by `tests/browser/`.

use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use switchboard_testkit::{LONG, available};
use tokio::process::Command;

use crate::dev::dev;

/// Debian's name, and others'.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

fn browser() -> Option<String> {
    let path = std::env::var_os("PATH")?;
    let candidates =
        std::env::split_paths(&path).flat_map(|directory| BROWSERS.map(|name| directory.join(name)));
    candidates.into_iter().find(|path| path.is_file()).map(|path| path.display().to_string())
}

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
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
    let browser = browser();
    let is_installed = directory.join("node_modules/playwright-core").is_dir();
    if !available("Chromium", browser.is_some())
        || !available("playwright-core (`npm ci` in tests/browser)", is_installed)
    {
        return;
    }
    let mut dev = dev(&[]).await;
    let nodes = nodes(&dev.output());
    assert_eq!(nodes.len(), 3, "{}", dev.output());
    assert!(
        dev.output().contains(&format!("{}/demo", nodes[0]["url"].as_str().unwrap())),
        "{}",
        dev.output()
    );
    let mut tests = Command::new("node");
    tests.args(["--test", "demo.test.mjs"]).current_dir(directory).stdin(Stdio::null()).kill_on_drop(true);
    tests.env("DEMO_NODES", Value::from(nodes).to_string()).env("CHROMIUM", browser.unwrap());
    let output = tests.output().await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}\n{}", dev.output());
    dev.signal(Signal::SIGTERM);
    assert_eq!(dev.wait(LONG).await.code(), Some(0));
}
