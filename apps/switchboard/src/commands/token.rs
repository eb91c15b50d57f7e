//! `switchboard token`: makes a token for a client, to try things out, and for services that need one of their own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use switchboard_core::access::Right;
use switchboard_core::types::{ChannelPattern, Invalid, PresenceKey};
use switchboard_gateway::auth::Signer;
use time::OffsetDateTime;

use crate::config::{AUTH_JWT_SECRET, Setting, claim, duration};
use crate::output;

const KEY_FILE: Setting = Setting::new("the private key", "--key-file");
const AUDIENCE: Setting = Setting::new("AUTH_AUDIENCE", "--aud");
const ISSUER: Setting = Setting::new("AUTH_ISSUER", "--iss");

/// Ten years. Whoever wants more wants another key.
const LONGEST: Duration = Duration::from_hours(87_600);

/// What it takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Who it is for.
    #[arg(long, value_name = "NAME")]
    sub: String,

    /// What its holder may do where: a channel, in which * stands for any text, and of subscribe, publish, durable and presence what
    /// they may do, such as room:*=subscribe,publish. May be given several times.
    #[arg(long, value_name = "PATTERN=RIGHTS")]
    channel: Vec<Rights>,

    /// The key that its holder is seen under where it is present. Without one, it chooses.
    #[arg(long, value_name = "KEY")]
    presence_key: Option<PresenceKey>,

    /// How long it is good for, from 1s to 87600h.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = lifetime)]
    expires_in: Duration,

    /// The audience that nodes expect.
    #[arg(long, env = "AUTH_AUDIENCE", hide_env_values = true, value_name = "NAME")]
    aud: Option<OsString>,

    /// The issuer that nodes expect.
    #[arg(long, env = "AUTH_ISSUER", hide_env_values = true, value_name = "NAME")]
    iss: Option<OsString>,

    /// The secret that nodes know.
    ///
    /// Prefer the variable to the flag, which every user of the machine can read.
    #[arg(long, env = "AUTH_JWT_SECRET", hide_env_values = true, value_name = "SECRET")]
    auth_jwt_secret: Option<OsString>,

    /// Sign with this private key instead, in PEM, of which nodes know the public one: RSA, P-256 or Ed25519.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

/// The rights in the channels that a pattern chooses.
#[derive(Debug, Clone)]
struct Rights {
    pattern: ChannelPattern,
    rights: Vec<Right>,
}

#[derive(Serialize)]
struct Claims<'a> {
    sub: &'a str,
    iat: i64,
    exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_key: Option<&'a str>,
    channels: BTreeMap<&'a str, Vec<&'static str>>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let read = |setting: Setting, value: Option<&OsString>| value.map(|value| setting.parse(value, claim));
    let now = OffsetDateTime::now_utc();
    let mut claims = Claims {
        sub: &args.sub,
        iat: now.unix_timestamp(),
        exp: (now + args.expires_in).unix_timestamp(),
        aud: read(AUDIENCE, args.aud.as_ref()).transpose()?,
        iss: read(ISSUER, args.iss.as_ref()).transpose()?,
        presence_key: args.presence_key.as_ref().map(PresenceKey::as_str),
        channels: BTreeMap::new(),
    };
    for Rights { pattern, rights } in &args.channel {
        let known = claims.channels.entry(pattern.as_str()).or_default();
        known.extend(rights.iter().map(|right| right.as_str()));
    }
    let token = signer(args)?.sign(&claims)?;
    if args.channel.is_empty() {
        output::note("warning: without --channel, the holder of this token may do nothing");
    }
    output::line(token)?;
    Ok(ExitCode::SUCCESS)
}

fn signer(args: &Args) -> anyhow::Result<Signer> {
    if let Some(path) = &args.key_file {
        let refuse = |rule: &str| KEY_FILE.refuse(&path.display().to_string(), rule);
        let text = fs::read_to_string(path).map_err(|error| refuse(&format!("cannot be read: {error}")))?;
        return Ok(Signer::pem(&text).map_err(|error| refuse(error.rule()))?);
    }
    let secret = args.auth_jwt_secret.as_ref();
    let secret =
        secret.ok_or_else(|| AUTH_JWT_SECRET.missing("must be the nodes' secret, or use --key-file"))?;
    Ok(AUTH_JWT_SECRET.parse_secret(secret, Signer::secret)?)
}

fn lifetime(text: &str) -> Result<Duration, Invalid> {
    match duration::parse_at_most(text, LONGEST)? {
        short if short < Duration::from_secs(1) => Err(Invalid::new("duration", text, "must be at least 1s")),
        lifetime => Ok(lifetime),
    }
}

impl FromStr for Rights {
    type Err = Invalid;

    /// The last `=` separates: a pattern may hold some, a right does not.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let (pattern, rights) = text.rsplit_once('=').ok_or_else(|| {
            Invalid::new("channel", text, "must be PATTERN=RIGHTS, such as room:*=subscribe,publish")
        })?;
        Ok(Self {
            pattern: ChannelPattern::parse(pattern)?,
            rights: rights.split(',').map(Right::parse).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_written_after_the_last_equals_sign() {
        let rights: Rights = "a=b:*=subscribe,durable".parse().unwrap();
        assert_eq!(rights.pattern.as_str(), "a=b:*");
        assert_eq!(rights.rights, [Right::Subscribe, Right::Durable]);
        for (wrong, named) in [
            ("room:1", "PATTERN=RIGHTS"),
            ("room:1=", "right \"\""),
            ("room:1=subscribe,", "right \"\""),
            ("room:1=subscribe,write", "right \"write\""),
            ("room:1=subscribe, publish", "right \" publish\""),
            ("=subscribe", "channel pattern \"\""),
        ] {
            let error = wrong.parse::<Rights>().expect_err(wrong).to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
