//! Whether a failed attempt is made again, and when.
//!
//! A pure decision over facts: it neither sleeps nor sends. One order of reasons, the strongest first, so that each
//! refusal is counted under the one reason that would have been enough.

mod after;
mod date;
mod delay;

use std::num::NonZeroU32;
use std::time::Duration;

use ambit_core::signal::RetryRefusal;

pub use after::retry_after;
pub use delay::{back_off, pushed_back};

use crate::class::Retry;
use crate::failure::Failure;

/// Most attempts at one target that can be configured, the first included.
pub const ATTEMPTS_MAX: u32 = 5;
/// Attempts where nothing else is said, the first included.
pub const ATTEMPTS_DEFAULT: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);
/// What the first delay doubles.
pub const BASE_DEFAULT: Duration = Duration::from_millis(200);
/// Shortest wait before a retry: an instant repetition meets the same trouble.
pub const MIN_DELAY_DEFAULT: Duration = Duration::from_millis(100);
/// Longest wait of our own choosing.
pub const MAX_DELAY_DEFAULT: Duration = Duration::from_secs(5);
/// Longest Retry-After that is waited for: nothing is left of a session's deadline beyond it.
pub const RETRY_AFTER_HONOURED_MAX: Duration = Duration::from_secs(60);
/// Longest sleep with a permit in hand while others wait for one.
pub const HOLD_MAX: Duration = Duration::from_secs(1);

/// How one target is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryOptions {
    /// Attempts, the first included; at most [`ATTEMPTS_MAX`].
    pub attempts: NonZeroU32,
    /// The wait before retry n (from 0) is at most this times 2 to the n + 1.
    pub base: Duration,
    /// Shortest wait.
    pub min_delay: Duration,
    /// Longest wait of our own choosing.
    pub max_delay: Duration,
}

impl RetryOptions {
    /// The delays that fit most dependencies.
    #[must_use]
    pub const fn attempts(attempts: NonZeroU32) -> Self {
        Self { attempts, base: BASE_DEFAULT, min_delay: MIN_DELAY_DEFAULT, max_delay: MAX_DELAY_DEFAULT }
    }

    pub(crate) fn attempts_max(&self) -> u32 {
        self.attempts.get().min(ATTEMPTS_MAX)
    }
}

/// All that a decision rests on besides the failure itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// Attempts made at this target.
    pub(crate) made: u32,
    /// Most attempts at this target.
    pub(crate) attempts_max: u32,
    /// Whether the call may be repeated: no effect, or a key that the other side honours.
    pub(crate) repeatable: bool,
    /// Whether something was passed to the caller.
    pub(crate) committed: bool,
    /// Whether a new session was asked for once already.
    pub(crate) renewed: bool,
    /// Whether others wait for a permit.
    pub(crate) others_wait: bool,
    /// Whether the allowance can pay one more.
    pub(crate) affordable: bool,
    /// What an attempt could use if it began now.
    pub(crate) usable: Duration,
    /// The full timeout of an attempt.
    pub(crate) attempt: Duration,
    /// Below this an attempt is not worth making.
    pub(crate) min_useful: Duration,
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Ask again after this wait.
    After(Duration),
    /// Return the failure; it could have been retried, and is not.
    Refuse(RetryRefusal),
    /// Return the failure: retrying was never a question.
    Stop,
}

/// Decides. `delay` is the wait before the next attempt, its jitter already in.
pub(crate) fn decide(failure: &Failure, delay: Duration, facts: &Facts) -> Decision {
    if failure.class.row.is_local() {
        return Decision::Stop;
    }
    if facts.committed {
        return Decision::Refuse(RetryRefusal::Committed);
    }
    let (allowed, needed) = match failure.class.retry {
        Retry::Never => (false, facts.min_useful),
        Retry::Always => (true, facts.min_useful),
        Retry::IfRepeatable => (facts.repeatable, facts.min_useful),
        Retry::IfFullAttemptFits => (facts.repeatable, facts.min_useful.max(facts.attempt)),
        Retry::OnceOnNewSession => (!facts.renewed, facts.min_useful),
    };
    if !allowed {
        return Decision::Refuse(RetryRefusal::NotRepeatable);
    }
    if facts.made >= facts.attempts_max {
        return Decision::Refuse(RetryRefusal::AttemptsUsed);
    }
    if failure.retry_after.is_some_and(|told| told > RETRY_AFTER_HONOURED_MAX || told > facts.usable) {
        return Decision::Refuse(RetryRefusal::RetryAfterTooLong);
    }
    if delay.saturating_add(needed) > facts.usable {
        return Decision::Refuse(RetryRefusal::NoTime);
    }
    if !facts.affordable {
        return Decision::Refuse(RetryRefusal::Allowance);
    }
    if facts.others_wait && delay > HOLD_MAX {
        return Decision::Refuse(RetryRefusal::OthersWait);
    }
    Decision::After(delay)
}

#[cfg(test)]
mod tests {
    use ambit_core::signal::Timer;

    use super::*;
    use crate::classify::{Outcome, Refuser};

    const FACTS: Facts = Facts {
        made: 1,
        attempts_max: 2,
        repeatable: true,
        committed: false,
        renewed: false,
        others_wait: false,
        affordable: true,
        usable: Duration::from_secs(30),
        attempt: Duration::from_secs(20),
        min_useful: Duration::from_secs(3),
    };
    const DELAY: Duration = Duration::from_millis(200);

