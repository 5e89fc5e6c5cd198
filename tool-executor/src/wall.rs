//! Wall time, for what others read: headers and listings. No decision of ours hangs on it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The wall time now.
#[expect(clippy::disallowed_methods, reason = "goes into headers and compares dates of headers; nothing is decided or journalled by it")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// RFC 3339 in UTC, to the second.
pub(crate) fn utc(since_1970: Duration) -> String {
    format!("{}Z", seconds(since_1970.as_secs()))
}

/// RFC 3339 in UTC, to the millisecond.
pub(crate) fn utc_ms(time: SystemTime) -> String {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format!("{}.{:03}Z", seconds(since_1970.as_secs()), since_1970.subsec_millis())
}

fn seconds(since_1970: u64) -> String {
    // Days since 1970 to a date of the Gregorian calendar, counting from a 1 March (H. Hinnant, "chrono-compatible
    // low-level date algorithms"): leap days fall at the end of a year then.
    let (days, second) = (since_1970 / 86_400 + 719_468, since_1970 % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_796_082_309, "2026-11-30T23:45:09Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(seconds)), text);
        }
        assert_eq!(utc_ms(UNIX_EPOCH + Duration::from_millis(1_007)), "1970-01-01T00:00:01.007Z");
    }
}
