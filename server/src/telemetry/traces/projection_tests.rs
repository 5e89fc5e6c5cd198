//! The projection and the way out, without a network.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ambit_config::{OtlpProtocol, TraceExport, TraceSampler};
use ambit_core::signal::{AxisUse, DependencyKind, Peer, RetryRefusal, Signal, Subject};
use ambit_core::trace::{SpanId, Trace, TraceId};
use ambit_core::{AttemptKind, Axis, Effect, Reason, SessionId, Status, Step, ToolCode};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::export::{Exporter, SpanCounters};
use crate::telemetry::traces::spans::Spans;

fn export(queue: usize, batch: usize) -> TraceExport {
    TraceExport {
        protocol: OtlpProtocol::Http,
        endpoint: String::new(),
        timeout: Duration::from_secs(1),
        sampler: TraceSampler { parent_based: true, ratio: 1.0 },
        resource: BTreeMap::new(),
        queue,
        batch,
        delay: Duration::from_secs(600),
    }
}

fn counters() -> SpanCounters {
    Metrics::new("0", "r").unwrap().spans
}

/// Keeps what it is given.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Kept {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

/// Blocks its thread until it is let go, as an exporter does whose collector is silent; then fails.
#[derive(Debug)]
struct Stuck {
    entered: SyncSender<usize>,
    go: Mutex<Receiver<()>>,
}

impl SpanExporter for Stuck {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let _ = self.entered.send(batch.len());
        let _ = self.go.lock().unwrap().recv();
        Err(OTelSdkError::InternalFailure("no collector".into()))
    }
}

fn session() -> SessionId {
    "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse().unwrap()
}

fn subject(step: Option<u32>) -> Subject {
    let trace = Trace { id: TraceId::LAST, parent: None, sampled: true, recorded: true };
    Subject { session: Some(session()), step: step.map(Step), trace: Some(trace) }
}

fn ended() -> Signal {
    Signal::SessionEnded {
        agent: "ops".into(),
        status: Status::Failed,
        reason: Reason::Internal,
        duration: Duration::from_secs(1),
        overhead: Duration::ZERO,
        overrun: Duration::ZERO,
        began_ms: 1_000,
        model_calls: 1,
        tool_calls: 0,
        input_tokens: 3,
        output_tokens: 4,
        axes: vec![AxisUse { axis: Axis::CostUsd, used: 500_000_000, limit: 1_000_000_000 }],
    }
}

fn attempt(peer: Peer, code: &str, usage: Option<(u64, u64)>) -> Signal {
    let kind = if matches!(peer, Peer::Model { .. }) { DependencyKind::Model } else { DependencyKind::Tool };
    Signal::AttemptFinished {
        kind,
        target: "it".into(),
        attempt: AttemptKind::First,
        code: code.into(),
        duration: Duration::from_millis(5),
        first_token: None,
        number: 1,
        peer: Arc::new(peer),
        status: None,
        usage,
    }
}

fn tool(code: Option<ToolCode>, peer: Peer) -> Signal {
    Signal::ToolCallFinished {
        tool: "level".into(),
        effect: Effect::Read,
        code,
        duration: Duration::from_millis(9),
        call_id: Some("c1".into()),
        key: None,
        peer: Arc::new(peer),
    }
}

/// Projects these and returns the spans.
async fn project(signals: &[(Subject, Signal)]) -> Vec<SpanData> {
    let kept = Kept::default();
    let spans = Spans::new(Exporter::over(kept.clone(), &export(64, 64), counters()));
    for (subject, signal) in signals {
        spans.project(subject.trace.unwrap(), *subject, signal);
    }
    spans.exporter().close().await;
    assert_eq!(spans.waiting_len(), 0, "no event is left behind");
    let kept = kept.0.lock().unwrap();
    kept.clone()
}

fn said(span: &SpanData, key: &str) -> Option<String> {
    span.attributes.iter().find(|attribute| attribute.key.as_str() == key).map(|attribute| attribute.value.to_string())
}

