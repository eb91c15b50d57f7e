//! Bytes where only JSON can travel: through the buses, and to clients that take no binary frames.
//!
//! An `ArrayBuffer` is published as `{"$switchboard:base64":"…"}`, in exactly this spelling (no white space, padded base64), and whatever
//! is spelled so reaches clients that take binary frames as an `ArrayBuffer`, whoever published it: REST and SQL can do it, too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use switchboard_core::types::{Invalid, Payload};

const BEFORE: &str = r#"{"$switchboard:base64":""#;
const AFTER: &str = r#""}"#;

/// The payload that stands for `bytes`; four thirds of their size and 26 bytes more.
pub fn to_payload(bytes: &[u8]) -> Result<Payload, Invalid> {
    Payload::parse(&format!("{BEFORE}{}{AFTER}", STANDARD.encode(bytes)))
}

/// The bytes that `payload` stands for, if it does.
pub(crate) fn from_payload(payload: &Payload) -> Option<Vec<u8>> {
    let text = payload.as_str().strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_their_json_form() {
        for bytes in [&b""[..], b"\0", b"\xff\xfe", b"abc", &[7; 1000]] {
            assert_eq!(from_payload(&to_payload(bytes).unwrap()).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn only_the_exact_spelling_stands_for_bytes() {
        assert_eq!(to_payload(b"hi").unwrap().as_str(), r#"{"$switchboard:base64":"aGk="}"#);
        for other in [
            r#"{"$switchboard:base64": "aGk="}"#,
            r#"{"$switchboard:base64":"aGk"}"#,
            r#"{"$switchboard:base64":"aGk=","a":"b"}"#,
            r#"{"$switchboard:base64":"\u0061Gk="}"#,
            r#"{"base64":"aGk="}"#,
            r#""aGk=""#,
        ] {
            assert_eq!(from_payload(&Payload::parse(other).unwrap()), None, "{other}");
        }
    }
}
