//! The leak check: after the last settlement nothing is held any more.
//!
//! Every end-to-end test ends by it. It reads only what an operator can read, the metrics; a metric that is missing fails
//! the check, because absence is no evidence.

use std::time::Duration;

use crate::WAIT_MAX;
use crate::client::{Api, Metrics};

/// Pause between two looks at the metrics: they have no way to call us.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What must come back to zero: metric and labels.
const ZERO: [(&str, &[(&str, &str)]); 4] = [
    ("ambit_sessions_in_flight", &[]),
    ("ambit_bulkhead_permits", &[("state", "in_use")]),
    ("ambit_bulkhead_permits", &[("state", "sleeping")]),
    ("ambit_bulkhead_queue_length", &[]),
];

/// Waits until no session is in flight, no permit held or slept on and no queue occupied.
///
/// # Panics
/// When that is not so within [`WAIT_MAX`], with what was left.
pub async fn assert_quiet(api: &Api) {
    let mut left = Vec::new();
    let settled = async {
        loop {
            left = held(&api.metrics().await);
            if left.is_empty() {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    if tokio::time::timeout(WAIT_MAX, settled).await.is_err() {
        panic!("something leaked: {left:#?}");
    }
}

/// What is still held, in words.
#[must_use]
pub fn held(metrics: &Metrics) -> Vec<String> {
    let mut held = Vec::new();
    for (name, labels) in ZERO {
        match metrics.sum(name, labels) {
            Some(0.0) => {}
            Some(value) => held.push(format!("{name} {labels:?} is {value}")),
            None => held.push(format!("{name} {labels:?} is not there")),
        }
    }
    held
}
