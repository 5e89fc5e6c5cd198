//! One failed attempt, as every layer passes it on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ambit_core::ErrorKind;
use ambit_core::signal::Timer;

use crate::class::{Class, Row};
use crate::classify::{Outcome, classify};

/// Why an attempt failed. Holds no content; `message` is for the log alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it means to every layer.
    pub class: Class,
    /// Its low-cardinality name, for metrics and records: `http_503`, `timeout`, `reset`..
    pub code: Arc<str>,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// How long the other side asked us to stay away.
    pub retry_after: Option<Duration>,
    /// True if the request may have reached the other side.
    pub sent: bool,
    /// Which timer ran out, if that is the reason. The policy emits `TimedOut` for it.
    pub timer: Option<Timer>,
    /// For the log: one line, no content, no secrets. Empty if the code says all.
    pub message: String,
}

impl Failure {
    /// Classifies what was seen. Everything else follows from it until it is said otherwise.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        let class = classify(&outcome);
        let (status, timer) = match outcome {
            Outcome::Status { status, .. } => (Some(status), None),
            Outcome::TimedOut { timer, .. } => (None, Some(timer)),
            Outcome::Answered
            | Outcome::Malformed
            | Outcome::Empty
            | Outcome::NeverArrived
            | Outcome::Broken
            | Outcome::SessionExpired
            | Outcome::Refused(_)
            | Outcome::Cancelled
            | Outcome::HedgeLost
            | Outcome::OutputInvalid => (None, None),
        };
        let sent = !matches!(class.row, Row::NeverArrived | Row::RefusedByTarget | Row::RefusedByUs);
        Self { class, code: outcome.code().into(), status, retry_after: None, sent, timer, message: String::new() }
    }

    /// With a better name than the outcome's own, of low cardinality: `dns`, `tls`..
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Arc<str>>) -> Self {
        self.code = code.into();
        self
    }

    /// With a status that came along, for failures that are no status themselves (an error inside a stream).
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// With what the other side said about coming back.
    #[must_use]
    pub fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after;
        self
    }

    /// With words for the log.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Says that nothing was sent.
    #[must_use]
    pub fn unsent(mut self) -> Self {
        self.sent = false;
        self
    }

    /// True if the call may or may not have taken effect; a write that ended so is `OUTCOME_UNKNOWN`.
    #[must_use]
    pub const fn is_fate_unknown(&self) -> bool {
        self.sent && self.class.row.leaves_fate_unknown()
    }

    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self.class.row {
            Row::Answered => ErrorKind::Internal,
            Row::Mistake | Row::Rejected | Row::ContentFiltered | Row::Incapable | Row::ContextLength => ErrorKind::Invalid,
            Row::Unauthorised => ErrorKind::Forbidden,
            Row::OutOfQuota | Row::RateLimited | Row::RefusedByTarget | Row::RefusedByUs => ErrorKind::LimitReached,
            Row::Conflict => ErrorKind::Conflict,
            Row::Malformed
            | Row::Empty
            | Row::NotReady
            | Row::ServerError
            | Row::Overloaded
            | Row::Shedding
            | Row::NeverArrived
            | Row::Broken
            | Row::TimedOut
            | Row::SessionExpired
            | Row::OutputInvalid => ErrorKind::Unavailable,
            Row::Cancelled | Row::HedgeLost => ErrorKind::Cancelled,
            Row::DeadlineCut | Row::DeadlineSpent => ErrorKind::DeadlineExceeded,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt failed with `{}`", self.code)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use ambit_core::signal::Timer;

    use super::*;
    use crate::classify::{Refuser, Says};

    /// What was seen, against: sent or not, fate known or not, kind.
    #[track_caller]
    fn check(outcome: Outcome, expected: &str) {
        let failure = Failure::new(outcome);
        let sent = if failure.sent { "sent" } else { "unsent" };
        let fate = if failure.is_fate_unknown() { "unknown" } else { "known" };
        assert_eq!(format!("{sent} {fate} {:?}", failure.kind()), expected, "{outcome:?}");
        assert!(!failure.unsent().is_fate_unknown(), "what was not sent had no effect: {outcome:?}");
    }

    #[test]
    fn a_failure_says_whether_the_call_may_have_run() {
        check(Outcome::status(503), "sent known Unavailable");
        check(Outcome::status(500), "sent unknown Unavailable");
        check(Outcome::status(429), "sent known LimitReached");
        check(Outcome::status(404), "sent known Invalid");
        check(Outcome::status(409), "sent known Conflict");
        check(Outcome::status(401), "sent known Forbidden");
        check(Outcome::Malformed, "sent unknown Unavailable");
        check(Outcome::Broken, "sent unknown Unavailable");
        check(Outcome::NeverArrived, "unsent known Unavailable");
        check(Outcome::SessionExpired, "sent known Unavailable");
        check(Outcome::timed_out(Timer::Attempt), "sent unknown Unavailable");
        check(Outcome::timed_out(Timer::Connect), "unsent known Unavailable");
        check(Outcome::timed_out(Timer::Deadline), "sent unknown DeadlineExceeded");
        check(Outcome::Cancelled, "sent unknown Cancelled");
        check(Outcome::Refused(Refuser::Target), "unsent known LimitReached");
        check(Outcome::Refused(Refuser::Whole), "unsent known LimitReached");
    }

    #[test]
    fn what_follows_from_the_outcome_can_be_said_better() {
        let failure = Failure::new(Outcome::Status { status: 429, says: Says::Nothing, should_retry: None })
            .with_code("rate_limit")
            .with_retry_after(Some(Duration::from_secs(7)))
            .with_message("slow down");
        assert_eq!((failure.status, &*failure.code, failure.retry_after), (Some(429), "rate_limit", Some(Duration::from_secs(7))));
        assert_eq!(failure.to_string(), "attempt failed with `rate_limit`");
        assert_eq!(Failure::new(Outcome::Malformed).with_status(200).status, Some(200));
        assert_eq!(Failure::new(Outcome::timed_out(Timer::Chunk)).timer, Some(Timer::Chunk));
    }
}
