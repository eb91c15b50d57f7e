//! Backups that are restored: what `docs/operations.md` says about them.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use futures::StreamExt;
use switchboard_core::ports::{DurableBus, DurableItem, StartFrom};
use switchboard_core::types::Position;
use switchboard_postgres::Postgres;
use switchboard_testkit::eventually;
use switchboard_testkit::postgres::StopMode;
use switchboard_testkit::suites::{channel, event, payload};
use tokio::time::timeout;

use crate::cluster::Cluster;

const LONG: Duration = Duration::from_secs(20);
const GHOSTS: &str = "SELECT count(*) FROM {schema}.node_registry WHERE node_id = 'n1'";

async fn publish(ports: &Postgres, text: &str) -> Position {
    let bus = ports.durable();
    loop {
        // The first attempts may meet the restart.
        if let Ok(position) = bus.publish(&channel("room:1"), &event(), &payload(text)).await {
            return position;
        }
    }
}

/// What somebody is told first who comes back with a position.
async fn first_after(bus: &dyn DurableBus, position: Position) -> DurableItem {
    let mut events = bus.subscribe(&channel("room:1"), StartFrom::After(position)).await.unwrap();
    timeout(LONG, events.next()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn b015_a_dump_brings_no_ghosts_to_another_server_and_positions_from_after_it_are_refused() {
    let old = Cluster::with_own_server(&[]).await;
    let node = old.node("n1").await;
    let ports = old.ports("publisher").await;
    let kept = [publish(&ports, "1").await, publish(&ports, "2").await];
    let bin = old.server().installation().bin_dir().to_owned();
    let dump = Command::new(bin.join("pg_dump")).arg(&old.url).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let lost = publish(&ports, "3").await;
    node.kill();

    let mut new = Cluster::with_own_server(&[]).await;
    new.schema = old.schema.clone();
    let mut psql = Command::new(bin.join("psql"))
        .args([&new.url, "--quiet", "--set=ON_ERROR_STOP=1"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    psql.stdin.take().unwrap().write_all(&dump.stdout).unwrap();
    assert!(psql.wait().unwrap().success());
    assert_eq!(new.count(GHOSTS).await, 1, "the dump has no rows of nodes");
    // As old as backups are.
    new.sql("UPDATE {schema}.node_registry SET heartbeat = heartbeat - interval '2 months'").await;

    let node = new.node("n2").await;
    eventually(new.timing.cadence() * 2, "the ghost is gone", async || new.count(GHOSTS).await == 0).await;
    node.sees(1).await;
    let ports = new.ports("publisher").await;
    let bus = ports.durable();
    let told = first_after(&*bus, kept[0]).await;
    assert!(matches!(&told, DurableItem::Event(event) if event.position == kept[1]), "{told:?}");
    let again = publish(&ports, "30").await;
    assert_eq!(again.seq, lost.seq, "the number is used again");
    assert_eq!(first_after(&*bus, lost).await, DurableItem::Reset { head: again });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_disk_that_is_started_by_recovery_begins_a_new_history() {
    let cluster = Cluster::with_own_server(&[]).await;
    let ports = cluster.ports("n1").await;
    publish(&ports, "1").await;
    let (data, copied) = (cluster.server().home().join("data"), cluster.server().home().join("copy"));
    cluster.server().halt(StopMode::Fast).await.unwrap();
    assert!(Command::new("cp").arg("-a").arg(&data).arg(&copied).status().unwrap().success());
    cluster.server().resume().await.unwrap();
    let lost = publish(&ports, "2").await;

    cluster.server().halt(StopMode::Fast).await.unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&copied, &data).unwrap();
    std::fs::write(data.join("recovery.signal"), "").unwrap();
    let mut settings =
        std::fs::OpenOptions::new().append(true).open(data.join("postgresql.auto.conf")).unwrap();
    writeln!(settings, "restore_command = 'false'").unwrap();
    cluster.server().resume().await.unwrap();
    eventually(LONG, "recovery is over", async || {
        cluster.count("SELECT count(*) WHERE NOT pg_is_in_recovery()").await == 1
    })
    .await;

    assert!(!data.join("recovery.signal").exists());
    let again = publish(&ports, "20").await;
    assert_eq!(again.seq, lost.seq, "the number is used again");
    assert_eq!(first_after(&*ports.durable(), lost).await, DurableItem::Reset { head: again });
}
