//! When the other side says that it wants to be asked again.
//!
//! Three families of headers, the most exact first: `retry-after-ms`, `retry-after`, `x-ratelimit-reset*`. A value that
//! does not have its form is as good as not sent: it never shortens, and never lengthens, a wait. Numbers are
//! digits[.digits] and nothing else, read as integers, so that no text becomes NaN, negative or infinite; what is too
//! large saturates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::date::http_date;

/// A bare number from here on is a moment in seconds since 1970 (September 2001), below it a length of time.
const EPOCH_SECONDS_MIN: u64 = 1_000_000_000;
/// A bare number from here on is a moment in milliseconds since 1970.
const EPOCH_MILLIS_MIN: u64 = EPOCH_SECONDS_MIN * 1_000;
/// More limits than this are not told by one answer; further ones are not looked at.
const LIMITS_MAX: usize = 8;

/// Reads how long to stay away from the headers of an answer, in whichever form the other side chose.
///
/// Dates are compared with the answer's own `Date`, so that a wrong clock on either side does no harm; `now` (wall
/// clock) stands in where it is missing. With neither of them dates are ignored. Names are compared without regard to
/// case.
#[must_use]
pub fn retry_after<'h>(headers: impl IntoIterator<Item = (&'h str, &'h str)>, now: Option<SystemTime>) -> Option<Duration> {
    let told = Told::read(headers);
    let now = now.and_then(|now| now.duration_since(UNIX_EPOCH).ok());
    let today = told.date.and_then(|text| http_date(text, now)).or(now);
    told.millis
        .and_then(|text| number(text, MILLI))
        .or_else(|| told.after.and_then(|text| seconds_or_date(text, today)))
        .or_else(|| told.limits.longest(today))
}

/// The headers that matter, as they came.
#[derive(Default)]
struct Told<'h> {
    date: Option<&'h str>,
    millis: Option<&'h str>,
    after: Option<&'h str>,
    limits: Limits<'h>,
}

impl<'h> Told<'h> {
    fn read(headers: impl IntoIterator<Item = (&'h str, &'h str)>) -> Self {
        let mut told = Self::default();
        for (name, value) in headers {
            let value = value.trim_matches([' ', '\t']);
            if name.eq_ignore_ascii_case("date") {
                told.date = Some(value);
            } else if name.eq_ignore_ascii_case("retry-after-ms") {
                told.millis = Some(value);
            } else if name.eq_ignore_ascii_case("retry-after") {
                told.after = Some(value);
            } else if let Some(limit) = suffix(name, "x-ratelimit-reset") {
                told.limits.at(limit, |entry| entry.reset = Some(value));
            } else if let Some(limit) = suffix(name, "x-ratelimit-remaining") {
                told.limits.at(limit, |entry| entry.used_up = value == "0");
            }
        }
        told
    }
}

/// What was told of each limit: when it is lifted, and whether it is the one that was reached.
#[derive(Default)]
struct Limits<'h> {
    entries: [Limit<'h>; LIMITS_MAX],
    len: usize,
}

#[derive(Default, Clone, Copy)]
struct Limit<'h> {
    name: &'h str,
    reset: Option<&'h str>,
    used_up: bool,
}

impl<'h> Limits<'h> {
    fn at(&mut self, name: &'h str, set: impl FnOnce(&mut Limit<'h>)) {
        let known = self.entries[..self.len].iter().position(|entry| entry.name.eq_ignore_ascii_case(name));
        let place = known.unwrap_or(self.len);
        if let Some(entry) = self.entries.get_mut(place) {
            entry.name = name;
            set(entry);
            self.len = self.len.max(place + 1);
        }
    }

    /// The longest of those that are used up; of all, where none says so: a limit may be too small without being 0.
    fn longest(&self, today: Option<Duration>) -> Option<Duration> {
        let told = self.entries[..self.len].iter();
        let reset = |entry: &Limit<'h>| reset(entry.reset?, today);
        told.clone().filter(|entry| entry.used_up).filter_map(reset).max().or_else(|| told.filter_map(reset).max())
    }
}

