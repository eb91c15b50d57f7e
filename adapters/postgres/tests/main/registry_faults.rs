//! Faults that people reported of registries, heartbeats and sweeps, on a real PostgreSQL.

use std::time::Duration;

use sqlx::Row;
use switchboard_core::lease::LeaseState;
use switchboard_core::node::NodeEnd;
use switchboard_core::ports::{Heartbeat, Registration, RegistryError, SweepScope};
use switchboard_core::timing::Timing;
use switchboard_core::types::{Identity, NodeId, Stats};
use switchboard_testkit::eventually;
use switchboard_testkit::suites::{channel, event, payload};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::{Cluster, Member};

const LONG: Duration = Duration::from_secs(20);

fn registration(identity: &Identity, timing: Timing) -> Registration {
    Registration {
        identity: identity.clone(),
        endpoint: "127.0.0.1:4000".parse().unwrap(),
        meta: Stats::default(),
        timing,
    }
}

fn heartbeat(identity: &Identity, timing: Timing, witness: OffsetDateTime) -> Heartbeat {
    Heartbeat {
        identity: identity.clone(),
        stats: Stats::default(),
        sweep: SweepScope::Stale,
        witness,
        timing,
    }
}

async fn evicted(member: &Member) {
    let end = timeout(LONG, member.node.ended()).await.expect("the node goes on");
    assert!(matches!(end, NodeEnd::Evicted(_)), "{end:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b001_after_a_stall_the_first_node_back_evicts_nobody() {
    let cluster = Cluster::new().await;
    let nodes = [cluster.node("n1").await, cluster.node("n2").await, cluster.node("n3").await];
    for node in &nodes {
        node.sees(3).await;
    }
    // Long enough for every node to have evidence against the stale.
    sleep(cluster.timing.stale_threshold() * 2).await;
    for _ in 0..5 {
        cluster.sql("UPDATE {schema}.node_registry SET heartbeat = heartbeat - interval '60 s'").await;
        sleep(cluster.timing.cadence() * 3 / 2).await;
        assert_eq!(cluster.count("SELECT count(*) FROM {schema}.node_registry").await, 3);
    }
    for node in &nodes {
        assert_eq!(node.node.status().borrow().lease, Some(LeaseState::Active));
        assert_eq!(node.node.membership().borrow().size(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b001_a_frozen_server_suspends_everybody_and_evicts_nobody() {
    let cluster = Cluster::with_own_server(&[]).await;
    let nodes = [cluster.node("n1").await, cluster.node("n2").await, cluster.node("n3").await];
    for node in &nodes {
        node.sees(3).await;
    }
    sleep(cluster.timing.stale_threshold() * 2).await;
    cluster.server().freeze();
    for node in &nodes {
        let mut status = node.node.status();
        timeout(LONG, status.wait_for(|status| status.lease == Some(LeaseState::Suspended)))
            .await
            .unwrap()
            .unwrap();
        assert!(!node.node.status().borrow().is_active());
    }
    sleep(cluster.timing.stale_threshold() * 2).await;
    cluster.server().thaw();
    for node in &nodes {
        let mut status = node.node.status();
        timeout(LONG, status.wait_for(|status| status.lease == Some(LeaseState::Active)))
            .await
            .unwrap()
            .unwrap();
    }
    sleep(cluster.timing.stale_threshold() * 2).await;
    for node in &nodes {
        assert_eq!(node.node.status().borrow().lease, Some(LeaseState::Active), "evicted after the stall");
        node.sees(3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b002_a_node_whose_heartbeats_are_refused_is_suspended_and_ends_when_it_was_swept() {
    let cluster = Cluster::new().await;
    let role = format!("r_{:08x}", rand::random::<u32>());
    cluster.ports("migrator").await.close().await;
    cluster.sql(&format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'")).await;
    cluster.sql(&format!("GRANT USAGE ON SCHEMA {{schema}} TO {role}")).await;
    cluster.sql(&format!("GRANT ALL ON ALL TABLES IN SCHEMA {{schema}} TO {role}")).await;
    cluster.sql(&format!("GRANT ALL ON ALL SEQUENCES IN SCHEMA {{schema}} TO {role}")).await;

    let mut config = cluster.config("n2");
    let at = cluster.url.rsplit_once('@').unwrap().1;
    config.dsn = format!("postgres://{role}:secret@{at}").parse().unwrap();
    let n1 = cluster.node("n1").await;
    let n2 = cluster.start(config).await;
    n2.node.joined().await.unwrap();
    n1.sees(2).await;

    cluster.sql(&format!("REVOKE UPDATE ON {{schema}}.node_registry FROM {role}")).await;
    let mut status = n2.node.status();
    timeout(LONG, status.wait_for(|status| status.lease == Some(LeaseState::Suspended)))
        .await
        .unwrap()
        .unwrap();
    let error = n2.node.status().borrow().last_error.clone().unwrap();
    assert!(error.contains("42501"), "{error}");
    n1.sees(1).await;

    cluster.sql(&format!("GRANT UPDATE ON {{schema}}.node_registry TO {role}")).await;
    evicted(&n2).await;
    drop(n2);
    cluster.sql(&format!("DROP OWNED BY {role}")).await;
    cluster.sql(&format!("DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b004_a_node_never_lists_or_sweeps_itself_whatever_the_table_says() {
    let cluster = Cluster::new().await;
    let n1 = cluster.node("n1").await;
    sleep(cluster.timing.stale_threshold() * 2).await;
    // Its own row looks dead in the read that follows its own write.
    for _ in 0..10 {
        cluster.sql("UPDATE {schema}.node_registry SET heartbeat = heartbeat - interval '1 hour'").await;
        sleep(cluster.timing.cadence() / 3).await;
        let view = n1.node.membership().borrow().clone();
        assert_eq!((view.size(), view.peers().len()), (1, 0));
    }
    assert_eq!(n1.node.status().borrow().lease, Some(LeaseState::Active));
    cluster.sql("DELETE FROM {schema}.node_registry").await;
    evicted(&n1).await;
    assert_eq!(n1.node.membership().borrow().size(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b010_time_zones_change_no_age_and_no_timestamp() {
    let cluster = Cluster::with_own_server(&[("timezone", "Asia/Kolkata")]).await;
    cluster.sql("ALTER DATABASE postgres SET timezone = 'America/St_Johns'").await;
    let (n1, n2) = (cluster.node("n1").await, cluster.node("n2").await);
    n1.sees(2).await;
    sleep(cluster.timing.stale_threshold() * 2).await;
    n2.sees(2).await;
    let members = n1.ports.registry().members().await.unwrap();
    for member in members {
        assert!(member.age < cluster.timing.stale_threshold(), "{:?}", member.age);
        let behind = OffsetDateTime::now_utc() - member.heartbeat;
        assert!(behind.as_seconds_f64().abs() < 5.0, "{behind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b015_one_node_alone_clears_the_ghosts_with_its_first_heartbeat() {
    let cluster = Cluster::new().await;
    cluster.ports("migrator").await.close().await;
    cluster
        .sql(
            "INSERT INTO {schema}.node_registry (node_id, endpoint, heartbeat) \
             SELECT 'ghost-' || n, '192.0.2.1:4000', now() - interval '2 months' FROM generate_series(1, 50) n",
        )
        .await;
    let n1 = cluster.node("n1").await;
    eventually(cluster.timing.cadence() * 2, "the ghosts are gone", async || {
        cluster.count("SELECT count(*) FROM {schema}.node_registry").await == 1
    })
    .await;
    n1.sees(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b016_a_node_whose_row_was_deleted_does_not_go_on_without_one() {
    let cluster = Cluster::new().await;
    let (n1, n2) = (cluster.node("n1").await, cluster.node("n2").await);
    n2.sees(2).await;
    let deleted = Instant::now();
    cluster.sql("DELETE FROM {schema}.node_registry WHERE node_id = 'n1'").await;
    evicted(&n1).await;
    assert!(deleted.elapsed() < cluster.timing.heartbeat_interval() * 3, "{:?}", deleted.elapsed());
    n2.sees(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b017_a_second_live_process_with_the_same_id_is_refused_and_told_where_the_first_is() {
    let cluster = Cluster::new().await;
    let first = cluster.node("app-1").await;
    let second = cluster.start(cluster.config("app-1")).await;
    let end = timeout(LONG, second.node.ended()).await.unwrap();
    let NodeEnd::Refused(error) = end else { panic!("{end:?}") };
    let text = error.to_string();
    assert!(
        text.contains("app-1") && text.contains("127.0.0.1:4000") && text.contains("CLUSTER_NODE_ID"),
        "{text}"
    );
    assert_eq!(first.node.status().borrow().lease, Some(LeaseState::Active));

    first.kill();
    let successor = cluster.node("app-1").await;
    assert_eq!(
        successor.node.status().borrow().lease,
        Some(LeaseState::Active),
        "a dead holder is replaced at once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn b017_of_many_that_start_at_once_with_one_id_exactly_one_lives() {
    let cluster = Cluster::new().await;
    for _ in 0..3 {
        let starts = (0..6).map(|_| cluster.start(cluster.config("app")));
        let mut contenders = futures::future::join_all(starts).await;
        let ends = contenders.iter().map(|member| async {
            tokio::select! {
                joined = member.node.joined() => joined.is_ok(),
                _ = member.node.ended() => false,
            }
        });
        let joined: Vec<bool> = timeout(LONG, futures::future::join_all(ends)).await.unwrap();
        assert_eq!(joined.iter().filter(|joined| **joined).count(), 1, "{joined:?}");
        sleep(cluster.timing.cadence() * 2).await;
        let winner = contenders.swap_remove(joined.iter().position(|joined| *joined).unwrap());
        assert_eq!(winner.node.status().borrow().lease, Some(LeaseState::Active), "the winner was replaced");
        winner.node.leave(LONG).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b017_a_holder_that_is_stale_is_replaced_although_its_session_still_has_the_lock() {
    let cluster = Cluster::new().await;
    let holder = cluster.ports("app").await;
    let identity = Identity::fresh(NodeId::parse("app").unwrap());
    let held = holder.registry().register(&registration(&identity, cluster.timing)).await.unwrap();
    // Paused: its session lives, its heartbeats do not.
    sleep(cluster.timing.stale_threshold()).await;
    let successor = cluster.node("app").await;
    assert!(matches!(
        holder.registry().renew(&heartbeat(&identity, cluster.timing, held.heartbeat)).await,
        Err(RegistryError::Evicted(evicted)) if evicted == identity
    ));
    sleep(cluster.timing.cadence() * 2).await;
    assert_eq!(successor.node.status().borrow().lease, Some(LeaseState::Active));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b021_twenty_nodes_that_are_all_stale_sweep_without_a_deadlock() {
    let cluster = Cluster::with_own_server(&[("max_connections", "200")]).await;
    let mut nodes = Vec::new();
    for n in 0..20 {
        let ports = cluster.ports(&format!("n{n}")).await;
        nodes.push((ports, Identity::fresh(NodeId::parse(&format!("n{n}")).unwrap())));
    }
    let mut swept = 0;
    for _ in 0..50 {
        let mut ticks = Vec::new();
        for (ports, identity) in &nodes {
            let registered =
                ports.registry().register(&registration(identity, cluster.timing)).await.unwrap();
            ticks.push((ports.registry(), heartbeat(identity, cluster.timing, registered.heartbeat)));
        }
        // Every other one is stale, and everybody ticks at once.
        let odd = "right(node_id, 1) IN ('1', '3', '5', '7', '9')";
        cluster
            .sql(&format!(
                "UPDATE {{schema}}.node_registry SET heartbeat = now() - interval '1 min' WHERE {odd}"
            ))
            .await;
        let renewals = ticks.iter().map(|(registry, heartbeat)| registry.renew(heartbeat));
        for result in futures::future::join_all(renewals).await {
            match result {
                Ok(renewed) => swept += renewed.swept.len(),
                Err(RegistryError::Evicted(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(swept > 0, "nobody was ever swept");
    let log = std::fs::read_to_string(cluster.server().log_file()).unwrap();
    assert!(!log.contains("deadlock detected"));
}

#[tokio::test(flavor = "multi_thread")]
async fn b023_busy_publishers_and_readers_do_not_delay_heartbeats() {
    let cluster = Cluster::new().await;
    let node = cluster.node("n1").await;
    cluster
        .sql("CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(20); RETURN NEW; END $$")
        .await;
    cluster.sql("CREATE TRIGGER slow BEFORE INSERT ON {schema}.event_log FOR EACH ROW EXECUTE FUNCTION {schema}.slow()").await;
    let publishes: Vec<_> = (0..200)
        .map(|n| {
            let bus = node.ports.durable();
            tokio::spawn(async move {
                let room = channel(&format!("room:{n}"));
                let _ = bus.publish(&room, &event(), &payload("1")).await;
            })
        })
        .collect();
    let end = Instant::now() + cluster.timing.stale_threshold() * 3;
    while Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
        let age = node.node.status().borrow().heartbeat_age().unwrap();
        assert!(age < cluster.timing.heartbeat_interval() * 3, "heartbeat is {age:?} old");
    }
    publishes.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b028_an_idle_cluster_writes_one_row_a_tick_and_nothing_else() {
    let cluster = Cluster::with_own_server(&[("max_connections", "100")]).await;
    let mut nodes = Vec::new();
    for n in 0..10 {
        nodes.push(cluster.node(&format!("n{n}")).await);
    }
    for node in &nodes {
        node.sees(10).await;
    }
    let writes = "SELECT (n_tup_ins + n_tup_upd + n_tup_del)::bigint FROM pg_stat_user_tables WHERE relname = 'node_registry'";
    let flushed = async || {
        // Sessions report their counts at most once a second.
        sleep(Duration::from_millis(1500)).await;
        cluster.count(writes).await
    };
    let (before, started) = (flushed().await, Instant::now());
    sleep(cluster.timing.cadence() * 20).await;
    let written = flushed().await - before;
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small numbers")]
    let allowed =
        (started.elapsed().as_secs_f64() / cluster.timing.cadence().as_secs_f64() * 10.0 * 1.2) as i64 + 20;
    assert!(written <= allowed, "{written} writes where {allowed} are allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn b035_a_crash_of_one_backend_empties_the_table_and_every_node_evicts_itself() {
    let cluster = Cluster::with_own_server(&[]).await;
    let nodes = [cluster.node("n1").await, cluster.node("n2").await, cluster.node("n3").await];
    nodes[0].sees(3).await;
    let room = channel("room:1");
    let stored = nodes[0].ports.durable().publish(&room, &event(), &payload("1")).await.unwrap();
    let pid: i32 = cluster.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'switchboard pool n1' OR application_name LIKE 'switchboard durable%' LIMIT 1").await[0].get(0);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    for node in &nodes {
        evicted(node).await;
    }
    drop(nodes);
    // Their supervisor starts them again.
    let again = [cluster.node("n1").await, cluster.node("n2").await, cluster.node("n3").await];
    for node in &again {
        node.sees(3).await;
    }
    assert_eq!(cluster.count("SELECT count(DISTINCT seq) FROM {schema}.node_registry").await, 3);
    let history = again[1].ports.durable().history(&room, None, 10).await.unwrap();
    let switchboard_core::ports::History::Page(events) = history else { panic!("{history:?}") };
    assert_eq!(events[0].position, stored, "a stored event was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn b038_nodes_that_boot_together_on_an_empty_database_all_come_up() {
    for _ in 0..20 {
        let cluster = Cluster::new().await;
        let connects = (0..8).map(|n| cluster.try_ports(cluster.config(&format!("n{n}"))));
        for result in futures::future::join_all(connects).await {
            result.unwrap().close().await;
        }
        assert_eq!(cluster.count("SELECT count(*) FROM {schema}.schema_version").await, 1);
        cluster.sql("DROP SCHEMA {schema} CASCADE").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b057_three_nodes_fit_into_twenty_connections() {
    let cluster = Cluster::with_own_server(&[("max_connections", "20")]).await;
    let nodes = [cluster.node("n1").await, cluster.node("n2").await, cluster.node("n3").await];
    for node in &nodes {
        node.sees(3).await;
        let room = channel("room:1");
        node.ports.durable().publish(&room, &event(), &payload("1")).await.unwrap();
        node.ports.ephemeral().publish(&room, &event(), &payload("1")).await.unwrap();
        node.ports.durable().history(&room, None, 10).await.unwrap();
    }
    let used = cluster
        .count("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'switchboard %'")
        .await;
    let documented = i64::from(cluster.config("n1").max_connections()) * 3;
    assert!(used <= documented, "{used} connections where {documented} are documented");

    // No connection is left for anybody else: the heartbeat's is the one that is kept.
    let mut hogs = Vec::new();
    while let Ok(hog) = <sqlx::PgConnection as sqlx::Connection>::connect(&cluster.url).await {
        hogs.push(hog);
    }
    sleep(cluster.timing.stale_threshold() * 2).await;
    for node in &nodes {
        assert!(node.node.status().borrow().is_active());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_blocked_by_a_lock_neither_pile_up_nor_stay_behind() {
    let cluster = Cluster::new().await;
    let node = cluster.node("n1").await;
    let mut blocker = cluster.connection().await;
    cluster.sql_on(&mut blocker, "BEGIN").await;
    cluster.sql_on(&mut blocker, "SELECT FROM {schema}.node_registry WHERE node_id = 'n1' FOR UPDATE").await;
    let mut status = node.node.status();
    timeout(LONG, status.wait_for(|status| status.lease == Some(LeaseState::Suspended)))
        .await
        .unwrap()
        .unwrap();
    sleep(cluster.timing.stale_threshold() * 2).await;
    let waiting = cluster
        .count(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{}%'",
            cluster.schema
        ))
        .await;
    // A given-up renewal lives on the server until its own time-out, so a few may overlap.
    assert!(waiting <= 12, "{waiting} renewals wait on the server");
    cluster.sql_on(&mut blocker, "ROLLBACK").await;
    timeout(LONG, status.wait_for(|status| status.lease == Some(LeaseState::Active))).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_no_node_wrote_cost_nobody_a_heartbeat() {
    let cluster = Cluster::new().await;
    let node = cluster.node("n1").await;
    cluster
        .sql("INSERT INTO {schema}.node_registry (node_id, endpoint, stats) VALUES (E'two\\nlines', 'x', '[]'), ('', '', '1')")
        .await;
    sleep(cluster.timing.cadence() * 3).await;
    assert!(node.node.status().borrow().is_active(), "{:?}", node.node.status().borrow().last_error);
    assert_eq!(node.node.membership().borrow().size(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_nobody_can_subtract_or_read_cost_nobody_a_heartbeat() {
    let cluster = Cluster::new().await;
    let (node, ports) = (cluster.node("n1").await, cluster.ports("n2").await);
    cluster
        .sql(
            "INSERT INTO {schema}.node_registry (node_id, endpoint, registered_at, heartbeat, stale_after) VALUES
             ('never', 'h:1', now(), '-infinity', '0'), ('always', 'h:2', 'infinity', 'infinity', '0'),
             ('late', 'h:3', '290000-01-01', '290000-01-01', '0'), ('early', 'h:4', '0044-01-01 BC', now(), '170000 years')",
        )
        .await;
    // As an operator might, to have it swept.
    cluster.sql("UPDATE {schema}.node_registry SET heartbeat = '-infinity' WHERE node_id = 'n1'").await;
    let mut membership = node.node.membership();
    let swept = membership.wait_for(|view| view.size() == 4);
    timeout(LONG, swept).await.expect("the one that never beat is not swept").unwrap();
    sleep(cluster.timing.cadence() * 3).await;
    assert!(node.node.status().borrow().is_active(), "{:?}", node.node.status().borrow().last_error);
    let members = ports.registry().members().await.unwrap();
    let names: Vec<_> = members.iter().map(|member| member.identity.node_id.as_str()).collect();
    assert_eq!(names, ["n1", "always", "late", "early"]);
    assert!(members[0].age < LONG && members.iter().all(|member| member.registered_at.year() >= 2000));
    // Whoever has such a row's id gets in as with any other that is stale.
    cluster.sql("UPDATE {schema}.node_registry SET heartbeat = '-infinity' WHERE node_id = 'always'").await;
    cluster.node("always").await.sees(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cannot_be_read_is_replaced_as_any_other_that_is_stale() {
    let cluster = Cluster::new().await;
    cluster.ports("migrator").await.close().await;
    cluster
        .sql("INSERT INTO {schema}.node_registry (node_id, endpoint, heartbeat) VALUES ('n1', 'two hosts', now() - interval '1 min')")
        .await;
    cluster.node("n1").await.sees(1).await;
}

/// A frozen server carries out in any order what it was sent; a sweep that was sent before the freeze must not be believed after it.
#[tokio::test(flavor = "multi_thread")]
async fn b001_a_renewal_that_is_carried_out_late_sweeps_nobody() {
    let cluster = Cluster::new().await;
    let ports = cluster.ports("n1").await;
    let identity = Identity::fresh(NodeId::parse("n1").unwrap());
    let registered = ports.registry().register(&registration(&identity, cluster.timing)).await.unwrap();
    let sent_before_the_freeze = heartbeat(&identity, cluster.timing, registered.heartbeat);
    cluster
        .sql("INSERT INTO {schema}.node_registry (node_id, endpoint, heartbeat) VALUES ('n2', 'h:1', now() - interval '5 s')")
        .await;
    // The one that was sent last overtakes it.
    let overtaking = Heartbeat { sweep: SweepScope::Ghosts, ..sent_before_the_freeze.clone() };
    ports.registry().renew(&overtaking).await.unwrap();
    let late = ports.registry().renew(&sent_before_the_freeze).await.unwrap();
    assert_eq!(late.swept, []);
    assert_eq!(late.members.len(), 2);
    // With the right witness the same row is swept.
    let swept = ports
        .registry()
        .renew(&Heartbeat { witness: late.heartbeat, ..sent_before_the_freeze })
        .await
        .unwrap();
    assert_eq!(swept.swept.len(), 1);
    assert_eq!(swept.members.len(), 1);
}
