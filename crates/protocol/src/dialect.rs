//! The two conventions that clients follow on top of Phoenix' messages.
//!
//! Invariant: a topic and its channel are the same bytes but for the prefix. Nothing is folded, trimmed or decoded, so that two spellings
//! are two channels, here as in every check of a right.

use std::borrow::Cow;

use switchboard_core::types::{Channel, Invalid};

/// What `@supabase/realtime-js` puts in front of the name of a channel.
pub(crate) const PREFIX: &str = "realtime:";

/// Events that mean something to every Phoenix client, and must not be forged.
const CONTROL_PREFIX: &str = "phx_";

/// In front of the events of the dialect `phoenix` that Switchboard adds.
pub(crate) const OWN_PREFIX: &str = "switchboard:";

/// Whose conventions a socket follows; decided by the path it was opened under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `phoenix` and its ports: the topic is the channel, the event of a message is the event.
    Phoenix,
    /// `@supabase/realtime-js` and its ports: the topic is `realtime:` and the channel, events travel in envelopes.
    Supabase,
}

impl Dialect {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Phoenix, Self::Supabase];

    /// The channel that `topic` names.
    pub fn channel(self, topic: &str) -> Result<Channel, Invalid> {
        match self {
            Self::Phoenix => Channel::parse(topic),
            Self::Supabase => match topic.strip_prefix(PREFIX) {
                Some(name) => Channel::parse(name),
                None => Err(Invalid::new("topic", topic, "must start with realtime:")),
            },
        }
    }

    /// The topic that names `channel`.
    pub fn topic(self, channel: &Channel) -> Cow<'_, str> {
        match self {
            Self::Phoenix => Cow::Borrowed(channel.as_str()),
            Self::Supabase => Cow::Owned(format!("{PREFIX}{channel}")),
        }
    }
}

/// Whether a Phoenix client would take an event of this name for a word of the server.
pub(crate) fn is_control(event: &str) -> bool {
    event.starts_with(CONTROL_PREFIX)
        || event.starts_with(OWN_PREFIX)
        || matches!(event, "presence_state" | "presence_diff")
}
