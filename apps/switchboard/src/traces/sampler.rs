//! Which traces are kept, by the standard variables `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`. All nodes keep the same ones.

use opentelemetry::trace::TraceId;
use switchboard_core::types::Invalid;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// Ids below this are kept.
    below: u64,
}

/// Half the range, as in OpenTelemetry's own sampler by ratio: it leaves out the lowest bit.
const ALL: u64 = 1 << 63;

impl Sampler {
    /// Reads the values of the two variables.
    pub(super) fn parse(name: Option<&str>, argument: Option<&str>) -> Result<Self, Invalid> {
        match name.unwrap_or("parentbased_always_on") {
            "always_on" | "parentbased_always_on" => Ok(Self { below: ALL }),
            "always_off" | "parentbased_always_off" => Ok(Self { below: 0 }),
            "traceidratio" | "parentbased_traceidratio" => Self::ratio(argument.unwrap_or("1")),
            other => {
                let rule =
                    "must be always_on, always_off or traceidratio, with or without parentbased_ before it";
                Err(Invalid::new("OTEL_TRACES_SAMPLER", other, rule))
            }
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a ratio from 0 to 1 of 2^63 is no negative number, and fits"
    )]
    fn ratio(text: &str) -> Result<Self, Invalid> {
        let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        let refuse = || Invalid::new("OTEL_TRACES_SAMPLER_ARG", text, "must be a number from 0 to 1");
        ratio.map(|ratio| Self { below: (ratio * ALL as f64) as u64 }).ok_or_else(refuse)
    }

    pub(super) fn keeps(self, trace: TraceId) -> bool {
        let half = u128::from_be_bytes(trace.to_bytes()) & u128::from(u64::MAX);
        half >> 1 < u128::from(self.below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a thousand traces are kept.
    fn kept(name: Option<&str>, argument: Option<&str>) -> usize {
        let sampler = Sampler::parse(name, argument).unwrap();
        let step = u128::from(u64::MAX) / 1000;
        (0..1000).filter(|n| sampler.keeps(TraceId::from_bytes((n * step + step / 2).to_be_bytes()))).count()
    }

    #[test]
    fn a_ratio_of_traces_is_kept_and_all_by_default() {
        assert_eq!(kept(None, None), 1000);
        assert_eq!(kept(Some("always_off"), None), 0);
        assert_eq!(kept(Some("traceidratio"), None), 1000);
        assert_eq!(kept(Some("parentbased_traceidratio"), Some("0.1")), 100);
        assert_eq!(kept(Some("traceidratio"), Some("0")), 0);
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (name, argument) in [
            ("sometimes", None),
            ("traceidratio", Some("2")),
            ("traceidratio", Some("NaN")),
            ("traceidratio", Some("")),
        ] {
            let refusal = Sampler::parse(Some(name), argument).unwrap_err().to_string();
            assert!(refusal.contains("OTEL_TRACES_SAMPLER"), "{refusal}");
        }
    }
}
