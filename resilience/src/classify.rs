//! From what was seen to what it means: the only place that decides.
//!
//! A dialect or transport says what it saw as an [`Outcome`] and reads no meaning into it. Wordings of providers are
//! recognised by the dialect and arrive here as [`Says`]; what is said beats the status, since it is more exact.

use std::borrow::Cow;

use ambit_core::signal::Timer;

use crate::class::{Class, Retry, Row};

/// What the body or a header said beyond the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// Nothing that is known.
    Nothing,
    /// The model made the mistake (`tool_use_failed` and kin).
    Mistake,
    /// The content breaks a policy.
    ContentPolicy,
    /// This target lacks the capability: unknown model, a parameter beyond its limit.
    Incapable,
    /// The context window is too small.
    ContextLength,
    /// Quota or credit is used up.
    OutOfQuota,
    /// Load is shed on purpose; believed of 503 and 529 only.
    Shedding,
}

/// Who of us refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refuser {
    /// One target's guard: saturated, circuit open, retry budget empty.
    Target,
    /// The gateway or executor, the deadline, a quota or the allowance.
    Whole,
}

/// What was seen of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A success with a whole answer.
    Answered,
    /// A success by its status without an answer in it.
    Malformed,
    /// An empty answer with a normal stop.
    Empty,
    /// The other side answered with an HTTP status that is no success.
    Status {
        /// The status code.
        status: u16,
        /// What was said beyond it.
        says: Says,
        /// The header `x-should-retry`, where it was sent.
        should_retry: Option<bool>,
    },
    /// The request never arrived: refused, DNS, TLS, stream refused before processing.
    NeverArrived,
    /// The connection broke after the request was sent.
    Broken,
    /// A timer ran out.
    TimedOut {
        /// Which one. `Request` and `Deadline` mean that the time of the whole call is over.
        timer: Timer,
        /// True if the attempt had its full timeout; only asked where the whole call's time is over.
        full_attempt: bool,
    },
    /// The MCP session is gone; the call never ran.
    SessionExpired,
    /// We refused before anything was sent.
    Refused(Refuser),
    /// The caller cancelled or is gone.
    Cancelled,
    /// Another leg won.
    HedgeLost,
    /// The tool's output breaks its own schema.
    OutputInvalid,
}

impl Outcome {
    /// A status without any words that are known.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        Self::Status { status, says: Says::Nothing, should_retry: None }
    }

    /// An attempt that ran into `timer`.
    #[must_use]
    pub const fn timed_out(timer: Timer) -> Self {
        Self::TimedOut { timer, full_attempt: false }
    }

    /// Its low-cardinality name, for metrics and records, where nobody knows a better one.
    #[must_use]
    pub fn code(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Answered => "ok",
            Self::Malformed => "malformed",
            Self::Empty => "empty",
            Self::Status { status, says, .. } => match says {
                Says::Mistake => "model_mistake",
                Says::ContentPolicy => "content_policy",
                Says::ContextLength => "context_length",
                Says::OutOfQuota => "out_of_quota",
                Says::Nothing | Says::Incapable | Says::Shedding => return Cow::Owned(format!("http_{status}")),
            },
            Self::NeverArrived => "unreachable",
            Self::Broken => "reset",
            Self::TimedOut { timer, .. } => match timer {
                Timer::Connect => "timeout_connect",
                Timer::Attempt => "timeout",
                Timer::Chunk => "timeout_chunk",
                Timer::Request | Timer::Deadline => "deadline",
            },
            Self::SessionExpired => "session_expired",
            Self::Refused(Refuser::Target) => "refused_target",
            Self::Refused(Refuser::Whole) => "refused",
            Self::Cancelled => "cancelled",
            Self::HedgeLost => "hedge_lost",
            Self::OutputInvalid => "output_invalid",
        })
    }
}

