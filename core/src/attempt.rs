//! What a command may spend, and what each request on the wire did spend.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::money::Money;

/// What one command may spend, lent by the machine. Whoever runs the command takes from it *before* each leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// Requests on the wire, the first included.
    pub attempts: u32,
    /// Tokens in and out, over all legs; 0 for what is no model call.
    pub tokens: u64,
    /// Money over all legs.
    pub cost: Money,
    /// The moment on the session's clock, in milliseconds, after which nothing of it may run.
    pub deadline: u64,
}

impl Allowance {
    /// What is booked for a command whose own account was lost: everything it was lent.
    #[must_use]
    pub fn charged(&self, target: &Arc<str>, code: &Arc<str>) -> Vec<AttemptRecord> {
        let record = |nth: u32| AttemptRecord {
            kind: if nth == 0 { AttemptKind::First } else { AttemptKind::Retry },
            target: target.clone(),
            code: code.clone(),
            input_tokens: if nth == 0 { self.tokens } else { 0 },
            output_tokens: 0,
            cost: if nth == 0 { self.cost } else { Money::ZERO },
            at_least: true,
            ms: 0,
        };
        (0..self.attempts).map(record).collect()
    }
}

/// Why a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptKind {
    /// The first of its call.
    First,
    /// Again, after a failure, to the same target.
    Retry,
    /// Beside an earlier one that has not answered yet.
    Hedge,
    /// To the next target of the chain.
    Fallback,
    /// To see whether an open breaker may close.
    Probe,
}

impl AttemptKind {
    /// Its name in API and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Retry => "retry",
            Self::Hedge => "hedge",
            Self::Fallback => "fallback",
            Self::Probe => "probe",
        }
    }
}

/// One request on the wire, as it is accounted for. Local refusals are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Why it was sent.
    pub kind: AttemptKind,
    /// To which target or tool.
    pub target: Arc<str>,
    /// `ok`, or a low-cardinality name of the failure (`http_503`, `timeout`, `reset`..).
    pub code: Arc<str>,
    /// Tokens read by the model, as reported or, failing that, as reserved.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens written by the model, likewise.
    #[serde(default)]
    pub output_tokens: u64,
    /// What it cost.
    #[serde(default)]
    pub cost: Money,
    /// True where the true figures are not known and these are the least that was owed or the whole reservation.
    #[serde(default)]
    pub at_least: bool,
    /// From sending to the end of the answer, milliseconds.
    #[serde(default)]
    pub ms: u64,
}

impl AttemptRecord {
    /// Tokens in and out.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_is_what_was_lent() {
        let allowance = Allowance { attempts: 3, tokens: 700, cost: Money(9), deadline: 1 };
        let records = allowance.charged(&"t".into(), &"panic".into());
        assert_eq!(records.len(), 3);
        assert_eq!(records.iter().map(AttemptRecord::tokens).sum::<u64>(), 700);
        assert_eq!(records.iter().map(|record| record.cost.0).sum::<u64>(), 9);
        assert!(records.iter().all(|record| record.at_least));
    }
}
