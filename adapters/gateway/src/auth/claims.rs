//! From the claims of a token that is genuine to a grant. Pure: time is an argument.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use switchboard_core::access::{AuthError, Grant, Right};
use switchboard_core::types::{ChannelPattern, PresenceKey};
use time::OffsetDateTime;

/// What a genuine token must claim to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// What `aud` must be, or hold. `None`: it is not looked at.
    pub audience: Option<String>,
    /// What `iss` must be. `None`: it is not looked at.
    pub issuer: Option<String>,
    /// How far clocks may be apart: a token is accepted that much earlier than `nbf` and later than `exp`, everywhere.
    pub leeway: Duration,
    /// Whether a token without `exp` is refused, rather than good for ever.
    pub expiry_required: bool,
}

impl Default for Rules {
    /// No leeway, and tokens must expire.
    fn default() -> Self {
        Self { audience: None, issuer: None, leeway: Duration::ZERO, expiry_required: true }
    }
}

/// The claims as they are, so that each can be refused by name.
#[derive(Deserialize)]
pub(super) struct Claims {
    sub: Option<Value>,
    aud: Option<Value>,
    iss: Option<Value>,
    exp: Option<Value>,
    nbf: Option<Value>,
    presence_key: Option<Value>,
    channels: Option<Value>,
}

impl Rules {
    /// What whoever holds the token may do, if it is accepted at `now`.
    pub(super) fn grant(&self, claims: Claims, now: OffsetDateTime) -> Result<Grant, AuthError> {
        if self.audience.as_ref().is_some_and(|expected| !names(claims.aud.as_ref(), expected)) {
            return invalid("its `aud` is not the audience that is expected here");
        }
        if self.issuer.as_ref().is_some_and(|expected| claims.iss.as_ref() != Some(&Value::from(&**expected)))
        {
            return invalid("its `iss` is not the issuer that is expected here");
        }
        let subject = match claims.sub {
            None => None,
            Some(Value::String(subject)) => Some(subject),
            Some(_) => return invalid("its `sub` must be a string"),
        };
        let presence_key = match claims.presence_key {
            None => None,
            Some(Value::String(key)) => {
                Some(PresenceKey::parse(&key).map_err(|error| AuthError::Invalid(error.to_string()))?)
            }
            Some(_) => return invalid("its `presence_key` must be a string"),
        };
        let channels = claims.channels.map_or_else(|| Ok(Vec::new()), channels)?;
        let expires = self.expiry(claims.exp.as_ref())?;
        let begins = claims.nbf.as_ref().map(|nbf| time("nbf", nbf)).transpose()?;
        if begins.is_some_and(|begins| now.saturating_add(self.signed_leeway()) < begins) {
            return Err(AuthError::NotYetValid);
        }
        let grant = Grant { subject, expires, presence_key, channels };
        if grant.has_expired(now) { Err(AuthError::Expired) } else { Ok(grant) }
    }

    /// The end of a token that claims this `exp`.
    fn expiry(&self, exp: Option<&Value>) -> Result<Option<OffsetDateTime>, AuthError> {
        match exp {
            Some(exp) => Ok(Some(time("exp", exp)?.saturating_add(self.signed_leeway()))),
            None if self.expiry_required => invalid("it has no `exp`, which is required"),
            None => Ok(None),
        }
    }

    fn signed_leeway(&self) -> time::Duration {
        time::Duration::try_from(self.leeway).unwrap_or(time::Duration::MAX)
    }
}

/// Whether `aud` is this audience, or holds it.
fn names(aud: Option<&Value>, expected: &str) -> bool {
    match aud {
        Some(Value::String(one)) => one == expected,
        Some(Value::Array(several)) => several.iter().any(|one| one == expected),
        _ => false,
    }
}

