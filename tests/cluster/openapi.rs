//! The description of the HTTP API against a real node: it is valid, and whatever a node answers is in it.

use std::process::Stdio;

use switchboard_testkit::{available, on_path};
use tokio::process::Command;

use crate::node::{Cluster, TOKEN};

/// What an answer must be: no server error, and of a status, a type and a shape that are described. (Whether a node is as strict as a schema can say
/// is not asked: limits are in bytes, schemas count characters.)
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection";

/// Runs a tool to its end.
async fn passes(tool: &mut Command) {
    let output = tool.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b076_whatever_a_client_sends_the_answer_is_one_that_is_described() {
    let tools = ["openapi-spec-validator", "schemathesis"];
    if !tools.iter().all(|tool| available(&format!("{tool} (PyPI)"), on_path(tool))) {
        return;
    }
    let cluster = Cluster::new().await;
    let node = cluster.start("a").await;
    node.sees(1).await;
    let description = format!("{}/api/openapi.json", node.url);
    let file = std::env::temp_dir().join(format!("openapi-{}.json", std::process::id()));
    let text =
        switchboard_testkit::http_client().get(&description).send().await.unwrap().text().await.unwrap();
    std::fs::write(&file, text).unwrap();
    passes(Command::new("openapi-spec-validator").arg(&file)).await;
    let mut schemathesis = Command::new("schemathesis");
    // It leaves notes where it runs.
    schemathesis.current_dir(std::env::temp_dir());
    // From the file: of a node's own description it would leave out the route that it came from.
    schemathesis.arg("run").arg(&file).args(["--url", &node.url, "--checks", CHECKS]);
    schemathesis.args(["--seed", "1", "--max-examples", "40", "--no-color"]);
    schemathesis.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
    passes(&mut schemathesis).await;
    std::fs::remove_file(&file).unwrap();
    node.sees(1).await;
}
