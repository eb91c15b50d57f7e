//! `migrate` and `doctor` as far as they go without a database.

use crate::{NOWHERE, refusal, run, stderr, stdout, switchboard};

#[test]
fn the_sql_can_be_had_without_a_database() {
    let output = run(&mut switchboard(&["migrate", "--print", "--cluster-schema", "chat"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let sql = stdout(&output);
    assert!(sql.starts_with("BEGIN;") && sql.ends_with("COMMIT;\n"), "{sql}");
    assert!(sql.contains("CREATE SCHEMA \"chat\"") && !sql.contains("{schema}"), "{sql}");
}

#[test]
fn a_schema_name_that_needs_quotes_is_refused() {
    let message = refusal(&mut switchboard(&["migrate", "--print", "--cluster-schema", "Chat\"; DROP"]), 2);
    assert!(message.contains("CLUSTER_SCHEMA (--cluster-schema)"), "{message}");
}

#[test]
fn migrate_says_why_it_cannot() {
    let message = refusal(&mut switchboard(&["migrate", "--database-url", NOWHERE]), 1);
    assert!(message.contains("postgres://user@127.0.0.1:1/db"), "{message}");
}

#[test]
fn doctor_says_what_to_do_and_fails() {
    let output = run(&mut switchboard(&["doctor", "--database-url", NOWHERE]));
    assert_eq!(output.status.code(), Some(1));
    let findings = stdout(&output);
    assert!(findings.starts_with("FAILED ") && findings.contains("to do: "), "{findings}");
    assert!(!findings.contains("hunter2") && findings.lines().count() == 1, "{findings}");
    let json = run(&mut switchboard(&["doctor", "--json", "--database-url", NOWHERE]));
    let findings: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(findings[0]["verdict"], "failed");
}
