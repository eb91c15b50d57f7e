//! Where a durable event stands: which history, and which place in its channel.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Invalid, text_conversions};

/// The history in which a durable event was written, shown as 16 hexadecimal digits.
///
/// It changes when the store may have lost or repeated part of its history (a PostgreSQL failover or restore),
/// because `seq` numbers can then be given out a second time. Adapters derive it; nothing can be read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch with these bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Its 64 bits.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// Identifies one durable event of a channel, as (term, index) does in Raft.
///
/// `seq` counts 1, 2, 3 … without gaps per channel; 0 stands before the first event. Only the pair identifies an
/// event: positions of different epochs have no order, so this type has none either. The text form
/// (`0123456789abcdef-42`) is opaque to clients and never a JSON number, which could not hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Position {
    /// The history `seq` belongs to.
    pub epoch: Epoch,
    /// Place in the channel.
    pub seq: u64,
}

impl Position {
    /// Largest `seq`: PostgreSQL stores it as a signed 64-bit integer.
    pub const MAX_SEQ: u64 = i64::MAX as u64;

    /// The position `seq` of `epoch`.
    pub const fn new(epoch: Epoch, seq: u64) -> Self {
        Self { epoch, seq }
    }

    /// The position that follows in the same epoch.
    #[must_use]
    pub const fn next(self) -> Self {
        Self { epoch: self.epoch, seq: self.seq + 1 }
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = || {
            Invalid::new(
                "position",
                text,
                "must be a position that this cluster gave out, such as \"0123456789abcdef-42\"",
            )
        };
        let (epoch, seq) = text.split_once('-').ok_or_else(refuse)?;
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if epoch.len() != 16 || !epoch.bytes().all(|b| b.is_ascii_hexdigit()) || !digits(seq) {
            return Err(refuse());
        }
        let epoch = u64::from_str_radix(epoch, 16).map_err(|_| refuse())?;
        let seq = seq.parse().ok().filter(|seq| *seq <= Self::MAX_SEQ).ok_or_else(refuse)?;
        Ok(Self { epoch: Epoch(epoch), seq })
    }
}

text_conversions!(Position);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.epoch.0, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_its_text_form() {
        for position in [Position::new(Epoch(0), 0), Position::new(Epoch(u64::MAX), Position::MAX_SEQ)] {
            assert_eq!(Position::parse(&position.to_string()), Ok(position));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "-",
            "0",
            "-1",
            "0123456789abcdef",
            "0123456789abcdef-",
            "0123456789abcdef--1",
            "0123456789abcdef-+1",
            "0123456789abcdef-1x",
            "0123456789abcdeg-1",
            "0123456789abcdef-9223372036854775808",
            " 0123456789abcdef-1",
        ] {
            assert!(Position::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
