//! What happens to LISTEN sessions, and that events arrive all the same. The session goes through a proxy of its own.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use switchboard_core::health::Condition;
use switchboard_core::ports::{DurableItem, DurableStream, StartFrom};
use switchboard_core::types::Position;
use switchboard_postgres::Dsn;
use switchboard_testkit::postgres::StopMode;
use switchboard_testkit::proxy::{Mode, Proxy};
use switchboard_testkit::suites::{channel, event, payload};
use switchboard_testkit::{LONG, available, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::cluster::{Cluster, Member};

/// A node that listens through `through`, and one that does not.
struct Scene {
    listening: Member,
    publishing: Member,
    events: DurableStream,
    last: u64,
}

impl Scene {
    async fn new(cluster: &Cluster, login: &str, through: SocketAddr) -> Self {
        Self::with_options(cluster, login, through, "").await
    }

    async fn with_options(cluster: &Cluster, login: &str, through: SocketAddr, options: &str) -> Self {
        let database = cluster.url.rsplit_once('/').unwrap().1;
        let mut config = cluster.config("listening");
        config.session_dsn =
            Some(Dsn::parse(&format!("postgres://{login}@{through}/{database}{options}")).unwrap());
        let listening = cluster.start(config).await;
        listening.node.joined().await.unwrap();
        let publishing = cluster.node("publishing").await;
        let events = listening.ports.durable().subscribe(&channel("room:1"), StartFrom::Now).await.unwrap();
        Self { listening, publishing, events, last: 0 }
    }

    fn sessions(&self) -> u64 {
        self.listening.stats.collect().0["postgres"]["listener_sessions_total"].as_u64().unwrap()
    }

    fn listener(&self) -> Condition {
        let report = self.listening.health.report();
        report.iter().find(|(name, _)| *name == "listener").map(|(_, is)| is.clone()).unwrap()
    }

    /// Publishes one event from the other node.
    async fn publish(&self) -> Position {
        self.publishing.ports.durable().publish(&channel("room:1"), &event(), &payload("1")).await.unwrap()
    }

    /// One event follows another without a gap, up to `seq`.
    async fn arrives(&mut self, seq: u64) {
        while self.last < seq {
            match timeout(LONG, self.events.next()).await.expect("nothing arrives") {
                Some(DurableItem::Event(event)) => assert_eq!(event.position.seq, self.last + 1),
                other => panic!("{other:?}"),
            }
            self.last += 1;
        }
    }

    /// A new session was opened since there were `before`, and it hears events at once.
    async fn hears_again(&mut self, before: u64, how: &str) {
        eventually(LONG, how, async || self.sessions() > before && self.listener() == Condition::Ok).await;
        let position = self.publish().await;
        let began = Instant::now();
        self.arrives(position.seq).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{how}: found by the safety tick alone");
    }
}

fn server(cluster: &Cluster) -> (String, SocketAddr) {
    let (login, at) = cluster.url.strip_prefix("postgres://").unwrap().rsplit_once('@').unwrap();
    let host = at.split_once('/').unwrap().0.replace("localhost", "127.0.0.1");
    (login.to_owned(), host.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn b045_every_way_to_lose_the_session_leads_to_a_new_one() {
    let cluster = Cluster::with_own_server(&[]).await;
    cluster.ports("migrator").await.close().await;
    // No superuser, so that the server can be told to refuse it.
    let grants = [
        "CREATE ROLE ears LOGIN PASSWORD 'ears'",
        "GRANT USAGE ON SCHEMA {schema} TO ears",
        "GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO ears",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO ears",
    ];
    for grant in grants {
        cluster.sql(grant).await;
    }
    let proxy = Proxy::start(server(&cluster).1).await;
    let mut scene = Scene::new(&cluster, "ears:ears", proxy.address()).await;
    for how in
        ["FIN", "RST", "RST amid messages", "terminated", "refused for its number", "refused its password"]
    {
        let before = scene.sessions();
        match how {
            "FIN" => proxy.cut(),
            "RST" => proxy.reset(),
            "RST amid messages" => {
                let large = payload(&format!("\"{}\"", "x".repeat(6_000)));
                let (bus, room) = (scene.publishing.ports.durable(), channel("other"));
                for n in 0..200 {
                    bus.publish(&room, &event(), &large).await.unwrap();
                    if n == 100 {
                        proxy.reset();
                    }
                }
            }
            "terminated" => cluster.terminate("listener listening").await,
            "refused for its number" => {
                cluster.sql("ALTER ROLE ears CONNECTION LIMIT 0").await;
                cluster.terminate("listener listening").await;
                eventually(
                    LONG,
                    "an attempt was refused",
                    async || matches!(scene.listener(), Condition::Degraded(why) if why.contains("53300")),
                )
                .await;
                cluster.sql("ALTER ROLE ears CONNECTION LIMIT -1").await;
            }
            _ => {
                cluster.sql("ALTER ROLE ears PASSWORD 'changed'").await;
                cluster.terminate("listener listening").await;
                eventually(
                    LONG,
                    "an attempt was refused",
                    async || matches!(scene.listener(), Condition::Degraded(why) if why.contains("28P01")),
                )
                .await;
                cluster.sql("ALTER ROLE ears PASSWORD 'ears'").await;
            }
        }
        let missed = scene.publish().await;
        scene.arrives(missed.seq).await;
        scene.hears_again(before, how).await;
    }
}

/// The end of a TLS session is another one than that of the connection below it.
#[tokio::test(flavor = "multi_thread")]
async fn b045_a_session_that_is_closed_by_tls_leads_to_a_new_one() {
    let found = Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_ok();
    if !available("OpenSSL", found) {
        return;
    }
    let cluster = Cluster::with_own_server(&[]).await;
    // Debian's can; a build of another major version may not.
    let library: String = sqlx::Row::get(&cluster.sql("SHOW ssl_library").await[0], 0);
    if library.is_empty() {
        eprintln!("skipped: this PostgreSQL is built without TLS");
        return;
    }
    cluster
        .sql(
            "COPY (SELECT) TO PROGRAM 'openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -subj /CN=test \
             -keyout server.key -out server.crt && chmod 600 server.key'",
        )
        .await;
    cluster.sql("ALTER SYSTEM SET ssl = on").await;
    cluster.sql("SELECT pg_reload_conf()").await;
    let (login, at) = server(&cluster);
    let mut scene = Scene::with_options(&cluster, &login, at, "?sslmode=require").await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE ssl AND application_name = 'switchboard listener listening'";
    for round in 1..=2 {
        assert_eq!(cluster.count(encrypted).await, 1, "round {round}");
        let before = scene.sessions();
        cluster.terminate("listener listening").await;
        let missed = scene.publish().await;
        scene.arrives(missed.seq).await;
        scene.hears_again(before, "close-notify").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b046_a_session_that_leads_nowhere_is_found_and_replaced() {
    let cluster = Cluster::new().await;
    let (login, address) = server(&cluster);
    let proxy = Proxy::start(address).await;
    let mut scene = Scene::new(&cluster, &login, proxy.address()).await;
    let before = scene.sessions();
    // No FIN, no RST: packets vanish. The other connections of the route are reopened as well, once it is there again.
    proxy.set(Mode::Stall);
    let missed = scene.publish().await;
    eventually(LONG, "the silence is noticed", async || scene.listener() != Condition::Ok).await;
    scene.arrives(missed.seq).await;
    proxy.set(Mode::Forward);
    scene.hears_again(before, "a black hole").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b050_listening_goes_on_after_a_long_recovery() {
    let cluster = Cluster::with_own_server(&[]).await;
    let (login, address) = server(&cluster);
    let proxy = Proxy::start(address).await;
    let mut scene = Scene::new(&cluster, &login, proxy.address()).await;
    let before = scene.sessions();
    cluster.server().halt(StopMode::Immediate).await.unwrap();
    proxy.set(Mode::Refuse);
    // Long enough for the pauses between attempts to have grown to their longest.
    eventually(LONG, "the node has given up hope", async || matches!(scene.listener(), Condition::Failed(_)))
        .await;
    cluster.server().resume().await.unwrap();
    proxy.set(Mode::Forward);
    let back = Instant::now();
    eventually(LONG, "a new session", async || scene.sessions() > before).await;
    assert!(back.elapsed() < Duration::from_secs(10), "{:?}", back.elapsed());
    let position = loop {
        // The publisher finds its connection dead, and the next attempt a new one.
        match scene.publishing.ports.durable().publish(&channel("room:1"), &event(), &payload("1")).await {
            Ok(position) => break position,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    scene.arrives(position.seq).await;
    scene.hears_again(before, "a recovery").await;
}

/// Runs only where the queue can be made small; elsewhere it holds 8 GB.
#[tokio::test(flavor = "multi_thread")]
async fn b052_events_are_stored_and_found_while_the_notify_queue_is_full() {
    let small = Cluster::with_own_server(&[]).await;
    if small.count("SELECT current_setting('server_version_num')::bigint").await < 170_000 {
        eprintln!("skipped: needs max_notify_queue_pages, of PostgreSQL 17");
        return;
    }
    let cluster = Cluster::with_own_server(&[("max_notify_queue_pages", "64")]).await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let (bus, room) = (a.ports.durable(), channel("room:1"));
    let mut here = bus.subscribe(&room, StartFrom::Now).await.unwrap();
    let mut there = b.ports.durable().subscribe(&room, StartFrom::Now).await.unwrap();
    // Somebody listens and then sits in a transaction.
    let mut culprit = cluster.connection().await;
    cluster.sql_on(&mut culprit, "LISTEN anything").await;
    cluster.sql_on(&mut culprit, "BEGIN").await;
    cluster.sql_on(&mut culprit, "SELECT 1").await;
    let mut outside = cluster.connection().await;
    let large = "SELECT pg_notify('other', repeat('x', 7900))";
    while sqlx::query(large).execute(&mut outside).await.is_ok() {}
    for seq in 1..=5 {
        let position = bus.publish(&room, &event(), &payload("1")).await.unwrap();
        assert_eq!(position.seq, seq);
        assert!(
            matches!(timeout(LONG, here.next()).await, Ok(Some(DurableItem::Event(event))) if event.position == position)
        );
    }
    for seq in 1..=5 {
        assert!(
            matches!(timeout(LONG, there.next()).await, Ok(Some(DurableItem::Event(event))) if event.position.seq == seq)
        );
    }
    eventually(LONG, "health warns of the queue", async || {
        let report = a.health.report();
        report.iter().any(|(name, is)| {
            *name == "notify_queue" && matches!(is, Condition::Degraded(why) if why.contains("LISTEN"))
        })
    })
    .await;
    cluster.sql_on(&mut culprit, "ROLLBACK").await;
    eventually(LONG, "the bell rings again", async || {
        let position = bus.publish(&room, &event(), &payload("1")).await.unwrap();
        let began = Instant::now();
        while !matches!(timeout(LONG, there.next()).await, Ok(Some(DurableItem::Event(event))) if event.position == position) {}
        began.elapsed() < Duration::from_secs(1)
    })
    .await;
}

/// A route on which LISTEN is answered with an error, so many times.
struct Refusing {
    address: SocketAddr,
    left: Arc<AtomicUsize>,
}

impl Refusing {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, left) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let refusals = Arc::clone(&left);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, to_client) = client.into_split();
                let (mut from_server, to_server) = TcpStream::connect(server).await.unwrap().into_split();
                let to_client = Arc::new(Mutex::new(to_client));
                tokio::spawn(requests(from_client, to_server, Arc::clone(&to_client), Arc::clone(&refusals)));
                tokio::spawn(async move {
                    let mut piece = vec![0; 64 * 1024];
                    while let Ok(length @ 1..) = from_server.read(&mut piece).await {
                        if to_client.lock().await.write_all(&piece[..length]).await.is_err() {
                            return;
                        }
                    }
                    let _ = to_client.lock().await.shutdown().await;
                });
            }
        });
        Self { address, left }
    }
}

/// Forwards message by message; a LISTEN is answered here as long as there are refusals left.
async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    answers: Arc<Mutex<OwnedWriteHalf>>,
    left: Arc<AtomicUsize>,
) -> Option<()> {
    let mut started = false;
    loop {
        // The first messages have no type. What asks for encryption (80877103) is not the last of them.
        let kind = if started { Some(client.read_u8().await.ok()?) } else { None };
        let length = client.read_u32().await.ok()?;
        let mut body = vec![0; length as usize - 4];
        client.read_exact(&mut body).await.ok()?;
        started |= kind.is_none() && body.starts_with(&196_608_u32.to_be_bytes());
        let listens = kind == Some(b'Q') && body.starts_with(b"LISTEN");
        if listens
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            let fields = b"SERROR\0VERROR\0C58P01\0Mcould not access status of transaction 1234: Could not open file \"pg_xact/0000\"\0\0";
            let mut refusal = vec![b'E'];
            refusal.extend(u32::try_from(fields.len() + 4).unwrap().to_be_bytes());
            refusal.extend_from_slice(fields);
            refusal.extend(b"Z\0\0\0\x05I");
            answers.lock().await.write_all(&refusal).await.ok()?;
            continue;
        }
        server.write_all(kind.as_slice()).await.ok()?;
        server.write_all(&length.to_be_bytes()).await.ok()?;
        server.write_all(&body).await.ok()?;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b054_a_server_that_cannot_listen_is_told_of_and_events_arrive_by_catching_up() {
    let cluster = Cluster::with_own_server(&[]).await;
    let (login, address) = server(&cluster);
    let route = Refusing::start(address).await;
    let mut scene = Scene::new(&cluster, &login, route.address).await;
    let before = scene.sessions();
    route.left.store(usize::MAX, Ordering::SeqCst);
    cluster.terminate("listener listening").await;
    eventually(LONG, "health says what to do", async || {
        matches!(scene.listener(), Condition::Degraded(why) | Condition::Failed(why)
            if why.contains("58P01") && why.contains("pg_notification_queue_usage()") && why.contains("upgrading"))
    })
    .await;
    let missed = scene.publish().await;
    scene.arrives(missed.seq).await;
    route.left.store(3, Ordering::SeqCst);
    scene.hears_again(before, "58P01").await;
    assert_eq!(route.left.load(Ordering::SeqCst), 0);
}

/// History first, then live, without a seam: also where many come back at once while events keep coming.
#[tokio::test(flavor = "multi_thread")]
async fn b079_subscribers_that_come_back_under_load_see_no_seam() {
    const PAST: u64 = 2_000;
    const FUTURE: u64 = 1_000;
    let cluster = Cluster::new().await;
    let (a, b) = (cluster.node("a").await, cluster.node("b").await);
    let room = channel("room:1");
    let past = "SELECT {schema}.publish_batch(array_fill('room:1'::text, ARRAY[2000]), array_fill('message'::text, ARRAY[2000]), \
                array_fill('1'::json, ARRAY[2000]))";
    cluster.sql(past).await;
    let epoch = a.ports.durable().head(&room).await.unwrap().epoch;
    let (bus, to) = (a.ports.durable(), room.clone());
    let publisher = tokio::spawn(async move {
        for _ in 0..FUTURE {
            bus.publish(&to, &event(), &payload("2")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let readers = (0..200).map(|n| {
        let (bus, room) = (b.ports.durable(), room.clone());
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(n * 9)).await;
            let from = n * 10;
            let mut events =
                bus.subscribe(&room, StartFrom::After(Position::new(epoch, from))).await.unwrap();
            for seq in from + 1..=PAST + FUTURE {
                match timeout(LONG, events.next()).await.expect("nothing arrives") {
                    Some(DurableItem::Event(event)) => assert_eq!(event.position.seq, seq),
                    other => panic!("{other:?}"),
                }
            }
        })
    });
    futures::future::try_join_all(readers.collect::<Vec<_>>()).await.unwrap();
    publisher.await.unwrap();
}
