//! Tokens: which are accepted, and which are not, without HTTP.

use std::fs;
use std::time::Duration;

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use switchboard_core::access::{AuthError, Grant, Right};
use switchboard_core::types::Channel;
use switchboard_gateway::auth::{AuthConfig, JwksFile, Keys, Rules, Signer, Verifier};
use switchboard_testkit::{LONG, eventually};
use time::OffsetDateTime;

use crate::tokens::{SECRET, fixture};

const ALGORITHMS: [&str; 4] = ["HS256", "RS256", "ES256", "EdDSA"];

fn verifier(keys: Keys) -> Verifier {
    Verifier::new(AuthConfig { keys, ..AuthConfig::default() })
}

fn verify(verifier: &Verifier, token: &str) -> Result<Grant, AuthError> {
    verifier.verify(token, OffsetDateTime::now_utc())
}

/// The keys of one algorithm, as an operator has them.
fn keys(algorithm: &str) -> Keys {
    match algorithm {
        "HS256" => Keys::secret(SECRET).unwrap(),
        _ => Keys::pem(&fixture(&format!("{algorithm}.public.pem"))).unwrap(),
    }
}

fn foreign(algorithm: &str) -> String {
    let tokens: Value = serde_json::from_str(&fixture("tokens.json")).unwrap();
    tokens[algorithm].as_str().unwrap().to_owned()
}

/// A token with this very header.
fn forged(header: &Value, claims: &Value, signature: &str) -> String {
    let part = |value: &Value| {
        // The part of a token that the library encodes for us.
        let token = Signer::secret(SECRET).unwrap().sign(value).unwrap();
        token.split('.').nth(1).unwrap().to_owned()
    };
    format!("{}.{}.{signature}", part(header), part(claims))
}

fn claims() -> Value {
    json!({"sub": "mallory", "exp": 32_503_680_000_i64, "channels": {"*": ["subscribe"]}})
}

#[test]
fn tokens_of_another_library_are_accepted_with_every_algorithm() {
    for algorithm in ALGORITHMS {
        for keys in [keys(algorithm), Keys::jwks(&fixture("jwks.json")).unwrap()] {
            let grant = verify(&verifier(keys), &foreign(algorithm)).expect(algorithm);
            assert_eq!(grant.subject.as_deref(), Some("alice"));
            let allows = |channel: &str, right| grant.allows(&Channel::parse(channel).unwrap(), right);
            assert!(allows("room:1", Right::Publish) && allows("audit", Right::Durable));
            assert!(!allows("room:1", Right::Durable) && !allows("audit", Right::Subscribe));
        }
        let rules = Rules {
            audience: Some("chat".to_owned()),
            issuer: Some("https://id.example".to_owned()),
            ..Rules::default()
        };
        let strict = Verifier::new(AuthConfig { keys: keys(algorithm), rules, jwks_file: None });
        assert!(verify(&strict, &foreign(algorithm)).is_ok());
    }
}

#[test]
fn what_is_signed_here_is_accepted_here() {
    for algorithm in ALGORITHMS {
        let signer = match algorithm {
            "HS256" => Signer::secret(SECRET).unwrap(),
            _ => Signer::pem(&fixture(&format!("{algorithm}.private.pem"))).unwrap(),
        };
        let token = signer.sign(&claims()).unwrap();
        assert_eq!(verify(&verifier(keys(algorithm)), &token).unwrap().subject.as_deref(), Some("mallory"));
    }
}

#[test]
fn a_token_is_for_the_key_it_was_signed_with() {
    for algorithm in ALGORITHMS {
        let own = verifier(keys(algorithm));
        for other in ALGORITHMS.into_iter().filter(|other| *other != algorithm) {
            assert_eq!(
                verify(&own, &foreign(other)).unwrap_err().kind(),
                "invalid",
                "{other} by {algorithm}"
            );
        }
        let genuine = foreign(algorithm);
        let (signed, signature) = genuine.rsplit_once('.').unwrap();
        let (header, body) = signed.split_once('.').unwrap();
        let other = foreign("HS256");
        let other_body = Signer::secret(SECRET).unwrap().sign(&claims()).unwrap();
        let other_body = other_body.split('.').nth(1).unwrap();
        for wrong in [
            format!("{signed}."),
            signed.to_owned(),
            format!("{header}.{other_body}.{signature}"),
            format!("{header}.{body}.{}", &signature[1..]),
            format!("{header}.{body}.{signature}."),
            format!(" {genuine}"),
            format!("{genuine}="),
            format!("{other}.{genuine}"),
        ] {
            assert_eq!(verify(&own, &wrong).unwrap_err().kind(), "invalid", "{wrong}");
        }
    }
}

