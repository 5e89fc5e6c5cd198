//! What can be seen of a running process: metrics and logs, both projections of signals.

pub(crate) mod logs;
pub(crate) mod metrics;

use std::sync::Arc;

use ambit_core::signal::{Signal, SignalSink, Subject};

use crate::telemetry::metrics::Metrics;

/// The sink behind everything: each signal becomes metrics and, where a person wants to know, one log line.
pub(crate) struct Telemetry {
    metrics: Arc<Metrics>,
}

impl Telemetry {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics }
    }
}

impl SignalSink for Telemetry {
    fn emit(&self, subject: Subject, signal: &Signal) {
        self.metrics.count(signal);
        logs::write(subject, signal);
    }
}
