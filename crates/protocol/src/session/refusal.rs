//! Why a client does not get what it asked for: a word for its program, a sentence for its author.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};
use switchboard_core::access::AuthError;
use switchboard_core::ports::{DurableError, EphemeralError};
use switchboard_core::presence::PresenceError;
use switchboard_core::types::Invalid;

/// A word that programs can tell apart: `reason` in an error reply or in `phx_error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// `missing`: there is no token. Send one.
    Missing,
    /// `invalid`: the token will never be accepted here.
    Invalid,
    /// `expired`: get a fresh token.
    Expired,
    /// `not_yet_valid`: the token will be valid later.
    NotYetValid,
    /// `forbidden`: the token does not include the right to it.
    Forbidden,
    /// `unmatched topic`: the topic is not joined. Phoenix' own words.
    UnmatchedTopic,
    /// `bad_topic`: it is not the name of a channel.
    BadTopic,
    /// `bad_payload`: it is not what this event needs.
    BadPayload,
    /// `reserved_event`: clients may not publish under this name.
    ReservedEvent,
    /// `unknown_event`: there is no such event in this dialect.
    UnknownEvent,
    /// `postgres_changes_unsupported`: changes of tables are not streamed.
    PostgresChanges,
    /// `too_many_channels`: leave one first.
    TooManyChannels,
    /// `too_many_joins`: try again later.
    TooManyJoins,
    /// `too_many_messages`: try again later.
    TooManyMessages,
    /// `busy`: wait for the answers that are outstanding.
    Busy,
    /// `rejected`: the event breaks a limit of the bus.
    Rejected,
    /// `unavailable`: not now; try again later.
    Unavailable,
}

impl Reason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Invalid => "invalid",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Forbidden => "forbidden",
            Self::UnmatchedTopic => "unmatched topic",
            Self::BadTopic => "bad_topic",
            Self::BadPayload => "bad_payload",
            Self::ReservedEvent => "reserved_event",
            Self::UnknownEvent => "unknown_event",
            Self::PostgresChanges => "postgres_changes_unsupported",
            Self::TooManyChannels => "too_many_channels",
            Self::TooManyJoins => "too_many_joins",
            Self::TooManyMessages => "too_many_messages",
            Self::Busy => "busy",
            Self::Rejected => "rejected",
            Self::Unavailable => "unavailable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// What a client is told instead of what it asked for: `{"reason", "message"}`, and `"retry_after_ms"` where waiting helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    reason: Reason,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl Refusal {
    /// A refusal for `reason`; `message` goes to the client, so no secrets.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after_ms: None }
    }

    /// Not now, but perhaps in a second.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Reason::Unavailable, message).retry_after(Duration::from_secs(1))
    }

    /// With a hint when to try again.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after_ms = Some(wait.as_millis().try_into().unwrap_or(u64::MAX));
        self
    }

    /// The word for programs.
    pub fn reason(&self) -> Reason {
        self.reason
    }
}

impl From<AuthError> for Refusal {
    fn from(error: AuthError) -> Self {
        let reason = match error {
            AuthError::Missing => Reason::Missing,
            AuthError::Invalid(_) => Reason::Invalid,
            AuthError::Expired => Reason::Expired,
            AuthError::NotYetValid => Reason::NotYetValid,
            AuthError::Forbidden { .. } => Reason::Forbidden,
        };
        Self::new(reason, error.to_string())
    }
}

impl From<DurableError> for Refusal {
    fn from(error: DurableError) -> Self {
        match error {
            DurableError::Rejected(invalid) => Self::new(Reason::Rejected, invalid.to_string()),
            DurableError::Unavailable(_) => Self::unavailable(error.to_string()),
        }
    }
}

impl From<EphemeralError> for Refusal {
    fn from(error: EphemeralError) -> Self {
        match error {
            EphemeralError::Rejected(invalid) => Self::new(Reason::Rejected, invalid.to_string()),
            EphemeralError::Closed => Self::unavailable(error.to_string()),
        }
    }
}

impl From<PresenceError> for Refusal {
    fn from(error: PresenceError) -> Self {
        match error {
            PresenceError::Rejected(invalid) => Self::new(Reason::Rejected, invalid.to_string()),
            PresenceError::Full { .. } | PresenceError::Stopped => Self::unavailable(error.to_string()),
        }
    }
}

/// A name or payload that breaks its rule.
impl From<Invalid> for Refusal {
    fn from(error: Invalid) -> Self {
        let reason = if error.what() == "topic" || error.what() == "channel" {
            Reason::BadTopic
        } else {
            Reason::BadPayload
        };
        Self::new(reason, error.to_string())
    }
}