    /// A failure under some facts, against `again` or the reason why not.
    #[track_caller]
    fn check(outcome: Outcome, facts: Facts, expected: &str) {
        check_told(&Failure::new(outcome), DELAY, facts, expected);
    }

    #[track_caller]
    fn check_told(failure: &Failure, delay: Duration, facts: Facts, expected: &str) {
        let decided = match decide(failure, delay, &facts) {
            Decision::After(wait) => {
                assert_eq!(wait, delay);
                "again"
            }
            Decision::Refuse(reason) => reason.as_str(),
            Decision::Stop => "stop",
        };
        assert_eq!(decided, expected);
    }

    #[test]
    fn the_class_decides_first() {
        let once = Facts { repeatable: false, ..FACTS };
        for (outcome, repeatable, not) in [
            (Outcome::status(429), "again", "again"),
            (Outcome::status(503), "again", "again"),
            (Outcome::NeverArrived, "again", "again"),
            (Outcome::SessionExpired, "again", "again"),
            (Outcome::status(500), "again", "not_repeatable"),
            (Outcome::Malformed, "again", "not_repeatable"),
            (Outcome::Broken, "again", "not_repeatable"),
            (Outcome::timed_out(Timer::Attempt), "again", "not_repeatable"),
            (Outcome::status(400), "not_repeatable", "not_repeatable"),
            (Outcome::Empty, "not_repeatable", "not_repeatable"),
            (Outcome::Refused(Refuser::Target), "stop", "stop"),
            (Outcome::Refused(Refuser::Whole), "stop", "stop"),
            (Outcome::Cancelled, "stop", "stop"),
            (Outcome::HedgeLost, "stop", "stop"),
            (Outcome::timed_out(Timer::Deadline), "stop", "stop"),
        ] {
            check(outcome, FACTS, repeatable);
            check(outcome, once, not);
        }
    }

    #[test]
    fn each_bound_holds_at_its_limit_and_not_one_past_it() {
        let overloaded = Outcome::status(503);
        check(overloaded, Facts { made: 1, ..FACTS }, "again");
        check(overloaded, Facts { made: 2, ..FACTS }, "attempts_used");
        check(overloaded, Facts { usable: DELAY + FACTS.min_useful, ..FACTS }, "again");
        check(overloaded, Facts { usable: DELAY + FACTS.min_useful - Duration::from_nanos(1), ..FACTS }, "no_time");
        // After a timeout only a full attempt is worth anything.
        let silent = Outcome::timed_out(Timer::Attempt);
        check(silent, Facts { usable: DELAY + FACTS.attempt, ..FACTS }, "again");
        check(silent, Facts { usable: DELAY + FACTS.attempt - Duration::from_nanos(1), ..FACTS }, "no_time");
        check(overloaded, Facts { affordable: false, ..FACTS }, "allowance");
        check(overloaded, Facts { committed: true, ..FACTS }, "committed");
        check(Outcome::SessionExpired, Facts { renewed: true, ..FACTS }, "not_repeatable");
    }

    #[test]
    fn a_long_pushback_is_neither_waited_for_nor_shortened() {
        let long = Facts { usable: Duration::from_secs(3_600), ..FACTS };
        let told = |told| Failure::new(Outcome::status(429)).with_retry_after(Some(told));
        check_told(&told(RETRY_AFTER_HONOURED_MAX), RETRY_AFTER_HONOURED_MAX, long, "again");
        let more = RETRY_AFTER_HONOURED_MAX + Duration::from_nanos(1);
        check_told(&told(more), more, long, "retry_after_too_long");
        check_told(&told(FACTS.usable), FACTS.usable, FACTS, "no_time");
        let more = FACTS.usable + Duration::from_nanos(1);
        check_told(&told(more), more, FACTS, "retry_after_too_long");
        check_told(&told(Duration::MAX), Duration::MAX, FACTS, "retry_after_too_long");
    }

    #[test]
    fn a_permit_is_not_slept_on_for_long_while_others_wait() {
        let waiting = Facts { others_wait: true, ..FACTS };
        let failure = Failure::new(Outcome::status(503));
        check_told(&failure, HOLD_MAX, waiting, "again");
        check_told(&failure, HOLD_MAX + Duration::from_nanos(1), waiting, "others_wait");
        check_told(&failure, HOLD_MAX + Duration::from_nanos(1), FACTS, "again");
    }

    #[test]
    fn the_strongest_reason_is_the_one_that_is_named() {
        let all =
            Facts { made: 2, repeatable: false, committed: true, others_wait: true, affordable: false, usable: Duration::ZERO, ..FACTS };
        check(Outcome::status(500), all, "committed");
        check(Outcome::status(500), Facts { committed: false, ..all }, "not_repeatable");
        check(Outcome::status(503), Facts { committed: false, ..all }, "attempts_used");
        check(Outcome::status(503), Facts { committed: false, made: 1, ..all }, "no_time");
    }

    #[test]
    fn attempts_have_a_ceiling() {
        let options = |n| RetryOptions::attempts(NonZeroU32::new(n).unwrap());
        assert_eq!(options(ATTEMPTS_MAX).attempts_max(), ATTEMPTS_MAX);
        assert_eq!(options(ATTEMPTS_MAX + 1).attempts_max(), ATTEMPTS_MAX);
        assert_eq!(ATTEMPTS_DEFAULT.get(), 2);
    }
}