/// The part of a header's name after `prefix`, if it starts with it.
fn suffix<'h>(name: &'h str, prefix: &str) -> Option<&'h str> {
    let (head, tail) = name.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(tail)
}

fn seconds_or_date(text: &str, today: Option<Duration>) -> Option<Duration> {
    number(text, SECOND).or_else(|| Some(http_date(text, today)?.saturating_sub(today?)))
}

/// A duration (`6m0s`, `120ms`), seconds, or a moment in seconds or milliseconds since 1970.
fn reset(text: &str, today: Option<Duration>) -> Option<Duration> {
    let Some(bare) = number(text, SECOND) else { return duration(text) };
    Some(match bare.as_secs() {
        ..EPOCH_SECONDS_MIN => bare,
        EPOCH_SECONDS_MIN..EPOCH_MILLIS_MIN => bare.saturating_sub(today?),
        EPOCH_MILLIS_MIN.. => number(text, MILLI)?.saturating_sub(today?),
    })
}

/// One unit of time in nanoseconds.
type Unit = u64;
const MICRO: Unit = 1_000;
const MILLI: Unit = 1_000 * MICRO;
const SECOND: Unit = 1_000 * MILLI;
const MINUTE: Unit = 60 * SECOND;
const HOUR: Unit = 60 * MINUTE;
const DAY: Unit = 24 * HOUR;

/// Numbers with units, one after the other: `1h2m3.5s`.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    // Every turn eats at least one digit and one letter.
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (count, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit = match unit {
            "us" | "µs" => MICRO,
            "ms" => MILLI,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            _ => return None,
        };
        sum = sum.saturating_add(number(count, unit)?);
        rest = tail;
    }
    (!text.is_empty()).then_some(sum)
}

/// Reads digits[.digits] as so many units.
fn number(text: &str, unit: Unit) -> Option<Duration> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (digits(whole)?, billionths(fraction)?),
        None => (digits(text)?, 0),
    };
    let nanos = u128::from(whole) * u128::from(unit) + u128::from(fraction) * u128::from(unit) / 1_000_000_000;
    Some(Duration::new(u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX), u32::try_from(nanos % 1_000_000_000).unwrap_or_default()))
}

/// At least one digit and nothing but digits, saturating.
fn digits(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(0_u64, |sum, byte| byte.is_ascii_digit().then(|| sum.saturating_mul(10).saturating_add(u64::from(byte - b'0'))))
}

