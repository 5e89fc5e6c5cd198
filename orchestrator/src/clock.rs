//! The session's clock: milliseconds since the request arrived, on the process's monotonic clock.
//!
//! The only place of this crate that reads wall time. A session that is taken up again goes on at the place that the
//! wall clock gives, never before the last moment in its journal.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Milliseconds since 1970 on the wall clock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Maps moments of one session to instants of this process.
#[derive(Debug, Clone, Copy)]
pub struct SessionClock {
    since: Instant,
    at_since: u64,
}

impl SessionClock {
    /// The clock of a session whose request arrived at `arrived`.
    #[must_use]
    pub const fn starting(arrived: Instant) -> Self {
        Self { since: arrived, at_since: 0 }
    }

    /// The clock of a session taken up now: `wall_started` is its start, `last` the last moment in its journal.
    #[must_use]
    pub fn resuming(wall_started: u64, last: u64) -> Self {
        Self { since: Instant::now(), at_since: wall_ms().saturating_sub(wall_started).max(last) }
    }

    /// Now, in milliseconds on the session's clock.
    #[must_use]
    pub fn now(&self) -> u64 {
        let elapsed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at_since.saturating_add(elapsed)
    }

    /// The instant of a moment; one that lies before this process knew of the session is now past all the same.
    #[must_use]
    pub fn instant(&self, at: u64) -> Instant {
        self.since + Duration::from_millis(at.saturating_sub(self.at_since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moments_and_instants_agree() {
        let clock = SessionClock::starting(Instant::now());
        tokio::time::advance(Duration::from_millis(1_500)).await;
        assert_eq!(clock.now(), 1_500);
        assert_eq!(clock.instant(2_000), Instant::now() + Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_resumed_clock_never_goes_back() {
        let future = wall_ms() + 60_000;
        let clock = SessionClock::resuming(future, 7_000);
        assert_eq!(clock.now(), 7_000);
        assert_eq!(clock.instant(6_000), Instant::now());
    }
}
