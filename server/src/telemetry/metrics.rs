//! Metrics: one projection of the signals, an exhaustive match, so that no signal goes uncounted.
//!
//! Labels come from configuration and fixed sets only, never from sessions, users, arguments or text.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ambit_core::signal::{DependencyKind, IdempotencyOutcome, RetryRefusal, Signal, Timer};
use ambit_core::{Axis, Settlement, Status, ToolCode};
use ambit_store::{OpKind, OpObserver, OpOutcome};
use prometheus::core::Collector;
use prometheus::{
    CounterVec, Encoder as _, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::telemetry::process::Process;
use crate::telemetry::traces::SpanCounters;

/// Seconds; the last ones straddle the deadline.
const DURATION: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 40.0, 45.0, 50.0, 60.0];
/// Seconds, for what should be next to nothing.
const SMALL: &[f64] = &[0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1];
/// Calls of one session.
const CALLS: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 16.0, 32.0, 64.0, 128.0, 256.0];
/// Shares of a limit.
const RATIOS: &[f64] = &[0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Everything that `/metrics` shows.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    build: IntGaugeVec,
    reloads: IntCounterVec,
    loaded: Gauge,
    sessions: IntCounterVec,
    settlements: IntCounterVec,
    session_duration: HistogramVec,
    in_flight: IntGaugeVec,
    overhead: HistogramVec,
    overrun: HistogramVec,
    session_model_calls: HistogramVec,
    session_tool_calls: HistogramVec,
    limit_hits: IntCounterVec,
    limit_remaining: HistogramVec,
    retries: IntCounterVec,
    retries_refused: IntCounterVec,
    saturated: IntCounterVec,
    bulkhead_wait: HistogramVec,
    timeouts: IntCounterVec,
    model_calls: IntCounterVec,
    model_attempts: IntCounterVec,
    model_duration: HistogramVec,
    first_token: HistogramVec,
    tokens: IntCounterVec,
    cost: CounterVec,
    amplification: GaugeVec,
    tool_calls: IntCounterVec,
    tool_duration: HistogramVec,
    tool_truncated: IntCounterVec,
    tool_unknown: IntCounterVec,
    degraded: IntCounterVec,
    idempotency: IntCounterVec,
    degraded_sessions: IntCounterVec,
    load_shed: IntCounterVec,
    http_requests: IntCounterVec,
    http_duration: HistogramVec,
    sse: IntGauge,
    store_op: HistogramVec,
    permits: IntGaugeVec,
    queue: IntGaugeVec,
    loops: IntCounterVec,
    resumed: IntCounterVec,
    pub(crate) spans: SpanCounters,
    process: Process,
    /// Attempts and logical calls of each target, for their ratio.
    legs: Mutex<BTreeMap<String, (u64, u64)>>,
    /// Held from the reset of a family until it is whole and read: one who asks must not see what another takes apart.
    whole: Mutex<()>,
}

/// The bulkhead of one pool at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) kind: DependencyKind,
    pub(crate) limit: usize,
    pub(crate) in_use: usize,
    pub(crate) sleeping: usize,
    pub(crate) queued: usize,
}

/// What label sets are known before anything happened.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) agents: Vec<String>,
    pub(crate) targets: Vec<String>,
    pub(crate) tools: Vec<String>,
}

