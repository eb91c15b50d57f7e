//! Values that are certainly valid.

use switchboard_core::types::{Channel, EventName, IdempotencyKey, Payload};

/// The channel `name`.
pub fn channel(name: &str) -> Channel {
    Channel::parse(name).unwrap()
}

/// An event name.
pub fn event() -> EventName {
    EventName::parse("message").unwrap()
}

/// The payload `json`.
pub fn payload(json: &str) -> Payload {
    Payload::parse(json).unwrap()
}

/// The idempotency key `text`.
pub(super) fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text).unwrap()
}

/// A payload of exactly `bytes` bytes.
pub(super) fn sized(bytes: usize) -> Payload {
    payload(&format!("\"{}\"", "x".repeat(bytes - 2)))
}

/// Names that must not be mixed up, folded, cut, quoted or executed.
pub(super) fn difficult_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "Room",
        "room",
        "ROOM",
        "Straße",
        "İstanbul",
        "a\"b",
        "a'b",
        "a;b",
        "x\"; DROP TABLE node_registry; --",
        "a b",
        " a",
        "a ",
        "a  b",
        "a/b?c#d%20e",
        "{\"a\":[1]}",
        "$1",
        "caf\u{e9}",
        "cafe\u{301}",
        "🦀",
        "a:b",
        "a\\b",
        "%",
        "\u{202e}",
        "\u{200d}",
        "select",
        "*",
        "123",
        "room:１",
    ]
    .map(str::to_owned)
    .to_vec();
    names.extend([63, 64, 255].map(|length| "n".repeat(length)));
    // Alike up to the last byte, at the lengths where something might be cut.
    for length in [64, 80, 255] {
        names.extend(['a', 'b'].map(|last| format!("{}{last}", "x".repeat(length - 1))));
    }
    names
}

/// JSON that does not survive being parsed and written again.
pub(super) const DELICATE: &str = r#"{"n":9007199254740993,"m":123456789012345678901234567890,"f":1.10,"e":1e400,"z":-0.0,"b":1,  "a":2, "a":3,"u":"\u0000\ud800é"}"#;
