//! What can be seen of a running process: metrics, logs and traces, all projections of signals.

pub(crate) mod logs;
pub(crate) mod metrics;
mod process;
pub(crate) mod traces;

use std::sync::Arc;

use ambit_core::signal::{Signal, SignalSink, Subject};

use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::Traces;

/// The sink behind everything: each signal becomes metrics, spans where they go anywhere, and, where a person wants to
/// know, one log line.
pub(crate) struct Telemetry {
    metrics: Arc<Metrics>,
    traces: Traces,
}

impl Telemetry {
    pub(crate) fn new(metrics: Arc<Metrics>, traces: Traces) -> Self {
        Self { metrics, traces }
    }
}

impl SignalSink for Telemetry {
    fn emit(&self, subject: Subject, signal: &Signal) {
        self.metrics.count(signal);
        self.traces.project(subject, signal);
        logs::write(subject, signal);
    }
}