impl Metrics {
    /// # Errors
    /// If two families have the same name: a mistake of this file.
    pub(crate) fn new(version: &str, revision: &str) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let r = &registry;
        let build = int_gauges(r, "ambit_build_info", "Always 1; version and revision of the binary", &["version", "revision"])?;
        build.with_label_values(&[version, revision]).set(1);
        let loaded =
            Gauge::with_opts(Opts::new("ambit_config_last_reload_successful", "1 if the configuration in force is the last one given"))?;
        loaded.set(1.0);
        let loaded = registered(r, loaded)?;
        Ok(Self {
            build,
            reloads: counters(r, "ambit_config_reloads_total", "Reloads of the configuration, by what they came to", &["outcome"])?,
            loaded,
            sessions: counters(r, "ambit_sessions_total", "Sessions that reached their verdict", &["agent", "status", "reason"])?,
            settlements: counters(r, "ambit_settlements_total", "Sessions that were closed", &["agent", "settlement"])?,
            session_duration: histograms(
                r,
                "ambit_session_duration_seconds",
                "From the start to the verdict",
                &["agent", "status"],
                DURATION,
            )?,
            in_flight: int_gauges(r, "ambit_sessions_in_flight", "Sessions without a verdict", &["agent"])?,
            overhead: histograms(
                r,
                "ambit_session_overhead_seconds",
                "Time without any wait for others: what Ambit itself costs",
                &["agent"],
                SMALL,
            )?,
            overrun: histograms(
                r,
                "ambit_session_deadline_overrun_seconds",
                "Time past the deadline until the verdict",
                &["agent"],
                SMALL,
            )?,
            session_model_calls: histograms(r, "ambit_session_model_calls", "Model calls of one session", &["agent"], CALLS)?,
            session_tool_calls: histograms(r, "ambit_session_tool_calls", "Tool calls of one session", &["agent"], CALLS)?,
            limit_hits: counters(r, "ambit_session_limit_hits_total", "Limits that sessions reached", &["agent", "axis"])?,
            limit_remaining: histograms(
                r,
                "ambit_session_limit_remaining_ratio",
                "What was left of each limit at the end",
                &["agent", "axis"],
                RATIOS,
            )?,
            retries: counters(
                r,
                "ambit_resilience_retries_total",
                "Calls that were retried, by how they ended",
                &["dependency", "target", "outcome"],
            )?,
            retries_refused: counters(
                r,
                "ambit_resilience_retries_refused_total",
                "Failures that were not retried",
                &["dependency", "reason"],
            )?,
            saturated: counters(r, "ambit_resilience_saturated_total", "Calls that a full bulkhead refused", &["pool", "reason"])?,
            bulkhead_wait: histograms(r, "ambit_model_bulkhead_wait_seconds", "Wait for a model's permit", &["pool"], SMALL)?,
            timeouts: counters(r, "ambit_resilience_timeouts_total", "Timers that ran out", &["dependency", "target", "timer"])?,
            model_calls: counters(r, "ambit_model_calls_total", "Logical model calls", &["target", "outcome"])?,
            model_attempts: counters(r, "ambit_model_attempts_total", "Requests to models", &["target", "kind", "outcome"])?,
            model_duration: histograms(
                r,
                "ambit_model_call_duration_seconds",
                "Logical model calls with all their attempts",
                &["target", "outcome"],
                DURATION,
            )?,
            first_token: histograms(
                r,
                "ambit_model_time_to_first_token_seconds",
                "From sending to the first valid token",
                &["target"],
                DURATION,
            )?,
            tokens: counters(r, "ambit_model_tokens_total", "Tokens", &["target", "kind"])?,
            cost: registered(r, CounterVec::new(Opts::new("ambit_model_cost_usd_total", "Money, dollars"), &["target"])?)?,
            amplification: registered(
                r,
                GaugeVec::new(
                    Opts::new("ambit_resilience_amplification_ratio", "Attempts for each logical call, since the start"),
                    &["target"],
                )?,
            )?,
            tool_calls: counters(r, "ambit_tool_calls_total", "Tool calls that were dispatched", &["tool", "outcome"])?,
            tool_duration: histograms(
                r,
                "ambit_tool_call_duration_seconds",
                "Tool calls with all their attempts",
                &["tool", "outcome"],
                DURATION,
            )?,
            tool_truncated: counters(r, "ambit_tool_output_truncated_total", "Tool outputs that were cut", &["tool"])?,
            tool_unknown: counters(
                r,
                "ambit_tool_outcome_unknown_total",
                "Calls of which nobody can say whether they took effect",
                &["tool"],
            )?,
            idempotency: counters(r, "ambit_idempotency_total", "Requests with an idempotency key", &["outcome"])?,
            degraded_sessions: counters(
                r,
                "ambit_degraded_sessions_total",
                "Sessions that went on with less than they should have",
                &["agent", "mode"],
            )?,
            degraded: counters(r, "ambit_degradations_total", "Times that a capability was lost", &["capability", "mode"])?,
            load_shed: counters(r, "ambit_load_shed_total", "Requests refused before they were looked at", &["reason"])?,
            http_requests: counters(r, "ambit_http_requests_total", "HTTP requests answered", &["route", "code"])?,
            http_duration: histograms(
                r,
                "ambit_http_request_duration_seconds",
                "From the head of the request to the head of the answer",
                &["route", "code"],
                DURATION,
            )?,
            sse: registered(r, IntGauge::with_opts(Opts::new("ambit_sse_connections", "Open event streams"))?)?,
            store_op: histograms(r, "ambit_store_op_seconds", "Operations of the store", &["kind", "outcome"], SMALL)?,
            permits: int_gauges(r, "ambit_bulkhead_permits", "Permits of a bulkhead by state", &["pool", "state"])?,
            queue: int_gauges(r, "ambit_bulkhead_queue_length", "Calls that wait for a permit", &["pool"])?,
            loops: counters(r, "ambit_session_loops_total", "Calls that the loop guard refused", &["tool"])?,
            resumed: counters(r, "ambit_sessions_resumed_total", "Sessions taken up again by replay", &["agent"])?,
            spans: spans(r)?,
            process: Process::new(r)?,
            legs: Mutex::default(),
            whole: Mutex::default(),
            registry,
        })
    }

    /// Lets every known label set start at zero, so that a rate over it is right from the first event on.
    pub(crate) fn preset(&self, known: &Known) {
        for agent in known.agents.iter().map(String::as_str) {
            self.in_flight.with_label_values(&[agent]);
            self.overhead.with_label_values(&[agent]);
            self.overrun.with_label_values(&[agent]);
            self.session_model_calls.with_label_values(&[agent]);
            self.session_tool_calls.with_label_values(&[agent]);
            self.resumed.with_label_values(&[agent]);
            for status in Status::ALL {
                self.session_duration.with_label_values(&[agent, status.as_str()]);
            }
            for settlement in Settlement::ALL {
                self.settlements.with_label_values(&[agent, settlement.as_str()]);
            }
            for axis in Axis::ALL {
                self.limit_hits.with_label_values(&[agent, axis.as_str()]);
            }
            self.sessions.with_label_values(&[agent, "completed", "answered"]);
        }
        for target in known.targets.iter().map(String::as_str) {
            for timer in Timer::ALL {
                self.timeouts.with_label_values(&["model", target, timer.as_str()]);
            }
            for outcome in ["recovered", "failed"] {
                self.retries.with_label_values(&["model", target, outcome]);
            }
            for reason in ["full", "queue_full", "wait_expired"] {
                self.saturated.with_label_values(&[target, reason]);
            }
            self.model_calls.with_label_values(&[target, "ok"]);
            self.model_attempts.with_label_values(&[target, "first", "ok"]);
            self.bulkhead_wait.with_label_values(&[target]);
            self.first_token.with_label_values(&[target]);
            self.cost.with_label_values(&[target]);
            for kind in ["input", "output"] {
                self.tokens.with_label_values(&[target, kind]);
            }
        }
        for outcome in IdempotencyOutcome::ALL {
            self.idempotency.with_label_values(&[outcome.as_str()]);
        }
        for reason in RetryRefusal::ALL {
            self.retries_refused.with_label_values(&["model", reason.as_str()]);
        }
        for tool in known.tools.iter().map(String::as_str) {
            self.tool_calls.with_label_values(&[tool, "OK"]);
            self.tool_truncated.with_label_values(&[tool]);
            self.tool_unknown.with_label_values(&[tool]);
        }
        for kind in OpKind::ALL {
            for outcome in OpOutcome::ALL {
                self.store_op.with_label_values(&[kind.as_str(), outcome.as_str()]);
            }
        }
        for outcome in ["applied", "unchanged", "invalid", "refused"] {
            self.reloads.with_label_values(&[outcome]);
        }
        for reason in ["overloaded", "shutting_down"] {
            self.load_shed.with_label_values(&[reason]);
        }
    }

    /// Projects one signal.
    pub(crate) fn count(&self, signal: &Signal) {
        match signal {
            // What is in flight is looked up when it is asked for: a gauge that is counted drifts.
            Signal::SessionStarted { .. } => {}
            Signal::SessionResumed { agent } => {
                self.resumed.with_label_values(&[agent]).inc();
            }
            Signal::SessionEnded { agent, status, reason, duration, overhead, overrun, model_calls, tool_calls, axes, .. } => {
                self.sessions.with_label_values(&[agent, status.as_str(), reason.as_str()]).inc();
                self.session_duration.with_label_values(&[agent, status.as_str()]).observe(duration.as_secs_f64());
                self.overhead.with_label_values(&[agent]).observe(overhead.as_secs_f64());
                self.overrun.with_label_values(&[agent]).observe(overrun.as_secs_f64());
                self.session_model_calls.with_label_values(&[agent]).observe(f64::from(*model_calls));
                self.session_tool_calls.with_label_values(&[agent]).observe(f64::from(*tool_calls));
                for used in axes {
                    self.limit_remaining.with_label_values(&[agent, used.axis.as_str()]).observe(used.remaining());
                }
            }
            Signal::SessionSettled { agent, settlement } => self.settlements.with_label_values(&[agent, settlement.as_str()]).inc(),
            Signal::LimitHit { agent, axis } => self.limit_hits.with_label_values(&[agent, axis.as_str()]).inc(),
            Signal::LoopDetected { tool } => self.loops.with_label_values(&[tool]).inc(),
            Signal::Admitted { pool, kind, waited } => match kind {
                DependencyKind::Model => self.bulkhead_wait.with_label_values(&[pool]).observe(waited.as_secs_f64()),
                DependencyKind::Tool => {}
            },
            Signal::Saturated { pool, reason } => self.saturated.with_label_values(&[&**pool, *reason]).inc(),
            Signal::AttemptStarted { kind, target, .. } => self.leg(*kind, target, 1, 0),
            Signal::AttemptFinished { kind, target, attempt, code, first_token, .. } => match kind {
                DependencyKind::Model => {
                    self.model_attempts.with_label_values(&[target, attempt.as_str(), code]).inc();
                    if let Some(first_token) = first_token {
                        self.first_token.with_label_values(&[target]).observe(first_token.as_secs_f64());
                    }
                }
                DependencyKind::Tool => {}
            },
            Signal::TimedOut { dependency, target, timer } => self.timeouts.with_label_values(&[dependency, target, timer.as_str()]).inc(),
            Signal::RetryScheduled { .. } => {}
            Signal::Retried { dependency, target, recovered } => {
                let outcome = if *recovered { "recovered" } else { "failed" };
                self.retries.with_label_values(&[dependency, target, outcome]).inc();
            }
            Signal::RetryRefused { dependency, reason } => self.retries_refused.with_label_values(&[dependency, reason.as_str()]).inc(),
            Signal::ModelCallFinished { target, outcome, duration, input_tokens, output_tokens, cost_usd, .. } => {
                self.model_calls.with_label_values(&[target, outcome]).inc();
                self.model_duration.with_label_values(&[target, outcome]).observe(duration.as_secs_f64());
                self.tokens.with_label_values(&[target, "input"]).inc_by(*input_tokens);
                self.tokens.with_label_values(&[target, "output"]).inc_by(*output_tokens);
                self.cost.with_label_values(&[target]).inc_by(*cost_usd);
                self.leg(DependencyKind::Model, target, 0, 1);
            }
            Signal::ToolCallFinished { tool, code, duration, .. } => {
                let outcome = code.map_or("CANCELLED", ToolCode::as_str);
                self.tool_calls.with_label_values(&[&**tool, outcome]).inc();
                self.tool_duration.with_label_values(&[&**tool, outcome]).observe(duration.as_secs_f64());
                if *code == Some(ToolCode::OutcomeUnknown) {
                    self.tool_unknown.with_label_values(&[tool]).inc();
                }
            }
            Signal::Idempotency { outcome } => self.idempotency.with_label_values(&[outcome.as_str()]).inc(),
            Signal::Truncated { tool, .. } => self.tool_truncated.with_label_values(&[tool]).inc(),
            Signal::SessionDegraded { agent, mode, .. } => self.degraded_sessions.with_label_values(&[&**agent, *mode]).inc(),
            Signal::Degraded { capability, mode, .. } => self.degraded.with_label_values(&[&**capability, *mode]).inc(),
        }
    }

    fn leg(&self, kind: DependencyKind, target: &str, attempts: u64, calls: u64) {
        if kind != DependencyKind::Model {
            return;
        }
        let mut legs = self.legs.lock().unwrap_or_else(PoisonError::into_inner);
        if !legs.contains_key(target) {
            legs.insert(target.to_owned(), (0, 0));
        }
        if let Some(sums) = legs.get_mut(target) {
            sums.0 += attempts;
            sums.1 += calls;
        }
    }

    /// One HTTP request was answered.
    pub(crate) fn http(&self, route: &str, code: u16, took: Duration) {
        let code = code.to_string();
        self.http_requests.with_label_values(&[route, &code]).inc();
        self.http_duration.with_label_values(&[route, &code]).observe(took.as_secs_f64());
    }

    /// A request was refused before it was looked at.
    pub(crate) fn shed(&self, reason: &str) {
        self.load_shed.with_label_values(&[reason]).inc();
    }

    /// A reload came to its end; says whether the configuration in force is the last one given, where that is known.
    pub(crate) fn reloaded(&self, outcome: &str, is_last: Option<bool>) {
        self.reloads.with_label_values(&[outcome]).inc();
        if let Some(is_last) = is_last {
            self.loaded.set(f64::from(u8::from(is_last)));
        }
    }

    /// Another configuration is in force.
    pub(crate) fn revision(&self, revision: &str) {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        self.build.reset();
        self.build.with_label_values(&[env!("CARGO_PKG_VERSION"), revision]).set(1);
    }

    /// An event stream was opened; it is closed when the guard goes.
    pub(crate) fn stream(&self) -> StreamGuard {
        self.sse.inc();
        StreamGuard(self.sse.clone())
    }

    /// The text of `/metrics`, with the bulkheads as they are now.
    pub(crate) fn text(&self, pools: &[Pool], in_flight: &[(Arc<str>, usize)]) -> Result<String, prometheus::Error> {
        let _whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        // What is there no more is shown no more: an agent or a bulkhead that was configured away.
        self.in_flight.reset();
        self.permits.reset();
        self.queue.reset();
        for (agent, count) in in_flight {
            self.in_flight.with_label_values(&[agent]).set(int(*count));
        }
        for pool in pools {
            for (state, count) in [("limit", pool.limit), ("in_use", pool.in_use), ("sleeping", pool.sleeping)] {
                self.permits.with_label_values(&[pool.name.as_str(), state]).set(int(count));
            }
            self.queue.with_label_values(&[pool.name.as_str()]).set(int(pool.queued));
        }
        for (target, (attempts, calls)) in &*self.legs.lock().unwrap_or_else(PoisonError::into_inner) {
            #[expect(clippy::cast_precision_loss, reason = "a ratio")]
            let ratio = if *calls == 0 { 1.0 } else { *attempts as f64 / *calls as f64 };
            self.amplification.with_label_values(&[target]).set(ratio);
        }
        self.process.look();
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Counts one open stream for as long as it lives.
#[derive(Debug)]
pub(crate) struct StreamGuard(IntGauge);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl OpObserver for Metrics {
    fn observed(&self, kind: OpKind, outcome: OpOutcome, took: Duration) {
        self.store_op.with_label_values(&[kind.as_str(), outcome.as_str()]).observe(took.as_secs_f64());
    }
}

fn spans(registry: &Registry) -> Result<SpanCounters, prometheus::Error> {
    let exported = IntCounter::with_opts(Opts::new("ambit_telemetry_spans_exported_total", "Spans that the collector took"))?;
    let dropped = counters(registry, "ambit_telemetry_spans_dropped_total", "Spans that nobody will see", &["reason"])?;
    Ok(SpanCounters {
        exported: registered(registry, exported)?,
        queue_full: dropped.with_label_values(&["queue_full"]),
        export_failed: dropped.with_label_values(&["export_failed"]),
    })
}

fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    registered(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

fn int_gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
    registered(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

fn histograms(registry: &Registry, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> Result<HistogramVec, prometheus::Error> {
    registered(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough that two who ask at once meet in the middle many times.
    const ROUNDS: usize = 300;

    #[test]
    fn whoever_asks_sees_every_family_whole_whoever_else_asks() {
        let metrics = Metrics::new("1", "r").unwrap();
        let pool = |n: usize| Pool { name: format!("p{n}"), kind: DependencyKind::Model, limit: 3, in_use: 1, sleeping: 0, queued: 0 };
        let pools: Vec<_> = (0..20).map(pool).collect();
        let agents: Vec<(Arc<str>, usize)> = (0..20).map(|n| (format!("a{n}").into(), 7)).collect();
        let ask = || {
            for _ in 0..ROUNDS {
                metrics.revision("s");
                let text = metrics.text(&pools, &agents).unwrap();
                let lines = |beginning: &str, end: &str| text.lines().filter(|l| l.starts_with(beginning) && l.ends_with(end)).count();
                assert_eq!(lines("ambit_sessions_in_flight{", " 7"), 20);
                assert_eq!(lines("ambit_bulkhead_permits{", " 3"), 20);
                assert_eq!(lines("ambit_bulkhead_queue_length{", " 0"), 20);
                assert_eq!(lines("ambit_build_info{", " 1"), 1);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(ask);
            scope.spawn(ask);
        });
    }
}
