//! Faults that people reported of LISTEN/NOTIFY buses: names, sizes, garbage, lost listeners. On a real PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use sqlx::Row;
use switchboard_core::health::Condition;
use switchboard_core::ports::{
    DurableBus, DurableError, DurableItem, DurableStream, EphemeralError, EphemeralItem, EphemeralStream,
    StartFrom,
};
use switchboard_core::types::{Channel, DurableEvent, Payload};
use switchboard_testkit::eventually;
use switchboard_testkit::postgres::StopMode;
use switchboard_testkit::proxy::{Mode, Proxy};
use switchboard_testkit::suites::{channel, event, payload};
use tokio::time::{Instant, timeout};

use crate::cluster::Cluster;

const LONG: Duration = Duration::from_secs(20);

async fn next(events: &mut DurableStream) -> Arc<DurableEvent> {
    match timeout(LONG, events.next()).await.expect("nothing arrives").expect("the stream ended") {
        DurableItem::Event(event) => event,
        other => panic!("{other:?}"),
    }
}

async fn next_ephemeral(events: &mut EphemeralStream) -> Payload {
    match timeout(LONG, events.next()).await.expect("nothing arrives").expect("the stream ended") {
        EphemeralItem::Event(event) => event.payload.clone(),
        EphemeralItem::Lagged(missed) => panic!("lagged {missed}"),
    }
}

