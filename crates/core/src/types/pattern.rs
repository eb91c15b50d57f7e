//! Patterns that choose channels, for rules that operators and tokens write.

use std::fmt;
use std::sync::Arc;

use super::{Channel, Invalid};

/// A channel name in which every `*` stands for any text, the empty one included: `*`, `room:*`, `room:*:typing`.
///
/// There is no way to write a literal `*`: a pattern chooses a little too much rather than silently nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelPattern(Arc<str>);

impl ChannelPattern {
    /// Checks and wraps `text`: the rules for channel names hold for patterns, too.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        match Channel::parse(text) {
            Ok(_) => Ok(Self(Arc::from(text))),
            Err(invalid) => Err(Invalid::new("channel pattern", text, invalid.rule().to_owned())),
        }
    }

    /// The pattern that chooses every channel.
    pub fn any() -> Self {
        Self(Arc::from("*"))
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it chooses `channel`.
    pub fn matches(&self, channel: &Channel) -> bool {
        let mut parts = self.as_str().split('*');
        // `split` yields at least one part.
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = channel.as_str().strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }
}

impl fmt::Display for ChannelPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

super::text_conversions!(ChannelPattern);

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, channel: &str) -> bool {
        ChannelPattern::parse(pattern).unwrap().matches(&Channel::parse(channel).unwrap())
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, channel) in [
            ("*", "anything"),
            ("room:1", "room:1"),
            ("room:*", "room:"),
            ("room:*", "room:1:typing"),
            ("*:typing", "room:1:typing"),
            ("room:*:typing", "room:1:2:typing"),
            ("a*b*c", "axxbxbyc"),
            ("a**c", "ac"),
            ("é*", "été"),
        ] {
            assert!(matches(pattern, channel), "{pattern} must choose {channel}");
        }
    }

    #[test]
    fn everything_else_stands_for_itself() {
        for (pattern, channel) in [
            ("room:1", "room:12"),
            ("room:1", "aroom:1"),
            ("room:*", "rooms"),
            ("room.*", "room:1"),
            ("r_om", "room"),
            ("r%", "room"),
            ("a*a", "a"),
            ("a*b*c", "acb"),
            ("ROOM:*", "room:1"),
        ] {
            assert!(!matches(pattern, channel), "{pattern} must not choose {channel}");
        }
        assert!(ChannelPattern::parse("").is_err());
    }
}
