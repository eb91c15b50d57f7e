//! The name of a cluster's schema, safe to write into statements.

use std::fmt;
use std::str::FromStr;

use switchboard_core::types::Invalid;

/// Name of the PostgreSQL schema that holds one cluster, and prefix of its NOTIFY channels:
/// 1 to 40 of `a`–`z`, `0`–`9` and `_`, not starting with a digit or `pg_`.
///
/// The alphabet keeps it the same with and without quotes; the length leaves room in the 63 bytes of a NOTIFY channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchemaName(String);

impl SchemaName {
    /// Checks and wraps `text`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        let starts_well =
            text.bytes().next().is_some_and(|b| !b.is_ascii_digit()) && !text.starts_with("pg_");
        if text.len() > 40 || !text.bytes().all(allowed) || !starts_well {
            let rule = "must be 1 to 40 of a-z, 0-9 and _, not starting with a digit or pg_";
            return Err(Invalid::new("schema name", text, rule));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SchemaName {
    /// `switchboard`.
    fn default() -> Self {
        Self("switchboard".to_owned())
    }
}

impl FromStr for SchemaName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::parse(text)
    }
}

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::SchemaName;

    #[test]
    fn only_plain_identifiers_are_accepted() {
        for good in ["a", "switchboard", "_x1", &"x".repeat(40)] {
            assert!(SchemaName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "A", "a-b", "a b", "pg_x", "a\"", "a.b", "ü", &"x".repeat(41)] {
            assert!(SchemaName::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
