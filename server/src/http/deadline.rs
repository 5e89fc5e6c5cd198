//! The deadline as a caller's headers give it: the smallest wins, what cannot be read is an error and never "unlimited".

use axum::http::HeaderMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::http::problem::{Code, FieldError, Problem};

/// What the headers leave, and which of them said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeaderDeadline {
    /// Milliseconds from the arrival of the request.
    pub(crate) ms: u64,
    /// Name of the header.
    pub(crate) source: &'static str,
}

/// Reads all four headers. `wall_ms` is the moment of arrival, milliseconds since 1970.
///
/// # Errors
/// 400 for what cannot be read, 504 for what is past.
pub(crate) fn of_headers(headers: &HeaderMap, wall_ms: u64) -> Result<Option<HeaderDeadline>, Problem> {
    let mut smallest: Option<HeaderDeadline> = None;
    let mut errors = Vec::new();
    for (source, read) in [
        ("x-request-deadline", absolute as fn(&str, u64) -> Option<i128>),
        ("x-request-timeout-ms", relative),
        ("grpc-timeout", grpc),
        ("x-envoy-expected-rq-timeout-ms", relative),
    ] {
        for value in headers.get_all(source) {
            let left = value.to_str().ok().and_then(|text| read(text.trim(), wall_ms));
            match left {
                None => errors.push(FieldError {
                    detail: "cannot be read: an absolute time is RFC 3339 or Unix milliseconds, a timeout is a number of milliseconds"
                        .into(),
                    pointer: source.into(),
                }),
                Some(left) if left <= 0 => {
                    return Err(Problem::at(Code::DeadlineExceeded, source, format!("`{source}` leaves no time; nothing was sent")));
                }
                Some(left) => {
                    let ms = u64::try_from(left).unwrap_or(u64::MAX);
                    if smallest.is_none_or(|known| ms < known.ms) {
                        smallest = Some(HeaderDeadline { ms, source });
                    }
                }
            }
        }
    }
    if errors.is_empty() { Ok(smallest) } else { Err(Problem::invalid(errors)) }
}

fn absolute(text: &str, wall_ms: u64) -> Option<i128> {
    let at = match whole(text) {
        Some(unix_ms) => unix_ms,
        None => OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp_nanos() / 1_000_000,
    };
    Some(at - i128::from(wall_ms))
}

fn relative(text: &str, _wall_ms: u64) -> Option<i128> {
    whole(text)
}

/// Digits, perhaps behind a minus: `+5` is nothing that a client writes on purpose.
fn whole(text: &str) -> Option<i128> {
    if text.starts_with('+') { None } else { text.parse::<i64>().ok().map(i128::from) }
}

/// At most eight digits and a unit (gRPC over HTTP/2, "Requests").
fn grpc(text: &str, _wall_ms: u64) -> Option<i128> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: i128 = digits.parse().ok()?;
    match unit {
        "H" => Some(amount * 3_600_000),
        "M" => Some(amount * 60_000),
        "S" => Some(amount * 1_000),
        "m" => Some(amount),
        "u" => Some(amount / 1_000),
        "n" => Some(amount / 1_000_000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn check(lines: &[(&'static str, &str)], expected: Result<Option<(u64, &str)>, Code>) {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let got = of_headers(&headers, NOW).map(|found| found.map(|found| (found.ms, found.source))).map_err(|problem| problem.code());
        assert_eq!(got, expected, "{lines:?}");
    }

    #[test]
    fn each_form_is_read_and_the_smallest_wins() {
        check(&[], Ok(None));
        check(&[("x-request-timeout-ms", "1500")], Ok(Some((1_500, "x-request-timeout-ms"))));
        check(&[("x-request-deadline", "1800000002000")], Ok(Some((2_000, "x-request-deadline"))));
        check(&[("x-request-deadline", "2027-01-15T08:00:03Z")], Ok(Some((3_000, "x-request-deadline"))));
        check(&[("grpc-timeout", "2S")], Ok(Some((2_000, "grpc-timeout"))));
        check(&[("grpc-timeout", "5000000u")], Ok(Some((5_000, "grpc-timeout"))));
        check(&[("x-request-timeout-ms", "900"), ("grpc-timeout", "1S")], Ok(Some((900, "x-request-timeout-ms"))));
        check(&[("x-request-timeout-ms", "900"), ("x-request-timeout-ms", "800")], Ok(Some((800, "x-request-timeout-ms"))));
    }

    #[test]
    fn what_leaves_no_time_is_504_and_what_cannot_be_read_is_400() {
        for value in ["0", "-1"] {
            check(&[("x-request-timeout-ms", value)], Err(Code::DeadlineExceeded));
        }
        check(&[("x-request-deadline", "1799999999999")], Err(Code::DeadlineExceeded));
        for value in ["", "soon", "1.5", "10 s", "+5000", "99999999999999999999"] {
            check(&[("x-request-timeout-ms", value)], Err(Code::InvalidRequest));
        }
        check(&[("x-request-deadline", "+1800000002000")], Err(Code::InvalidRequest));
        for value in ["", "S", "123456789S", "1x", "-1S", "1é"] {
            check(&[("grpc-timeout", value)], Err(Code::InvalidRequest));
        }
    }
}
