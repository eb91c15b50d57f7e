//! A transaction pooler in front of PostgreSQL swallows LISTEN without an error. It must be noticed at the start.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::{Uid, User};
use sqlx::{Connection, PgConnection, Row};
use switchboard_postgres::doctor::{Verdict, examine};
use switchboard_postgres::{Dsn, PostgresError};
use switchboard_testkit::suites::{channel, event, payload};
use switchboard_testkit::{available, eventually};

use crate::cluster::Cluster;

/// PgBouncer in front of a cluster's server, in transaction mode.
struct Pooler {
    process: Child,
    /// Holds its configuration.
    _directory: tempfile::TempDir,
    url: String,
}

impl Pooler {
    async fn start(cluster: &Cluster) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (user, at) = cluster.url.strip_prefix("postgres://").unwrap().split_once('@').unwrap();
        let (user, password) = user.split_once(':').unwrap();
        let (host, database) = at.split_once('/').unwrap();
        let server_port = host.rsplit_once(':').unwrap().1;
        let users = directory.path().join("users");
        std::fs::write(&users, format!("\"{user}\" \"{password}\"\n")).unwrap();
        let settings = directory.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n{database} = host=127.0.0.1 port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = plain\nauth_file = {}\npool_mode = transaction\nmax_client_conn = 200\n\
             ignore_startup_parameters = extra_float_digits\n",
            users.display()
        );
        std::fs::write(&settings, text).unwrap();
        let mut command = Command::new("pgbouncer");
        command.arg(&settings).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        if Uid::effective().is_root() {
            // As PostgreSQL, it refuses to run as root.
            let nobody = User::from_name("nobody").unwrap().unwrap();
            for path in [directory.path(), &users, &settings] {
                std::os::unix::fs::chown(path, Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).unwrap();
            }
            command.uid(nobody.uid.as_raw()).gid(nobody.gid.as_raw());
        }
        let process = command.spawn().expect("pgbouncer is installed");
        eventually(Duration::from_secs(10), "pgbouncer listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        let url = format!("postgres://{user}:{password}@127.0.0.1:{port}/{database}");
        Self { process, _directory: directory, url }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b058_a_transaction_pooler_is_refused_with_what_to_do() {
    let found = Command::new("pgbouncer").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !available("PgBouncer", found) {
        return;
    }
    let cluster = Cluster::new().await;
    let pooler = Pooler::start(&cluster).await;
    let mut config = cluster.config("n1");
    config.dsn = Dsn::parse(&pooler.url).unwrap();
    let error = cluster.try_ports(config.clone()).await.err().expect("a pooler was accepted");
    assert!(matches!(error, PostgresError::Pooled), "{error}");
    assert!(!error.is_transient() && error.to_string().contains("LISTEN_DATABASE_URL"), "{error}");

    let findings = examine(&config).await;
    let listen = findings.iter().find(|finding| finding.check == "listen");
    let listen = listen.unwrap_or_else(|| panic!("{findings:?}"));
    assert_eq!(listen.verdict, Verdict::Failed, "{listen:?}");
    assert!(listen.advice.as_ref().unwrap().contains("LISTEN_DATABASE_URL"));
}

/// Between two of our statements its sessions serve others, who must not find them changed.
#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_of_a_pooler_are_left_as_they_were() {
    let found = Command::new("pgbouncer").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !available("PgBouncer", found) {
        return;
    }
    let cluster = Cluster::with_own_server(&[]).await;
    let pooler = Pooler::start(&cluster).await;
    let mut config = cluster.config("n1");
    config.session_dsn = Some(config.dsn);
    config.dsn = Dsn::parse(&pooler.url).unwrap();
    let node = cluster.start(config).await;
    // Whatever comes of it: PgBouncer before 1.21 loses prepared statements.
    let room = channel("room:1");
    node.ports.ephemeral().publish(&room, &event(), &payload("1")).await.unwrap();
    let _ = node.ports.durable().publish(&room, &event(), &payload("1")).await;
    let _ = node.ports.durable().history(&room, None, 1).await;
    eventually(Duration::from_secs(10), "the ephemeral event has left", async || {
        serde_json::Value::Object(node.stats.collect().0)["ephemeral"]["backlog"] == 0
    })
    .await;

    let settings = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings \
        WHERE name IN ('search_path', 'synchronous_commit', 'default_transaction_isolation', 'lock_timeout')";
    let direct: String = cluster.sql(settings).await[0].get(0);
    let mut through = PgConnection::connect(&pooler.url).await.unwrap();
    let found: String = cluster.sql_on(&mut through, settings).await[0].get(0);
    assert_eq!(found, direct);
}
