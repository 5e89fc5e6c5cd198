//! The ladder of times: every rung strictly inside the one before, so that no inner wait can outlive its outer one.
//!
//! | rung | inside |
//! | --- | --- |
//! | `limits.deadline` + 5 s | `server.request` |
//! | `limits.answer_reserve` | `limits.deadline` (what is left is the deadline of a step) |
//! | `models.*.request` | the deadline of a step |
//! | `models.*.attempt` | `models.*.request` |
//! | `models.*.connect` | `models.*.attempt`, or equal |
//! | `tools.*.timeout`, `mcp.*.timeout` | the deadline of a step |
//! | `tools.*.attempt`, `mcp.*.attempt` | their `timeout` |
//! | `http.connect` | `tools.*.attempt`, or equal |
//! | `models.*.min_useful` + 250 ms | `limits.answer_reserve`, or equal |
//! | all attempts of a write and their waits | its `timeout`, or equal |
//!
//! The rungs hold for the profile's limits. An agent or a request that tightens its deadline is clipped by it instead:
//! each attempt then gets what is left.

use std::time::Duration;

use ambit_core::limit::LAST_CALL_MARGIN_MS;

use super::Report;
use crate::config::REQUEST_OVER_DEADLINE;
use crate::settings::{Effect, Retry};
use crate::value::Period;

/// One side of an inequality: a key, what it stands for, and its length.
struct Rung {
    key: String,
    length: Duration,
}

impl Rung {
    fn new(key: impl Into<String>, length: Period) -> Self {
        Self { key: key.into(), length: length.0 }
    }
}

/// Checks every rung.
pub(super) fn check(report: &mut Report<'_>) {
    let config = report.config;
    let settings = config.settings();
    let limits = &settings.limits;
    let deadline = Rung::new("limits.deadline", limits.deadline);
    let reserve = Rung::new("limits.answer_reserve", limits.answer_reserve);

    let request = Rung::new("server.request", config.request());
    let least = deadline.length.saturating_add(REQUEST_OVER_DEADLINE);
    if request.length < least {
        let reason = format!(
            "{} is less than {} + {} = {}",
            shown(request.length),
            side(report, &deadline),
            shown(REQUEST_OVER_DEADLINE),
            shown(least)
        );
        broken(report, &request, &[&deadline], reason, "raise it, or leave it away");
    }
    if reserve.length >= deadline.length {
        let reason = format!("{} is not less than {}", shown(reserve.length), side(report, &deadline));
        broken(report, &reserve, &[&deadline], reason, "lower it, or raise `limits.deadline`");
        return; // there is no time for a step, so that nothing more can be said about one
    }
    let step = deadline.length.saturating_sub(reserve.length);

    for (name, model) in &settings.models {
        let key = |part: &str| format!("models.{name}.{part}");
        let (request, attempt) = (Rung::new(key("request"), model.request), Rung::new(key("attempt"), model.attempt));
        inside_step(report, &request, &deadline, &reserve, step);
        inside(report, &attempt, &request);
        at_most(report, &Rung::new(key("connect"), model.connecting()), &attempt);
        at_most(report, &Rung::new(key("min_useful"), model.min_useful), &attempt);
        let useful = Rung::new(key("min_useful"), model.min_useful);
        let margin = Duration::from_millis(LAST_CALL_MARGIN_MS);
        if useful.length.saturating_add(margin) > reserve.length {
            let reason = format!(
                "{} is less than {} + {} for the answer to leave: the last call would not be made",
                shown(reserve.length),
                side(report, &useful),
                shown(margin)
            );
            broken(report, &reserve, &[&useful], reason, "raise `limits.answer_reserve`, or lower `min_useful`");
        }
    }
    for (name, tool) in &settings.tools {
        let key = |part: &str| format!("tools.{name}.{part}");
        let (timeout, attempt) = (Rung::new(key("timeout"), tool.timeout), Rung::new(key("attempt"), tool.attempting()));
        inside_step(report, &timeout, &deadline, &reserve, step);
        inside(report, &attempt, &timeout);
        at_most(report, &Rung::new(key("min_useful"), tool.min_useful), &attempt);
        if let Some(connect) = settings.http.connect
            && tool.url.is_some()
        {
            at_most(report, &Rung::new("http.connect", connect), &attempt);
        }
        if tool.leaves() != Effect::Read && tool.attempts_max() > 1 {
            all_attempts(report, &timeout, &attempt, tool.attempts_max(), &tool.retry);
        }
    }
    for (name, server) in &settings.mcp {
        let key = |part: &str| format!("mcp.{name}.{part}");
        let (timeout, attempt) = (Rung::new(key("timeout"), server.timeout), Rung::new(key("attempt"), server.attempt));
        inside_step(report, &timeout, &deadline, &reserve, step);
        inside(report, &attempt, &timeout);
        at_most(report, &Rung::new(key("min_useful"), server.min_useful), &attempt);
        for (tool, policy) in &server.tools {
            if policy.timeout.is_none() && policy.attempt.is_none() {
                continue;
            }
            let key = |part: &str| format!("mcp.{name}.tools.{tool}.{part}");
            let own = |part: &str, value: Option<Period>, or: &Rung| {
                value.map_or(Rung { key: or.key.clone(), length: or.length }, |v| Rung::new(key(part), v))
            };
            let (timeout, attempt) = (own("timeout", policy.timeout, &timeout), own("attempt", policy.attempt, &attempt));
            inside_step(report, &timeout, &deadline, &reserve, step);
            inside(report, &attempt, &timeout);
        }
    }
}