/// The algorithm is the key's. A public key is known to everybody, and is no secret of anybody's.
#[test]
fn a_token_does_not_choose_how_it_is_checked() {
    for algorithm in ["RS256", "ES256", "EdDSA"] {
        let pem = fixture(&format!("{algorithm}.public.pem"));
        for keys in [Keys::pem(&pem).unwrap(), Keys::jwks(&fixture("jwks.json")).unwrap()] {
            let verifier = verifier(keys);
            for secret in [pem.as_str(), pem.trim()] {
                let confused = Signer::secret(secret).unwrap().sign(&claims()).unwrap();
                assert_eq!(verify(&verifier, &confused).unwrap_err().kind(), "invalid");
            }
            for alg in ["none", "None", "NONE", "nOnE", "", "HS512", "hs256", "RS512", "PS256"] {
                for signature in ["", "AAAA"] {
                    let token = forged(&json!({"alg": alg, "typ": "JWT"}), &claims(), signature);
                    assert_eq!(verify(&verifier, &token).unwrap_err().kind(), "invalid", "{alg:?}");
                }
            }
        }
    }
    // The right key in the wrong hands: the same secret, but another hash.
    let own = verifier(keys("HS256"));
    for header in
        [json!({"typ": "JWT"}), json!({"alg": null}), json!({"alg": ["HS256"]}), json!([]), json!(1)]
    {
        assert_eq!(verify(&own, &forged(&header, &claims(), "AAAA")).unwrap_err().kind(), "invalid");
    }
    // A key that the token brings along is nobody's.
    let jwk = json!({"kty": "oct", "k": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE"});
    let header = json!({"alg": "HS256", "jwk": jwk, "jku": "http://127.0.0.1:1/"});
    assert_eq!(verify(&own, &forged(&header, &claims(), "AAAA")).unwrap_err().kind(), "invalid");
}

#[test]
fn nonsense_is_no_token_and_is_not_repeated() {
    let own = verifier(keys("HS256"));
    let long = format!("{}.{}.{}", "a".repeat(10_000), "b".repeat(10_000), "c".repeat(10_000));
    for nonsense in ["", ".", "..", "...", "a.b.c", "secret", "é.é.é", "eyJhbGciOiJIUzI1NiJ9..", &long] {
        let error = verify(&own, nonsense).unwrap_err();
        assert_eq!(error.kind(), "invalid", "{nonsense:.20}");
        assert!(nonsense.len() < 4 || !error.to_string().contains(nonsense), "{error}");
    }
    for claims in [json!([]), json!("x"), json!(1), json!(null)] {
        let token = Signer::secret(SECRET).unwrap().sign(&claims).unwrap();
        assert_eq!(verify(&own, &token).unwrap_err().kind(), "invalid", "{claims}");
    }
}

#[test]
fn a_key_is_chosen_by_its_name() {
    let secrets = ["the first secret of thirty-two bytes", "the other secret of thirty-two bytes"];
    let key = |id: &str, secret: &str| {
        let token = Signer::secret(SECRET).unwrap().sign(&secret).unwrap();
        // base64url of the secret with its quotes.
        json!({"kty": "oct", "alg": "HS256", "kid": id, "k": token.split('.').nth(1).unwrap()})
    };
    let set = json!({"keys": [key("a", secrets[0]), key("b", secrets[1])]}).to_string();
    let verifier = verifier(Keys::jwks(&set).unwrap());
    let signed = |id: Option<&str>, secret: &str| {
        let header = Header { kid: id.map(str::to_owned), ..Header::new(Algorithm::HS256) };
        let key = EncodingKey::from_secret(format!("\"{secret}\"").as_bytes()).unwrap();
        jsonwebtoken::encode(&header, &claims(), &key).unwrap()
    };
    for (id, secret, expected) in [
        (Some("a"), secrets[0], true),
        (Some("b"), secrets[1], true),
        (None, secrets[1], true),
        (Some("a"), secrets[1], false),
        (Some("c"), secrets[0], false),
        (None, "a secret that nobody has told us about", false),
    ] {
        assert_eq!(verify(&verifier, &signed(id, secret)).is_ok(), expected, "{id:?} {secret}");
    }
}

#[test]
fn keys_that_are_too_weak_or_of_the_wrong_kind_are_refused_without_being_shown() {
    assert!(Keys::secret(&"x".repeat(32)).is_ok());
    let error = Keys::secret(&"x".repeat(31)).unwrap_err().to_string();
    assert!(error.contains("at least 32 bytes") && !error.contains("xxx"), "{error}");
    let body = |pem: &str| pem.lines().nth(1).unwrap().to_owned();
    for name in [
        "RS256.private.pem",
        "ES256.private.pem",
        "EdDSA.private.pem",
        "P-384.public.pem",
        "RSA-1024.public.pem",
    ] {
        let pem = fixture(name);
        let error = Keys::pem(&pem).expect_err(name).to_string();
        assert!(error.contains("must be public keys in PEM") && !error.contains(&body(&pem)), "{error}");
    }
    for name in ["RS256.public.pem", "ES256.public.pem", "P-384.private.pem", "RSA-1024.private.pem"] {
        let pem = fixture(name);
        let error = Signer::pem(&pem).expect_err(name).to_string();
        assert!(error.contains("must be one private key in PEM") && !error.contains(&body(&pem)), "{error}");
    }
    for nonsense in
        ["", "-----BEGIN PUBLIC KEY-----", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"]
    {
        assert!(Keys::pem(nonsense).is_err() && Signer::pem(nonsense).is_err());
    }
    let both = fixture("RS256.public.pem") + &fixture("EdDSA.public.pem");
    let verifier = verifier(Keys::pem(&both).unwrap());
    assert!(verify(&verifier, &foreign("RS256")).is_ok() && verify(&verifier, &foreign("EdDSA")).is_ok());
    assert!(!format!("{verifier:?} {:?}", Signer::secret(SECRET).unwrap()).contains("secret for tests"));
}

#[test]
fn a_key_set_may_hold_keys_for_other_purposes() {
    let own: Value = serde_json::from_str(&fixture("jwks.json")).unwrap();
    let own = own["keys"].as_array().unwrap();
    let changed = |index: usize, name: &str, value: Value| {
        let mut key = own[index].clone();
        key[name] = value;
        key
    };
    let useless = vec![
        changed(1, "use", json!("enc")),
        changed(1, "key_ops", json!(["sign"])),
        changed(1, "alg", json!("RSA-OAEP")),
        changed(1, "alg", json!("PS256")),
        changed(1, "n", json!("AQAB")),
        changed(2, "crv", json!("P-384")),
        changed(0, "k", json!("c2hvcnQ")),
        json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA"}),
    ];
    for key in &useless {
        let set = json!({"keys": [key]}).to_string();
        assert!(Keys::jwks(&set).unwrap_err().rule().contains("must hold a key"), "{key}");
    }
    let mixed = [useless, vec![own[3].clone()]].concat();
    let set = json!({ "keys": mixed }).to_string();
    assert!(verify(&verifier(Keys::jwks(&set).unwrap()), &foreign("EdDSA")).is_ok());
    for broken in ["", "{}", "[]", "{\"keys\": 1}", "{\"keys\": [1]}", "{\"keys\": []}"] {
        assert!(Keys::jwks(broken).is_err(), "{broken}");
    }
}

#[tokio::test]
async fn keys_rotate_without_a_restart_and_a_broken_file_keeps_those_before_it() {
    let set: Value = serde_json::from_str(&fixture("jwks.json")).unwrap();
    let only = |index: usize| json!({"keys": [set["keys"][index]]}).to_string();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    fs::write(&path, only(1)).unwrap();
    let verifier = Verifier::new(AuthConfig {
        keys: Keys::secret(SECRET).unwrap(),
        jwks_file: Some(JwksFile::open(&path).unwrap()),
        rules: Rules::default(),
    });
    let accepts = |algorithm| verify(&verifier, &foreign(algorithm)).is_ok();
    assert!(accepts("HS256") && accepts("RS256") && !accepts("ES256"));

    // As Kubernetes and careful people do it.
    let next = directory.path().join("next");
    fs::write(&next, only(2)).unwrap();
    fs::rename(&next, &path).unwrap();
    eventually(LONG, "the new key counts", async || accepts("ES256")).await;
    assert!(accepts("HS256") && !accepts("RS256"));

    fs::write(&path, "{\"keys\": [").unwrap();
    eventually(LONG, "the node says so", async || verifier.warning().is_some()).await;
    assert!(verifier.warning().unwrap().contains("JSON Web Key Set"), "{:?}", verifier.warning());
    assert!(accepts("ES256"));
    fs::remove_file(&path).unwrap();
    let unreadable = async || verifier.warning().is_some_and(|warning| warning.contains("cannot be read"));
    eventually(LONG, "the node says so", unreadable).await;
    assert!(accepts("ES256"));

    fs::write(&path, only(3)).unwrap();
    eventually(LONG, "all is well", async || verifier.warning().is_none()).await;
    assert!(accepts("EdDSA") && !accepts("ES256"));
}

#[tokio::test]
async fn a_key_file_that_is_no_good_at_the_start_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    assert!(JwksFile::open(&path).unwrap_err().to_string().starts_with("cannot be read"));
    for (text, reason) in [
        ("{", "JSON Web Key Set (line 1)".to_owned()),
        ("{\"keys\": []}", "must hold a key".to_owned()),
        (&*" ".repeat(2 * 1024 * 1024), "at most 1048576 bytes".to_owned()),
    ] {
        fs::write(&path, text).unwrap();
        let error = JwksFile::open(&path).unwrap_err().to_string();
        assert!(error.contains(&reason), "{error}");
    }
}

#[test]
fn b126_the_verifier_uses_the_leeway_it_was_given() {
    let now = OffsetDateTime::now_utc();
    for (leeway, ago, expected) in
        [(0, 1, false), (0, 30, false), (0, 61, false), (45, 1, true), (45, 30, true), (45, 61, false)]
    {
        let rules = Rules { leeway: Duration::from_secs(leeway), ..Rules::default() };
        let verifier = Verifier::new(AuthConfig { keys: keys("HS256"), jwks_file: None, rules });
        let token =
            Signer::secret(SECRET).unwrap().sign(&json!({"exp": now.unix_timestamp() - ago})).unwrap();
        assert_eq!(verifier.verify(&token, now).is_ok(), expected, "exp {ago} s ago, leeway {leeway} s");
    }
}
