//! What our sessions rely on, they set themselves: roles, databases and schemas of others are not to be trusted with it.

use std::pin::pin;
use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use sqlx::Row;
use switchboard_core::ports::{DurableError, Heartbeat, Registration, SweepScope};
use switchboard_core::timing::Timing;
use switchboard_core::types::{Identity, NodeId, Stats};
use switchboard_postgres::doctor::{Verdict, examine};
use switchboard_testkit::eventually;
use switchboard_testkit::suites::{channel, event, payload};

use crate::cluster::Cluster;

const LONG: Duration = Duration::from_secs(20);

impl Cluster {
    /// Waits until a statement of one of our connections waits for a lock.
    async fn somebody_waits(&self, purpose: &str) {
        let waiting = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE 'switchboard {purpose}%'"
        );
        eventually(LONG, "a statement waits for the lock", async || self.count(&waiting).await > 0).await;
    }
}

/// Whoever may create functions in `public` must not have them called by nodes.
#[tokio::test(flavor = "multi_thread")]
async fn better_matches_in_public_for_functions_and_operators_are_not_used() {
    let cluster = Cluster::with_own_server(&[]).await;
    for function in [
        "hashtextextended(text, integer) RETURNS bigint",
        "joined(text, uuid) RETURNS text",
        "product(numeric, integer) RETURNS numeric",
        "unnest(text[]) RETURNS SETOF text",
    ] {
        cluster
            .sql(&format!(
                "CREATE FUNCTION public.{function} LANGUAGE plpgsql AS $$ BEGIN RAISE 'tricked'; END $$"
            ))
            .await;
    }
    cluster
        .sql("CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = uuid, FUNCTION = public.joined)")
        .await;
    cluster
        .sql("CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.product)")
        .await;
    let both = async { (cluster.node("a").await, cluster.node("b").await) };
    let (a, b) = tokio::time::timeout(LONG, both).await.expect("nodes cannot join");
    a.sees(2).await;
    assert_eq!(b.ports.registry().members().await.unwrap().len(), 2);
    let mut events = b.ports.ephemeral().subscribe(&channel("room:1")).await.unwrap();
    a.ports.ephemeral().publish(&channel("room:1"), &event(), &payload("1")).await.unwrap();
    let received = tokio::time::timeout(LONG, futures::StreamExt::next(&mut events)).await;
    assert!(received.is_ok(), "the event was not sent");
}

/// A common setting of roles and databases, under which a row that moved is an error instead of being looked at again.
#[tokio::test(flavor = "multi_thread")]
async fn a_stricter_default_isolation_breaks_neither_migrations_nor_renewals() {
    let cluster = Cluster::with_own_server(&[("default_transaction_isolation", "repeatable read")]).await;
    let boots = (0..8).map(|n| cluster.try_ports(cluster.config(&format!("n{n}"))));
    for ports in join_all(boots).await {
        ports.unwrap().close().await;
    }

    let ports = cluster.ports("n1").await;
    let identity = Identity::fresh(NodeId::parse("n1").unwrap());
    let registration = Registration {
        identity: identity.clone(),
        endpoint: "127.0.0.1:4000".parse().unwrap(),
        meta: Stats::default(),
        timing: Timing::default(),
    };
    let witness = ports.registry().register(&registration).await.unwrap().heartbeat;
    let heartbeat = Heartbeat {
        identity,
        stats: Stats::default(),
        sweep: SweepScope::Stale,
        witness,
        timing: registration.timing,
    };
    let mut other = cluster.connection().await;
    cluster.sql_on(&mut other, "BEGIN").await;
    cluster.sql_on(&mut other, "UPDATE {schema}.node_registry SET stats = '{\"touched\": 1}'").await;
    let registry = ports.registry();
    let renewal = tokio::spawn(async move { registry.renew(&heartbeat).await });
    cluster.somebody_waits("registry").await;
    cluster.sql_on(&mut other, "COMMIT").await;
    assert_eq!(renewal.await.unwrap().unwrap().members.len(), 1);
}