#[tokio::test]
async fn what_an_mcp_server_is_asked_is_folded_into_its_call() {
    let peer = || Peer::Mcp { server: "depot".into(), address: None };
    let spans = project(&[
        (subject(Some(2)), attempt(peer(), "reset", None)),
        (subject(Some(2)), attempt(peer(), "ok", None)),
        (subject(Some(2)), Signal::Truncated { tool: "level".into(), bytes: 9 }),
        (subject(Some(2)), tool(Some(ToolCode::Ok), peer())),
    ])
    .await;
    let [call] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!(call.name, "execute_tool level");
    assert_eq!(call.span_context.span_id().to_bytes(), SpanId::of_step(session(), Step(2)).bytes());
    assert_eq!(call.parent_span_id.to_bytes(), SpanId::of_session(session()).bytes());
    assert_eq!(call.events.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["attempt_failed", "truncated"]);
    assert_eq!(said(call, "network.transport").as_deref(), Some("pipe"));
    assert_eq!(said(call, "ambit.mcp.server").as_deref(), Some("depot"));
    assert_eq!(said(call, "error.type"), None, "what was retried with success stays on its attempt");
}

#[tokio::test]
async fn what_was_dropped_is_a_span_all_the_same() {
    let spans = project(&[(subject(Some(2)), tool(None, Peer::Local))]).await;
    assert_eq!(said(&spans[0], "error.type").as_deref(), Some("cancelled"));
}

#[tokio::test]
async fn only_the_attempt_that_won_says_what_it_used() {
    let peer = || Peer::Model { provider: "openai", model: "m".into(), address: None };
    let spans = project(&[
        (subject(Some(1)), attempt(peer(), "stream_broken", Some((3, 4)))),
        (subject(Some(1)), attempt(peer(), "ok", Some((3, 4)))),
    ])
    .await;
    let used: Vec<_> = spans.iter().map(|span| said(span, "gen_ai.usage.output_tokens")).collect();
    assert_eq!(used, [None, Some("4".into())]);
}

#[tokio::test]
async fn the_span_of_a_session_has_its_events_and_its_own_beginning() {
    let spans = project(&[
        (subject(None), Signal::LimitHit { agent: "ops".into(), axis: Axis::Deadline }),
        (subject(None), Signal::SessionResumed { agent: "ops".into() }),
        (subject(None), ended()),
    ])
    .await;
    let [whole] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!(whole.events.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["limit_hit", "resumed"]);
    assert_eq!(whole.start_time, std::time::UNIX_EPOCH + Duration::from_secs(1));
    assert_eq!((said(whole, "error.type").as_deref(), said(whole, "ambit.spent.cost_usd").as_deref()), (Some("internal"), Some("0.5")));
}

#[tokio::test]
async fn a_stuck_exporter_costs_spans_and_no_time() {
    let (entered, inside) = sync_channel(8);
    let (go, gate) = sync_channel::<()>(8);
    let counters = counters();
    let exporter = Exporter::over(Stuck { entered, go: Mutex::new(gate) }, &export(4, 2), counters.clone());
    let spans = Spans::new(exporter);
    let put = |count: u32| (0..count).for_each(|_| spans.project(subject(None).trace.unwrap(), subject(Some(1)), &tool(None, Peer::Local)));
    // A batch is full: the exporter takes it, and sticks.
    put(2);
    assert_eq!(inside.recv_timeout(Duration::from_secs(30)), Ok(2));
    // What fits waits, one past it is dropped, and so is all that follows.
    put(4);
    assert_eq!(counters.queue_full.get(), 0);
    put(1);
    assert_eq!(counters.queue_full.get(), 1);
    put(99);
    assert_eq!((counters.queue_full.get(), counters.export_failed.get()), (100, 0));
    drop(go);
    spans.exporter().close().await;
    assert_eq!((counters.export_failed.get(), counters.exported.get()), (6, 0), "each span is told exactly once");
}

#[tokio::test]
async fn events_of_a_step_wait_for_their_step_alone() {
    let refused = || Signal::RetryRefused { dependency: "level".into(), reason: RetryRefusal::NoTime };
    let spans = project(&[
        (subject(Some(2)), refused()),
        (subject(Some(3)), tool(Some(ToolCode::Ok), Peer::Local)),
        (subject(Some(2)), tool(Some(ToolCode::ToolError), Peer::Local)),
    ])
    .await;
    assert_eq!((spans[0].events.len(), spans[1].events.len()), (0, 1));
}
