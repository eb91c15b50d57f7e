//! Retention as the configuration writes it: `24h,audit:*=forever,room:*=1h/1000`.

use std::fmt;
use std::time::Duration;

use humantime::format_duration;
use switchboard_core::types::{ChannelPattern, Invalid};
use switchboard_postgres::{Retention, RetentionRule};

use super::duration;
use super::setting::integer;

const RULE: &str = "must be a duration from 1s to 87600h or forever, then rules PATTERN=AGE, PATTERN=AGE/COUNT or \
    PATTERN=/COUNT, separated by commas, such as 24h,audit:*=forever,room:*=1h/1000";

/// Below, a subscriber that reconnects would find nothing; above, nobody means it.
const AGES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(87_600));

const FOREVER: &str = "forever";

/// Reads the age for all channels and the rules for some.
pub(crate) fn parse(text: &str) -> Result<Retention, Invalid> {
    let read = || {
        let mut parts = text.split(',');
        let age = age(parts.next().unwrap_or_default())?;
        let rules = parts.map(|part| rule(part, age)).collect::<Result<_, _>>()?;
        Ok(Retention { age, rules })
    };
    // One part is wrong, and the whole is what was set.
    read().map_err(|_: Invalid| refuse(text))
}

fn refuse(text: &str) -> Invalid {
    Invalid::new("retention", text, RULE)
}

/// The last `=` separates: a pattern may hold some, an age does not.
fn rule(text: &str, default: Option<Duration>) -> Result<RetentionRule, Invalid> {
    let (pattern, kept) = text.rsplit_once('=').ok_or_else(|| refuse(text))?;
    let (age_text, count) = match kept.split_once('/') {
        Some((age, count)) => (age, Some(integer(count, 1, usize::MAX)? as u64)),
        None => (kept, None),
    };
    let age = if age_text.is_empty() && count.is_some() { default } else { age(age_text)? };
    Ok(RetentionRule { channels: ChannelPattern::parse(pattern)?, age, count })
}

fn age(text: &str) -> Result<Option<Duration>, Invalid> {
    if text == FOREVER {
        return Ok(None);
    }
    match duration::parse(text) {
        Ok(age) if (AGES.0..=AGES.1).contains(&age) => Ok(Some(age)),
        _ => Err(refuse(text)),
    }
}

/// Retention in the form it is configured in.
pub(crate) struct Shown<'a>(pub(crate) &'a Retention);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = |age: Option<Duration>| {
            age.map_or_else(|| FOREVER.to_owned(), |age| format_duration(age).to_string().replace(' ', ""))
        };
        f.write_str(&age(self.0.age))?;
        for rule in &self.0.rules {
            write!(f, ",{}={}", rule.channels, age(rule.age))?;
            if let Some(count) = rule.count {
                write!(f, "/{count}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_rules_are_read_and_shown() {
        for (text, shown) in [
            ("24h", "1day"),
            ("1m30s", "1m30s"),
            ("forever", "forever"),
            ("2h,room:*=1h/1000,a=b=forever,*:x=/5", "2h,room:*=1h/1000,a=b=forever,*:x=2h/5"),
        ] {
            assert_eq!(Shown(&parse(text).unwrap()).to_string(), shown, "{text}");
        }
    }

    #[test]
    fn whatever_else_is_refused_with_the_form() {
        for bad in [
            "",
            "24",
            "1d",
            "0s",
            "999ms",
            "99999h",
            "-1h",
            "24h,",
            "24h,room:*",
            "24h,room:*=",
            "24h,=1h",
            "24h,a=1h/",
            "24h,a=1h/0",
            "24h,a=1h/-1",
            "24h,a=1h/1/2",
            "24h,a=/",
            "24h, a=1h ",
            "never",
            "Forever",
        ] {
            let error = parse(bad).expect_err(bad).to_string();
            assert!(error.contains("forever"), "{bad}: {error}");
        }
    }
}