/// Says what an outcome means to every layer. First what was said, then the status.
#[must_use]
pub const fn classify(outcome: &Outcome) -> Class {
    let row = match *outcome {
        Outcome::Answered => Row::Answered,
        Outcome::Malformed => Row::Malformed,
        Outcome::Empty => Row::Empty,
        Outcome::Status { status, says, should_retry } => {
            let mut class = said(status, says).class();
            class.retry = overridden(class.retry, says, should_retry);
            return class;
        }
        Outcome::NeverArrived => Row::NeverArrived,
        Outcome::Broken => Row::Broken,
        Outcome::TimedOut { timer, full_attempt } => match timer {
            Timer::Connect => Row::NeverArrived,
            Timer::Attempt | Timer::Chunk => Row::TimedOut,
            Timer::Request | Timer::Deadline if full_attempt => Row::DeadlineSpent,
            Timer::Request | Timer::Deadline => Row::DeadlineCut,
        },
        Outcome::SessionExpired => Row::SessionExpired,
        Outcome::Refused(Refuser::Target) => Row::RefusedByTarget,
        Outcome::Refused(Refuser::Whole) => Row::RefusedByUs,
        Outcome::Cancelled => Row::Cancelled,
        Outcome::HedgeLost => Row::HedgeLost,
        Outcome::OutputInvalid => Row::OutputInvalid,
    };
    row.class()
}

const fn said(status: u16, says: Says) -> Row {
    match says {
        Says::Mistake => Row::Mistake,
        Says::ContentPolicy => Row::ContentFiltered,
        Says::Incapable => Row::Incapable,
        Says::ContextLength => Row::ContextLength,
        Says::OutOfQuota => Row::OutOfQuota,
        Says::Shedding if matches!(status, 503 | 529) => Row::Shedding,
        Says::Nothing | Says::Shedding => by_status(status),
    }
}

const fn by_status(status: u16) -> Row {
    match status {
        401 | 403 => Row::Unauthorised,
        402 => Row::OutOfQuota,
        408 | 425 => Row::NotReady,
        409 => Row::Conflict,
        413 => Row::Incapable,
        429 => Row::RateLimited,
        503 | 529 => Row::Overloaded,
        // A redirect that nobody follows is a wrong address: as hopeless as a 404.
        300..=499 => Row::Rejected,
        500..=599 => Row::ServerError,
        // A success that is no answer, or no status of HTTP at all.
        _ => Row::Malformed,
    }
}

