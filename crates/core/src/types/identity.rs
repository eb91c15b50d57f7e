//! Who a node is: a name an operator knows, and a number that tells one process start from the next.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Invalid, text_conversions};

/// Name of a node, unique in its cluster: 1 to 128 bytes of visible ASCII without quotes.
///
/// Visible ASCII keeps it on one log line and out of trouble in SQL, URLs and HTML; those still escape it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(String);

impl NodeId {
    /// Longest accepted id, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Checks and wraps `text`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let allowed = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'`');
        if text.is_empty() || text.len() > Self::MAX_BYTES || !text.bytes().all(allowed) {
            return Err(Invalid::new(
                "node id",
                text,
                "must be 1 to 128 bytes of visible ASCII without spaces or quotes",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

text_conversions!(NodeId);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One process start: 128 random bits, shown as 32 hexadecimal digits.
///
/// Two processes that share a [`NodeId`] are told apart by it; it fences every write to the registry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Incarnation(u128);

impl Incarnation {
    /// A new random incarnation.
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// The incarnation with these bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Its 128 bits.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// Reads the 32 hexadecimal digits that [`Display`](fmt::Display) writes; hyphens, as in a UUID, are allowed.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let digits = text.replace('-', "");
        let hex = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        match u128::from_str_radix(&digits, 16) {
            Ok(bits) if hex => Ok(Self(bits)),
            _ => Err(Invalid::new("incarnation", text, "must be 32 hexadecimal digits")),
        }
    }
}

text_conversions!(Incarnation);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incarnation({self})")
    }
}

/// A node id together with the process start that carries it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    /// The node's name.
    pub node_id: NodeId,
    /// Which start of it.
    pub incarnation: Incarnation,
}

impl Identity {
    /// This node id under a new random incarnation.
    pub fn fresh(node_id: NodeId) -> Self {
        Self { node_id, incarnation: Incarnation::random() }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.node_id, self.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_are_visible_ascii_of_bounded_length() {
        for good in ["a", "..", "a/b", "a%2Fb", "a?b#c", "<b>", "node-7:4000", &"x".repeat(128)] {
            assert_eq!(NodeId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", " a", "a ", "a b", "a\nb", "é", "🦀", "a\"b", "a'b", "a`b", "a\0", &"x".repeat(129)]
        {
            assert!(NodeId::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn incarnations_survive_their_text_form() {
        let incarnation = Incarnation::from_bits(7);
        assert_eq!(Incarnation::parse(&incarnation.to_string()), Ok(incarnation));
        assert_eq!(Incarnation::parse("00000000-0000-0000-0000-000000000007"), Ok(incarnation));
        for bad in ["", "7", "+0000000000000000000000000000007", &"g".repeat(32), &"0".repeat(33)] {
            assert!(Incarnation::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
