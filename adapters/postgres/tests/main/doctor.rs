//! What the doctor finds, and that its advice helps.

use std::collections::BTreeMap;

use switchboard_postgres::doctor::{Verdict, examine};
use switchboard_postgres::{Dsn, PostgresConfig};

use crate::cluster::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_server_has_nothing_but_good_findings() {
    let cluster = Cluster::with_own_server(&[("fsync", "on")]).await;
    for round in 0..2 {
        for finding in examine(&cluster.config("n1")).await {
            assert_eq!(finding.verdict, Verdict::Ok, "round {round}: {finding:?}");
        }
        // And so with the schema in place.
        cluster.ports("n1").await.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statements_of_the_doctor_can_be_pasted() {
    let cluster = Cluster::with_own_server(&[]).await;
    cluster.sql(r#"CREATE ROLE "Poor O'Neil" LOGIN PASSWORD 'poor'"#).await;
    cluster.sql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC").await;
    let mut config = cluster.config("n1");
    let at = cluster.url.rsplit_once('@').unwrap().1;
    config.dsn = Dsn::parse(&format!("postgres://Poor%20O%27Neil:poor@{at}")).unwrap();
    // Before there is a schema, and then: what is said before holds afterwards.
    let before = failures(&config).await;
    cluster.ports("n1").await.close().await;
    let after = failures(&config).await;
    assert_eq!(before.keys().copied().collect::<Vec<_>>(), ["history", "rights"], "{before:?}");
    let statements = |advice: &str| advice.split_once(": ").unwrap().1.to_owned();
    assert_eq!(statements(&before["rights"]), statements(&after["rights"]));
    for advice in after.values() {
        for statement in statements(advice).split_terminator("; ") {
            cluster.sql(statement).await;
        }
    }
    assert_eq!(failures(&config).await, BTreeMap::new());
    cluster.start(config).await.node.joined().await.unwrap();
}

/// What to do about each check that failed.
async fn failures(config: &PostgresConfig) -> BTreeMap<&'static str, String> {
    let failed = examine(config).await.into_iter().filter(|finding| finding.verdict == Verdict::Failed);
    failed.map(|finding| (finding.check, finding.advice.unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_only_what_is_off() {
    let cluster = Cluster::with_own_server(&[("fsync", "off")]).await;
    let durability = async || {
        let findings = examine(&cluster.config("n1")).await;
        findings.into_iter().find(|finding| finding.check == "durability").unwrap()
    };
    let finding = durability().await;
    assert_eq!((finding.verdict, &*finding.detail), (Verdict::Warning, "fsync is off"));
    assert!(finding.advice.unwrap().starts_with("turn it on"));
    cluster.sql("ALTER ROLE postgres SET synchronous_commit = off").await;
    let finding = durability().await;
    assert_eq!(finding.detail, "fsync and synchronous_commit are off");
    assert!(finding.advice.unwrap().starts_with("turn them on"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_missing_rights_a_standby_and_a_dead_port() {
    let cluster = Cluster::with_own_server(&[]).await;
    cluster.ports("n1").await.close().await;
    cluster.sql("CREATE ROLE poor LOGIN PASSWORD 'poor'").await;
    let mut config = cluster.config("n1");
    let at = cluster.url.rsplit_once('@').unwrap().1.to_owned();
    config.dsn = Dsn::parse(&format!("postgres://poor:poor@{at}")).unwrap();
    let findings = examine(&config).await;
    let rights = findings.iter().find(|finding| finding.check == "rights").unwrap();
    assert_eq!(rights.verdict, Verdict::Failed);
    assert!(!rights.detail.contains("doctor"), "{rights:?}");

    config.dsn = Dsn::parse(&format!("postgres://poor:wrong-secret@{at}")).unwrap();
    let findings = examine(&config).await;
    assert_eq!((findings.len(), findings[0].verdict), (1, Verdict::Failed));
    assert!(
        findings[0].detail.contains("28P01") && !findings[0].detail.contains("wrong-secret"),
        "{findings:?}"
    );

    config.dsn = Dsn::parse("postgres://poor:poor@127.0.0.1:1/postgres").unwrap();
    let findings = examine(&config).await;
    assert_eq!((findings.len(), findings[0].check), (1, "connection"));
}
