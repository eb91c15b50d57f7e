//! An exporter that says once that its collector takes nothing, and once that it does again, however many batches it was offered meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tracing::{info, warn};

#[derive(Debug)]
pub(super) struct Reporting<E> {
    exporter: E,
    is_failing: AtomicBool,
}

impl<E> Reporting<E> {
    pub(super) fn new(exporter: E) -> Self {
        Self { exporter, is_failing: AtomicBool::new(false) }
    }
}

impl<E: SpanExporter> SpanExporter for Reporting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exported = self.exporter.export(batch).await;
        let was_failing = self.is_failing.swap(exported.is_err(), Ordering::Relaxed);
        match &exported {
            Err(error) if !was_failing => {
                warn!(%error, "the collector takes no traces; they are lost meanwhile");
            }
            Ok(()) if was_failing => info!("the collector takes traces again"),
            _ => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