/// `x-should-retry` overrides the status, neither what was said beyond it nor repeatability.
const fn overridden(retry: Retry, says: Says, should_retry: Option<bool>) -> Retry {
    match (should_retry, says, retry) {
        (Some(false), _, _) => Retry::Never,
        (Some(true), Says::Nothing | Says::Shedding, Retry::Never) => Retry::IfRepeatable,
        (Some(true) | None, _, _) => retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line of the table: what was seen, then row, breaker, credential, retry, next, health.
    #[track_caller]
    fn check(outcome: Outcome, expected: &str) {
        let Class { row, breaker, credential, retry, next, health } = classify(&outcome);
        assert_eq!(format!("{row:?} {breaker:?} {credential:?} {retry:?} {next:?} {health:?}"), expected, "{outcome:?}");
    }

    const fn says(status: u16, says: Says) -> Outcome {
        Outcome::Status { status, says, should_retry: None }
    }

    const fn told(status: u16, should_retry: bool) -> Outcome {
        Outcome::Status { status, says: Says::Nothing, should_retry: Some(should_retry) }
    }

    #[test]
    fn every_row_of_the_table() {
        check(Outcome::Answered, "Answered Success Keep Never NotNeeded Up");
        check(Outcome::Malformed, "Malformed Failure Keep IfRepeatable Yes Degraded");
        check(Outcome::status(200), "Malformed Failure Keep IfRepeatable Yes Degraded");
        check(Outcome::status(0), "Malformed Failure Keep IfRepeatable Yes Degraded");
        check(Outcome::Empty, "Empty Failure Keep Never Yes Degraded");
        check(says(400, Says::Mistake), "Mistake Neutral Keep Never No Up");
        for status in [300, 301, 400, 404, 405, 410, 418, 421, 422, 423, 451, 499] {
            check(Outcome::status(status), "Rejected NeutralProbeSucceeds Keep Never No Up");
        }
        for status in [400, 403, 422, 451] {
            check(says(status, Says::ContentPolicy), "ContentFiltered NeutralProbeSucceeds Keep Never No Up");
        }
        check(Outcome::status(413), "Incapable NeutralProbeSucceeds Keep Never Yes Up");
        for status in [400, 404, 422] {
            check(says(status, Says::Incapable), "Incapable NeutralProbeSucceeds Keep Never Yes Up");
        }
        for status in [400, 413, 422, 429, 500] {
            check(says(status, Says::ContextLength), "ContextLength Neutral Keep Never LargerWindow Up");
        }
        for status in [401, 403] {
            check(Outcome::status(status), "Unauthorised Neutral Cool Never OtherCredential ConfigError");
        }
        check(Outcome::status(402), "OutOfQuota Neutral CoolLong Never Yes Quota");
        check(says(429, Says::OutOfQuota), "OutOfQuota Neutral CoolLong Never Yes Quota");
        check(Outcome::status(429), "RateLimited NeutralProbeFails CoolAsTold Always First Limited");
        for status in [408, 425] {
            check(Outcome::status(status), "NotReady FailureOutsideStreak Keep Always Yes Up");
        }
        check(Outcome::status(409), "Conflict Neutral Keep Never No Up");
        for status in [500, 501, 502, 504, 520, 524, 599] {
            check(Outcome::status(status), "ServerError Failure Keep IfRepeatable Yes Degraded");
        }
        for status in [503, 529] {
            check(Outcome::status(status), "Overloaded Failure Keep Always Yes Degraded");
            check(says(status, Says::Shedding), "Shedding Neutral Keep Always Yes Degraded");
        }
        check(Outcome::NeverArrived, "NeverArrived Failure Keep Always Yes Down");
        check(Outcome::timed_out(Timer::Connect), "NeverArrived Failure Keep Always Yes Down");
        check(Outcome::Broken, "Broken Failure Keep IfRepeatable IfRepeatable Degraded");
        for timer in [Timer::Attempt, Timer::Chunk] {
            check(Outcome::timed_out(timer), "TimedOut Failure Keep IfFullAttemptFits First Degraded");
        }
        check(Outcome::SessionExpired, "SessionExpired Neutral Keep OnceOnNewSession NotNeeded Unchanged");
        check(Outcome::Refused(Refuser::Target), "RefusedByTarget Neutral Keep Never Yes Unchanged");
        check(Outcome::Refused(Refuser::Whole), "RefusedByUs Neutral Keep Never No Unchanged");
        check(Outcome::Cancelled, "Cancelled Neutral Keep Never No Unchanged");
        for timer in [Timer::Request, Timer::Deadline] {
            check(Outcome::timed_out(timer), "DeadlineCut Neutral Keep Never No Unchanged");
            check(Outcome::TimedOut { timer, full_attempt: true }, "DeadlineSpent Failure Keep Never No Unchanged");
        }
        check(Outcome::HedgeLost, "HedgeLost Neutral Keep Never NotNeeded Unchanged");
        check(Outcome::OutputInvalid, "OutputInvalid Neutral Keep Never NotNeeded Up");
    }

    #[test]
    fn should_retry_overrides_the_status_alone() {
        check(told(503, false), "Overloaded Failure Keep Never Yes Degraded");
        check(told(429, false), "RateLimited NeutralProbeFails CoolAsTold Never First Limited");
        check(told(409, true), "Conflict Neutral Keep IfRepeatable No Up");
        check(told(400, true), "Rejected NeutralProbeSucceeds Keep IfRepeatable No Up");
        // Neither weaker nor stronger than the status already says.
        check(told(429, true), "RateLimited NeutralProbeFails CoolAsTold Always First Limited");
        check(told(500, true), "ServerError Failure Keep IfRepeatable Yes Degraded");
        // What was said in words stays true: the same request will not fit the next time either.
        let outcome = Outcome::Status { status: 400, says: Says::ContextLength, should_retry: Some(true) };
        check(outcome, "ContextLength Neutral Keep Never LargerWindow Up");
    }

    #[test]
    fn load_shedding_is_believed_of_two_statuses_only() {
        check(says(500, Says::Shedding), "ServerError Failure Keep IfRepeatable Yes Degraded");
        check(says(429, Says::Shedding), "RateLimited NeutralProbeFails CoolAsTold Always First Limited");
    }

    #[test]
    fn codes_are_few() {
        for (outcome, code) in [
            (Outcome::status(503), "http_503"),
            (says(404, Says::Incapable), "http_404"),
            (says(429, Says::OutOfQuota), "out_of_quota"),
            (says(400, Says::ContextLength), "context_length"),
            (says(400, Says::ContentPolicy), "content_policy"),
            (says(400, Says::Mistake), "model_mistake"),
            (Outcome::timed_out(Timer::Attempt), "timeout"),
            (Outcome::timed_out(Timer::Chunk), "timeout_chunk"),
            (Outcome::timed_out(Timer::Connect), "timeout_connect"),
            (Outcome::timed_out(Timer::Request), "deadline"),
            (Outcome::Broken, "reset"),
            (Outcome::NeverArrived, "unreachable"),
        ] {
            assert_eq!(outcome.code(), code);
        }
    }
}
