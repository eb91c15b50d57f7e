//! What happens to the database, and what the nodes make of it.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::Row;
use switchboard_testkit::postgres::StopMode;
use switchboard_testkit::process::Process;
use switchboard_testkit::proxy::{Mode, Proxy};
use switchboard_testkit::{LONG, eventually};
use tokio::time::sleep;

use crate::node::{CROWDED, Cluster, HEARTBEAT, Node, THRESHOLD};

#[tokio::test(flavor = "multi_thread")]
async fn b001_a_database_frozen_for_a_minute_evicts_nobody() {
    let cluster = Cluster::with_own_server(&[]).await;
    let mut nodes = cluster.nodes(["a", "b", "c"]).await;
    sleep(THRESHOLD * 2).await;
    cluster.server().freeze();
    for node in &nodes {
        node.unhealthy("suspended").await;
        assert_eq!(node.get("/livez").await.unwrap().0, 200);
        assert_eq!(node.get("/readyz").await.unwrap().0, 503);
    }
    sleep(Duration::from_mins(1)).await;
    cluster.server().thaw();
    let thawed = Instant::now();
    for node in &nodes {
        node.sees(3).await;
    }
    assert!(thawed.elapsed() < HEARTBEAT * 2 + CROWDED, "{:?}", thawed.elapsed());
    // Nobody is convicted by what the freeze left behind.
    sleep(THRESHOLD * 3).await;
    for node in &mut nodes {
        assert_eq!(node.process.ended(), None, "{}", node.process.output());
        node.sees(3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b005_a_short_outage_at_any_phase_convicts_nobody() {
    let cluster = Cluster::with_own_server(&[]).await;
    let [witness] = cluster.nodes(["witness"]).await;
    let target = cluster.url.rsplit_once('@').unwrap().1.split('/').next().unwrap().parse().unwrap();
    let proxy = Proxy::start(target).await;
    let mut command = cluster.command("a");
    command.env("DATABASE_URL", cluster.url.replace(&target.to_string(), &proxy.address().to_string()));
    let mut node = Node::start("a", command).await;
    node.sees(2).await;
    sleep(THRESHOLD + HEARTBEAT).await;
    // A quarter of the threshold, as 8 s are of 30 s.
    for phase in 0..20_u64 {
        sleep(Duration::from_millis(phase * 27)).await;
        proxy.set(Mode::Refuse);
        if phase % 2 == 0 {
            proxy.reset();
        } else {
            proxy.cut();
        }
        sleep(THRESHOLD / 4).await;
        let end: String = cluster.sql("SELECT clock_timestamp()::text").await[0].get(0);
        proxy.set(Mode::Forward);
        assert_eq!(cluster.rows("a").await, 1, "phase {phase}");
        // Only a renewal ends an outage: two that follow each other before it are one that is longer.
        let renewed = format!(
            "SELECT count(*) FROM {{schema}}.node_registry WHERE node_id = 'a' AND heartbeat > '{end}'"
        );
        eventually(LONG, "a renewal after the outage", async || cluster.count(&renewed).await == 1).await;
        node.sees(2).await;
    }
    assert_eq!(node.process.ended(), None);
    assert_eq!(witness.peers().await, ["a"]);
}

/// The path to PostgreSQL becomes a black hole: no error, no answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_suspends_a_node_and_its_peers_sweep_it() {
    let cluster = Cluster::with_own_server(&[]).await;
    let [witness] = cluster.nodes(["witness"]).await;
    let target = cluster.url.rsplit_once('@').unwrap().1.split('/').next().unwrap().parse().unwrap();
    for hole in [Mode::Stall, Mode::StallAnswers] {
        let proxy = Proxy::start(target).await;
        let mut command = cluster.command("a");
        command.env("DATABASE_URL", cluster.url.replace(&target.to_string(), &proxy.address().to_string()));
        let mut node = Node::start("a", command).await;
        witness.sees(2).await;
        sleep(THRESHOLD + HEARTBEAT).await;
        proxy.set(hole);
        node.unhealthy("suspended").await;
        if hole == Mode::Stall {
            witness.sees(1).await;
            proxy.set(Mode::Forward);
            assert_eq!(node.process.wait(LONG).await.code(), Some(1), "{}", node.process.output());
        } else {
            // Its heartbeats get through although it does not know: nobody may sweep it, and it comes back.
            assert_eq!(cluster.rows("a").await, 1);
            proxy.set(Mode::Forward);
            node.sees(2).await;
            node.process.terminate().await;
            witness.sees(1).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b035_after_a_crash_of_the_database_all_nodes_evict_themselves_and_their_successors_register() {
    let cluster = Cluster::with_own_server(&[]).await;
    let mut nodes = cluster.nodes(["a", "b", "c"]).await;
    let (status, before) = nodes[0].publish("room:1", &json!({"event": "message", "payload": 1})).await;
    assert_eq!(status, 201);
    cluster.server().restart(StopMode::Immediate).await.unwrap();
    for node in &mut nodes {
        assert_eq!(node.process.wait(LONG).await.code(), Some(1), "{}", node.process.output());
    }
    let again = cluster.nodes(["a", "b", "c"]).await;
    assert_eq!(cluster.count("SELECT count(DISTINCT seq) FROM {schema}.node_registry").await, 3);
    let (_, page) = again[1].get("/api/channels/room:1/events").await.unwrap();
    assert_eq!(page["data"][0]["position"], before["position"], "a stored event was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn b040_nodes_wait_for_a_database_that_comes_later() {
    let cluster = Cluster::with_own_server(&[]).await;
    cluster.server().halt(StopMode::Fast).await.unwrap();
    let mut nodes = [cluster.start("a").await, cluster.start("b").await];
    let mut elsewhere = cluster.command("c");
    elsewhere.env("DATABASE_URL", "postgres://u:p@no-such-host.invalid/db");
    let mut elsewhere = Node::start("c", elsewhere).await;
    for node in &nodes {
        node.unhealthy("cannot use PostgreSQL yet").await;
        assert_eq!(node.get("/livez").await.unwrap().0, 200);
    }
    sleep(Duration::from_secs(15)).await;
    for node in &mut nodes {
        assert_eq!(node.process.ended(), None, "{}", node.process.output());
    }
    assert_eq!(elsewhere.process.ended(), None, "{}", elsewhere.process.output());
    cluster.server().resume().await.unwrap();
    for node in &nodes {
        node.sees(2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b040_what_a_person_must_mend_fails_fast_and_never_shows_the_password() {
    let cluster = Cluster::with_own_server(&[]).await;
    let at = cluster.url.rsplit_once('@').unwrap().1;
    let address = at.split('/').next().unwrap();
    for (url, part) in [
        (format!("postgres://postgres:wr0ng-secret@{at}"), "28P01"),
        (format!("{}-missing", cluster.url), "3D000"),
        (format!("postgres://nobody:wr0ng-secret@{address}/postgres"), "28"),
    ] {
        let mut command = cluster.command("a");
        command.env("DATABASE_URL", &url);
        let mut node = Process::start("a", command);
        let started = Instant::now();
        assert_eq!(node.wait(LONG).await.code(), Some(1), "{}", node.output());
        assert!(started.elapsed() < Duration::from_secs(10));
        let said = node.output();
        assert!(said.contains(part), "{part} is missing in\n{said}");
        assert!(
            !said.contains("wr0ng-secret") && !said.contains(cluster.url.split('@').next().unwrap()),
            "{said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b041_restarts_and_lost_connections_are_survived_by_the_processes() {
    let cluster = Cluster::with_own_server(&[]).await;
    let mut nodes = cluster.nodes(["a", "b", "c"]).await;
    for _ in 0..5 {
        cluster.server().restart(StopMode::Fast).await.unwrap();
        let back = Instant::now();
        eventually(Duration::from_secs(5), "an event crosses again", async || {
            nodes[0].publish("room:1", &json!({"event": "message", "payload": 1})).await.0 == 201
        })
        .await;
        for node in &nodes {
            node.sees(3).await;
        }
        assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
    }
    for node in &mut nodes {
        assert_eq!(node.process.ended(), None);
        assert!(!node.process.output().contains("panicked"), "{}", node.process.output());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b139_probes_restart_nobody_while_the_database_is_away() {
    let cluster = Cluster::with_own_server(&[]).await;
    let mut nodes = cluster.nodes(["a", "b"]).await;
    cluster.server().halt(StopMode::Fast).await.unwrap();
    let ends = Instant::now() + THRESHOLD * 5;
    let mut unready = false;
    while Instant::now() < ends {
        for node in &nodes {
            assert_eq!(node.get("/livez").await.unwrap().0, 200);
            let (status, body) = node.get("/readyz").await.unwrap();
            if status == 503 {
                unready = true;
                assert!(body.as_str().unwrap().len() > 10, "a reason is missing: {body}");
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    assert!(unready, "the nodes stayed ready without a database");
    cluster.server().resume().await.unwrap();
    for node in &mut nodes {
        node.sees(2).await;
        assert_eq!(node.process.ended(), None);
    }
}
