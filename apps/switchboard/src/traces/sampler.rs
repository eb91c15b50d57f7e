//! Which traces are kept. All nodes keep the same ones.

use opentelemetry::trace::TraceId;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// Ids below this are kept.
    below: u64,
}

/// Half the range, as in OpenTelemetry's own sampler by ratio: it leaves out the lowest bit.
const ALL: u64 = 1 << 63;

impl Sampler {
    /// Keeps this share of all traces, 0 to 1.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a ratio from 0 to 1 of 2^63 is no negative number, and fits"
    )]
    pub(super) fn new(ratio: f64) -> Self {
        Self { below: (ratio * ALL as f64) as u64 }
    }

    pub(super) fn keeps(self, trace: TraceId) -> bool {
        let half = u128::from_be_bytes(trace.to_bytes()) & u128::from(u64::MAX);
        half >> 1 < u128::from(self.below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_traces_is_kept() {
        let step = u128::from(u64::MAX) / 1000;
        let traces = || (0..1000).map(|n| TraceId::from_bytes((n * step + step / 2).to_be_bytes()));
        for (ratio, kept) in [(0.0, 0), (0.1, 100), (1.0, 1000)] {
            let sampler = Sampler::new(ratio);
            assert_eq!(traces().filter(|trace| sampler.keeps(*trace)).count(), kept);
        }
    }
}
