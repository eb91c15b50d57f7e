//! Why bytes are no message. The text goes to the client that sent them, so it is short and repeats nothing that could be secret.

use super::Version;

/// What a client sent is not a message. Never retry with the same bytes.
///
/// The text fits the reason of a WebSocket close frame (123 bytes) and holds no part of what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text is not JSON of the version's shape.
    #[error("{} (error at line {line}, column {column})", version.shape())]
    Shape {
        /// The version that the socket speaks.
        version: Version,
        /// Line of the first character that does not fit, from 1.
        line: usize,
        /// Column of that character, in bytes from 1.
        column: usize,
    },
    /// A part is of another type.
    #[error("{field} must be {must}")]
    Field {
        /// Which part.
        field: &'static str,
        /// What it must be.
        must: &'static str,
    },
    /// A part is longer than any valid one.
    #[error("{field} must be at most {max} bytes, not {length}")]
    TooLong {
        /// Which part.
        field: &'static str,
        /// Its length in bytes.
        length: usize,
        /// The longest that is allowed, in bytes.
        max: usize,
    },
    /// A binary frame on a socket of version 1.
    #[error("binary frames need vsn 2.0.0")]
    BinaryInV1,
    /// A binary frame that starts with an unknown byte.
    #[error("a binary frame must be of kind {allowed}, not {kind}")]
    Kind {
        /// The byte.
        kind: u8,
        /// The kinds that are known in this direction.
        allowed: &'static str,
    },
    /// A binary frame that ends before its header, or before what its header promises.
    #[error("a binary frame of {length} bytes is shorter than its header says")]
    Truncated {
        /// Its length in bytes.
        length: usize,
    },
    /// A part of a binary frame that is not text.
    #[error("{field} must be UTF-8")]
    Utf8 {
        /// Which part.
        field: &'static str,
    },
    /// A part of a binary frame that is not JSON.
    #[error("{field} must be JSON")]
    Json {
        /// Which part.
        field: &'static str,
    },
    /// A broadcast whose payload is neither bytes nor JSON.
    #[error("the encoding of a broadcast must be 0 (bytes) or 1 (JSON), not {0}")]
    Encoding(u8),
}

impl DecodeError {
    /// The WebSocket close code for it: 1003 for a binary frame of a sort that is not understood here, else 1007.
    pub fn close_code(&self) -> u16 {
        match self {
            Self::BinaryInV1 | Self::Kind { .. } => 1003,
            _ => 1007,
        }
    }
}
