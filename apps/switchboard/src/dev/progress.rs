//! Shows what is going on while a cluster starts: a spinner on a terminal, one line a step elsewhere.
//!
//! Steps are tracing spans, so that the progress bar of a download, which is one too, appears below its step.

use std::io::{IsTerminal, stderr};

use tracing::{Instrument, Span, info_span};
use tracing_indicatif::span_ext::IndicatifSpanExt;
use tracing_indicatif::style::ProgressStyle;

use crate::output;

/// One step that takes a while.
pub(crate) struct Progress(Span);

impl Progress {
    /// Announces a step.
    pub(crate) fn step(text: &str) -> Self {
        if !stderr().is_terminal() {
            output::note(text);
        }
        let span = info_span!("step");
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            span.pb_set_style(&style);
        }
        span.pb_set_message(text);
        Self(span)
    }

    /// Says how far it is.
    pub(crate) fn update(&self, text: &str) {
        self.0.pb_set_message(text);
    }

    /// Says why it takes so long, also where no terminal shows how far it is.
    pub(crate) fn explain(&self, text: &str) {
        self.update(text);
        if !stderr().is_terminal() {
            output::note(text);
        }
    }

    /// Runs the step; the spinner goes with it.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        work.instrument(self.0.clone()).await
    }
}
