//! Traces of durable events, from publish to delivery, for OpenTelemetry (feature `otlp`).
//!
//! Nothing travels with an event for that: its trace and the span of its publishing are named by its position, so every node knows both. It is
//! published in a span `publish` on one node and arrives in a span `deliver` on each that has subscribers, as its child. Who publishes over SQL leaves no span.
//! Ephemeral events have no position, and no traces.
//!
//! The standard variables decide where traces go and which: `OTEL_EXPORTER_OTLP_ENDPOINT` switches them on.

#[cfg(feature = "otlp")]
mod bus;
#[cfg(feature = "otlp")]
mod exporter;
#[cfg(feature = "otlp")]
mod names;
#[cfg(feature = "otlp")]
mod sampler;
#[cfg(feature = "otlp")]
mod tracer;

#[cfg(feature = "otlp")]
pub(crate) use tracer::Traces;

#[cfg(not(feature = "otlp"))]
pub(crate) use without::Traces;

/// What a build without traces does.
#[cfg(not(feature = "otlp"))]
mod without {
    use std::sync::Arc;
    use std::time::Duration;

    use switchboard_core::ports::DurableBus;
    use tracing::warn;

    use crate::config::ServeConfig;

    pub(crate) struct Traces;

    #[allow(
        clippy::unused_self,
        clippy::unused_async,
        clippy::unnecessary_wraps,
        reason = "what the build with traces needs, this one can do without"
    )]
    impl Traces {
        pub(crate) fn start(_config: &ServeConfig) -> anyhow::Result<Self> {
            for name in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] {
                if std::env::var_os(name).is_some() {
                    warn!("{name} has no effect: this build has no traces (feature otlp)");
                }
            }
            Ok(Self)
        }

        pub(crate) fn of(&self, bus: Arc<dyn DurableBus>) -> Arc<dyn DurableBus> {
            bus
        }

        pub(crate) async fn finish(self, _patience: Duration) {}
    }
}
