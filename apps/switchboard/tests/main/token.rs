//! `token`, and the settings of the keys that its tokens are signed with.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use switchboard_core::access::Right;
use switchboard_core::types::Channel;
use switchboard_gateway::auth::{AuthConfig, Keys, Verifier};

use crate::{refusal, run, serve_with, stderr, stdout, switchboard};

const SECRET: &str = "hunter2, and hunter3 to hunter9 to be sure";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../adapters/gateway/tests/fixtures").join(name)
}

/// What a token that was printed claims, whoever signed it.
fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    let bits: Vec<u8> =
        part.bytes().flat_map(|byte| (0..6).rev().map(move |bit| sextet(byte) >> bit & 1)).collect();
    let bytes: Vec<u8> =
        bits.chunks_exact(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit)).collect();
    serde_json::from_slice(&bytes).unwrap()
}

fn sextet(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'-' => 62,
        _ => 63,
    }
}

/// What nodes with these keys make of it.
fn rights(keys: Keys, token: &str, channel: &str) -> Vec<Right> {
    let verifier = Verifier::new(AuthConfig { keys, ..AuthConfig::default() });
    let grant = verifier.verify(token, SystemTime::now().into()).unwrap();
    let channel = Channel::parse(channel).unwrap();
    Right::ALL.into_iter().filter(|right| grant.allows(&channel, *right)).collect()
}

#[test]
fn a_token_says_who_may_do_what_and_for_how_long() {
    let mut command = switchboard(&["token", "--sub", "alice", "--expires-in", "90m"]);
    command.args([
        "--channel",
        "room:*=subscribe,publish",
        "--channel",
        "audit=durable",
        "--presence-key",
        "a",
    ]);
    let output = run(command.args(["--channel", "room:*=presence"]).env("AUTH_JWT_SECRET", SECRET));
    assert!(output.status.success() && stderr(&output).is_empty(), "{}", stderr(&output));
    let printed = stdout(&output);
    let token = printed.trim_end();
    assert_eq!(printed.lines().count(), 1);
    let keys = || Keys::secret(SECRET).unwrap();
    assert_eq!(rights(keys(), token, "room:1"), [Right::Subscribe, Right::Publish, Right::Presence]);
    assert_eq!(rights(keys(), token, "audit"), [Right::Durable]);
    assert_eq!(rights(keys(), token, "other"), []);
    let claims = claims(token);
    assert_eq!(
        (&claims["sub"], &claims["aud"], &claims["iss"]),
        (&json!("alice"), &json!(null), &json!(null))
    );
    assert_eq!(claims["presence_key"], "a");
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 90 * 60);
    let age = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert!(age - claims["iat"].as_u64().unwrap() < Duration::from_mins(1).as_secs());
}

#[test]
fn a_private_key_signs_what_its_public_key_checks() {
    for kind in ["RS256", "ES256", "EdDSA"] {
        let mut command = switchboard(&["token", "--sub", "alice", "--channel", "a=subscribe", "--key-file"]);
        let output = run(command.arg(fixture(&format!("{kind}.private.pem"))));
        assert!(output.status.success(), "{}", stderr(&output));
        let public = std::fs::read_to_string(fixture(&format!("{kind}.public.pem"))).unwrap();
        assert_eq!(rights(Keys::pem(&public).unwrap(), stdout(&output).trim_end(), "a"), [Right::Subscribe]);
    }
}

#[test]
fn a_node_and_the_command_share_the_environment() {
    let mut command = switchboard(&["token", "--sub", "alice", "--channel", "a=subscribe"]);
    command
        .env("AUTH_JWT_SECRET", SECRET)
        .env("AUTH_AUDIENCE", "chat")
        .env("AUTH_ISSUER", "https://id.example");
    let claims = claims(stdout(&run(&mut command)).trim_end());
    assert_eq!((&claims["aud"], &claims["iss"]), (&json!("chat"), &json!("https://id.example")));
}

