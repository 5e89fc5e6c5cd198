//! Wall time, the only kind that two processes on one database share: leases are told in it. Given from outside, so
//! that a test owns it; durations inside a process are measured with tokio's clock, never with this one.

use std::fmt;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Tells the wall time in milliseconds since 1970.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// Reads the system's clock; a clock before 1970 says 0.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads wall time")]
    pub fn system() -> Self {
        Self::from_fn(|| {
            let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
    }

    /// Asks `now` for the time.
    pub fn from_fn(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
