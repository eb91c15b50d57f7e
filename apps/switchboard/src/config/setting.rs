//! One setting: a variable that is nearly always a flag, too, and the one message for a wrong value of it.
//!
//! Invariant: a value that is set is used or refused. Empty, not UTF-8 or misspelt never means "default".

use std::ffi::OsStr;
use std::fmt;

use switchboard_core::types::Invalid;

/// The names of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    variable: &'static str,
    flag: Option<&'static str>,
}

/// Why the configuration cannot be used. The message fits one line and names the setting, its value and what is allowed;
/// it never holds a secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {problem}")]
pub(crate) struct ConfigError {
    setting: Setting,
    problem: String,
}

impl Setting {
    pub(crate) const fn new(variable: &'static str, flag: &'static str) -> Self {
        Self { variable, flag: Some(flag) }
    }

    /// One that is no flag.
    #[cfg(feature = "otlp")]
    pub(crate) const fn variable(variable: &'static str) -> Self {
        Self { variable, flag: None }
    }

    #[cfg(feature = "otlp")]
    pub(crate) fn name(self) -> &'static str {
        self.variable
    }

    /// Checks a value that may be shown.
    pub(crate) fn parse<T>(
        self,
        value: &OsStr,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Result<T, ConfigError> {
        let shown = value.to_string_lossy();
        let text = value.to_str().ok_or_else(|| self.refuse(&shown, "must be UTF-8"))?;
        parse(text).map_err(|invalid| self.refuse(text, invalid.rule()))
    }

    /// Checks a value that must not be shown; what `parse` answers must not repeat it either. An empty one hides nothing.
    pub(crate) fn parse_secret<T>(
        self,
        value: &OsStr,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Result<T, ConfigError> {
        let hidden = |rule: &str| self.because(format!("has a value that is not allowed: {rule}"));
        let text = value.to_str().ok_or_else(|| hidden("must be UTF-8"))?;
        parse(text).map_err(|invalid| match text {
            "" => self.refuse(text, invalid.rule()),
            _ => hidden(&invalid.to_string()),
        })
    }

    /// Refuses `value`, which breaks `rule`.
    pub(crate) fn refuse(self, value: &str, rule: &str) -> ConfigError {
        self.because(Invalid::new("is", value, rule.to_owned()).to_string())
    }

    /// Refuses to go on without a value.
    pub(crate) fn missing(self, rule: &str) -> ConfigError {
        self.because(format!("is not set: {rule}"))
    }

    fn because(self, problem: String) -> ConfigError {
        ConfigError { setting: self, problem }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.variable)?;
        self.flag.map_or(Ok(()), |flag| write!(f, " ({flag})"))
    }
}

/// Reads a whole number between two bounds, digits only.
pub(crate) fn integer(text: &str, min: usize, max: usize) -> Result<usize, Invalid> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits && (min..=max).contains(&number) => Ok(number),
        _ => Err(Invalid::new("number", text, format!("must be a whole number from {min} to {max}"))),
    }
}

/// Reads one of a few words.
pub(crate) fn one_of<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, Invalid> {
    words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        Invalid::new("word", text, format!("must be {}", words.join(" or ")))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    const NAME: Setting = Setting::new("CLUSTER_NODE_ID", "--cluster-node-id");

    #[test]
    fn a_message_names_variable_flag_value_and_rule() {
        let error = NAME.parse(OsStr::new("a\nb"), |text| integer(text, 1, 5)).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"CLUSTER_NODE_ID (--cluster-node-id) is "a\nb": must be a whole number from 1 to 5"#
        );
    }

    #[test]
    fn text_that_is_not_utf8_is_refused() {
        let error = NAME.parse(OsStr::from_bytes(b"caf\xe9"), |_| Ok(())).unwrap_err().to_string();
        assert!(error.ends_with("must be UTF-8"), "{error}");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let refuse = |_: &str| Err::<(), _>(Invalid::new("token", "(hidden)", "must be longer"));
        for secret in [OsStr::new("hunter2"), OsStr::from_bytes(b"hunter2\xff")] {
            let error = NAME.parse_secret(secret, refuse).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.starts_with("CLUSTER_NODE_ID (--cluster-node-id) has a value"), "{error}");
        }
    }

    #[test]
    fn a_secret_that_is_empty_is_said_to_be() {
        let refuse = |_: &str| Err::<(), _>(Invalid::new("token", "(hidden)", "must be longer"));
        let error = NAME.parse_secret(OsStr::new(""), refuse).unwrap_err().to_string();
        assert_eq!(error, r#"CLUSTER_NODE_ID (--cluster-node-id) is "": must be longer"#);
    }

    #[test]
    fn numbers_are_digits_within_bounds() {
        assert_eq!(integer("1", 1, 64).unwrap(), 1);
        assert_eq!(integer("64", 1, 64).unwrap(), 64);
        for bad in ["", "0", "65", "+1", "-1", " 1", "1 ", "1.0", "0x1", "١", "99999999999999999999999"] {
            assert!(integer(bad, 1, 64).is_err(), "{bad:?} was accepted");
        }
    }
}
