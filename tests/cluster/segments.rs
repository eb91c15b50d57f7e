//! Systems that say they can cut datagrams apart, and cannot.

use std::path::{Path, PathBuf};
use std::process::Command;

use switchboard_testkit::{LONG, eventually};

use crate::mesh::{Ear, command, linked, say, stats};
use crate::node::{Cluster, Node};

/// What the shim says each time.
const REFUSED: &str = "refused to cut datagrams";

/// The shim, built with the compiler that Rust links with.
fn shim() -> PathBuf {
    let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("segments.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster/segments.c");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).args([source, "-ldl"]).status();
    assert!(built.unwrap().success(), "the shim does not build");
    library
}

async fn start(cluster: &Cluster, name: &str, shim: &Path, gso: &str) -> Node {
    let mut command = command(cluster, name);
    command.env("LD_PRELOAD", shim).env("MESH_GSO", gso);
    Node::start(name, command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn b092_the_mesh_does_without_segmentation_offload_where_it_fails() {
    for (gso, tried) in [("on", true), ("off", false)] {
        let (cluster, shim) = (Cluster::new().await, shim());
        let (a, b) = (start(&cluster, "a", &shim, gso).await, start(&cluster, "b", &shim, gso).await);
        linked(&a, "a", &["b"]).await;
        linked(&a, "b", &["a"]).await;
        let mut ear = Ear::on(&b, "room:1").await;
        for n in 0..50 {
            say(&a, format!("{n}{}", "x".repeat(60_000))).await;
            let heard = ear.hears().await;
            assert!(heard.as_str().unwrap().starts_with(&format!("{n}x")), "{n} was lost");
        }
        eventually(LONG, "the link was used", async || {
            stats(&a, "a").await["mesh"]["peers"]["b"]["sent_total"].as_u64().unwrap_or_default() > 0
        })
        .await;
        let output = a.process.output();
        assert_eq!(output.contains(REFUSED), tried, "{output}");
        assert_eq!(output.matches("sendmsg error").count(), usize::from(tried), "{output}");
    }
}