/// An application that publishes in a transaction and leaves it open must not leave others in doubt about their events.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_waits_for_a_locked_head_is_refused_by_the_server_and_not_stored() {
    let cluster = Cluster::new().await;
    let ports = cluster.ports("n1").await;
    let room = channel("room:1");
    ports.durable().publish(&room, &event(), &payload("1")).await.unwrap();
    let mut other = cluster.connection().await;
    cluster.sql_on(&mut other, "BEGIN").await;
    cluster.sql_on(&mut other, "SELECT FROM {schema}.channel_head FOR UPDATE").await;
    let refused = ports.durable().publish(&room, &event(), &payload("2")).await.unwrap_err();
    assert!(
        matches!(&refused, DurableError::Unavailable(why) if why.to_string().contains("55P03")),
        "{refused}"
    );
    cluster.sql_on(&mut other, "ROLLBACK").await;
    let stored = ports.durable().publish(&room, &event(), &payload("3")).await.unwrap();
    assert_eq!(stored.seq, 2);
    assert_eq!(
        cluster.sql("SELECT payload::text FROM {schema}.event_log WHERE seq = 2").await[0].get::<&str, _>(0),
        "3"
    );
}

/// Whoever publishes to one channel in a transaction and leaves it open holds up that channel, and no other.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_locked_channel_wait_aside_and_in_order_while_others_pass() {
    let cluster = Cluster::new().await;
    let ports = cluster.ports("waiter").await;
    let bus = ports.durable();
    let (locked, free, event) = (channel("room:locked"), channel("room:free"), event());
    let publish =
        async |channel, n: u64| bus.publish(channel, &event, &payload(&n.to_string())).await.unwrap().seq;
    let mut other = cluster.connection().await;
    cluster.sql_on(&mut other, "BEGIN").await;
    // The channel is new: nobody else can see that it has a head.
    cluster.sql_on(&mut other, "SELECT {schema}.publish('room:locked', 'message', '1')").await;

    let mut waiting = pin!(join_all((2..=20).map(|n| publish(&locked, n))));
    assert!(poll!(waiting.as_mut()).is_pending());
    assert_eq!(join_all((1..=20).map(|n| publish(&free, n))).await, (1..=20).collect::<Vec<_>>());
    cluster.somebody_waits("durable waiter").await;
    // A later event of that channel does not hold up the others a second time.
    let mut last = pin!(publish(&locked, 21));
    assert!(poll!(last.as_mut()).is_pending());
    assert_eq!(publish(&free, 21).await, 21);
    assert!(poll!(waiting.as_mut()).is_pending());

    cluster.sql_on(&mut other, "COMMIT").await;
    assert_eq!(waiting.await, (2..=20).collect::<Vec<_>>());
    assert_eq!(last.await, 21, "it overtook an earlier one");
    // What held them up is over, and so is the connection they waited on.
    assert_eq!(publish(&locked, 22).await, 22);
    let connections =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'switchboard durable waiter'";
    eventually(LONG, "one connection is left", async || cluster.count(connections).await == 1).await;
}

/// A schema that an administrator made for a user who may make no other.
#[tokio::test(flavor = "multi_thread")]
async fn the_owner_of_an_empty_schema_needs_no_rights_in_the_database() {
    let cluster = Cluster::with_own_server(&[]).await;
    cluster.sql("CREATE ROLE owner LOGIN PASSWORD 'secret'").await;
    cluster.sql("CREATE SCHEMA {schema} AUTHORIZATION owner").await;
    let mut config = cluster.config("n1");
    let at = cluster.url.rsplit_once('@').unwrap().1;
    config.dsn = format!("postgres://owner:secret@{at}").parse().unwrap();
    let findings = examine(&config).await;
    let rights = findings.iter().find(|finding| finding.check == "rights").unwrap();
    assert_eq!(rights.verdict, Verdict::Ok, "{rights:?}");
    cluster.start(config).await.node.joined().await.unwrap();
}

/// A node that was frozen while it migrated holds the lock for as long as it stands still.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_behind_a_migration_that_stands_still_is_told_why_and_may_try_again() {
    let cluster = Cluster::new().await;
    let mut frozen = cluster.connection().await;
    cluster.sql_on(&mut frozen, "BEGIN").await;
    let lock =
        format!("SELECT pg_advisory_xact_lock(hashtextextended('switchboard schema {}', 0))", cluster.schema);
    cluster.sql_on(&mut frozen, &lock).await;
    let waited = tokio::time::timeout(LONG, cluster.try_ports(cluster.config("n1"))).await;
    let error = waited.expect("waits for ever").err().expect("went ahead without the lock");
    assert!(error.is_transient() && error.to_string().contains("55P03"), "{error}");
    cluster.sql_on(&mut frozen, "ROLLBACK").await;
    cluster.ports("n1").await;
}
