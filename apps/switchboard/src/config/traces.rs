//! Traces, by the standard variables of OpenTelemetry, which have no flags, and of which an empty one counts as not set.
//!
//! The exporter reads most of them by itself and ignores what it does not understand, so they are checked here.

use std::ffi::OsString;

use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use switchboard_core::types::Invalid;

use super::setting::{ConfigError, Setting, integer, one_of};

/// Any of these switches traces on.
const ENDPOINTS: [Setting; 2] = [
    Setting::variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    Setting::variable("OTEL_EXPORTER_OTLP_ENDPOINT"),
];
const SAMPLER: Setting = Setting::variable("OTEL_TRACES_SAMPLER");
const SAMPLER_ARG: Setting = Setting::variable("OTEL_TRACES_SAMPLER_ARG");
/// They may hold passwords.
const HEADERS: [Setting; 2] =
    [Setting::variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS"), Setting::variable("OTEL_EXPORTER_OTLP_HEADERS")];

type Rule = fn(&str) -> Result<(), Invalid>;

/// What is checked here and used by the exporter.
const CHECKED: [(Setting, Rule); 11] = [
    (ENDPOINTS[0], url),
    (ENDPOINTS[1], url),
    (Setting::variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), protocol),
    (Setting::variable("OTEL_EXPORTER_OTLP_PROTOCOL"), protocol),
    (Setting::variable("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION"), compression),
    (Setting::variable("OTEL_EXPORTER_OTLP_COMPRESSION"), compression),
    (Setting::variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"), milliseconds),
    (Setting::variable("OTEL_EXPORTER_OTLP_TIMEOUT"), milliseconds),
    (Setting::variable("OTEL_BSP_SCHEDULE_DELAY"), milliseconds),
    (Setting::variable("OTEL_BSP_MAX_QUEUE_SIZE"), spans),
    (Setting::variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), spans),
];

/// As checked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TraceConfig {
    /// The share of traces that is kept, 0 to 1.
    pub(crate) ratio: f64,
}

impl TraceConfig {
    /// From the values that `variable` has by name; `None` if traces are not switched on.
    pub(crate) fn resolve(
        variable: impl Fn(&'static str) -> Option<OsString>,
    ) -> Result<Option<Self>, ConfigError> {
        let value = |setting: Setting| variable(setting.name()).filter(|value| !value.is_empty());
        if ENDPOINTS.into_iter().all(|endpoint| value(endpoint).is_none()) {
            return Ok(None);
        }
        for (setting, rule) in CHECKED {
            if let Some(value) = value(setting) {
                setting.parse(&value, rule)?;
            }
        }
        for setting in HEADERS {
            if let Some(value) = value(setting) {
                setting.parse_secret(&value, headers)?;
            }
        }
        let argument = value(SAMPLER_ARG).map_or(Ok(1.0), |argument| SAMPLER_ARG.parse(&argument, share))?;
        let ratio =
            value(SAMPLER).map_or(Ok(1.0), |name| SAMPLER.parse(&name, |name| sampler(name, argument)))?;
        Ok(Some(Self { ratio }))
    }
}

fn sampler(name: &str, argument: f64) -> Result<f64, Invalid> {
    let rule = "must be always_on, always_off or traceidratio, with or without parentbased_ before it";
    match name.strip_prefix("parentbased_").unwrap_or(name) {
        "always_on" => Ok(1.0),
        "always_off" => Ok(0.0),
        "traceidratio" => Ok(argument),
        _ => Err(Invalid::new("sampler", name, rule)),
    }
}

fn share(text: &str) -> Result<f64, Invalid> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| Invalid::new("share", text, "must be a number from 0 to 1"))
}

fn url(text: &str) -> Result<(), Invalid> {
    let is_one = Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    is_one
        .then_some(())
        .ok_or_else(|| Invalid::new("URL", text, "must be a URL such as http://collector:4318"))
}

fn protocol(text: &str) -> Result<(), Invalid> {
    one_of(text, &[("http/json", ()), ("http/protobuf", ())])
}

fn compression(text: &str) -> Result<(), Invalid> {
    Err(Invalid::new("compression", text, "must not be set: spans are sent as they are"))
}

fn milliseconds(text: &str) -> Result<(), Invalid> {
    integer(text, 1, 3_600_000).map(drop)
}

fn spans(text: &str) -> Result<(), Invalid> {
    integer(text, 1, 1_000_000).map(drop)
}

fn headers(text: &str) -> Result<(), Invalid> {
    let is_header = |header: &str| {
        header.split_once('=').is_some_and(|(name, value)| {
            HeaderName::try_from(name.trim()).is_ok() && HeaderValue::try_from(value.trim()).is_ok()
        })
    };
    let refuse = || Invalid::new("list", "(hidden)", "must be NAME=VALUE, separated by commas");
    text.split(',').all(is_header).then_some(()).ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(values: &[(&str, &str)]) -> Result<Option<f64>, String> {
        let variable = |name: &str| {
            let value = values.iter().find(|(set, _)| *set == name).map(|(_, value)| *value);
            value.or(name.ends_with("OTLP_ENDPOINT").then_some("http://collector:4318")).map(OsString::from)
        };
        TraceConfig::resolve(variable)
            .map(|config| config.map(|config| config.ratio))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_endpoint_switches_traces_on() {
        assert_eq!(resolved(&[]), Ok(Some(1.0)));
        assert_eq!(resolved(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(None));
        assert_eq!(TraceConfig::resolve(|_| None), Ok(None));
    }

    #[test]
    fn samplers_say_which_share_is_kept() {
        for (name, argument, share) in [
            ("always_on", "", 1.0),
            ("parentbased_always_off", "", 0.0),
            ("traceidratio", "", 1.0),
            ("parentbased_traceidratio", "0.1", 0.1),
            ("traceidratio", "0", 0.0),
            ("", "", 1.0),
        ] {
            let values = [("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", argument)];
            assert_eq!(resolved(&values), Ok(Some(share)), "{name} {argument}");
        }
    }

    #[test]
    fn what_the_exporter_would_ignore_is_refused_by_name() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://x"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "abc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "99999999999999"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
            ("OTEL_TRACES_SAMPLER_ARG", "NaN"),
        ] {
            let refusal = resolved(&[(name, value)]).unwrap_err();
            assert!(refusal.starts_with(&format!("{name} is {value:?}: must")), "{refusal}");
        }
    }

    #[test]
    fn headers_are_refused_without_being_shown() {
        assert_eq!(resolved(&[("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2, x=a=b%20c")]), Ok(Some(1.0)));
        for bad in ["hunter2", "api-key=hunter2,", "a key=hunter2", "=hunter2"] {
            let refusal = resolved(&[("OTEL_EXPORTER_OTLP_HEADERS", bad)]).unwrap_err();
            assert!(refusal.starts_with("OTEL_EXPORTER_OTLP_HEADERS has a value"), "{refusal}");
            assert!(!refusal.contains("hunter2"), "{refusal}");
        }
    }
}
