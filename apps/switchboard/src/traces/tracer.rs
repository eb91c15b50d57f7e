//! Where spans go: into a queue that a thread of its own sends to a collector.
//!
//! Invariants: nobody waits for the collector, and what the queue does not take is dropped; a node delivers an event in one span, however many subscribers it has.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor};
use parking_lot::Mutex;
use switchboard_core::ports::DurableBus;
use switchboard_core::types::{Channel, DurableEvent, EventName, NodeId, Position};

use super::bus::Traced;
use super::exporter::Reporting;
use super::names;
use super::sampler::Sampler;

/// Any of these switches traces on.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Events whose delivery is remembered, so that it is told once.
const REMEMBERED: usize = 4096;

/// The traces of a node, if they are switched on.
pub(crate) struct Traces(Option<Arc<Tracer>>);

impl Traces {
    /// Reads the environment. An exporter that cannot be set up is an error; a collector that is not there is none.
    pub(crate) fn start(node_id: &NodeId) -> anyhow::Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if ENDPOINTS.iter().all(|name| variable(name).is_none()) {
            return Ok(Self(None));
        }
        let sampler = Sampler::parse(
            variable("OTEL_TRACES_SAMPLER").as_deref(),
            variable("OTEL_TRACES_SAMPLER_ARG").as_deref(),
        )?;
        let exporter = SpanExporter::builder()
            .with_http()
            .build()
            .context("cannot export traces (OTEL_EXPORTER_OTLP_…)")?;
        let mut resource =
            Resource::builder().with_attribute(KeyValue::new("service.instance.id", node_id.to_string()));
        if variable("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("switchboard");
        }
        let mut queue = BatchSpanProcessor::builder(Reporting::new(exporter)).build();
        queue.set_resource(&resource.build());
        tracing::info!("sending traces");
        Ok(Self(Some(Arc::new(Tracer { queue, sampler, delivered: Mutex::default() }))))
    }

    /// The same bus, whose events leave traces.
    pub(crate) fn of(&self, bus: Arc<dyn DurableBus>) -> Arc<dyn DurableBus> {
        match &self.0 {
            Some(tracer) => Arc::new(Traced::new(bus, Arc::clone(tracer))),
            None => bus,
        }
    }

    /// Sends what there is.
    pub(crate) async fn finish(self, patience: Duration) {
        let Some(tracer) = self.0 else { return };
        // Blocks for as long as the collector does. What it does not take in time is lost with the process.
        let sending = tokio::task::spawn_blocking(move || tracer.queue.shutdown_with_timeout(patience));
        let _ = tokio::time::timeout(patience, sending).await;
    }
}

pub(super) struct Tracer {
    queue: BatchSpanProcessor,
    sampler: Sampler,
    delivered: Mutex<Recent>,
}

/// The last events that were delivered.
#[derive(Default)]
struct Recent {
    known: HashSet<TraceId>,
    order: VecDeque<TraceId>,
}

impl Tracer {
    /// An event was published, which began at `began`.
    pub(super) fn published(
        &self,
        channel: &Channel,
        event: &EventName,
        position: Position,
        began: SystemTime,
    ) {
        let (trace, span) = names::of_event(channel, position);
        if self.sampler.keeps(trace) {
            let attributes = attributes("publish", channel, event, Some(position));
            self.record(
                "publish",
                SpanKind::Producer,
                (trace, span, SpanId::INVALID),
                began,
                attributes,
                Status::Unset,
            );
        }
    }

    /// An event could not be published. It has no position, so its trace has a name of its own.
    pub(super) fn failed(&self, channel: &Channel, event: &EventName, began: SystemTime, error: String) {
        let (trace, span) = (TraceId::from_bytes(rand::random()), SpanId::from_bytes(rand::random()));
        if self.sampler.keeps(trace) {
            let attributes = attributes("publish", channel, event, None);
            let status = Status::Error { description: Cow::Owned(error) };
            self.record(
                "publish",
                SpanKind::Producer,
                (trace, span, SpanId::INVALID),
                began,
                attributes,
                status,
            );
        }
    }

    /// An event was handed to a subscriber.
    pub(super) fn delivered(&self, event: &DurableEvent) {
        let (trace, publish) = names::of_event(&event.channel, event.position);
        if !self.sampler.keeps(trace) || !self.delivered.lock().is_new(trace) {
            return;
        }
        let span = SpanId::from_bytes(rand::random());
        let attributes = attributes("process", &event.channel, &event.event, Some(event.position));
        self.record(
            "deliver",
            SpanKind::Consumer,
            (trace, span, publish),
            SystemTime::now(),
            attributes,
            Status::Unset,
        );
    }

    /// Ends now.
    fn record(
        &self,
        name: &'static str,
        span_kind: SpanKind,
        (trace, span, parent): (TraceId, SpanId, SpanId),
        start_time: SystemTime,
        attributes: Vec<KeyValue>,
        status: Status,
    ) {
        let is_remote = parent != SpanId::INVALID;
        self.queue.on_end(SpanData {
            span_context: SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: parent,
            parent_span_is_remote: is_remote,
            span_kind,
            name: Cow::Borrowed(name),
            start_time,
            end_time: SystemTime::now(),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: InstrumentationScope::builder("switchboard")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        });
    }
}

impl Recent {
    fn is_new(&mut self, trace: TraceId) -> bool {
        if !self.known.insert(trace) {
            return false;
        }
        self.order.push_back(trace);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

/// Named as OpenTelemetry's conventions for messaging have them. The payload is nobody's business.
fn attributes(
    operation: &'static str,
    channel: &Channel,
    event: &EventName,
    position: Option<Position>,
) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("messaging.system", "switchboard"),
        KeyValue::new("messaging.operation.type", operation),
        KeyValue::new("messaging.destination.name", channel.to_string()),
        KeyValue::new("switchboard.event", event.to_string()),
    ];
    attributes.extend(position.map(|position| KeyValue::new("messaging.message.id", position.to_string())));
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_told_once_and_forgotten_in_time() {
        let mut recent = Recent::default();
        let trace = |n: usize| TraceId::from_bytes((n as u128 + 1).to_be_bytes());
        assert!(recent.is_new(trace(0)) && !recent.is_new(trace(0)));
        for n in 1..=REMEMBERED {
            assert!(recent.is_new(trace(n)));
        }
        assert!(
            recent.is_new(trace(0)) && recent.known.len() == REMEMBERED && recent.order.len() == REMEMBERED
        );
    }
}
