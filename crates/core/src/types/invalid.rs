//! The one error of every constructor: which value broke which rule.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Longest excerpt of a refused value that a message repeats, in characters.
const EXCERPT: usize = 64;

/// A value that breaks the rule of its type.
///
/// The message fits one line whatever the value holds: control characters are escaped and long values
/// are cut, so that it can go into a log or an HTTP answer as it is. Never retry with the same value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {excerpt}: {rule}")]
pub struct Invalid {
    what: &'static str,
    excerpt: String,
    rule: Cow<'static, str>,
}

impl Invalid {
    /// `what` is the kind of value ("node id"), `rule` what is allowed, as a clause
    /// ("must be 1 to 128 bytes …").
    pub fn new(what: &'static str, value: &str, rule: impl Into<Cow<'static, str>>) -> Self {
        Self { what, excerpt: excerpt(value), rule: rule.into() }
    }

    /// The kind of value that was refused.
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// What is allowed.
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

fn excerpt(value: &str) -> String {
    let mut shown = String::from("\"");
    for c in value.chars().take(EXCERPT) {
        shown.extend(c.escape_debug());
    }
    shown.push('"');
    if value.chars().nth(EXCERPT).is_some() {
        // Writing to a String cannot fail.
        let _ = write!(shown, "… ({} bytes)", value.len());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::Invalid;

    #[test]
    fn a_message_stays_on_one_short_line_whatever_the_value_holds() {
        let error = Invalid::new("node id", &"a\nb".repeat(1000), "must be visible ASCII");
        let text = error.to_string();
        assert!(!text.contains('\n'));
        assert!(text.len() < 300, "{text}");
        assert!(text.starts_with("node id \"a\\nb"), "{text}");
        assert!(text.ends_with("(3000 bytes): must be visible ASCII"), "{text}");
    }
}
