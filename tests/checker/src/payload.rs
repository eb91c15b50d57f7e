//! Payloads of many sizes that prove themselves: whoever reads one knows whether every byte is as it was published.

use switchboard_testkit::history::Token;

/// The payload of an event. Most are small; some do not fit into a notification, a few take many packets.
pub(crate) fn write(token: Token) -> String {
    // Any function would do that spreads tokens and that a reader can repeat.
    let padding = match token.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 {
        0 => 100_000,
        1..=12 => 9_000,
        other => usize::try_from(other).unwrap_or_default(),
    };
    format!("[{token},\"{}\"]", "x".repeat(padding))
}

/// The token of a payload; 0, which is nobody's, if it is not as it was written.
pub(crate) fn read(text: &str) -> Token {
    let digits = text.strip_prefix('[').and_then(|rest| rest.split(',').next());
    let token = digits.and_then(|digits| digits.parse().ok()).unwrap_or_default();
    if write(token) == text { token } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::{read, write};

    #[test]
    fn a_payload_of_any_size_names_its_token() {
        for token in 1..1000 {
            assert_eq!(read(&write(token)), token);
        }
    }

    #[test]
    fn a_payload_that_was_changed_names_nobody() {
        let whole = write(7);
        for changed in [
            "",
            "7",
            "[7]",
            &whole[..whole.len() - 1],
            &whole.replacen('x', "y", 1),
            &whole.replace('7', "8"),
        ] {
            assert_eq!(read(changed), 0, "{changed}");
        }
    }
}