/// Longest that all waits before `attempts - 1` retries can take.
fn back_off_max(attempts: u32, retry: &Retry) -> Duration {
    (1..attempts)
        .map(|n| retry.base.0.saturating_mul(2_u32.saturating_pow(n)).min(retry.max_delay.0).max(retry.min_delay.0))
        .fold(Duration::ZERO, Duration::saturating_add)
}

fn inside_step(report: &mut Report<'_>, inner: &Rung, deadline: &Rung, reserve: &Rung, step: Duration) {
    if inner.length >= step {
        let reason = format!(
            "{} is not less than the {} of a step: {} - {}",
            shown(inner.length),
            shown(step),
            side(report, deadline),
            side(report, reserve)
        );
        broken(report, inner, &[deadline, reserve], reason, "lower it, or raise `limits.deadline`");
    }
}

fn inside(report: &mut Report<'_>, inner: &Rung, outer: &Rung) {
    if inner.length >= outer.length {
        let reason = format!("{} is not less than {}", shown(inner.length), side(report, outer));
        broken(report, inner, &[outer], reason, format!("lower it, or raise `{}`", outer.key));
    }
}

fn at_most(report: &mut Report<'_>, inner: &Rung, outer: &Rung) {
    if inner.length > outer.length {
        let reason = format!("{} is more than {}", shown(inner.length), side(report, outer));
        broken(report, inner, &[outer], reason, format!("lower it, or raise `{}`", outer.key));
    }
}

/// A write with retries must be able to have all of them: one that is clipped may have been sent and not be known.
fn all_attempts(report: &mut Report<'_>, timeout: &Rung, attempt: &Rung, attempts: u32, retry: &Retry) {
    let waits = back_off_max(attempts, retry);
    let all = attempt.length.saturating_mul(attempts).saturating_add(waits);
    if all > timeout.length {
        let reason = format!(
            "{} is less than all attempts of a call that is no read: {attempts} x {} + waits of {} = {}",
            shown(timeout.length),
            side(report, attempt),
            shown(waits),
            shown(all)
        );
        broken(report, timeout, &[attempt], reason, "raise it, or lower `attempts` or `attempt`");
    }
}

fn broken(report: &mut Report<'_>, rung: &Rung, others: &[&Rung], reason: String, hint: impl Into<String>) {
    report.say(&rung.key, reason, hint);
    if let Some(problem) = report.problems.pop() {
        let source = if problem.place.is_some() && report.config.place(&rung.key).is_none() { " (built-in default)" } else { "" };
        let problem = crate::error::Problem { reason: format!("{}{source}", problem.reason), ..problem };
        report.problems.push(others.iter().fold(problem, |problem, other| problem.also(other.key.clone())));
    }
}

/// A key with its value and where it comes from.
fn side(report: &Report<'_>, rung: &Rung) -> String {
    format!("`{}` {} ({})", rung.key, shown(rung.length), report.source(&rung.key))
}

fn shown(length: Duration) -> String {
    Period(length).to_string()
}