#[test]
fn a_token_without_channels_is_made_with_a_warning() {
    let output = run(switchboard(&["token", "--sub", "alice"]).env("AUTH_JWT_SECRET", SECRET));
    assert!(output.status.success() && stdout(&output).lines().count() == 1);
    assert!(stderr(&output).contains("without --channel"), "{}", stderr(&output));
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for (arguments, named) in [
        (
            &["--channel", "room:1=read"][..],
            "right \"read\": must be subscribe, publish, durable or presence",
        ),
        (&["--channel", "room:1"], "must be PATTERN=RIGHTS"),
        (&["--expires-in", "0s"], "at least 1s"),
        (&["--expires-in", "1d"], "10s, 500ms or 1m30s"),
    ] {
        let mut command = switchboard(&["token", "--sub", "alice"]);
        let output = run(command.args(arguments).env("AUTH_JWT_SECRET", SECRET));
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
        assert!(stderr(&output).contains(named), "{}", stderr(&output));
    }
    let token = || switchboard(&["token", "--sub", "alice", "--channel", "a=subscribe"]);
    let message = refusal(&mut token(), 2);
    assert!(message.contains("AUTH_JWT_SECRET (--auth-jwt-secret) is not set"), "{message}");
    let message = refusal(token().env("AUTH_JWT_SECRET", "hunter2"), 2);
    assert!(message.contains("AUTH_JWT_SECRET") && message.contains("at least 32 bytes"), "{message}");
    for name in ["RS256.public.pem", "P-384.private.pem", "jwks.json", "nothing"] {
        let message = refusal(token().current_dir(fixture("")).args(["--key-file", name]), 2);
        assert!(message.contains(&format!("(--key-file) is \"{name}\"")), "{message}");
    }
    let message = refusal(token().env("AUTH_JWT_SECRET", SECRET).args(["--aud", ""]), 2);
    assert!(message.contains("--aud") && message.contains("1 to 255 bytes"), "{message}");
}

#[test]
fn keys_that_are_no_good_stop_the_start() {
    let message = refusal(&mut serve_with("AUTH_JWT_SECRET", "hunter2"), 2);
    assert!(message.contains("AUTH_JWT_SECRET (--auth-jwt-secret)"), "{message}");
    assert!(message.contains("at least 32 bytes"), "{message}");
    for (variable, name, rule) in [
        ("AUTH_JWT_PUBLIC_KEY_FILE", "nothing", "cannot be read: No such file"),
        ("AUTH_JWT_PUBLIC_KEY_FILE", "RS256.private.pem", "must be public keys in PEM"),
        ("AUTH_JWT_PUBLIC_KEY_FILE", "RSA-1024.public.pem", "2048 bits or more"),
        ("AUTH_JWKS_FILE", "nothing", "cannot be read: No such file"),
        ("AUTH_JWKS_FILE", "RS256.public.pem", "must be a JSON Web Key Set (line 1)"),
        ("AUTH_JWKS_FILE", "tokens.json", "must be a JSON Web Key Set"),
    ] {
        let message = refusal(&mut serve_with(variable, fixture(name)), 2);
        assert!(message.contains(&format!("error: {variable} (--")), "{message}");
        assert!(message.contains(rule), "{message}");
    }
    for (variable, value, rule) in [
        ("AUTH_AUDIENCE", "chat", "must come with AUTH_JWT_SECRET"),
        ("AUTH_ISSUER", "https://id.example", "must come with AUTH_JWT_SECRET"),
        ("AUTH_LEEWAY", "30", "10s, 500ms or 1m30s"),
        ("AUTH_LEEWAY", "6m", "at most 5m"),
        ("AUTH_ORIGINS", "app.example", "such as https://app.example"),
        ("AUTH_ORIGINS", "https://a.example,null", "such as https://app.example"),
    ] {
        let message = refusal(&mut serve_with(variable, value), 2);
        assert!(message.contains(variable) && message.contains(rule), "{message}");
    }
}

#[test]
fn b128_the_configuration_is_logged_without_keys() {
    let mut command = serve_with("AUTH_JWT_SECRET", SECRET);
    command
        .env("AUTH_JWKS_FILE", fixture("jwks.json"))
        .env("AUTH_JWT_PUBLIC_KEY_FILE", fixture("ES256.public.pem"));
    command
        .env("HTTP_ADDR", "127.0.0.1:0")
        .env("LOG_LEVEL", "trace")
        .env("AUTH_ORIGINS", "https://app.example");
    // It never gets to its database, and ends with its standard input.
    let output = run(command.arg("--exit-with-stdin").stdin(std::process::Stdio::piped()));
    let log = stderr(&output);
    assert!(log.contains("configuration") && log.contains("https://app.example"), "{log}");
    assert!(log.contains("Keys("), "{log}");
    for secret in ["hunter", "YSBzZWNyZXQg", "a secret for tests"] {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
}