fn channels(claim: Value) -> Result<Vec<(ChannelPattern, Vec<Right>)>, AuthError> {
    const RULE: &str = "its `channels` must be an object: channel pattern → array of rights";
    let Value::Object(channels) = claim else { return invalid(RULE) };
    let entry = |(pattern, rights): (String, Value)| {
        let pattern =
            ChannelPattern::parse(&pattern).map_err(|error| AuthError::Invalid(error.to_string()))?;
        let Value::Array(rights) = rights else { return invalid(RULE) };
        let right = |right: Value| match right {
            Value::String(name) => Right::parse(&name).map_err(|error| AuthError::Invalid(error.to_string())),
            _ => invalid(RULE),
        };
        Ok((pattern, rights.into_iter().map(right).collect::<Result<_, _>>()?))
    };
    channels.into_iter().map(entry).collect()
}

/// A `NumericDate`: seconds since 1970, perhaps with a fraction.
fn time(claim: &str, value: &Value) -> Result<OffsetDateTime, AuthError> {
    let since = value.as_f64().and_then(time::Duration::checked_seconds_f64);
    since.and_then(|since| OffsetDateTime::UNIX_EPOCH.checked_add(since)).ok_or_else(|| {
        AuthError::Invalid(format!("its `{claim}` must be seconds since 1970, before the year 10000"))
    })
}