/// The digits behind a point; beyond the ninth they are checked and not counted.
fn billionths(text: &str) -> Option<u64> {
    digits(text)?;
    text.bytes().chain(std::iter::repeat(b'0')).take(9).try_fold(0_u64, |sum, byte| Some(sum * 10 + u64::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    /// Headers, one a line, against milliseconds; `-` means that nothing was told.
    #[track_caller]
    fn check(headers: &str, expected: &str) {
        let headers = headers.split('|').filter_map(|line| line.split_once(": "));
        let told = retry_after(headers, Some(UNIX_EPOCH + Duration::from_secs(NOW)));
        let told = told.map_or_else(|| "-".to_owned(), |told| told.as_millis().to_string());
        assert_eq!(told, expected);
    }

    #[test]
    fn each_form_is_read() {
        check("retry-after-ms: 1500", "1500");
        check("retry-after-ms: 0.5", "0");
        check("retry-after: 7", "7000");
        check("Retry-After: 0", "0");
        check("retry-after: 1.25", "1250");
        check("retry-after:  3\t", "3000");
        check("x-ratelimit-reset-requests: 1s", "1000");
        check("x-ratelimit-reset-tokens: 6m0s", "360000");
        check("x-ratelimit-reset-tokens: 120ms", "120");
        check("x-ratelimit-reset-tokens: 7.66s", "7660");
        check("x-ratelimit-reset-requests: 1d2h3m4.5s", "93784500");
        check("x-ratelimit-reset-requests: 500us", "0");
        check("x-ratelimit-reset-requests: 12", "12000");
        check("x-ratelimit-reset: 1800000010", "10000");
        check("x-ratelimit-reset: 1800000010500", "10500");
        check("x-ratelimit-reset: 1799999999", "0");
    }

    #[test]
    fn the_most_exact_one_wins_and_a_broken_one_gives_way() {
        check("x-ratelimit-reset-tokens: 9s|retry-after: 5|retry-after-ms: 250", "250");
        check("x-ratelimit-reset-tokens: 9s|retry-after: 5|retry-after-ms: soon", "5000");
        check("x-ratelimit-reset-tokens: 9s|retry-after: soon", "9000");
        check("retry-after: soon", "-");
        check("content-type: text/html", "-");
        check("", "-");
    }

    #[test]
    fn a_date_is_compared_with_the_answers_own_clock() {
        // The server's clock is an hour behind ours; what counts is the difference of its two dates.
        let date = "date: Fri, 15 Jan 2027 07:00:00 GMT";
        check(&format!("{date}|retry-after: Fri, 15 Jan 2027 07:00:20 GMT"), "20000");
        check(&format!("{date}|retry-after: Friday, 15-Jan-27 07:00:20 GMT"), "20000");
        check(&format!("{date}|retry-after: Fri Jan 15 07:00:20 2027"), "20000");
        check(&format!("{date}|retry-after: Fri, 15 Jan 2027 06:59:59 GMT"), "0");
        check(&format!("{date}|x-ratelimit-reset: 1799996430"), "30000");
        // Without a readable `Date` our own clock has to do: it is 08:00:00.
        check("retry-after: Fri, 15 Jan 2027 08:00:03 GMT", "3000");
        check("date: yesterday|retry-after: Fri, 15 Jan 2027 08:00:03 GMT", "3000");
    }

    #[test]
    fn without_any_clock_only_lengths_of_time_are_believed() {
        let told = |name, value| retry_after([(name, value)], None);
        assert_eq!(told("retry-after", "Fri, 15 Jan 2027 08:00:03 GMT"), None);
        assert_eq!(told("x-ratelimit-reset", "1800000010"), None);
        assert_eq!(told("x-ratelimit-reset", "10"), Some(Duration::from_secs(10)));
        let dated = [("date", "Friday, 15-Jan-27 08:00:00 GMT"), ("retry-after", "Friday, 15-Jan-27 08:00:03 GMT")];
        assert_eq!(retry_after(dated, None), Some(Duration::from_secs(3)));
    }

    #[test]
    fn of_several_limits_the_one_that_was_reached_counts() {
        check("x-ratelimit-reset-requests: 20s|x-ratelimit-reset-tokens: 1s", "20000");
        check(
            "x-ratelimit-reset-requests: 1h|x-ratelimit-remaining-requests: 14|x-ratelimit-reset-tokens: 2s|x-ratelimit-remaining-tokens: 0",
            "2000",
        );
        check("x-ratelimit-remaining-tokens: 0", "-");
        let many: String = (0..LIMITS_MAX).map(|n| format!("x-ratelimit-reset-{n}: {n}|")).collect();
        check(&format!("{many}x-ratelimit-reset-one-more: 99"), "7000");
    }

    #[test]
    fn what_is_no_number_is_ignored() {
        for text in ["-1", "+1", "NaN", "inf", "1e3", ".5", "5.", "1.2.3", "0x10", "1,5", "1 2", "١", "five", "", "5s", "1_000"] {
            check(&format!("retry-after: {text}"), "-");
            check(&format!("retry-after-ms: {text}"), "-");
        }
        for text in ["-1s", "s", "1", "1x", "1.2.3s", "1s2", "ms", "5 s", "1sm"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_too_large_saturates() {
        let nines = "9".repeat(400);
        check(&format!("retry-after: {nines}"), &Duration::from_secs(u64::MAX).as_millis().to_string());
        assert!(retry_after([("retry-after-ms", &*nines)], None).unwrap() > Duration::from_secs(60));
        assert!(retry_after([("x-ratelimit-reset", &*format!("{nines}d"))], None).unwrap() > Duration::from_secs(60));
        check(&format!("retry-after: 1.{nines}"), "1999");
    }
}
