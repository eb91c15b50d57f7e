//! Standbys and failovers. A standby is made of a stopped server by a `standby.signal`, and promoted by SQL.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use futures::StreamExt;
use switchboard_core::lease::LeaseState;
use switchboard_core::node::NodeEnd;
use switchboard_core::ports::{DurableItem, StartFrom};
use switchboard_postgres::PostgresError;
use switchboard_testkit::postgres::StopMode;
use switchboard_testkit::suites::{channel, event, payload};
use tokio::time::timeout;

use crate::cluster::Cluster;

const LONG: Duration = Duration::from_secs(20);

impl Cluster {
    fn data(&self) -> std::path::PathBuf {
        self.server().home().join("data")
    }

    async fn become_standby(&self) {
        self.server().halt(StopMode::Fast).await.unwrap();
        std::fs::write(self.data().join("standby.signal"), "").unwrap();
        self.server().resume().await.unwrap();
    }

    async fn promote(&self) {
        self.sql("SELECT pg_promote()").await;
    }
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn b036_a_standby_is_refused_with_one_clear_message() {
    let cluster = Cluster::with_own_server(&[]).await;
    cluster.ports("migrator").await.close().await;
    cluster.become_standby().await;
    let error = cluster.try_ports(cluster.config("n1")).await.err().expect("a standby was accepted");
    assert!(matches!(error, PostgresError::ReadOnly { .. }), "{error}");
    assert!(error.is_transient(), "a failover may be under way");
    assert!(error.to_string().contains("needs the read-write primary"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b036_a_running_node_that_lands_on_a_standby_says_so_and_uses_the_primary_once_there_is_one() {
    let cluster = Cluster::with_own_server(&[]).await;
    let node = cluster.node("n1").await;
    cluster.become_standby().await;
    let mut status = node.node.status();
    timeout(LONG, status.wait_for(|status| status.lease == Some(LeaseState::Suspended)))
        .await
        .unwrap()
        .unwrap();
    let error = node.node.status().borrow().last_error.clone().unwrap();
    assert!(error.contains("read-only"), "{error}");
    cluster.promote().await;
    // The promoted server's UNLOGGED table is empty: the node is evicted, and its successor registers.
    let end = timeout(LONG, node.node.ended()).await.unwrap();
    assert!(matches!(end, NodeEnd::Evicted(_)), "{end:?}");
    node.kill();
    cluster.node("n1").await.sees(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_kept_everything_goes_on_without_a_reset() {
    let cluster = Cluster::with_own_server(&[]).await;
    let ports = cluster.ports("n1").await;
    let room = channel("room:1");
    let mut events = ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    let before = ports.durable().publish(&room, &event(), &payload("1")).await.unwrap();
    cluster.become_standby().await;
    cluster.promote().await;
    let after = loop {
        if let Ok(position) = ports.durable().publish(&room, &event(), &payload("2")).await {
            break position;
        }
    };
    assert_ne!(before.epoch, after.epoch, "a promotion begins a new history");
    assert_eq!(after.seq, 2);
    for expected in [before, after] {
        let item = timeout(LONG, events.next()).await.unwrap().unwrap();
        assert!(matches!(&item, DurableItem::Event(event) if event.position == expected), "{item:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_lost_the_tail_is_reported_and_numbers_used_again_are_not_mistaken() {
    let cluster = Cluster::with_own_server(&[]).await;
    let ports = cluster.ports("n1").await;
    let room = channel("room:1");
    let mut events = ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    for n in 1..=3 {
        ports.durable().publish(&room, &event(), &payload(&n.to_string())).await.unwrap();
    }
    let copied = cluster.server().home().join("copy");
    cluster.server().halt(StopMode::Fast).await.unwrap();
    copy(&cluster.data(), &copied);
    cluster.server().resume().await.unwrap();
    let mut lost = None;
    while lost.is_none_or(|position: switchboard_core::types::Position| position.seq < 6) {
        lost = ports.durable().publish(&room, &event(), &payload("0")).await.ok().or(lost);
    }
    for _ in 1..=6 {
        timeout(LONG, events.next()).await.unwrap();
    }

    // The copy, which never saw 4 to 6, takes over.
    cluster.server().halt(StopMode::Immediate).await.unwrap();
    std::fs::remove_dir_all(cluster.data()).unwrap();
    std::fs::rename(&copied, cluster.data()).unwrap();
    std::fs::write(cluster.data().join("standby.signal"), "").unwrap();
    cluster.server().resume().await.unwrap();
    cluster.promote().await;

    let item = timeout(LONG, events.next()).await.unwrap().unwrap();
    let DurableItem::Reset { head } = item else { panic!("{item:?}") };
    assert_eq!(head.seq, 3);
    let again = loop {
        if let Ok(position) = ports.durable().publish(&room, &event(), &payload("4")).await {
            break position;
        }
    };
    assert_eq!(again.seq, 4, "the number is used again");
    let item = timeout(LONG, events.next()).await.unwrap().unwrap();
    assert!(matches!(&item, DurableItem::Event(event) if event.position == again), "{item:?}");

    // Who comes back with a position of the lost history is told, even where the number exists again.
    let mut resumed = ports.durable().subscribe(&room, StartFrom::After(lost.unwrap())).await.unwrap();
    let item = timeout(LONG, resumed.next()).await.unwrap().unwrap();
    assert_eq!(item, DurableItem::Reset { head: again });
}

/// Of several hosts the one that takes writes is found, though the first swallows connections, and again after they swapped roles.
#[tokio::test(flavor = "multi_thread")]
async fn b136_of_several_hosts_the_one_that_takes_writes_is_used() {
    let (first, second) = (Cluster::with_own_server(&[]).await, Cluster::with_own_server(&[]).await);
    // One password for both, as two hosts of one cluster have.
    for cluster in [&first, &second] {
        cluster.sql("CREATE ROLE app LOGIN SUPERUSER PASSWORD 'app'").await;
    }
    second.become_standby().await;
    let hole = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = |cluster: &Cluster| {
        let (_, at) = cluster.url.rsplit_once('@').unwrap();
        at.split('/').next().unwrap().to_owned()
    };
    let hosts = format!("{},{},{}", hole.local_addr().unwrap(), address(&second), address(&first));
    let mut config = first.config("n1");
    config.dsn =
        format!("postgres://app:app@{hosts}/postgres?target_session_attrs=read-write&connect_timeout=1")
            .parse()
            .unwrap();
    let node = first.start(config).await;
    node.node.joined().await.unwrap();
    let bus = node.ports.durable();
    bus.publish(&channel("room:1"), &event(), &payload("1")).await.unwrap();

    first.become_standby().await;
    second.promote().await;
    // Its schema is not there yet; the first node that comes makes it.
    let mut successor = second.config("n2");
    successor.schema = first.schema.clone();
    let _migrated = second.start(successor).await;
    // The node is evicted by the new primary, whose table does not know it: it found it without a restart.
    let end = timeout(LONG, node.node.ended()).await.unwrap();
    assert!(matches!(end, NodeEnd::Evicted(_)), "{end:?}");
    loop {
        if bus.publish(&channel("room:1"), &event(), &payload("2")).await.is_ok() {
            break;
        }
    }
    assert_eq!(second.count(&format!("SELECT count(*) FROM \"{}\".event_log", first.schema)).await, 1);
}

/// A host that was taken out of service, with another password, must not end the wait for one that is restarting.
#[tokio::test(flavor = "multi_thread")]
async fn as_long_as_one_host_may_come_back_the_start_waits() {
    let cluster = Cluster::new().await;
    let at = cluster.url.rsplit_once('@').unwrap().1;
    let (host, database) = at.split_once('/').unwrap();
    for (hosts, waits) in [
        (format!("{host},127.0.0.1:1"), true),
        (format!("127.0.0.1:1,{host}"), true),
        (format!("{host},{host}"), false),
    ] {
        let mut config = cluster.config("n1");
        config.dsn = format!("postgres://postgres:wrong@{hosts}/{database}").parse().unwrap();
        let error = cluster.try_ports(config).await.err().expect("a wrong password was accepted");
        assert_eq!(error.is_transient(), waits, "{hosts}: {error}");
    }
}

/// Readers look for the primary themselves: nothing else uses the route that they share with the publishers.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_only_reads_finds_the_primary_among_several_hosts() {
    let cluster = Cluster::new().await;
    let (user, at) = cluster.url.rsplit_once('@').unwrap();
    let (primary, database) = at.split_once('/').unwrap();
    let mut config = cluster.config("n1");
    config.session_dsn = Some(config.dsn);
    config.dsn = format!("{user}@127.0.0.1:1,{primary}/{database}").parse().unwrap();
    let ports = cluster.try_ports(config).await.unwrap();
    let _events = ports.durable().subscribe(&channel("room:1"), StartFrom::Now).await.unwrap();
    assert_eq!(ports.registry().members().await.unwrap(), []);
}
