//! Publishing in somebody's own transaction: from SQL, from a trigger, from Rust. Heard after the commit, and never after a rollback.

use std::time::Duration;

use futures::StreamExt;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};
use switchboard_core::ports::{DurableError, DurableItem, DurableStream, StartFrom};
use switchboard_core::types::{IdempotencyKey, Position};
use switchboard_testkit::suites::{channel, event, payload};
use switchboard_testkit::{LONG, eventually};
use tokio::time::timeout;

use crate::cluster::{Cluster, Member};

/// A node that listens to `room:1`, and a connection that is nobody's.
struct Scene {
    cluster: Cluster,
    node: Member,
    events: DurableStream,
    outside: PgConnection,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::new().await;
        let node = cluster.node("n1").await;
        let events = node.ports.durable().subscribe(&channel("room:1"), StartFrom::Now).await.unwrap();
        let outside = cluster.connection().await;
        Self { cluster, node, events, outside }
    }

    /// Runs a statement on the connection that is nobody's.
    async fn sql(&mut self, statement: &str) -> Vec<String> {
        let rows = self.cluster.sql_on(&mut self.outside, statement).await;
        rows.iter().map(|row| row.try_get(0).unwrap_or_default()).collect()
    }

    async fn refused(&mut self, statement: &str) -> String {
        let statement = statement.replace("{schema}", &format!("\"{}\"", self.cluster.schema));
        let result = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut self.outside).await;
        result.expect_err("it was accepted").to_string()
    }

    /// Position and payload of the next event.
    async fn next(&mut self) -> (String, String) {
        match timeout(LONG, self.events.next()).await.expect("nothing arrives").expect("the stream ended") {
            DurableItem::Event(event) => (event.position.to_string(), event.payload.as_str().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    /// Nothing has arrived that was notified before an event elsewhere, which has.
    async fn is_silent(&mut self) {
        let (bus, other) = (self.node.ports.durable(), channel("elsewhere"));
        let mut elsewhere = bus.subscribe(&other, StartFrom::Now).await.unwrap();
        bus.publish(&other, &event(), &payload("1")).await.unwrap();
        timeout(LONG, elsewhere.next()).await.expect("nothing arrives");
        let arrived = futures::poll!(self.events.next());
        assert!(arrived.is_pending(), "{arrived:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_publishes_one_or_many_and_learns_the_positions() {
    let mut scene = Scene::new().await;
    let one = scene.sql(r#"SELECT {schema}.publish('room:1', 'message', '{"id": 7}')"#).await;
    assert_eq!(scene.next().await, (one[0].clone(), r#"{"id": 7}"#.to_owned()));
    let many = "SELECT {schema}.publish_batch(ARRAY['room:1', 'room:2', 'room:1'], \
         ARRAY['message', 'message', 'message'], ARRAY['1', '2', '3']::json[])";
    let positions = scene.sql(many).await;
    let seqs: Vec<_> = positions.iter().map(|text| Position::parse(text).unwrap().seq).collect();
    assert_eq!(seqs, [2, 1, 3]);
    assert_eq!(scene.next().await, (positions[0].clone(), "1".to_owned()));
    assert_eq!(scene.next().await, (positions[2].clone(), "3".to_owned()));
    assert_eq!(scene.sql("SELECT {schema}.head('room:1')").await, [positions[2].clone()]);
    let never = scene.sql("SELECT {schema}.head('never')").await;
    assert_eq!(Position::parse(&never[0]).unwrap().seq, 0);
    assert!(scene.sql("SELECT {schema}.publish_batch('{}', '{}', '{}')").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_publishes_what_is_committed() {
    let mut scene = Scene::new().await;
    for statement in [
        "CREATE TABLE {schema}.orders (id int, state text)",
        "CREATE FUNCTION {schema}.announce() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM {schema}.publish('room:1', 'order', row_to_json(NEW)); RETURN NULL; END $$",
        "CREATE TRIGGER announce AFTER INSERT OR UPDATE ON {schema}.orders FOR EACH ROW EXECUTE FUNCTION {schema}.announce()",
        "INSERT INTO {schema}.orders VALUES (1, 'new'), (2, 'new')",
        "BEGIN",
        "UPDATE {schema}.orders SET state = 'lost'",
        "ROLLBACK",
        "UPDATE {schema}.orders SET state = 'paid' WHERE id = 2",
    ] {
        scene.sql(statement).await;
    }
    for expected in [r#"{"id":1,"state":"new"}"#, r#"{"id":2,"state":"new"}"#, r#"{"id":2,"state":"paid"}"#] {
        assert_eq!(scene.next().await.1, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b060_an_event_is_heard_with_the_commit_of_its_transaction_and_not_before() {
    let mut scene = Scene::new().await;
    scene.sql("BEGIN").await;
    scene.sql("SELECT {schema}.publish('room:1', 'message', '1')").await;
    // A long query of this very node, meanwhile, holds nothing up.
    let bus = scene.node.ports.durable();
    let busy = tokio::spawn(async move { bus.history(&channel("room:1"), None, 1).await });
    scene.is_silent().await;
    scene.sql("COMMIT").await;
    assert_eq!(scene.next().await.1, "1");
    busy.await.unwrap().unwrap();

    scene.sql("BEGIN").await;
    scene.sql("SELECT {schema}.publish('room:1', 'message', '2')").await;
    scene.sql("ROLLBACK").await;
    scene.is_silent().await;
    let after = scene.sql("SELECT {schema}.publish('room:1', 'message', '3')").await;
    assert_eq!(Position::parse(&after[0]).unwrap().seq, 2, "a rolled back event left a gap");
    assert_eq!(scene.next().await, (after[0].clone(), "3".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn b072_equal_events_of_one_transaction_are_all_delivered() {
    let mut scene = Scene::new().await;
    scene.sql("BEGIN").await;
    for _ in 0..3 {
        scene.sql("SELECT {schema}.publish('room:1', 'like', '\"like\"')").await;
    }
    scene
        .sql("SELECT {schema}.publish_batch(ARRAY['room:1', 'room:1'], ARRAY['like', 'like'], ARRAY['\"like\"', '\"like\"']::json[])")
        .await;
    scene.sql("COMMIT").await;
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(Position::parse(&scene.next().await.0).unwrap().seq);
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
}

/// A position is taken under the lock of the channel's head: nobody can commit a later one before an earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn b078_an_event_that_commits_late_is_not_skipped() {
    for (end, expected) in [("COMMIT", &["\"early\"", "\"late\""][..]), ("ROLLBACK", &["\"late\""])] {
        let mut scene = Scene::new().await;
        scene.sql("BEGIN").await;
        scene.sql("SELECT {schema}.publish('room:1', 'message', '\"early\"')").await;
        let bus = scene.node.ports.durable();
        let late =
            tokio::spawn(
                async move { bus.publish(&channel("room:1"), &event(), &payload("\"late\"")).await },
            );
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE 'switchboard durable n1%'";
        eventually(LONG, "the second publisher waits", async || scene.cluster.count(waiting).await == 1)
            .await;
        scene.sql(end).await;
        late.await.unwrap().unwrap();
        for text in expected {
            let (position, seen) = scene.next().await;
            assert_eq!(seen, *text);
            // Whoever comes back with this cursor goes on with what follows it.
            let after = StartFrom::After(position.parse().unwrap());
            let mut again = scene.node.ports.durable().subscribe(&channel("room:1"), after).await.unwrap();
            let rest = expected.len() - expected.iter().position(|other| other == text).unwrap() - 1;
            for _ in 0..rest {
                timeout(LONG, again.next()).await.expect("nothing arrives");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_publishes_in_its_own_transaction() {
    let mut scene = Scene::new().await;
    let (ports, room) = (scene.node.ports.clone(), channel("room:1"));
    let mut outside = scene.cluster.connection().await;

    let mut transaction = outside.begin().await.unwrap();
    ports.publish_in(&mut transaction, &room, &event(), &payload("1"), None).await.unwrap();
    transaction.rollback().await.unwrap();
    let mut transaction = outside.begin().await.unwrap();
    let promised = ports.publish_in(&mut transaction, &room, &event(), &payload("2"), None).await.unwrap();
    scene.is_silent().await;
    transaction.commit().await.unwrap();
    assert_eq!(scene.next().await, (promised.to_string(), "2".to_owned()));

    // The answer to a commit was lost, so the whole transaction is repeated.
    let key = IdempotencyKey::parse("order 7").unwrap();
    let mut positions = Vec::new();
    for _ in 0..2 {
        let mut transaction = outside.begin().await.unwrap();
        let position = ports.publish_in(&mut transaction, &room, &event(), &payload("3"), Some(&key)).await;
        positions.push(position.unwrap());
        transaction.commit().await.unwrap();
    }
    assert_eq!(positions[0], positions[1]);
    assert_eq!(scene.next().await.0, positions[0].to_string());
    scene.is_silent().await;

    let huge = payload(&format!("\"{}\"", "x".repeat(1024 * 1024)));
    let refused = ports.publish_in(&mut outside, &room, &event(), &huge, None).await.unwrap_err();
    assert!(matches!(refused, DurableError::Rejected(_)), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_an_event_is_refused_in_words_and_stores_nothing() {
    let mut scene = Scene::new().await;
    let long = "x".repeat(256);
    for (arguments, says) in [
        ("'', 'message', '1'".to_owned(), "channel '': must be 1 to 255 bytes"),
        (format!("'{long}', 'message', '1'"), "must be 1 to 255 bytes"),
        ("E'a\\nb', 'message', '1'".to_owned(), "without control characters"),
        ("NULL, 'message', '1'".to_owned(), "channel NULL"),
        ("'room:1', '', '1'".to_owned(), "event name ''"),
        ("'room:1', 'message', NULL".to_owned(), "payload NULL: must be JSON"),
        ("'room:1', 'message', 'nonsense'".to_owned(), "invalid input syntax for type json"),
        ("'room:1', 'message', '1', ''".to_owned(), "idempotency key ''"),
        (format!("'room:1', 'message', '1', '{long}'"), "idempotency key"),
    ] {
        let error = scene.refused(&format!("SELECT {{schema}}.publish({arguments})")).await;
        assert!(error.contains(says), "{error}");
    }
    for arguments in [
        "ARRAY['room:1', ''], ARRAY['a', 'b'], ARRAY['1', '2']::json[]",
        "ARRAY['room:1', NULL], ARRAY['a', 'b'], ARRAY['1', '2']::json[]",
        "ARRAY['room:1', 'room:1'], ARRAY['a'], ARRAY['1', '2']::json[]",
        "ARRAY['room:1'], ARRAY['a'], ARRAY['1', '2']::json[]",
        "ARRAY['room:1'], ARRAY['a'], ARRAY['1']::json[], ARRAY['']",
    ] {
        scene.refused(&format!("SELECT {{schema}}.publish_batch({arguments})")).await;
    }
    for (call, says) in [
        (
            "publish_batch(ARRAY['room:1', 'room:1'], ARRAY['a', 'b'], ARRAY['1', NULL]::json[])",
            "payload NULL: must be JSON",
        ),
        ("publish_ephemeral('room:1', 'message', NULL)", "payload NULL: must be JSON"),
        (
            "publish_ephemeral('room:1', 'message', to_json(repeat('x', 65536)))",
            "payload: must be JSON of at most 65536 bytes",
        ),
    ] {
        let error = scene.refused(&format!("SELECT {{schema}}.{call}")).await;
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(scene.cluster.count("SELECT count(*) FROM {schema}.event_log").await, 0);
}

/// The bus would otherwise be told of an event that a crash takes back, and its position would be given out again.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_durable_also_where_commits_are_not() {
    let mut scene = Scene::new().await;
    scene.sql("SET synchronous_commit = off").await;
    scene.sql("BEGIN").await;
    scene.sql("SELECT {schema}.publish('room:1', 'message', '1')").await;
    assert_eq!(scene.sql("SELECT current_setting('synchronous_commit')").await, ["on"]);
    scene.sql("COMMIT").await;
    assert_eq!(scene.sql("SELECT current_setting('synchronous_commit')").await, ["off"]);
}

/// What anybody may create in `public` must not run with the rights of whoever publishes.
#[tokio::test(flavor = "multi_thread")]
async fn functions_of_others_are_not_called() {
    let mut scene = Scene::new().await;
    for statement in [
        "CREATE SCHEMA {schema}_trap",
        "CREATE FUNCTION {schema}_trap.to_json(text) RETURNS json LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$",
        "CREATE FUNCTION {schema}_trap.octet_length(json) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'trapped'; END $$",
        "SET search_path = {schema}_trap, public",
        "SELECT {schema}.publish('room:1', 'message', '1', 'key')",
        "SELECT {schema}.publish_ephemeral('room:1', 'message', '1')",
        "SELECT {schema}.head('room:1')",
    ] {
        let own = format!("\"{}_trap\"", scene.cluster.schema);
        scene.sql(&statement.replace("{schema}_trap", &own)).await;
    }
    assert_eq!(scene.next().await.1, "1");
}

/// Whoever waits in line leaves together: NOTIFY serialises commits, so there must be few.
#[tokio::test(flavor = "multi_thread")]
async fn b055_events_that_are_published_at_once_share_commits() {
    let mut scene = Scene::new().await;
    let (bus, room) = (scene.node.ports.durable(), channel("room:1"));
    let (event, text) = (event(), payload("1"));
    let published = (0..2000).map(|_| bus.publish(&room, &event, &text));
    futures::future::try_join_all(published).await.unwrap();
    let commits = scene.cluster.count("SELECT count(DISTINCT xmin::text) FROM {schema}.event_log").await;
    assert!(commits <= 100, "{commits} commits for 2000 events");
    // And ephemeral ones wait for no flush, in few commits as well.
    let ephemeral = scene.node.ports.ephemeral();
    let before = scene.cluster.count("SELECT txid_current()").await;
    for _ in 0..500 {
        ephemeral.publish(&room, &event, &text).await.unwrap();
    }
    let mut typing = ephemeral.subscribe(&room).await.unwrap();
    let marked = payload("\"last\"");
    ephemeral.publish(&room, &event, &marked).await.unwrap();
    timeout(LONG, typing.next()).await.expect("nothing arrives");
    let commits = scene.cluster.count("SELECT txid_current()").await - before;
    assert!(commits <= 250, "{commits} transactions for 501 ephemeral events");
    assert_eq!(scene.next().await.1, "1");
    timeout(Duration::from_secs(5), scene.sql("SELECT 1")).await.unwrap();
}
