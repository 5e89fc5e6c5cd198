//! Wall time without reading a clock: one reading taken by whoever starts the process, and monotonic time since then.

use std::time::{Duration, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

/// One reading of the wall clock and the moment of it.
#[derive(Debug, Clone, Copy)]
pub struct WallClock {
    wall: SystemTime,
    at: Instant,
}

impl WallClock {
    /// It was `wall` o'clock at the moment `at`.
    #[must_use]
    pub const fn new(wall: SystemTime, at: Instant) -> Self {
        Self { wall, at }
    }

    /// The wall time at a moment of this process, never before the reading.
    #[must_use]
    pub fn wall_at(&self, moment: Instant) -> SystemTime {
        self.wall.checked_add(moment.saturating_duration_since(self.at)).unwrap_or(self.wall)
    }

    /// That moment as RFC 3339 in UTC with milliseconds; `None` beyond the year 9999.
    pub(crate) fn rfc3339(&self, moment: Instant) -> Option<String> {
        let wall = OffsetDateTime::from(self.wall_at(moment));
        let millis = Duration::from_millis(wall.millisecond().into()).as_nanos();
        let wall = wall.replace_nanosecond(u32::try_from(millis).ok()?).ok()?;
        wall.format(&Rfc3339).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_moment_becomes_a_point_in_time_in_milliseconds() {
        let at = Instant::now();
        let clock = WallClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000), at);
        assert_eq!(clock.rfc3339(at + Duration::from_micros(1_250_900)).unwrap(), "2027-01-15T08:00:01.25Z");
        assert_eq!(clock.rfc3339(at - Duration::from_secs(5)).unwrap(), "2027-01-15T08:00:00Z", "never before the reading");
    }
}
