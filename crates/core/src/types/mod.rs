//! Domain types that cannot hold a wrong value.
//!
//! Text is parsed into these at the border; inside, nobody checks a string again. Every constructor
//! answers a wrong value with [`Invalid`], which names the value and the rule it breaks.

mod channel;
mod endpoint;
mod event;
mod identity;
mod invalid;
mod pattern;
mod payload;
mod position;
mod stats;

pub use channel::{Channel, EventName, IdempotencyKey, PresenceKey};
pub use endpoint::{Endpoint, Host};
pub use event::{DurableEvent, EphemeralEvent};
pub use identity::{Identity, Incarnation, NodeId};
pub use invalid::Invalid;
pub use pattern::ChannelPattern;
pub use payload::{Payload, PayloadLimits};
pub use position::{Epoch, Position};
pub use stats::Stats;

/// Implements the string conversions every validated text type shares, from its `parse` function.
macro_rules! text_conversions {
    ($type:ty) => {
        impl std::str::FromStr for $type {
            type Err = crate::types::Invalid;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = crate::types::Invalid;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                Self::parse(&text)
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}
use text_conversions;
