//! Durations as the configuration writes them: strict, so that a bare number never means one unit here and another there.

use std::time::Duration;

use switchboard_core::types::Invalid;

/// What is allowed, for messages; `--help` says the same.
const RULE: &str = "must be whole numbers with the units h, m, s, ms, the largest first and without spaces, such as 10s, 500ms or 1m30s";

/// Units in the only order allowed.
const UNITS: [&str; 4] = ["h", "m", "s", "ms"];

/// Reads one or more of `<integer><unit>`.
pub(crate) fn parse(text: &str) -> Result<Duration, Invalid> {
    let refuse = || Invalid::new("duration", text, RULE);
    if !follows_grammar(text) {
        return Err(refuse());
    }
    // It fails still for what does not fit a Duration.
    humantime::parse_duration(text).map_err(|_| refuse())
}

/// Reads a duration up to `max`.
pub(crate) fn parse_at_most(text: &str, max: Duration) -> Result<Duration, Invalid> {
    let duration = parse(text)?;
    if duration > max {
        let rule = format!("must be at most {}", humantime::format_duration(max));
        return Err(Invalid::new("duration", text, rule));
    }
    Ok(duration)
}

fn follows_grammar(text: &str) -> bool {
    let mut rest = text;
    let mut units = UNITS.as_slice();
    while !rest.is_empty() {
        let number_end = rest.bytes().take_while(u8::is_ascii_digit).count();
        let unit_end = rest.bytes().skip(number_end).take_while(u8::is_ascii_alphabetic).count();
        let unit = &rest[number_end..number_end + unit_end];
        let Some(index) = units.iter().position(|known| *known == unit) else { return false };
        if number_end == 0 {
            return false;
        }
        units = &units[index + 1..];
        rest = &rest[number_end + unit_end..];
    }
    !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b132_the_documented_subset_is_parsed_exactly() {
        for (text, millis) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("1h2m3s4ms", 3_723_004),
            ("0s", 0),
            ("007s", 7_000),
            ("90s", 90_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn b132_everything_else_is_refused_by_one_message() {
        for bad in [
            "",
            " ",
            "30",
            "30 ",
            "30 s",
            " 30s",
            "30s ",
            "30S",
            "1m 30s",
            "1.5s",
            "-1s",
            "+1s",
            "PT10S",
            "10sec",
            "10seconds",
            "1d",
            "1w",
            "1us",
            "1ns",
            "1M",
            "٣s",
            "10ｓ",
            "1e3ms",
            "0x1s",
            "s",
            "ms",
            "1s1m",
            "1s1s",
            "1ms1s",
            "1s1",
            "1m30",
            "1_000ms",
            "10s\n",
            "10s\0",
            "99999999999999999999999s",
            "18446744073709551615h",
        ] {
            let error = parse(bad).expect_err(bad).to_string();
            assert!(error.contains("10s, 500ms or 1m30s"), "{error}");
        }
    }
}
