//! Logs: JSON lines on stderr, with ids and codes, never with content.

use std::fmt;
use std::sync::Arc;

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
    let ms = |duration: &std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let code = |code: &Arc<str>| -> Arc<str> { code.clone() };
    match signal {
        Signal::SessionStarted { agent } => debug!(%session, %agent, "session started"),
        Signal::SessionResumed { agent } => info!(%session, %agent, "session taken up"),
        Signal::SessionEnded { agent, status, reason, duration, model_calls, tool_calls, .. } => {
            info!(%session, %agent, %status, %reason, duration_ms = ms(duration), model_calls, tool_calls, "session ended");
        }
        Signal::SessionSettled { agent, settlement } => debug!(%session, %agent, %settlement, "session closed"),
        Signal::LimitHit { agent, axis } => info!(%session, %agent, %axis, "limit reached"),
        Signal::LoopDetected { tool } => info!(%session, %tool, "loop refused"),
        Signal::Admitted { pool, waited, .. } => debug!(%session, %step, %pool, waited_ms = ms(waited), "admitted"),
        Signal::Saturated { pool, reason } => info!(%session, %step, %pool, reason, "saturated"),
        Signal::AttemptStarted { target, attempt, .. } => debug!(%session, %step, %target, attempt = attempt.as_str(), "attempt"),
        Signal::AttemptFinished { target, attempt, code: outcome, duration, .. } => {
            debug!(%session, %step, %target, attempt = attempt.as_str(), code = %code(outcome), duration_ms = ms(duration), "attempt ended");
        }
        Signal::TimedOut { target, timer, .. } => info!(%session, %step, %target, timer = timer.as_str(), "timed out"),
        Signal::RetryScheduled { target, delay, code: outcome, .. } => {
            info!(%session, %step, %target, delay_ms = ms(delay), code = %code(outcome), "retrying");
        }
        Signal::Retried { target, recovered, .. } => debug!(%session, %step, %target, recovered, "retried"),
        Signal::RetryRefused { dependency, reason } => debug!(%session, %step, %dependency, reason = reason.as_str(), "not retried"),
        Signal::ModelCallFinished { target, outcome, duration, .. } => {
            debug!(%session, %step, %target, outcome = %code(outcome), duration_ms = ms(duration), "model call ended");
        }
        Signal::ToolCallFinished { tool, code: outcome, duration, .. } => {
            debug!(%session, %step, %tool, code = outcome.as_str(), duration_ms = ms(duration), "tool call ended");
        }
        Signal::Idempotency { outcome } => debug!(%session, outcome = outcome.as_str(), "idempotency key"),
        Signal::Truncated { tool, bytes } => debug!(%session, %step, %tool, bytes, "output cut"),
        Signal::SessionDegraded { agent, capability, mode, reason } => {
            info!(%session, %step, %agent, %capability, mode, reason, "degraded")
        }
        Signal::Degraded { capability, mode, reason } => warn!(%capability, mode, reason, "degraded"),
    }
}