/// Publishes until the server is back.
async fn publish_until_stored(bus: &Arc<dyn DurableBus>, channel: &Channel, text: &str) {
    loop {
        match bus.publish(channel, &event(), &payload(text)).await {
            Ok(_) => return,
            Err(DurableError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b041_restarts_of_the_server_neither_lose_nor_repeat_an_event() {
    let cluster = Cluster::with_own_server(&[]).await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let room = channel("room:1");
    let mut events = b.ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    for round in 0..5 {
        // What `psql` stores while no node listens is found as well.
        let mut outside = cluster.connection().await;
        cluster.sql_on(&mut outside, "SET application_name = 'outside'").await;
        cluster.server().restart(StopMode::Fast).await.unwrap();
        cluster
            .sql("SELECT {schema}.publish_batch(ARRAY['room:1'], ARRAY['message'], ARRAY['\"outside\"']::json[])")
            .await;
        let back = Instant::now();
        publish_until_stored(&a.ports.durable(), &room, "\"inside\"").await;
        for _ in 0..2 {
            next(&mut events).await;
        }
        assert!(back.elapsed() < Duration::from_secs(5), "round {round}: {:?}", back.elapsed());
        a.node.status().wait_for(switchboard_core::node::NodeStatus::is_active).await.unwrap();
    }
    let last = a.ports.durable().publish(&room, &event(), &payload("1")).await.unwrap();
    assert_eq!(next(&mut events).await.position, last);
    assert_eq!(last.seq, 11, "events were repeated or lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn b041_losing_every_connection_at_once_is_survived() {
    let cluster = Cluster::with_own_server(&[]).await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let room = channel("room:1");
    let mut events = b.ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    let mut typing = b.ports.ephemeral().subscribe(&room).await.unwrap();
    for n in 1..=5 {
        cluster.terminate("%").await;
        publish_until_stored(&a.ports.durable(), &room, &n.to_string()).await;
        assert_eq!(next(&mut events).await.payload, payload(&n.to_string()));
        // At most once, so repeated until one arrives.
        let sent = async {
            loop {
                a.ports.ephemeral().publish(&room, &event(), &payload("true")).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            () = sent => {}
            _ = next_ephemeral(&mut typing) => {}
        }
        while let Ok(Some(_)) = timeout(Duration::from_millis(100), typing.next()).await {}
    }
    assert!(a.node.status().borrow().is_active() && b.node.status().borrow().is_active());
}

#[tokio::test(flavor = "multi_thread")]
async fn b043_a_lost_listener_is_reported_and_made_good_while_events_keep_coming() {
    let cluster = Cluster::with_own_server(&[]).await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let room = channel("room:1");
    let mut events = b.ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    let (bus, to) = (a.ports.durable(), room.clone());
    let publisher = tokio::spawn(async move {
        for n in 1..=400 {
            bus.publish(&to, &event(), &payload(&n.to_string())).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let listener = "listener b";
    for n in 1..=400 {
        assert_eq!(next(&mut events).await.payload, payload(&n.to_string()));
        if n % 50 == 0 {
            cluster.terminate(listener).await;
        }
    }
    publisher.await.unwrap();
    eventually(LONG, "the listener is back", async || {
        b.health.report().iter().all(|(_, is)| *is == Condition::Ok)
    })
    .await;
    let stats = serde_json::Value::Object(b.stats.collect().0);
    assert!(stats["postgres"]["listener_sessions_total"].as_u64().unwrap() > 1, "{stats}");
}

/// Firewalls, poolers and connection limits may end every session as soon as it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_is_ended_again_and_again_is_not_reopened_in_a_hurry() {
    let cluster = Cluster::with_own_server(&[]).await;
    let node = cluster.node("a").await;
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        cluster.terminate("listener a").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stats = serde_json::Value::Object(node.stats.collect().0);
    assert!(stats["postgres"]["listener_sessions_total"].as_u64().unwrap() <= 8, "{stats}");
}

/// A primary that was demoted without a restart goes on answering a session that only listens.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_leaves_a_server_that_takes_no_writes_any_more() {
    let cluster = Cluster::with_own_server(&[]).await;
    let node = cluster.node("a").await;
    let listener = || node.health.report().into_iter().find(|(name, _)| *name == "listener").unwrap().1;
    let mut outside = cluster.connection().await;
    cluster.sql_on(&mut outside, "ALTER SYSTEM SET default_transaction_read_only = on").await;
    cluster.sql_on(&mut outside, "SELECT pg_reload_conf()").await;
    eventually(
        LONG,
        "the listener has left",
        async || matches!(listener(), Condition::Degraded(why) if why.contains("read-only")),
    )
    .await;
    cluster.sql_on(&mut outside, "SET default_transaction_read_only = off").await;
    cluster.sql_on(&mut outside, "ALTER SYSTEM RESET default_transaction_read_only").await;
    cluster.sql_on(&mut outside, "SELECT pg_reload_conf()").await;
    eventually(LONG, "the listener is back", async || listener() == Condition::Ok).await;
}

/// Publishes and receives one event of each kind from one node to the other.
struct Pair {
    cluster: Cluster,
    a: crate::cluster::Member,
    b: crate::cluster::Member,
}

impl Pair {
    async fn new() -> Self {
        let cluster = Cluster::new().await;
        let (a, b) = (cluster.node("a").await, cluster.node("b").await);
        Self { cluster, a, b }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b062_names_longer_than_an_identifier_reach_their_own_subscribers_only() {
    let pair = Pair::new().await;
    let long = |last: char| format!("{}{last}", "x".repeat(79));
    let mut names: Vec<String> = [63, 64, 65, 255].map(|length| "n".repeat(length)).to_vec();
    names.extend([long('a'), long('b')]);
    each_reaches_its_own(&pair, &names).await;
    assert!(Channel::parse(&"n".repeat(256)).is_err() && Channel::parse(&"n".repeat(1024)).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn b064_names_that_differ_in_case_are_different_channels() {
    let pair = Pair::new().await;
    each_reaches_its_own(&pair, &["Room", "room", "ROOM", "Straße", "İstanbul"].map(str::to_owned)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b065_names_that_would_need_quoting_are_only_data() {
    let pair = Pair::new().await;
    let names = [
        "a\"b",
        "a\"\"b",
        "a'b",
        "a;b",
        "x\"; DROP TABLE node_registry; --",
        "a b",
        "a:b",
        "a-b",
        "a\\b",
        "%",
        "\u{202e}",
        "\u{200d}",
        "select",
        "*",
        "123",
        "{schema}",
        "$1",
        "\\u0000",
    ];
    each_reaches_its_own(&pair, &names.map(str::to_owned)).await;
    assert_eq!(pair.cluster.count("SELECT count(*) FROM {schema}.node_registry").await, 2);
}

/// Subscribes to all, publishes to each from another node and from SQL, and sees nothing mixed.
async fn each_reaches_its_own(pair: &Pair, names: &[String]) {
    let (from, to) = (&pair.a.ports, &pair.b.ports);
    let mut streams = Vec::new();
    for name in names {
        let durable = to.durable().subscribe(&channel(name), StartFrom::Now).await.unwrap();
        let ephemeral = to.ephemeral().subscribe(&channel(name)).await.unwrap();
        streams.push((durable, ephemeral));
    }
    let mut outside = pair.cluster.connection().await;
    for name in names {
        let own = payload(&serde_json::to_string(name).unwrap());
        from.durable().publish(&channel(name), &event(), &own).await.unwrap();
        from.ephemeral().publish(&channel(name), &event(), &own).await.unwrap();
        let statement =
            format!("SELECT \"{}\".publish_ephemeral($1, 'message', $2::json)", pair.cluster.schema);
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(name)
            .bind(own.as_str())
            .execute(&mut outside)
            .await
            .unwrap();
    }
    for (name, (durable, ephemeral)) in names.iter().zip(&mut streams) {
        let own = payload(&serde_json::to_string(name).unwrap());
        assert_eq!(next(durable).await.payload, own);
        assert_eq!(next_ephemeral(ephemeral).await, own);
        assert_eq!(next_ephemeral(ephemeral).await, own);
    }
    for (durable, ephemeral) in &mut streams {
        assert!(futures::poll!(durable.next()).is_pending(), "a durable event went astray");
        assert!(futures::poll!(ephemeral.next()).is_pending(), "an ephemeral event went astray");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b068_payloads_around_the_size_of_a_notification_arrive_intact() {
    let pair = Pair::new().await;
    let room = channel("room:1");
    let mut durable = pair.b.ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    let mut ephemeral = pair.b.ports.ephemeral().subscribe(&room).await.unwrap();
    for size in (6_700..6_850).chain(7_700..8_100) {
        let sent = payload(&format!("\"{}\"", "x".repeat(size)));
        pair.a.ports.durable().publish(&room, &event(), &sent).await.unwrap();
        pair.a.ports.ephemeral().publish(&room, &event(), &sent).await.unwrap();
        assert_eq!(next(&mut durable).await.payload, sent, "{size}");
        assert_eq!(next_ephemeral(&mut ephemeral).await, sent, "{size}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b068_ephemeral_events_from_sql_arrive_whole_at_every_size() {
    let pair = Pair::new().await;
    let mut events = pair.b.ports.ephemeral().subscribe(&channel("room:1")).await.unwrap();
    let mut outside = pair.cluster.connection().await;
    let statement =
        format!("SELECT \"{}\".publish_ephemeral('room:1', 'message', $1::json)", pair.cluster.schema);
    for text in [7_800, 7_900, 8_000, 65_534]
        .map(|size| "x".repeat(size))
        .into_iter()
        .chain([2_000, 16_000].map(|n| "𝄞".repeat(n)))
    {
        let sent = format!("\"{text}\"");
        sqlx::query(sqlx::AssertSqlSafe(statement.clone())).bind(&sent).execute(&mut outside).await.unwrap();
        assert_eq!(next_ephemeral(&mut events).await, payload(&sent), "{} bytes", sent.len());
    }
    let too_long = format!("\"{}\"", "x".repeat(65_535));
    let error =
        sqlx::query(sqlx::AssertSqlSafe(statement)).bind(&too_long).execute(&mut outside).await.unwrap_err();
    assert!(error.to_string().contains("65536"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b069_a_long_payload_is_stored_and_delivered_and_one_above_the_limit_is_refused_whole() {
    let pair = Pair::new().await;
    let room = channel("room:1");
    let mut here = pair.a.ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    let mut there = pair.b.ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    let sized = |size: usize| payload(&format!("\"{}\"", "x".repeat(size - 2)));
    for size in [8 * 1024, 64 * 1024, 900 * 1024, 1024 * 1024] {
        let sent = sized(size);
        pair.a.ports.durable().publish(&room, &event(), &sent).await.unwrap();
        assert_eq!(next(&mut here).await.payload, sent);
        assert_eq!(next(&mut there).await.payload, sent);
    }
    let refused = pair.a.ports.durable().publish(&room, &event(), &sized(1024 * 1024 + 1)).await.unwrap_err();
    assert!(
        matches!(&refused, DurableError::Rejected(error) if error.to_string().contains("1048576")),
        "{refused}"
    );
    assert_eq!(pair.cluster.count("SELECT count(*) FROM {schema}.event_log").await, 4);
    let refused = pair.a.ports.ephemeral().publish(&room, &event(), &sized(64 * 1024 + 1)).await.unwrap_err();
    assert!(
        matches!(&refused, EphemeralError::Rejected(error) if error.to_string().contains("65536")),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn b071_notifications_that_no_node_wrote_are_counted_and_ignored() {
    let pair = Pair::new().await;
    let room = channel("room:1");
    let mut durable = pair.b.ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    let mut ephemeral = pair.b.ports.ephemeral().subscribe(&room).await.unwrap();
    let deep = "[".repeat(7_990);
    let mut outside = pair.cluster.connection().await;
    for kind in ["registry", "durable", "ephemeral"] {
        let notify_channel = format!("{}.{kind}", pair.cluster.schema);
        for text in [
            "",
            "null",
            "true",
            "[]",
            "\"x\"",
            "{",
            "{\"type\":1}",
            &deep,
            "d1 [[]]",
            "d9 []",
            "e1 x 1 [[1]]",
            "e9 x 1 []",
            "p1 x 1 0 2 [",
            "p1 x 1 1 2 [",
            &format!("d1 {}", &deep[..7_900]),
            &format!("e1 a b {}", &deep[..7_900]),
        ] {
            sqlx::query("SELECT pg_notify($1, $2)")
                .bind(&notify_channel)
                .bind(text)
                .execute(&mut outside)
                .await
                .unwrap();
        }
        let many = format!(
            "SELECT count(pg_notify('{notify_channel}', 'garbage ' || n)) FROM generate_series(1, 10000) n"
        );
        sqlx::query(sqlx::AssertSqlSafe(many)).execute(&mut outside).await.unwrap();
    }
    pair.a.ports.durable().publish(&room, &event(), &payload("1")).await.unwrap();
    pair.a.ports.ephemeral().publish(&room, &event(), &payload("2")).await.unwrap();
    assert_eq!(next(&mut durable).await.payload, payload("1"));
    assert_eq!(next_ephemeral(&mut ephemeral).await, payload("2"));
    let stats = serde_json::Value::Object(pair.b.stats.collect().0);
    for bus in ["durable", "ephemeral"] {
        assert!(stats[bus]["foreign_notifications_total"].as_u64().unwrap() >= 10_000, "{stats}");
    }
    assert_eq!(stats["postgres"]["listener_sessions_total"], 1, "{stats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b074_payloads_arrive_byte_for_byte_live_and_replayed() {
    let pair = Pair::new().await;
    let room = channel("room:1");
    let sent = payload(
        r#"{"n":9007199254740993,"m":123456789012345678901234567890,"f":1.10,"e":1e400,"z":-0.0,"a":1,  "a":2,"u":"\u0000\ud800é"}"#,
    );
    let mut durable = pair.b.ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    let mut ephemeral = pair.b.ports.ephemeral().subscribe(&room).await.unwrap();
    pair.a.ports.durable().publish(&room, &event(), &sent).await.unwrap();
    pair.a.ports.ephemeral().publish(&room, &event(), &sent).await.unwrap();
    assert_eq!(next(&mut durable).await.payload.as_str(), sent.as_str());
    assert_eq!(next_ephemeral(&mut ephemeral).await.as_str(), sent.as_str());
    let mut replay = pair.b.ports.durable().subscribe(&room, StartFrom::Oldest).await.unwrap();
    assert_eq!(next(&mut replay).await.payload.as_str(), sent.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn b052_the_listening_session_is_never_in_a_transaction() {
    let pair = Pair::new().await;
    let room = channel("room:1");
    let (bus, to) = (pair.a.ports.ephemeral(), room.clone());
    let load = tokio::spawn(async move {
        loop {
            bus.publish(&to, &event(), &payload("1")).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..200 {
        let busy = pair
            .cluster
            .count("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'switchboard listener %' AND state LIKE 'idle in%'")
            .await;
        assert_eq!(busy, 0);
    }
    load.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_is_quick_and_flushes_what_was_accepted() {
    let pair = Pair::new().await;
    let room = channel("room:1");
    let mut events = pair.b.ports.ephemeral().subscribe(&room).await.unwrap();
    let ephemeral = pair.a.ports.ephemeral();
    for n in 0..500 {
        ephemeral.publish(&room, &event(), &payload(&n.to_string())).await.unwrap();
    }
    drop(ephemeral);
    let started = Instant::now();
    pair.a.node.leave(LONG).await;
    drop(pair.a.node);
    Arc::into_inner(pair.a.ports).unwrap().close().await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    for n in 0..500 {
        assert_eq!(next_ephemeral(&mut events).await, payload(&n.to_string()));
    }
}

/// Restarted servers, poolers and firewalls end connections that rest, some of them without a word.
#[tokio::test(flavor = "multi_thread")]
async fn publishers_that_rested_on_a_connection_that_is_gone_lose_nothing() {
    let cluster = Cluster::new().await;
    let (user, at) = cluster.url.rsplit_once('@').unwrap();
    let (server, database) = at.split_once('/').unwrap();
    let server = server.parse().unwrap();
    let (first, second) = (Proxy::start(server).await, Proxy::start(server).await);
    let mut config = cluster.config("n1");
    config.session_dsn = Some(config.dsn);
    let hosts = format!("{},{}", first.address(), second.address());
    config.dsn = format!("{user}@{hosts}/{database}?connect_timeout=1").parse().unwrap();
    let (from, to) = (cluster.try_ports(config).await.unwrap(), cluster.ports("n2").await);
    let room = channel("room:1");
    let mut typing = to.ephemeral().subscribe(&room).await.unwrap();

    for n in 1..=3 {
        match n {
            2 => first.cut(),
            3 => first.set(Mode::Stall),
            _ => {}
        }
        let sent = payload(&n.to_string());
        let stored = timeout(LONG, from.durable().publish(&room, &event(), &sent)).await.expect("hangs");
        assert_eq!(stored.unwrap().seq, n);
        from.ephemeral().publish(&room, &event(), &sent).await.unwrap();
        assert_eq!(next_ephemeral(&mut typing).await, sent);
        tokio::time::sleep(Duration::from_secs(6)).await;
    }
}

/// Raises the SQLSTATE that a payload names, and each serialization failure only once.
const REFUSE: &str = "CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE code text := NEW.payload #>> '{}';
    BEGIN
        IF code <> 'fine' AND (code <> '40001' OR nextval('{schema}.conflicts') = 1) THEN
            RAISE EXCEPTION 'refused' USING ERRCODE = code;
        END IF;
        RETURN NEW;
    END $$";

impl Cluster {
    async fn refuse_what_payloads_ask_for(&self) {
        self.sql("CREATE SEQUENCE {schema}.conflicts").await;
        self.sql(REFUSE).await;
        self.sql("CREATE TRIGGER refuse BEFORE INSERT ON {schema}.event_log FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()").await;
    }

    /// The server process behind the connection that publishes durable events.
    async fn publishing(&self) -> i32 {
        let pid = "SELECT pid FROM pg_stat_activity WHERE application_name = 'switchboard durable n1'";
        self.sql(pid).await[0].get(0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_the_fault_of_an_event_is_said_to_be_and_only_then_the_session_is_kept() {
    let cluster = Cluster::with_own_server(&[]).await;
    let ports = cluster.ports("n1").await;
    cluster.refuse_what_payloads_ask_for().await;
    let (bus, room) = (ports.durable(), channel("room:1"));
    let publish = async |code: &str| bus.publish(&room, &event(), &payload(&format!("{code:?}"))).await;
    publish("fine").await.unwrap();
    for (code, is_its_own) in [
        ("22P02", true),
        ("23514", true),
        ("P0001", true),
        ("23505", false),
        ("0A000", false),
        ("25006", false),
        ("42501", false),
        ("53100", false),
        ("54000", false),
    ] {
        let before = cluster.publishing().await;
        let refused = publish(code).await.unwrap_err();
        assert_eq!(matches!(refused, DurableError::Rejected(_)), is_its_own, "{code}: {refused}");
        publish("fine").await.unwrap();
        assert_eq!(cluster.publishing().await == before, is_its_own, "{code}");
    }
    publish("40001").await.expect("a conflict is not tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_can_never_be_stored_fails_alone_and_not_its_batch() {
    let cluster = Cluster::new().await;
    let ports = cluster.ports("n1").await;
    cluster.refuse_what_payloads_ask_for().await;
    let (bus, room) = (ports.durable(), channel("room:1"));
    bus.publish(&room, &event(), &payload("\"fine\"")).await.unwrap();
    // While the first batch waits, the others gather.
    let mut other = cluster.connection().await;
    cluster.sql_on(&mut other, "BEGIN").await;
    cluster.sql_on(&mut other, "SELECT FROM {schema}.channel_head FOR UPDATE").await;
    let publishes = ["fine", "fine", "fine", "P0001", "fine"].map(|code| {
        let (bus, room, sent) = (&bus, &room, payload(&format!("{code:?}")));
        async move { bus.publish(room, &event(), &sent).await }
    });
    let release = cluster.sql_on(&mut other, "ROLLBACK");
    let (stored, _) = tokio::join!(futures::future::join_all(publishes), release);
    let stored: Vec<_> = stored.iter().map(|stored| stored.as_ref().map(|at| at.seq)).collect();
    assert!(
        matches!(stored[..], [Ok(1..), Ok(2..), Ok(3..), Err(DurableError::Rejected(_)), Ok(4..)]),
        "{stored:?}"
    );
}

/// LISTEN and renewals may have a route of their own, which says nothing about the other one.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_cannot_be_had_are_reported_and_mend_themselves() {
    let cluster = Cluster::new().await;
    let (user, at) = cluster.url.rsplit_once('@').unwrap();
    let (server, database) = at.split_once('/').unwrap();
    let proxy = Proxy::start(server.parse().unwrap()).await;
    let mut config = cluster.config("n1");
    config.session_dsn = Some(config.dsn);
    config.dsn = format!("{user}@{}/{database}", proxy.address()).parse().unwrap();
    let node = cluster.start(config).await;
    let (bus, room) = (node.ports.durable(), channel("room:1"));
    bus.publish(&room, &event(), &payload("1")).await.unwrap();

    proxy.set(Mode::Refuse);
    proxy.reset();
    // The first finds the connection lost, the second none to replace it.
    for _ in 0..2 {
        bus.publish(&room, &event(), &payload("2")).await.unwrap_err();
        bus.history(&room, None, 1).await.unwrap_err();
        node.ports.ephemeral().publish(&room, &event(), &payload("2")).await.unwrap();
    }
    let conditions = || {
        let report = node.health.report().into_iter();
        report
            .filter(|(name, _)| ["durable", "ephemeral", "pool"].contains(name))
            .map(|(_, condition)| condition)
    };
    eventually(LONG, "all are degraded", async || {
        conditions().all(|condition| matches!(condition, Condition::Degraded(_)))
    })
    .await;
    eventually(LONG, "all have failed", async || {
        conditions().all(|condition| matches!(condition, Condition::Failed(_)))
    })
    .await;
    // Nobody sends anything to a node that is not ready.
    proxy.set(Mode::Forward);
    eventually(LONG, "all are well", async || conditions().all(|condition| condition == Condition::Ok)).await;
}

/// A large event is fetched from the log. Whoever listens to its channel wants the same page at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn many_subscribers_of_a_large_event_share_its_reading() {
    let pair = Pair::new().await;
    let (bus, room) = (pair.b.ports.durable(), channel("room:1"));
    let mut streams = Vec::new();
    for _ in 0..500 {
        streams.push(bus.subscribe(&room, StartFrom::Now).await.unwrap());
    }
    let reads = || pair.b.stats.collect().0["durable"]["log_reads_total"].as_u64().unwrap();
    let before = reads();
    let large = payload(&format!("\"{}\"", "x".repeat(10_000)));
    let readers = streams.into_iter().map(|mut events| tokio::spawn(async move { next(&mut events).await }));
    let readers: Vec<_> = readers.collect();
    pair.a.ports.durable().publish(&room, &event(), &large).await.unwrap();
    for event in futures::future::try_join_all(readers).await.unwrap() {
        assert_eq!(event.payload, large);
    }
    assert!(reads() - before <= 50, "{} reads for 500 subscribers", reads() - before);
}
