//! Measurements that need real processes and many connections: by hand they are large and print figures, in the gate they are
//! small and only count. `ambit-load` runs them.
//!
//! *Invariant.* Nothing here asserts on time or memory: figures are printed with their parameters, and people judge them.

pub mod bare;
pub mod readers;
pub mod streams;

/// What every measurement runs under: a model that may be silent for long, and room for `max` sessions at once.
fn config(max: usize) -> String {
    format!(
        r#"
[default.limits]
deadline = "20m"
answer_reserve = "10s"

[default.models.primary]
model = "m"
request = "15m"
attempt = "14m"
chunk = "14m"
bulkhead = {{ permits = {max} }}

[default.chains.default]
targets = ["primary"]

[default.agents.clerk]
instructions = "Answer."
chain = "default"

[default.server]
max_in_flight = {max}
demo_service = false

[default.telemetry.log]
level = "warn"
"#
    )
}

/// The value below which `percent` of the sorted values lie; 0 if there is none.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// The middle one.
fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
