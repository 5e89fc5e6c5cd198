//! Dates as HTTP writes them (RFC 9110, 5.6.7): one form to send, and two old ones that have to be read.

use std::time::Duration;

use time::{Date, Month, PrimitiveDateTime, Time};

/// Names of the months, as they are written.
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// A year of two digits is never further ahead than this (RFC 9110).
const AHEAD_YEARS_MAX: i32 = 50;
/// The mean year in seconds, to tell the present one.
const YEAR_SECONDS: u64 = 31_556_952;

/// Reads a date as the time since 1970. `now` tells which century a year of two digits
/// means (without it, the present one). The day of the week is
/// not checked: it says nothing that the rest does not.
pub(super) fn http_date(text: &str, now: Option<Duration>) -> Option<Duration> {
    let mut words = text.split_ascii_whitespace();
    let mut word = || words.next();
    let weekday = word()?;
    let (day, month, year, time) = if weekday.ends_with(',') {
        let second = word()?;
        let (day, month, year) = if second.contains('-') {
            // Sunday, 06-Nov-94 08:49:37 GMT
            let mut parts = second.split('-');
            let date = (parts.next()?, parts.next()?, century(parts.next()?, now)?);
            if parts.next().is_some() {
                return None;
            }
            date
        } else {
            // Sun, 06 Nov 1994 08:49:37 GMT
            (second, word()?, four(word()?)?)
        };
        let time = word()?;
        if word()? != "GMT" {
            return None;
        }
        (day, month, year, time)
    } else {
        // Sun Nov  6 08:49:37 1994
        let (month, day, time) = (word()?, word()?, word()?);
        (day, month, four(word()?)?, time)
    };
    if word().is_some() {
        return None;
    }
    let month = Month::try_from(u8::try_from(MONTHS.iter().position(|name| *name == month)?).ok()? + 1).ok()?;
    let date = Date::from_calendar_date(year, month, day.parse().ok()?).ok()?;
    let seconds = PrimitiveDateTime::new(date, clock(time)?).assume_utc().unix_timestamp();
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

fn clock(text: &str) -> Option<Time> {
    let mut parts = text.split(':');
    let mut two = || parts.next().filter(|part| part.len() == 2)?.parse::<u8>().ok();
    let (hour, minute, second) = (two()?, two()?, two()?);
    if parts.next().is_some() {
        return None;
    }
    // A leap second is written as 60; the second before it is near enough.
    Time::from_hms(hour, minute, second.min(59)).ok().filter(|_| second <= 60)
}

fn four(text: &str) -> Option<i32> {
    if text.len() == 4 { text.parse().ok() } else { None }
}

fn century(text: &str, now: Option<Duration>) -> Option<i32> {
    if text.len() != 2 {
        return None;
    }
    let year = text.parse::<i32>().ok()?;
    let Some(now) = now else { return Some(2000 + year) };
    let this_year = 1970 + i32::try_from(now.as_secs() / YEAR_SECONDS).ok()?;
    let year = this_year - this_year % 100 + year;
    Some(if year > this_year + AHEAD_YEARS_MAX { year - 100 } else { year })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(http_date(text, Some(Duration::from_secs(1_800_000_000))).map(|date| date.as_secs()), expected, "{text}");
    }

    #[test]
    fn all_three_forms_mean_the_same_moment() {
        check("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777));
        check("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777));
        check("Sun Nov  6 08:49:37 1994", Some(784_111_777));
    }

    #[test]
    fn a_year_of_two_digits_is_at_most_fifty_ahead() {
        check("Friday, 15-Jan-77 08:00:00 GMT", Some(3_377_923_200));
        check("Saturday, 15-Jan-78 08:00:00 GMT", Some(253_699_200));
    }

    #[test]
    fn a_leap_second_is_read_and_a_date_before_1970_is_the_beginning() {
        check("Sat, 31 Dec 2016 23:59:60 GMT", Some(1_483_228_799));
        check("Mon, 01 Jan 1900 00:00:00 GMT", Some(0));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "Sun",
            "Sun,",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37 GMT GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Növ 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06-Nov-94-2 08:49:37 GMT",
            "Sun Nov 6 1994",
            "Sun Nov 6 08:49:37 1994 GMT",
        ] {
            check(text, None);
        }
    }
}
