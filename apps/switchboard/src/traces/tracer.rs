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
use switchboard_core::ports::{DurableBus, DurableError};
use switchboard_core::types::{Channel, DurableEvent, EventName, Position};

use super::bus::Traced;
use super::exporter::Reporting;
use super::names;
use super::sampler::Sampler;
use crate::config::{ServeConfig, TraceConfig};

/// Events whose publishing and delivery are remembered, so that each is told once.
const REMEMBERED: usize = 4096;

/// The traces of a node, if they are switched on.
pub(crate) struct Traces(Option<Arc<Tracer>>);

impl Traces {
    /// An exporter that cannot be set up is an error; a collector that is not there is none.
    pub(crate) fn start(config: &ServeConfig) -> anyhow::Result<Self> {
        let Some(TraceConfig { ratio }) = config.traces else { return Ok(Self(None)) };
        let node_id = config.cluster.node_id.to_string();
        let exporter = SpanExporter::builder()
            .with_http()
            .build()
            .context("cannot export traces (OTEL_EXPORTER_OTLP_…)")?;
        let mut resource = Resource::builder().with_attribute(KeyValue::new("service.instance.id", node_id));
        if std::env::var_os("OTEL_SERVICE_NAME").is_none_or(|name| name.is_empty()) {
            resource = resource.with_service_name("switchboard");
        }
        let mut queue = BatchSpanProcessor::builder(Reporting::new(exporter)).build();
        queue.set_resource(&resource.build());
        tracing::info!("sending traces");
        let sampler = Sampler::new(ratio);
        let (published, delivered) = Default::default();
        Ok(Self(Some(Arc::new(Tracer { queue, sampler, published, delivered }))))
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
    published: Mutex<Recent>,
    delivered: Mutex<Recent>,
}

/// The last events that were published, or delivered.
#[derive(Default)]
struct Recent {
    known: HashSet<TraceId>,
    order: VecDeque<TraceId>,
}

impl Tracer {
    /// An event was published, or not; it began at `began`. One that could not be has no position, so its trace has a name of its own.
    pub(super) fn published(
        &self,
        channel: &Channel,
        event: &EventName,
        began: SystemTime,
        outcome: &Result<Position, DurableError>,
    ) {
        let position = outcome.as_ref().ok().copied();
        let (trace, span) = position.map_or_else(
            || (TraceId::from_bytes(rand::random()), SpanId::from_bytes(rand::random())),
            |position| names::of_event(channel, position),
        );
        // The same key gives the same position.
        if !self.sampler.keeps(trace) || !self.published.lock().is_new(trace) {
            return;
        }
        let status = outcome.as_ref().err().map_or(Status::Unset, |error| Status::error(error.to_string()));
        let attributes = attributes("publish", channel, event, position);
        self.record("publish", SpanKind::Producer, (trace, span, SpanId::INVALID), began, attributes, status);
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
    fn an_event_is_told_once_and_forgotten_in_time() {
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
