//! Logs: JSON lines on stderr, with ids and codes, never with content.

use std::fmt;
use std::sync::Arc;

use ambit_core::ToolCode;
use ambit_core::signal::{Signal, Subject};
use tracing::{debug, info, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Sets the process's one subscriber up. A filter that cannot be read was refused when the configuration was loaded.
pub(crate) fn init(level: &str, json: bool) {
    // What other libraries log may hold bodies; only their warnings are let through.
    let filter = EnvFilter::try_new(format!("warn,rmcp=off,ambit={level},ambit_orchestrator={level},ambit_store={level},ambit_model_gateway={level},ambit_tool_executor={level},ambit_resilience={level},ambit_config={level}"))
        .unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_span_events(FmtSpan::NONE);
    // A second call (tests start several servers in one process) keeps the first subscriber.
    let _ = if json {
        builder.json().flatten_event(true).with_current_span(false).with_span_list(false).try_init()
    } else {
        builder.with_ansi(false).with_target(false).try_init()
    };
}

/// A subject as log fields: empty where there is none.
struct Named<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |value| value.fmt(f))
    }
}

/// One line for what a person wants to know; the rest at DEBUG.
pub(crate) fn write(subject: Subject, signal: &Signal) {
    let (session, step) = (Named(subject.session), Named(subject.step));
    let trace_id = Named(subject.trace.map(|trace| trace.id));
    let ms = |duration: &std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let code = |code: &Arc<str>| -> Arc<str> { code.clone() };
    match signal {
        Signal::SessionStarted { agent } => debug!(%session, %trace_id, %agent, "session started"),
        Signal::SessionResumed { agent } => info!(%session, %trace_id, %agent, "session taken up"),
        Signal::SessionEnded { agent, status, reason, duration, model_calls, tool_calls, .. } => {
            info!(%session, %trace_id, %agent, %status, %reason, duration_ms = ms(duration), model_calls, tool_calls, "session ended");
        }
        Signal::SessionSettled { agent, settlement } => debug!(%session, %trace_id, %agent, %settlement, "session closed"),
        Signal::LimitHit { agent, axis } => info!(%session, %trace_id, %agent, %axis, "limit reached"),
        Signal::LoopDetected { tool } => info!(%session, %trace_id, %tool, "loop refused"),
        Signal::Admitted { pool, waited, .. } => debug!(%session, %step, %trace_id, %pool, waited_ms = ms(waited), "admitted"),
        Signal::Saturated { pool, reason } => info!(%session, %step, %trace_id, %pool, reason, "saturated"),
        Signal::AttemptStarted { target, attempt, .. } => {
            debug!(%session, %step, %trace_id, %target, attempt = attempt.as_str(), "attempt")
        }
        Signal::AttemptFinished { target, attempt, code: outcome, duration, .. } => {
            debug!(%session, %step, %trace_id, %target, attempt = attempt.as_str(), code = %code(outcome), duration_ms = ms(duration), "attempt ended");
        }
        Signal::TimedOut { target, timer, .. } => info!(%session, %step, %trace_id, %target, timer = timer.as_str(), "timed out"),
        Signal::RetryScheduled { target, delay, code: outcome, .. } => {
            info!(%session, %step, %trace_id, %target, delay_ms = ms(delay), code = %code(outcome), "retrying");
        }
        Signal::Retried { target, recovered, .. } => debug!(%session, %step, %trace_id, %target, recovered, "retried"),
        Signal::RetryRefused { dependency, reason } => {
            debug!(%session, %step, %trace_id, %dependency, reason = reason.as_str(), "not retried")
        }
        Signal::ModelCallFinished { target, outcome, duration, .. } => {
            debug!(%session, %step, %trace_id, %target, outcome = %code(outcome), duration_ms = ms(duration), "model call ended");
        }
        Signal::ToolCallFinished { tool, code: outcome, duration, .. } => {
            debug!(%session, %step, %trace_id, %tool, code = outcome.map_or("CANCELLED", ToolCode::as_str), duration_ms = ms(duration), "tool call ended");
        }
        Signal::Idempotency { outcome } => debug!(%session, %trace_id, outcome = outcome.as_str(), "idempotency key"),
        Signal::Truncated { tool, bytes } => debug!(%session, %step, %trace_id, %tool, bytes, "output cut"),
        Signal::SessionDegraded { agent, capability, mode, reason } => {
            info!(%session, %step, %trace_id, %agent, %capability, mode, reason, "degraded")
        }
        Signal::Degraded { capability, mode, reason } => warn!(%capability, mode, reason, "degraded"),
    }
}
