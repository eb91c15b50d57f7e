//! Where PostgreSQL is: a `postgres://` URL, possibly with several hosts, that never shows its password.
//!
//! The driver understands one host. Lists of hosts and `target_session_attrs`, as libpq has them, are taken apart here;
//! a parameter that would be ignored is refused instead.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use switchboard_core::types::Invalid;
use url::Url;

/// Parameters the driver understands, besides those handled here.
const DRIVER_PARAMETERS: &[&str] = &[
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "statement-cache-capacity",
];

/// A parsed database URL: `postgres://user:password@host1:5432,host2:5432/database?sslmode=require`.
///
/// With several hosts the one that takes writes is used. Shown and debugged without its password.
#[derive(Clone)]
pub struct Dsn {
    hosts: Vec<PgConnectOptions>,
    connect_timeout: Duration,
    shown: String,
}

impl Dsn {
    /// Longest wait for one host unless `connect_timeout` says otherwise.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// Reads a URL. The error never repeats any of it.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let parts = Parts::split(text)?;
        let mut connect_timeout = Self::CONNECT_TIMEOUT;
        let mut parameters = url::form_urlencoded::Serializer::new(String::new());
        for (key, value) in url::form_urlencoded::parse(parts.query.as_bytes()) {
            match &*key {
                "target_session_attrs" => check_session_attrs(&value)?,
                "connect_timeout" => connect_timeout = seconds(&value)?,
                known if DRIVER_PARAMETERS.contains(&known) || known.starts_with("options[") => {
                    parameters.append_pair(&key, &value);
                }
                _ => {
                    return Err(Invalid::new(
                        "database URL parameter",
                        &key,
                        format!(
                            "must be one of {}, connect_timeout, target_session_attrs",
                            DRIVER_PARAMETERS.join(", ")
                        ),
                    ));
                }
            }
        }
        let parameters = parameters.finish();
        let hosts =
            parts.hosts.split(',').map(|host| parts.options(host, &parameters)).collect::<Result<_, _>>()?;
        let user = parts.userinfo.split(':').next().unwrap_or_default();
        let at = if user.is_empty() { "" } else { "@" };
        let shown = format!("postgres://{user}{at}{}/{}", parts.hosts, parts.database);
        Ok(Self { hosts, connect_timeout, shown })
    }

    /// The hosts in the order they were written.
    pub fn hosts(&self) -> &[PgConnectOptions] {
        &self.hosts
    }

    /// Longest wait for one host.
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }
}

impl FromStr for Dsn {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::parse(text)
    }
}

impl fmt::Display for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dsn({})", self.shown)
    }
}

/// The pieces of the URL, still percent-encoded.
struct Parts<'a> {
    userinfo: &'a str,
    hosts: &'a str,
    database: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, Invalid> {
        let rest = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"))
            .ok_or_else(|| refuse("must start with postgres:// or postgresql://"))?;
        let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(authority_end);
        if path.contains('#') || (!authority.contains('@') && path.contains('@')) {
            return Err(encoding_hint());
        }
        let (userinfo, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        if !well_encoded(userinfo) {
            return Err(encoding_hint());
        }
        let (database, query) = path.split_once('?').unwrap_or((path, ""));
        Ok(Self { userinfo, hosts, database: database.trim_start_matches('/'), query })
    }

    fn options(&self, host: &str, parameters: &str) -> Result<PgConnectOptions, Invalid> {
        // The `url` crate wants a host where there is a user.
        let (host, at) = (
            if host.is_empty() { "localhost" } else { host },
            if self.userinfo.is_empty() { "" } else { "@" },
        );
        let url = format!("postgres://{}{at}{host}/{}?{parameters}", self.userinfo, self.database);
        // Neither parser's message is passed on: it may quote what stood where it expected a port.
        if Url::parse(&url).is_err() {
            return Err(refuse(
                "must be postgres://user:password@host:port/database; IPv6 addresses stand in brackets, and the characters \
                 / ? # @ : % and spaces in user, password or database are percent-encoded",
            ));
        }
        let options = PgConnectOptions::from_str(&url).map_err(|_| {
            refuse("has a parameter whose value is not allowed (check sslmode, port and encoding)")
        })?;
        // The driver would ask the resolver for a name in brackets.
        let ip =
            options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
        Ok(match ip {
            Some(ip) => options.host(&ip),
            None => options,
        })
    }
}

fn refuse(rule: &'static str) -> Invalid {
    Invalid::new("database URL", "(hidden)", rule)
}

fn encoding_hint() -> Invalid {
    refuse(
        "user and password must be percent-encoded: / is %2F, ? is %3F, # is %23, @ is %40, : is %3A, % is %25",
    )
}

/// Every percent sign starts two hexadecimal digits.
fn well_encoded(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

fn check_session_attrs(value: &str) -> Result<(), Invalid> {
    if matches!(value, "read-write" | "primary" | "any") {
        return Ok(());
    }
    Err(Invalid::new(
        "target_session_attrs",
        value,
        "must be read-write, primary or any: Switchboard writes, so a standby never serves",
    ))
}

fn seconds(value: &str) -> Result<Duration, Invalid> {
    match value.parse() {
        Ok(seconds @ 1..=300) => Ok(Duration::from_secs(seconds)),
        _ => Err(Invalid::new("connect_timeout", value, "must be a whole number of seconds from 1 to 300")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hosts_are_kept_in_order() {
        let dsn = Dsn::parse(
            "postgres://u:p@h1:5433,[::1]:5434,h3/db?target_session_attrs=read-write&sslmode=disable",
        )
        .unwrap();
        let hosts: Vec<_> = dsn.hosts().iter().map(|host| (host.get_host(), host.get_port())).collect();
        assert_eq!(hosts, [("h1", 5433), ("::1", 5434), ("h3", 5432)]);
        assert!(dsn.hosts().iter().all(|host| host.get_database() == Some("db")));
        assert_eq!(dsn.to_string(), "postgres://u@h1:5433,[::1]:5434,h3/db");
    }

    #[test]
    fn an_encoded_password_works_and_is_never_shown() {
        for encoded in [
            "p%40ss", "a%2Fb", "a%23b", "a%3Fb", "a%25b", "a%3Ab", "a%20b", "%C3%BC", "%2541", "$HOME",
            "%22%27",
        ] {
            let dsn = Dsn::parse(&format!("postgres://user:{encoded}@localhost/db")).expect(encoded);
            assert!(!format!("{dsn} {dsn:?}").contains(encoded), "{dsn}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_repeating_the_password() {
        for bad in [
            "",
            "mysql://h/db",
            "postgres://u:sec/ret@h/db",
            "postgres://u:sec#ret@h/db",
            "postgres://u:sec?ret@h/db",
            "postgres://u:sec%ret@h/db",
            "postgres://u:secret@h:port/db",
            "postgres://u:secret@::1/db",
            "postgres://u:secret@h:99999/db",
            "postgres://u:secret@h/db?sslmode=secret",
            "postgres://u:secret@h/db?target_session_attrs=standby",
            "postgres://u:secret@h/db?pool_mode=x",
            "postgres://u:secret@h/db?connect_timeout=0",
        ] {
            let error = Dsn::parse(bad).expect_err(bad).to_string();
            assert!(
                !error.contains("secret") && !error.contains("sec/") && !error.contains("ret@"),
                "{error}"
            );
        }
    }
}
