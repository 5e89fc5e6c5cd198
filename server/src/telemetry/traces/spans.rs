//! The projection: which signal makes which span, with what it says about itself. The one place that names attributes.
//!
//! ```text
//! POST /v1/sessions            SERVER     one HTTP request (`server_span.rs`)
//! └ invoke_agent AGENT         INTERNAL   one session
//!   ├ ambit.model_call CHAIN   INTERNAL   one logical call
//!   │ └ chat MODEL             CLIENT     one request to a provider
//!   └ execute_tool TOOL        INTERNAL   one tool call; what an MCP server is asked is folded in
//!     └ METHOD                 CLIENT     one request of an HTTP tool
//! ```
//!
//! Names and attributes are those of OpenTelemetry's conventions for HTTP and for generative AI where there are any, and
//! begin with `ambit.` where there are none. `error.type` is one of our codes. No attribute holds content.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ambit_core::signal::{Address, DependencyKind, Peer, Signal, Subject};
use ambit_core::trace::{SpanId, Trace};
use ambit_core::{Axis, Money, SessionId, Status, Step, ToolCode};
use opentelemetry::trace::{Event, SpanContext, SpanId as OtelSpanId, SpanKind, TraceFlags, TraceId, TraceState};
use opentelemetry::{Key, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::telemetry::traces::events::{Of, Waiting};
use crate::telemetry::traces::export::Exporter;
use crate::telemetry::traces::now;

/// Makes spans and hands them to the exporter.
#[derive(Debug)]
pub(super) struct Spans {
    exporter: Exporter,
    waiting: Waiting,
}

/// A span that is over.
pub(super) struct Made {
    pub(super) trace: Trace,
    pub(super) own: SpanId,
    pub(super) above: Option<SpanId>,
    pub(super) above_is_remote: bool,
    pub(super) kind: SpanKind,
    pub(super) name: Cow<'static, str>,
    pub(super) began: SystemTime,
    pub(super) attributes: Vec<KeyValue>,
    pub(super) events: SpanEvents,
    /// `error.type`.
    pub(super) error: Option<Cow<'static, str>>,
}

impl Made {
    /// A span of this trace without anything in it.
    pub(super) fn of(trace: Trace) -> Self {
        Self {
            trace,
            own: SpanId::LAST,
            above: None,
            above_is_remote: false,
            kind: SpanKind::Internal,
            name: Cow::Borrowed(""),
            began: UNIX_EPOCH,
            attributes: Vec::new(),
            events: SpanEvents::default(),
            error: None,
        }
    }
}

impl Spans {
    pub(super) fn new(exporter: Exporter) -> Self {
        Self { exporter, waiting: Waiting::default() }
    }

    pub(super) fn exporter(&self) -> &Exporter {
        &self.exporter
    }

    /// For how many spans events wait.
    #[cfg(test)]
    pub(super) fn waiting_len(&self) -> usize {
        self.waiting.len()
    }

    /// Projects one signal about a session whose trace is recorded.
    pub(super) fn project(&self, trace: Trace, subject: Subject, signal: &Signal) {
        let Some(session) = subject.session else { return };
        let of = (session, subject.step);
        match signal {
            Signal::SessionEnded { began_ms, .. } => {
                let made = Made {
                    own: SpanId::of_session(session),
                    above: trace.parent,
                    began: UNIX_EPOCH + Duration::from_millis(*began_ms),
                    events: self.waiting.take((session, None)),
                    ..Made::of(trace)
                };
                self.end(session_ended(made, session, signal));
            }
            Signal::ModelCallFinished { duration, .. } => self.step(trace, of, *duration, |made| model_call(made, signal)),
            Signal::ToolCallFinished { duration, .. } => self.step(trace, of, *duration, |made| tool_call(made, signal)),
            Signal::AttemptFinished { kind, target, attempt, number, duration, peer, code, .. } => {
                let Some(step) = subject.step else { return };
                match (kind, &**peer) {
                    (DependencyKind::Model, _) | (DependencyKind::Tool, Peer::Http { .. } | Peer::Model { .. }) => {
                        let made = Made {
                            own: SpanId::of_attempt(session, step, target, *attempt, *number),
                            above: Some(SpanId::of_step(session, step)),
                            kind: SpanKind::Client,
                            began: before(*duration),
                            ..Made::of(trace)
                        };
                        self.end(attempt_finished(made, session, step, signal));
                    }
                    // Folded into the span of its step; a failure that was retried must show there.
                    (DependencyKind::Tool, Peer::Mcp { .. } | Peer::Local) if &**code != "ok" => {
                        self.event(of, "attempt_failed", vec![text("error.type", code.to_string()), int("ambit.attempt", *number)]);
                    }
                    (DependencyKind::Tool, Peer::Mcp { .. } | Peer::Local) => {}
                }
            }
            Signal::SessionResumed { .. } => self.event(of, "resumed", Vec::new()),
            Signal::LimitHit { axis, .. } => self.event(of, "limit_hit", vec![text("ambit.axis", axis.as_str())]),
            Signal::LoopDetected { tool } => self.event(of, "loop_detected", vec![text("gen_ai.tool.name", tool.to_string())]),
            Signal::Admitted { pool, waited, .. } if !waited.is_zero() => {
                self.event(of, "admitted", vec![text("ambit.pool", pool.to_string()), millis("ambit.waited_ms", *waited)]);
            }
            Signal::Saturated { pool, reason } => {
                self.event(of, "saturated", vec![text("ambit.pool", pool.to_string()), text("ambit.reason", *reason)]);
            }
            Signal::TimedOut { target, timer, .. } => {
                self.event(of, "timed_out", vec![text("ambit.target", target.to_string()), text("ambit.timer", timer.as_str())]);
            }
            Signal::RetryScheduled { target, delay, code, .. } => self.event(
                of,
                "retry_scheduled",
                vec![text("ambit.target", target.to_string()), millis("ambit.delay_ms", *delay), text("error.type", code.to_string())],
            ),
            Signal::RetryRefused { reason, .. } => self.event(of, "retry_refused", vec![text("ambit.reason", reason.as_str())]),
            Signal::Idempotency { outcome } => self.event((session, None), "idempotency", vec![text("ambit.outcome", outcome.as_str())]),
            Signal::Truncated { bytes, .. } => self.event(of, "truncated", vec![int("ambit.bytes", *bytes)]),
            Signal::SessionDegraded { capability, mode, reason, .. } => self.event(
                (session, None),
                "degraded",
                vec![text("ambit.capability", capability.to_string()), text("ambit.mode", *mode), text("ambit.reason", *reason)],
            ),
            // Told by the spans themselves, or of no session.
            Signal::SessionStarted { .. }
            | Signal::SessionSettled { .. }
            | Signal::Admitted { .. }
            | Signal::AttemptStarted { .. }
            | Signal::Retried { .. }
            | Signal::Degraded { .. } => {}
        }
    }

    /// The span of a step that is over.
    fn step(&self, trace: Trace, of: Of, duration: Duration, tell: impl FnOnce(Made) -> Made) {
        let (session, Some(step)) = of else { return };
        let mut made = Made {
            own: SpanId::of_step(session, step),
            above: Some(SpanId::of_session(session)),
            began: before(duration),
            events: self.waiting.take(of),
            ..Made::of(trace)
        };
        made.attributes = place(session, step);
        self.end(tell(made));
    }

    fn event(&self, of: Of, name: &'static str, attributes: Vec<KeyValue>) {
        self.waiting.put(of, Event::new(name, now(), attributes, 0));
    }

    /// Hands a span over; never waits.
    pub(super) fn end(&self, made: Made) {
        let Made { trace, own, above, above_is_remote, kind, name, began, mut attributes, events, error } = made;
        let status = match &error {
            Some(error) => opentelemetry::trace::Status::error(error.clone()),
            None => opentelemetry::trace::Status::Unset,
        };
        if let Some(error) = error {
            attributes.push(KeyValue::new("error.type", error));
        }
        let ended = now();
        let (id, span) = (TraceId::from_bytes(trace.id.bytes()), OtelSpanId::from_bytes(own.bytes()));
        self.exporter.take(SpanData {
            span_context: SpanContext::new(id, span, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: above.map_or(OtelSpanId::INVALID, |above| OtelSpanId::from_bytes(above.bytes())),
            parent_span_is_remote: above_is_remote && above.is_some(),
            span_kind: kind,
            name,
            // The wall clock may have been set back meanwhile.
            start_time: began.min(ended),
            end_time: ended,
            attributes,
            dropped_attributes_count: 0,
            events,
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.exporter.scope(),
        });
    }
}

fn session_ended(mut made: Made, session: SessionId, signal: &Signal) -> Made {
    let Signal::SessionEnded { agent, status, reason, overhead, input_tokens, output_tokens, axes, .. } = signal else { return made };
    made.name = format!("invoke_agent {agent}").into();
    made.attributes = vec![
        text("gen_ai.operation.name", "invoke_agent"),
        text("gen_ai.agent.name", agent.to_string()),
        text("gen_ai.conversation.id", session.to_string()),
        text("ambit.session.id", session.to_string()),
        text("ambit.status", status.as_str()),
        text("ambit.reason", reason.as_str()),
        millis("ambit.overhead_ms", *overhead),
        // Not `gen_ai.usage.*`: whoever adds those up over a trace would count them twice.
        int("ambit.spent.input_tokens", *input_tokens),
        int("ambit.spent.output_tokens", *output_tokens),
    ];
    for used in axes {
        let name = used.axis.as_str();
        let figure = |figure: u64| {
            let whole = || Value::I64(i64::try_from(figure).unwrap_or(i64::MAX));
            if used.axis == Axis::CostUsd { Value::F64(Money(figure).usd()) } else { whole() }
        };
        made.attributes.push(KeyValue::new(Key::new(format!("ambit.spent.{name}")), figure(used.used)));
        made.attributes.push(KeyValue::new(Key::new(format!("ambit.limit.{name}")), figure(used.limit)));
    }
    made.error = (*status == Status::Failed).then(|| reason.as_str().into());
    made
}

fn model_call(mut made: Made, signal: &Signal) -> Made {
    let Signal::ModelCallFinished { chain, target, outcome, input_tokens, output_tokens, cost_usd, .. } = signal else { return made };
    made.name = format!("ambit.model_call {chain}").into();
    made.attributes.extend([
        text("ambit.chain", chain.to_string()),
        text("ambit.target", target.to_string()),
        int("ambit.input_tokens", *input_tokens),
        int("ambit.output_tokens", *output_tokens),
        KeyValue::new("ambit.cost_usd", *cost_usd),
    ]);
    made.error = failed(outcome);
    made
}

fn tool_call(mut made: Made, signal: &Signal) -> Made {
    let Signal::ToolCallFinished { tool, effect, code, call_id, key, peer, .. } = signal else { return made };
    made.name = format!("execute_tool {tool}").into();
    made.attributes.extend([
        text("gen_ai.operation.name", "execute_tool"),
        text("gen_ai.tool.name", tool.to_string()),
        text("gen_ai.tool.type", "function"),
        text("ambit.effect", effect.as_str()),
    ]);
    made.attributes.extend(call_id.as_ref().map(|id| text("gen_ai.tool.call.id", id.to_string())));
    made.attributes.extend(key.map(|key| text("ambit.idempotency", format!("{key:016x}"))));
    if let Peer::Mcp { server, address } = &**peer {
        made.attributes.push(text("mcp.method.name", "tools/call"));
        made.attributes.push(text("ambit.mcp.server", server.to_string()));
        made.attributes.push(text("network.transport", if address.is_some() { "tcp" } else { "pipe" }));
        made.attributes.extend(address.iter().flat_map(whereabouts));
    }
    made.error = match code {
        Some(ToolCode::Ok) => None,
        Some(code) => Some(code.as_str().into()),
        None => Some("cancelled".into()),
    };
    made
}

fn attempt_finished(mut made: Made, session: SessionId, step: Step, signal: &Signal) -> Made {
    let Signal::AttemptFinished { target, attempt, number, code, first_token, peer, status, usage, .. } = signal else { return made };
    made.attributes = place(session, step);
    made.attributes.extend([
        text("ambit.target", target.to_string()),
        int("ambit.attempt", *number),
        text("ambit.attempt.kind", attempt.as_str()),
    ]);
    match &**peer {
        Peer::Model { provider, model, address } => {
            made.name = format!("chat {model}").into();
            made.attributes.extend([
                text("gen_ai.operation.name", "chat"),
                text("gen_ai.provider.name", *provider),
                text("gen_ai.request.model", model.to_string()),
            ]);
            made.attributes.extend(address.iter().flat_map(whereabouts));
            made.attributes.extend(first_token.map(|after| millis("ambit.first_token_ms", after)));
            if let Some((input, output)) = usage.filter(|_| &**code == "ok") {
                made.attributes.push(int("gen_ai.usage.input_tokens", input));
                made.attributes.push(int("gen_ai.usage.output_tokens", output));
            }
        }
        Peer::Http { method, path, address } => {
            made.name = method.to_string().into();
            made.attributes.extend([text("http.request.method", method.to_string()), text("url.template", path.to_string())]);
            made.attributes.extend(address.iter().flat_map(whereabouts));
            made.attributes.extend((*number > 1).then(|| int("http.request.resend_count", *number - 1)));
        }
        Peer::Mcp { .. } | Peer::Local => made.name = target.to_string().into(),
    }
    made.attributes.extend(status.map(|status| int("http.response.status_code", status)));
    made.error = failed(code);
    made
}

fn place(session: SessionId, step: Step) -> Vec<KeyValue> {
    vec![text("ambit.session.id", session.to_string()), int("ambit.step", step.0)]
}

fn whereabouts(address: &Address) -> impl Iterator<Item = KeyValue> {
    let port = address.port.map(|port| int("server.port", port));
    std::iter::once(text("server.address", address.host.to_string())).chain(port)
}

fn failed(code: &str) -> Option<Cow<'static, str>> {
    (code != "ok").then(|| code.to_owned().into())
}

fn text(key: &'static str, value: impl Into<opentelemetry::StringValue>) -> KeyValue {
    KeyValue::new(key, value.into())
}

fn int(key: &'static str, value: impl TryInto<i64>) -> KeyValue {
    KeyValue::new(key, value.try_into().unwrap_or(i64::MAX))
}

/// Milliseconds, to the microsecond.
fn millis(key: &'static str, value: Duration) -> KeyValue {
    KeyValue::new(key, (value.as_secs_f64() * 1_000_000.0).round() / 1_000.0)
}

fn before(duration: Duration) -> SystemTime {
    now().checked_sub(duration).unwrap_or(UNIX_EPOCH)
}
