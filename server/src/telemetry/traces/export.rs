//! The way out: the SDK's batch processor and the OTLP exporter, with what they drop counted.
//!
//! The processor has a thread of its own, which the exporter blocks; nobody else ever waits for it. What would not fit
//! its queue is dropped here, and counted: it drops without saying so. The queue is counted from outside, a little too
//! high at times and never too low.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ambit_config::{OtlpProtocol, TraceExport, TraceSampler};
use ambit_core::trace::{TraceId, TraceParent};
use opentelemetry::trace::{
    SpanContext, SpanId as OtelSpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId as OtelTraceId, TraceState,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{ExporterBuildError, Protocol, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SamplingDecision, ShouldSample, SpanData, SpanExporter, SpanProcessor as _,
};
use prometheus::IntCounter;
use tracing::{info, warn};

/// Longest time that what waits is sent for once the process ends.
const CLOSE: Duration = Duration::from_secs(5);

/// What became of spans.
#[derive(Debug, Clone)]
pub(crate) struct SpanCounters {
    /// The collector took them.
    pub(crate) exported: IntCounter,
    /// There was no room.
    pub(crate) queue_full: IntCounter,
    /// The collector did not take them.
    pub(crate) export_failed: IntCounter,
}

/// Why spans cannot be sent as configured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// The exporter refuses its settings.
    #[error("the exporter of traces cannot be built")]
    Exporter(#[source] ExporterBuildError),
    /// The runtime is going down.
    #[error("the exporter of traces was not built in time")]
    Interrupted,
}

/// Takes spans that are over.
#[derive(Debug)]
pub(super) struct Exporter {
    processor: Arc<BatchSpanProcessor>,
    sampler: Sampler,
    scope: InstrumentationScope,
    /// Spans handed to the processor that its exporter has not been given yet.
    waiting: Arc<AtomicUsize>,
    queue: usize,
    counters: SpanCounters,
}

impl Exporter {
    pub(super) async fn start(export: TraceExport, counters: SpanCounters) -> Result<Self, TraceError> {
        // Reads the system's authorities, and waits for a thread in which the blocking client is made.
        let building = tokio::task::spawn_blocking(move || {
            let exporter = otlp(&export).map_err(TraceError::Exporter)?;
            Ok(Self::over(exporter, &export, counters))
        });
        building.await.unwrap_or(Err(TraceError::Interrupted))
    }

    /// The same over any exporter.
    pub(super) fn over(exporter: impl SpanExporter + 'static, export: &TraceExport, counters: SpanCounters) -> Self {
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = Counted { next: exporter, waiting: waiting.clone(), counters: counters.clone(), failing: AtomicBool::new(false) };
        let batch = BatchConfigBuilder::default()
            .with_max_queue_size(export.queue)
            .with_max_export_batch_size(export.batch)
            .with_scheduled_delay(export.delay)
            .build();
        let mut processor = BatchSpanProcessor::builder(counted).with_batch_config(batch).build();
        let version = env!("CARGO_PKG_VERSION");
        let attributes = export.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let resource = Resource::builder_empty()
            .with_attributes([KeyValue::new("service.version", version), KeyValue::new("telemetry.sdk.language", "rust")])
            .with_attributes([KeyValue::new("telemetry.sdk.name", "opentelemetry")])
            .with_attributes(attributes)
            .build();
        processor.set_resource(&resource);
        Self {
            processor: Arc::new(processor),
            sampler: sampler(export.sampler),
            scope: InstrumentationScope::builder("ambit").with_version(version).build(),
            waiting,
            queue: export.queue,
            counters,
        }
    }

    /// Who makes the spans.
    pub(super) fn scope(&self) -> InstrumentationScope {
        self.scope.clone()
    }

    /// Whether a trace is recorded, given what its caller decided.
    pub(super) fn samples(&self, id: TraceId, caller: Option<TraceParent>) -> bool {
        let parent = caller.map(|caller| {
            let flags = if caller.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
            let span = OtelSpanId::from_bytes(caller.span.bytes());
            let context = SpanContext::new(OtelTraceId::from_bytes(id.bytes()), span, flags, true, TraceState::default());
            Context::new().with_remote_span_context(context)
        });
        let id = OtelTraceId::from_bytes(id.bytes());
        let result = self.sampler.should_sample(parent.as_ref(), id, "", &SpanKind::Server, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }

    /// Takes one span, if there is room.
    pub(super) fn take(&self, span: SpanData) {
        let counted = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < self.queue).then_some(n + 1));
        if counted.is_ok() {
            self.processor.on_end(span);
        } else {
            self.counters.queue_full.inc();
        }
    }

    /// Sends what waits, for at most [`CLOSE`], and ends.
    pub(super) async fn close(&self) {
        let processor = self.processor.clone();
        let closed = tokio::task::spawn_blocking(move || processor.shutdown_with_timeout(CLOSE)).await;
        let left = self.waiting.load(Ordering::Acquire);
        if !matches!(closed, Ok(Ok(()))) && left > 0 {
            warn!(spans = left, "the process ends before its last spans were exported");
        }
    }
}

fn otlp(export: &TraceExport) -> Result<opentelemetry_otlp::SpanExporter, ExporterBuildError> {
    let builder = opentelemetry_otlp::SpanExporter::builder();
    match export.protocol {
        OtlpProtocol::Http => {
            let builder = builder.with_http().with_protocol(Protocol::HttpBinary);
            builder.with_endpoint(&export.endpoint).with_timeout(export.timeout).build()
        }
        OtlpProtocol::Grpc => {
            let builder = builder.with_tonic().with_endpoint(&export.endpoint).with_timeout(export.timeout);
            if export.endpoint.starts_with("https://") {
                return builder.with_tls_config(ClientTlsConfig::new().with_enabled_roots()).build();
            }
            builder.build()
        }
    }
}

fn sampler(TraceSampler { parent_based, ratio }: TraceSampler) -> Sampler {
    let root = if ratio >= 1.0 {
        Sampler::AlwaysOn
    } else if ratio <= 0.0 {
        Sampler::AlwaysOff
    } else {
        Sampler::TraceIdRatioBased(ratio)
    };
    if parent_based { Sampler::ParentBased(Box::new(root)) } else { root }
}

/// Counts what an exporter is given, and what it could not get rid of.
#[derive(Debug)]
struct Counted<E> {
    next: E,
    waiting: Arc<AtomicUsize>,
    counters: SpanCounters,
    /// True from an export that failed to one that did not: each change is told once.
    failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        self.waiting.fetch_sub(spans, Ordering::AcqRel);
        let result = self.next.export(batch).await;
        let count = u64::try_from(spans).unwrap_or(u64::MAX);
        match &result {
            Ok(()) => {
                self.counters.exported.inc_by(count);
                if self.failing.swap(false, Ordering::AcqRel) {
                    info!("spans are exported again");
                }
            }
            Err(failed) => {
                self.counters.export_failed.inc_by(count);
                if !self.failing.swap(true, Ordering::AcqRel) {
                    warn!(error = %failed, "spans cannot be exported; they are dropped until they can");
                }
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.next.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.next.set_resource(resource);
    }
}
