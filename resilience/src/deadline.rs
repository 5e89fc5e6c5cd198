//! Points in time that only ever come nearer.
//!
//! A deadline is passed down and shrinks; a timeout is made from it at the last moment.

use std::time::Duration;

use ambit_core::signal::Timer;
use tokio::time::Instant;

/// Stands for "later than anything here": adding to a moment must not overflow. A day is beyond every deadline.
const FAR: Duration = Duration::from_secs(86_400);

/// The time left until `deadline`; zero once it has passed.
#[must_use]
pub fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// The moment `wait` from now, at most a day ahead.
#[must_use]
pub fn after(wait: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(wait.min(FAR)).unwrap_or(now)
}

/// The timeout of one attempt: what is left less the margin for the way back, at most its cap.
#[must_use]
pub fn attempt_timeout(left: Duration, margin: Duration, cap: Duration) -> Duration {
    left.saturating_sub(margin).min(cap)
}

/// When one logical call has to be over, and which timer says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) at: Instant,
    pub(crate) timer: Timer,
    margin: Duration,
}

impl End {
    /// The nearer of the deadline and the call's own time, counted from now.
    pub(crate) fn of(deadline: Instant, request: Duration, margin: Duration) -> Self {
        let own = after(request);
        if own < deadline { Self { at: own, timer: Timer::Request, margin } } else { Self { at: deadline, timer: Timer::Deadline, margin } }
    }

    /// What an attempt may use now.
    pub(crate) fn usable(self) -> Duration {
        left(self.at).saturating_sub(self.margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn an_attempt_gets_what_is_left_less_the_margin_at_most_its_cap() {
        for (left, expected) in [(ms(30_000), 20_000), (ms(20_150), 20_000), (ms(20_149), 19_999), (ms(151), 1), (ms(150), 0), (ms(0), 0)] {
            assert_eq!(attempt_timeout(left, ms(150), ms(20_000)), ms(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_nearer_end_counts_and_names_the_timer() {
        let far = End::of(after(ms(40_000)), ms(30_000), ms(100));
        assert_eq!((far.timer, far.usable()), (Timer::Request, ms(29_900)));
        let near = End::of(after(ms(30_000)), ms(30_000), ms(100));
        assert_eq!((near.timer, near.usable()), (Timer::Deadline, ms(29_900)));
        tokio::time::advance(ms(29_950)).await;
        assert_eq!((near.usable(), left(near.at)), (ms(0), ms(50)));
        tokio::time::advance(ms(100)).await;
        assert_eq!(left(near.at), ms(0));
    }

    #[tokio::test(start_paused = true)]
    async fn no_wait_is_too_long_to_add() {
        assert_eq!(left(after(Duration::MAX)), FAR);
    }
}
