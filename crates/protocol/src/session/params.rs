//! What a client says when it joins, in the words of its dialect.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Number;
use serde_json::value::RawValue;
use switchboard_core::types::Position;
use time::OffsetDateTime;

use super::action::{Start, Token};
use super::refusal::{Reason, Refusal};
use crate::codec::MAX_NAME_BYTES;
use crate::dialect::Dialect;
use crate::object::Object;

/// Most events that one `replay` brings.
const MAX_REPLAY: usize = 1000;

#[derive(Debug)]
pub(super) struct JoinParams {
    pub(super) start: Start,
    pub(super) echo: bool,
    /// Reply to ephemeral broadcasts that succeed.
    pub(super) ack: bool,
    pub(super) presence: bool,
    /// What the client wants to be tracked under, if it says so.
    pub(super) key: Option<String>,
    pub(super) token: Option<Token>,
    /// What the client waits to be told once its stream is ready.
    pub(super) ready: &'static str,
}

#[derive(Deserialize)]
struct Phoenix {
    #[serde(default)]
    after: Option<String>,
    #[serde(default, rename = "self")]
    echo: bool,
    #[serde(default)]
    presence: Option<Object<Presence>>,
    #[serde(default)]
    access_token: Option<Token>,
}

#[derive(Deserialize)]
struct Supabase {
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    config: Option<Object<Config>>,
    #[serde(default)]
    access_token: Option<Token>,
}

#[derive(Default, Deserialize)]
struct Config {
    #[serde(default)]
    broadcast: Option<Object<Broadcast>>,
    #[serde(default)]
    presence: Option<Object<Presence>>,
    #[serde(default)]
    postgres_changes: Option<Vec<Box<RawValue>>>,
}

#[derive(Default, Deserialize)]
struct Broadcast {
    #[serde(default, rename = "self")]
    echo: bool,
    #[serde(default)]
    ack: bool,
    #[serde(default)]
    replay: Option<Object<Replay>>,
    #[serde(default)]
    replication_ready: bool,
}

#[derive(Deserialize)]
struct Replay {
    /// Milliseconds since 1970; JavaScript may give it a fraction.
    since: Number,
    #[serde(default)]
    limit: Option<Number>,
}

#[derive(Deserialize)]
struct Presence {
    #[serde(default)]
    key: Option<String>,
    /// Clients that are older than the member mean yes.
    #[serde(default)]
    enabled: Option<bool>,
}

impl JoinParams {
    pub(super) fn parse(dialect: Dialect, payload: &RawValue) -> Result<Self, Refusal> {
        let (start, broadcast, presence, token) = match dialect {
            Dialect::Phoenix => {
                let Phoenix { after, echo, presence, access_token } = read_object(payload)?;
                let broadcast = Broadcast { echo, ack: true, ..Broadcast::default() };
                (start(after.as_deref(), None)?, broadcast, presence, access_token)
            }
            Dialect::Supabase => {
                let Supabase { after, config, access_token } = read_object(payload)?;
                let config = config.unwrap_or_default().0;
                if config.postgres_changes.is_some_and(|changes| !changes.is_empty()) {
                    let message =
                        "changes of tables are not streamed here: let a trigger publish events instead";
                    return Err(Refusal::new(Reason::PostgresChanges, message));
                }
                let broadcast = config.broadcast.unwrap_or_default().0;
                let start = start(after.as_deref(), broadcast.replay.as_ref().map(|replay| &replay.0))?;
                (start, broadcast, config.presence, access_token)
            }
        };
        let presence = presence.map(|presence| presence.0);
        let key = presence.as_ref().and_then(|presence| presence.key.clone()).filter(|key| !key.is_empty());
        if let Some(key) = key.as_ref().filter(|key| key.len() > MAX_NAME_BYTES) {
            let message = format!("presence.key must be at most {MAX_NAME_BYTES} bytes, not {}", key.len());
            return Err(Refusal::new(Reason::BadPayload, message));
        }
        Ok(Self {
            start,
            echo: broadcast.echo,
            ack: broadcast.ack,
            presence: presence.is_some_and(|presence| presence.enabled != Some(false)),
            key,
            token: token.filter(|token| !token.expose().is_empty()),
            ready: if broadcast.replication_ready {
                "Replication connection established"
            } else {
                "Subscribed"
            },
        })
    }
}

fn start(after: Option<&str>, replay: Option<&Replay>) -> Result<Start, Refusal> {
    match (after, replay) {
        (Some("oldest"), _) => Ok(Start::Oldest),
        (Some(position), _) => Ok(Start::After(Position::parse(position)?)),
        (None, Some(Replay { since, limit })) => {
            let refuse = |must: &str| Refusal::new(Reason::BadPayload, format!("replay.{must}"));
            let since = since.as_f64().and_then(since_unix_ms);
            let since = since.ok_or_else(|| refuse("since must be milliseconds since 1970"))?;
            let limit = match limit {
                Some(limit) => limit
                    .as_u64()
                    .ok_or_else(|| refuse("limit must be a whole number that is not negative"))?,
                None => u64::MAX,
            };
            Ok(Start::Since {
                since,
                limit: usize::try_from(limit).map_or(MAX_REPLAY, |limit| limit.min(MAX_REPLAY)),
            })
        }
        (None, None) => Ok(Start::Now),
    }
}

