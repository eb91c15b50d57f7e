//! Who may do what in which channel. Pure: how a grant is proven (a token, a socket's life, open access) is decided elsewhere.
//!
//! Invariant: a right is looked up under the very name that is used, byte for byte; nothing is trimmed, folded or decoded on the way.
//! And the names that are the cluster's own are granted to nobody.

use std::fmt;

use time::OffsetDateTime;

use crate::types::{Channel, ChannelPattern, Invalid, PresenceKey};

/// What one may do in a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    /// Receive events, and read history.
    Subscribe,
    /// Publish ephemeral events.
    Publish,
    /// Publish durable events.
    Durable,
    /// Be seen: appear among those who are present.
    Presence,
}

impl Right {
    /// Every right there is.
    pub const ALL: [Self; 4] = [Self::Subscribe, Self::Publish, Self::Durable, Self::Presence];

    /// Reads the name of a right, spelled exactly.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .into_iter()
            .find(|right| right.as_str() == text)
            .ok_or_else(|| Invalid::new("right", text, "must be subscribe, publish, durable or presence"))
    }

    /// Its name, as tokens spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Publish => "publish",
            Self::Durable => "durable",
            Self::Presence => "presence",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What somebody may do, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who it was given to, if anybody was named.
    pub subject: Option<String>,
    /// The moment from which on it is worth nothing, any leeway included. `None`: never.
    pub expires: Option<OffsetDateTime>,
    /// The only presence key that it lets its holder be seen under. `None`: any, so that a key says nothing about who it is.
    pub presence_key: Option<PresenceKey>,
    /// The rights in the channels that a pattern chooses. Patterns add up.
    pub channels: Vec<(ChannelPattern, Vec<Right>)>,
}

impl Grant {
    /// Every right in every channel, for ever: an administrator's.
    pub fn everything() -> Self {
        Self {
            subject: None,
            expires: None,
            presence_key: None,
            channels: vec![(ChannelPattern::any(), Right::ALL.to_vec())],
        }
    }

    /// Whether it includes `right` in `channel`. Time is not considered: see [`has_expired`](Self::has_expired).
    pub fn allows(&self, channel: &Channel, right: Right) -> bool {
        !channel.is_reserved()
            && self
                .channels
                .iter()
                .any(|(pattern, rights)| rights.contains(&right) && pattern.matches(channel))
    }

    /// The same as an answer for whoever asked.
    pub fn require(&self, channel: &Channel, right: Right) -> Result<(), AuthError> {
        if self.allows(channel, right) { Ok(()) } else { Err(AuthError::Forbidden { right }) }
    }

    /// Whether it is worth nothing any more.
    pub fn has_expired(&self, now: OffsetDateTime) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }
}

/// Why somebody may not do something. Messages never hold the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No token was sent. Send one.
    #[error("a token is needed")]
    Missing,
    /// The token will never be accepted here; the reason is a clause for people.
    #[error("the token is not valid: {0}")]
    Invalid(String),
    /// The token was valid once. Get a fresh one.
    #[error("the token has expired")]
    Expired,
    /// The token will be valid later; a clock may be wrong.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// Whoever it is must not do this. Repeating it does not help.
    #[error("this needs the right `{right}` in this channel")]
    Forbidden {
        /// The right that is missing.
        right: Right,
    },
}

impl AuthError {
    /// Tells the kinds apart in programs: `missing`, `invalid`, `expired`, `not_yet_valid`, `forbidden`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Invalid(_) => "invalid",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Forbidden { .. } => "forbidden",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn grant(pattern: &str, rights: &[Right]) -> Grant {
        let channels = vec![(ChannelPattern::parse(pattern).unwrap(), rights.to_vec())];
        Grant { subject: None, expires: None, presence_key: None, channels }
    }

    fn allows(grant: &Grant, channel: &str, right: Right) -> bool {
        grant.allows(&Channel::parse(channel).unwrap(), right)
    }

    #[test]
    fn b130_a_right_is_for_the_exact_name() {
        let grant = grant("room:1", &[Right::Subscribe]);
        assert!(allows(&grant, "room:1", Right::Subscribe));
        for other in [
            "room:1 ",
            " room:1",
            "ROOM:1",
            "Room:1",
            "room%3A1",
            "room:１",
            "room:*",
            "room:1,room:2",
            "channel:room:1",
            "ephemeral:room:1",
            "room:1:",
            "room:11",
            "room:\u{200d}1",
            "room:",
            "*",
        ] {
            assert!(!allows(&grant, other, Right::Subscribe), "{other:?}");
        }
    }

    #[test]
    fn rights_do_not_include_each_other_and_patterns_add_up() {
        let mut grant = grant("room:*", &[Right::Subscribe]);
        for right in [Right::Publish, Right::Durable, Right::Presence] {
            assert!(!allows(&grant, "room:1", right), "{right}");
        }
        grant.channels.push((ChannelPattern::parse("*:1").unwrap(), vec![Right::Durable]));
        assert!(allows(&grant, "room:1", Right::Durable));
        assert!(!allows(&grant, "room:1", Right::Publish));
        assert_eq!(
            grant.require(&Channel::parse("room:1").unwrap(), Right::Publish),
            Err(AuthError::Forbidden { right: Right::Publish })
        );
    }

    #[test]
    fn the_cluster_s_own_channels_are_granted_to_nobody() {
        for grant in
            [Grant::everything(), grant("$switchboard:presence", &Right::ALL), grant("$*", &Right::ALL)]
        {
            for channel in ["$switchboard", "$switchboard:presence", "$switchboard.x", "$switchboards"] {
                for right in Right::ALL {
                    assert!(!allows(&grant, channel, right), "{channel}");
                }
            }
        }
        for channel in ["$", "$switchboar", "switchboard", " $switchboard", "$Switchboard", "x$switchboard"] {
            assert!(allows(&Grant::everything(), channel, Right::Subscribe), "{channel}");
        }
    }

    #[test]
    fn a_grant_is_worth_nothing_from_the_moment_it_expires() {
        let expires = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(10);
        let grant = Grant { expires: Some(expires), ..Grant::everything() };
        assert!(!grant.has_expired(expires - Duration::from_millis(1)));
        assert!(grant.has_expired(expires));
        assert!(!Grant::everything().has_expired(expires));
    }

    #[test]
    fn a_right_is_spelled_exactly() {
        for right in Right::ALL {
            assert_eq!(Right::parse(right.as_str()), Ok(right));
        }
        for wrong in ["", "Subscribe", "subscribe ", "read", "*", "publish,durable"] {
            assert!(Right::parse(wrong).unwrap_err().to_string().contains("durable or presence"), "{wrong}");
        }
    }
}