fn invalid<T>(reason: &str) -> Result<T, AuthError> {
    Err(AuthError::Invalid(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use switchboard_core::types::Channel;

    use super::*;

    /// Now, in the claims of these tests.
    const NOW: f64 = 1_800_000_000.0;

    fn judge(rules: &Rules, claims: Value) -> Result<Grant, AuthError> {
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::seconds_f64(NOW);
        rules.grant(serde_json::from_value(claims).unwrap(), now)
    }

    #[test]
    fn b126_the_leeway_is_the_configured_one_and_no_more() {
        for (leeway, ago, expected) in [
            (0.0, 0.0, false),
            (0.0, 1.0, false),
            (0.0, -1.0, true),
            (30.0, 1.0, true),
            (30.0, 29.5, true),
            (30.0, 30.0, false),
            (30.0, 61.0, false),
            (60.0, 59.0, true),
            (60.0, 61.0, false),
        ] {
            let rules = Rules { leeway: Duration::from_secs_f64(leeway), ..Rules::default() };
            let exp = judge(&rules, json!({"exp": NOW - ago}));
            assert_eq!(exp.is_ok(), expected, "exp {ago} s ago with a leeway of {leeway} s");
            if let Ok(grant) = exp {
                let left = grant.expires.unwrap().unix_timestamp_nanos() / 1_000_000;
                #[allow(clippy::cast_possible_truncation, reason = "small numbers")]
                let expected = ((NOW - ago + leeway) * 1000.0) as i128;
                assert_eq!(left, expected, "sockets end when requests begin to be refused");
            } else {
                assert_eq!(exp, Err(AuthError::Expired));
            }
            let nbf = judge(&rules, json!({"exp": NOW + 1000.0, "nbf": NOW + ago}));
            assert_eq!(nbf.is_ok(), ago <= leeway, "nbf in {ago} s with a leeway of {leeway} s");
        }
    }

    #[test]
    fn a_token_may_bind_its_holder_to_one_presence_key() {
        let key = |key: Value| judge(&Rules::default(), json!({"exp": NOW + 1.0, "presence_key": key}));
        assert_eq!(key(json!("alice")).unwrap().presence_key.unwrap().as_str(), "alice");
        assert_eq!(judge(&Rules::default(), json!({"exp": NOW + 1.0})).unwrap().presence_key, None);
        for wrong in [json!(""), json!(1), json!(["alice"]), json!("a\nb")] {
            assert_eq!(key(wrong.clone()).unwrap_err().kind(), "invalid", "{wrong}");
        }
    }

    #[test]
    fn a_token_must_expire_unless_the_rules_say_otherwise() {
        let error = judge(&Rules::default(), json!({"sub": "alice"})).unwrap_err();
        assert!(error.to_string().contains("`exp`"), "{error}");
        let lax = Rules { expiry_required: false, ..Rules::default() };
        assert_eq!(judge(&lax, json!({"sub": "alice"})).unwrap().expires, None);
        assert_eq!(judge(&lax, json!({"exp": NOW - 1.0})), Err(AuthError::Expired));
    }

    #[test]
    fn times_that_are_none_are_refused_by_name() {
        for wrong in [json!("1800000001"), json!(true), json!([]), json!({}), json!(1e300), json!(-1e300)] {
            for claim in ["exp", "nbf"] {
                let mut claims = json!({"exp": NOW + 1.0});
                claims[claim] = wrong.clone();
                let error = judge(&Rules::default(), claims).unwrap_err();
                assert!(error.to_string().contains(&format!("`{claim}` must be seconds")), "{error}");
            }
        }
        // Milliseconds, which is a mistake that people make.
        assert_eq!(judge(&Rules::default(), json!({"exp": NOW * 1000.0})).unwrap_err().kind(), "invalid");
        assert!(judge(&Rules::default(), json!({"exp": 253_402_300_799_i64})).is_ok());
    }

    #[test]
    fn audience_and_issuer_are_checked_when_they_are_configured() {
        let rules = Rules {
            audience: Some("chat".to_owned()),
            issuer: Some("https://id.example".to_owned()),
            ..Rules::default()
        };
        let exp = NOW + 1.0;
        for (aud, iss, expected) in [
            (json!("chat"), json!("https://id.example"), true),
            (json!(["shop", "chat"]), json!("https://id.example"), true),
            (json!("Chat"), json!("https://id.example"), false),
            (json!([]), json!("https://id.example"), false),
            (json!(null), json!("https://id.example"), false),
            (json!({"chat": 1}), json!("https://id.example"), false),
            (json!("chat"), json!("https://id.example/"), false),
            (json!("chat"), json!(["https://id.example"]), false),
            (json!("chat"), json!(null), false),
        ] {
            let claims = json!({"exp": exp, "aud": aud, "iss": iss});
            let (accepted, ignored) =
                (judge(&rules, claims.clone()), judge(&Rules::default(), claims.clone()));
            assert_eq!(accepted.is_ok(), expected, "{claims}");
            assert!(ignored.is_ok(), "{claims}");
        }
    }

    #[test]
    fn rights_are_for_patterns() {
        let claims = json!({"exp": NOW + 1.0, "sub": "alice",
            "channels": {"room:*": ["subscribe", "publish"], "audit": ["durable"], "none": []}});
        let grant = judge(&Rules::default(), claims).unwrap();
        assert_eq!(grant.subject.as_deref(), Some("alice"));
        let allows = |channel: &str, right| grant.allows(&Channel::parse(channel).unwrap(), right);
        assert!(allows("room:1", Right::Subscribe) && allows("room:1", Right::Publish));
        assert!(!allows("room:1", Right::Durable) && allows("audit", Right::Durable));
        assert!(!allows("audit", Right::Subscribe) && !allows("none", Right::Subscribe));
        let without = judge(&Rules::default(), json!({"exp": NOW + 1.0})).unwrap();
        assert!(without.channels.is_empty());
    }

    #[test]
    fn claims_of_the_wrong_shape_are_refused_with_a_reason() {
        for (channels, reason) in [
            (json!(["room:1"]), "pattern → array of rights"),
            (json!("*"), "pattern → array of rights"),
            (json!({"room:1": "subscribe"}), "pattern → array of rights"),
            (json!({"room:1": [1]}), "pattern → array of rights"),
            (json!({"room:1": ["read"]}), "right \"read\": must be subscribe"),
            (json!({"room:1": ["Subscribe"]}), "must be subscribe"),
            (json!({"": ["subscribe"]}), "channel pattern \"\""),
            (json!({"a\nb": ["subscribe"]}), "channel pattern \"a\\nb\""),
        ] {
            let error =
                judge(&Rules::default(), json!({"exp": NOW + 1.0, "channels": channels})).unwrap_err();
            assert_eq!(error.kind(), "invalid");
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert_eq!(
            judge(&Rules::default(), json!({"exp": NOW + 1.0, "sub": 1})).unwrap_err().kind(),
            "invalid"
        );
    }
}