fn since_unix_ms(milliseconds: f64) -> Option<OffsetDateTime> {
    let since = Duration::try_from_secs_f64(milliseconds / 1000.0).ok()?;
    OffsetDateTime::UNIX_EPOCH.checked_add(since.try_into().ok()?)
}

/// Reads an object.
pub(super) fn read_object<'a, T: Deserialize<'a>>(payload: &'a RawValue) -> Result<T, Refusal> {
    serde_json::from_str(payload.get()).map(|Object(object)| object).map_err(|error| {
        // The parser repeats what it did not expect, however long that is.
        let error: String = error.to_string().chars().take(200).collect();
        Refusal::new(Reason::BadPayload, format!("the payload does not fit: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(dialect: Dialect, json: &str) -> Result<JoinParams, Refusal> {
        JoinParams::parse(dialect, serde_json::from_str(json).unwrap())
    }

    #[test]
    fn a_start_is_now_unless_a_position_or_a_replay_says_otherwise() {
        let start = |dialect, json: &str| parse(dialect, json).unwrap().start;
        let position = "0123456789abcdef-42";
        for dialect in Dialect::ALL {
            assert_eq!(start(dialect, "{}"), Start::Now);
            assert_eq!(start(dialect, r#"{"after":null}"#), Start::Now);
            assert_eq!(start(dialect, r#"{"after":"oldest"}"#), Start::Oldest);
            let after = format!(r#"{{"after":"{position}"}}"#);
            assert_eq!(start(dialect, &after), Start::After(Position::parse(position).unwrap()));
        }
        let replay = r#"{"config":{"broadcast":{"replay":{"since":1500.5,"limit":10}}}}"#;
        let since = OffsetDateTime::UNIX_EPOCH + Duration::from_micros(1_500_500);
        assert_eq!(start(Dialect::Supabase, replay), Start::Since { since, limit: 10 });
    }

    #[test]
    fn what_does_not_fit_is_refused_with_a_short_text() {
        for dialect in Dialect::ALL {
            for bad in
                ["null", "[]", "1", r#"["oldest"]"#, r#"{"after":1}"#, r#"{"after":""}"#, r#"{"after":"a"}"#]
            {
                assert_eq!(parse(dialect, bad).unwrap_err().reason(), Reason::BadPayload, "{bad}");
            }
        }
        for bad in [
            r#"{"since":-1}"#,
            r#"{"since":1e300}"#,
            r#"{"since":"x"}"#,
            r#"{"limit":1}"#,
            r#"{"since":1,"limit":-1}"#,
            r#"{"since":1,"limit":1.5}"#,
            "[0,5]",
            "[]",
        ] {
            let bad = format!(r#"{{"config":{{"broadcast":{{"replay":{bad}}}}}}}"#);
            assert_eq!(parse(Dialect::Supabase, &bad).unwrap_err().reason(), Reason::BadPayload, "{bad}");
        }
        let long = format!(r#"{{"after":["{}"]}}"#, "x".repeat(100_000));
        let refusal = serde_json::to_string(&parse(Dialect::Phoenix, &long).unwrap_err()).unwrap();
        assert!(refusal.len() < 400, "{refusal}");
    }

    #[test]
    fn a_refusal_speaks_of_json_and_not_of_our_types() {
        for (bad, expected) in [
            ("[]", "invalid type: sequence, expected an object"),
            (r#"{"config":[]}"#, "expected an object"),
            (r#"{"config":{"presence":["k",true]}}"#, "expected an object"),
            (r#"{"config":{"broadcast":{"self":1}}}"#, "expected a boolean"),
            (r#"{"config":{"broadcast":{"replay":{"since":"x"}}}}"#, "expected a JSON number"),
            (r#"{"config":{"broadcast":{"replay":{"limit":1}}}}"#, "missing field `since`"),
            (
                r#"{"config":{"broadcast":{"replay":{"since":1e308}}}}"#,
                "replay.since must be milliseconds since 1970",
            ),
            (
                r#"{"config":{"broadcast":{"replay":{"since":1,"limit":-1}}}}"#,
                "replay.limit must be a whole number",
            ),
            (r#"{"access_token":1}"#, "expected a string"),
            (r#"{"after":1}"#, "expected a string"),
        ] {
            let refusal = serde_json::to_string(&parse(Dialect::Supabase, bad).unwrap_err()).unwrap();
            assert!(refusal.contains(expected), "{bad}: {refusal}");
        }
    }
}
