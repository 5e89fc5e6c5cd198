//! Traces: spans are one more projection of the signals, sent by OTLP to where the standard variables say.
//!
//! Ids are computed from what a span is about (`ambit_core::trace`), and a span is made when what it tells is over, from
//! the duration that its signal carries. Nothing has to be remembered in between but the events that it will show.
//! **Invariant:** nobody who emits a signal waits, whatever the collector does; without an endpoint nothing is built at all.

mod events;
mod export;
#[cfg(test)]
mod projection_tests;
mod server_span;
mod spans;

use std::sync::Arc;
use std::time::SystemTime;

use ambit_config::TraceExport;
use ambit_core::signal::{Signal, Subject};
use ambit_core::trace::{SpanId, Trace, TraceContext, TraceId, TraceParent, trace_state};
use axum::http::HeaderMap;
use rand::RngExt;

pub(crate) use export::{SpanCounters, TraceError};
pub(crate) use server_span::ServerSpan;

use crate::telemetry::metrics::Metrics;
use crate::telemetry::traces::export::Exporter;
use crate::telemetry::traces::spans::Spans;

/// Most headers `tracestate` that are read; a caller that splits it further is not followed.
const TRACESTATE_HEADERS_MAX: usize = 16;

/// The process's spans, if they go anywhere. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Traces(Option<Arc<Spans>>);

/// A request's place in a trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Where sessions that it starts hang.
    pub(crate) trace: Trace,
    /// The caller's span, if there is one.
    caller: Option<SpanId>,
}

impl Traces {
    /// Gets ready to send spans, or to do nothing.
    ///
    /// # Errors
    /// If the exporter cannot be built as configured.
    pub(crate) async fn start(export: Option<&TraceExport>, metrics: &Metrics) -> Result<Self, TraceError> {
        let Some(export) = export.cloned() else { return Ok(Self(None)) };
        let exporter = Exporter::start(export, metrics.spans.clone()).await?;
        Ok(Self(Some(Arc::new(Spans::new(exporter)))))
    }

    /// Where a request that begins now stands: in the trace of its caller, or in one of its own.
    pub(crate) fn arrive(&self, caller: Option<TraceParent>, dice: &mut impl RngExt) -> Place {
        let id = caller.map_or_else(|| TraceId::from_bytes(dice.random()).unwrap_or(TraceId::LAST), |caller| caller.trace);
        let above = caller.map(|caller| caller.span);
        let untold = Trace { id, parent: above, sampled: false, recorded: false };
        let trace = match &self.0 {
            // Nobody here has a say: what the caller decided is passed on.
            None => Trace { sampled: caller.is_some_and(|caller| caller.sampled), ..untold },
            Some(spans) if spans.exporter().samples(id, caller) => {
                let own = SpanId::from_bytes(dice.random()).unwrap_or(SpanId::LAST);
                Trace { id, parent: Some(own), sampled: true, recorded: true }
            }
            Some(_) => untold,
        };
        Place { trace, caller: above }
    }

    /// The place of a session that no request started.
    pub(crate) fn root(&self, dice: &mut impl RngExt) -> TraceContext {
        let Place { trace, .. } = self.arrive(None, dice);
        // There is no span above: the session's own is the first.
        TraceContext { trace: Trace { parent: None, ..trace }, state: None }
    }

    /// Begins the span of a request; it ends when it is dropped.
    pub(crate) fn serve(&self, place: Place, method: &str, route: &str) -> Option<ServerSpan> {
        let spans = self.0.as_ref().filter(|_| place.trace.recorded)?;
        Some(ServerSpan::begin(spans.clone(), place, method, route))
    }

    /// Projects one signal.
    pub(crate) fn project(&self, subject: Subject, signal: &Signal) {
        if let (Some(spans), Some(trace)) = (&self.0, subject.trace.filter(|trace| trace.recorded)) {
            spans.project(trace, subject, signal);
        }
    }

    /// Sends what waits, for a bounded time, and ends.
    pub(crate) async fn close(&self) {
        if let Some(spans) = &self.0 {
            spans.exporter().close().await;
        }
    }
}

impl Place {
    /// What a request's answer says: the span that others can hang theirs under, or look up.
    pub(crate) fn answered(&self, dice: &mut impl RngExt) -> TraceParent {
        let span = self.trace.parent.unwrap_or_else(|| SpanId::from_bytes(dice.random()).unwrap_or(SpanId::LAST));
        TraceParent { trace: self.trace.id, span, sampled: self.trace.sampled }
    }

    /// The place of a session that this request starts, with what other tracing systems pass along.
    pub(crate) fn context(&self, headers: &HeaderMap) -> TraceContext {
        // Without a caller there is nobody whose state it could be.
        TraceContext { trace: self.trace, state: self.caller.and_then(|_| state(headers)) }
    }
}

/// The caller's place in a trace. What is malformed, or said twice, was not said.
pub(crate) fn caller(headers: &HeaderMap) -> Option<TraceParent> {
    let mut said = headers.get_all("traceparent").iter();
    let parent = said.next()?.to_str().ok()?.parse().ok()?;
    said.next().is_none().then_some(parent)
}

fn state(headers: &HeaderMap) -> Option<Arc<str>> {
    let said: Option<Vec<&str>> =
        headers.get_all("tracestate").iter().take(TRACESTATE_HEADERS_MAX + 1).map(|state| state.to_str().ok()).collect();
    trace_state(&said.filter(|said| said.len() <= TRACESTATE_HEADERS_MAX)?.join(","))
}

/// Wall time, for spans alone.
#[expect(clippy::disallowed_methods, reason = "the one place of spans that reads the wall clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(said: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in said {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_caller_is_believed_once() {
        assert_eq!(caller(&headers(&[("traceparent", HEADER)])).map(|parent| parent.to_string()).as_deref(), Some(HEADER));
        assert_eq!(caller(&headers(&[])), None);
        assert_eq!(caller(&headers(&[("traceparent", "00-xyz")])), None);
        assert_eq!(caller(&headers(&[("traceparent", HEADER), ("traceparent", HEADER)])), None);
    }

    #[test]
    fn nobody_who_records_passes_the_callers_place_on() {
        let (traces, mut dice) = (Traces::default(), StdRng::seed_from_u64(1));
        let parent: TraceParent = HEADER.parse().unwrap();
        let place = traces.arrive(Some(parent), &mut dice);
        assert_eq!(place.answered(&mut dice), parent);
        assert_eq!(place.trace.outgoing(SpanId::LAST), parent);
        let own = traces.arrive(None, &mut dice);
        assert!(own.trace.parent.is_none() && !own.trace.sampled && own.trace.id != parent.trace);
        assert_ne!(traces.arrive(None, &mut dice).trace.id, own.trace.id);
    }

    #[test]
    fn the_state_of_others_comes_with_a_caller_alone() {
        let (traces, mut dice) = (Traces::default(), StdRng::seed_from_u64(1));
        let said = headers(&[("tracestate", "a=b"), ("tracestate", "c=d"), ("baggage", "user=ada")]);
        let with = traces.arrive(HEADER.parse().ok(), &mut dice);
        assert_eq!(with.context(&said).state.as_deref(), Some("a=b,c=d"));
        assert_eq!(with.context(&headers(&[("tracestate", "nothing")])).state, None);
        assert_eq!(traces.arrive(None, &mut dice).context(&said).state, None);
        let many = vec![("tracestate", "a=b"); TRACESTATE_HEADERS_MAX];
        assert!(with.context(&headers(&many)).state.is_some());
        assert!(with.context(&headers(&[&many[..], &[("tracestate", "a=b")]].concat())).state.is_none());
    }
}
