//! From what went wrong on the wire to an [`Outcome`], with the provider's words for people beside it.

use std::error::Error as _;
use std::time::Duration;

use ambit_core::signal::Timer;
use ambit_resilience::{Failure, Outcome, Says, retry_after};
use http::HeaderMap;
use reqwest::{Response, Url};
use tokio::time::{Instant, timeout_at};

use super::Provider;
use super::read::NoTurn;
use super::refusal::ProviderError;
use super::sse::TooLarge;
use crate::stage::LegStage;

/// Read of an error's body, bytes: more than any message has.
const ERROR_BODY_MAX: usize = 64 << 10;
/// Longest wait for an error's body: its status says enough.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(2);
/// Says what to do about a status, overriding what we would.
const SHOULD_RETRY: &str = "x-should-retry";

/// A response that is no success.
pub(super) async fn of_response(provider: &Provider, leg: &LegStage<'_>, mut response: Response) -> Failure {
    let patience = Instant::now() + ERROR_BODY_WAIT;
    let mut body = Vec::new();
    // Ends with the body, its bound, or the patience.
    while let Ok(Ok(Some(bytes))) = timeout_at(patience, response.chunk()).await {
        body.extend_from_slice(&bytes[..bytes.len().min(ERROR_BODY_MAX - body.len())]);
        if body.len() == ERROR_BODY_MAX {
            break;
        }
    }
    let status = response.status().as_u16();
    let error = ProviderError::of_body(&body);
    let mut failure = of_error(provider, status, response.headers(), &error);
    leg.unbilled();
    let words = if error.message.trim().is_empty() { response.status().canonical_reason().unwrap_or("no words") } else { &error.message };
    let mut detail = format!("the provider answered {status}: {words}");
    if status == 404 && failure.class.row == ambit_resilience::Row::Rejected {
        detail.push_str(&format!(" (does `base_url` end where `/{}` follows, often in `/v1`?)", provider.path));
    }
    if (300..400).contains(&status) {
        // Followed, it would carry the key to wherever it points.
        failure = Failure::new(Outcome::Status { status, says: Says::Nothing, should_retry: Some(false) });
        detail = format!("the provider answered {status}, a redirection, which is not followed: check `base_url`");
    }
    leg.fails(failure, &provider.without_secrets(&detail))
}

/// An error object where an answer should be, in a body or a stream that claims success; what is owed was said before.
pub(super) fn of_error_object(provider: &Provider, leg: &LegStage<'_>, headers: &HeaderMap, value: &serde_json::Value) -> Failure {
    let error = ProviderError::of_value(value);
    let failure = match error.status_of(200) {
        Some(status) => of_error(provider, status, headers, &error),
        None => Failure::new(Outcome::Malformed).with_code("error_in_success"),
    };
    leg.fails(failure, &provider.without_secrets(&format!("the provider broke off with an error: {}", error.message)))
}

fn of_error(provider: &Provider, status: u16, headers: &HeaderMap, error: &ProviderError) -> Failure {
    let should_retry = headers.get(SHOULD_RETRY).and_then(|value| match value.as_bytes() {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    });
    let outer = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let inner = error.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let now = provider.clock.wall_at(Instant::now());
    Failure::new(Outcome::Status { status, says: error.says(status), should_retry })
        .with_retry_after(retry_after(outer.chain(inner), Some(now)))
}

/// No response at all, or one that broke off.
pub(super) fn of_transport(leg: &LegStage<'_>, error: reqwest::Error, url: &Url) -> Failure {
    let failure = if error.is_connect() && error.is_timeout() {
        Failure::new(Outcome::timed_out(Timer::Connect))
    } else if error.is_dns() {
        Failure::new(Outcome::NeverArrived).with_code("dns")
    } else if error.is_connect() || error.is_builder() {
        Failure::new(Outcome::NeverArrived)
    } else {
        Failure::new(Outcome::Broken)
    };
    if !failure.sent {
        leg.unbilled();
    }
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    let detail = format!("no answer from {host}:{port}: {}", causes(error));
    leg.fails(failure.with_message(detail.clone()), &detail)
}

/// A body that broke off in the middle.
pub(super) fn of_break(leg: &LegStage<'_>, error: reqwest::Error) -> Failure {
    let detail = format!("the connection broke in the middle of the answer: {}", causes(error));
    leg.fails(Failure::new(Outcome::Broken).with_message(detail.clone()), &detail)
}

/// Nothing came for too long in the middle of an answer.
pub(super) fn of_silence(leg: &LegStage<'_>, chunk: Duration) -> Failure {
    leg.fails(
        Failure::new(Outcome::timed_out(Timer::Chunk)),
        &format!("the provider fell silent for {chunk:?} in the middle of its answer"),
    )
}

/// A success by its status that is no answer.
pub(super) fn of_nonsense(leg: &LegStage<'_>, what: &str) -> Failure {
    leg.fails(Failure::new(Outcome::Malformed), &format!("the provider answered with {what}"))
}

/// More than is read.
pub(super) fn of_excess(leg: &LegStage<'_>, excess: TooLarge) -> Failure {
    let detail = match excess {
        TooLarge::Line(max) => format!("the provider sent a line of more than {max} bytes (`sse_line`)"),
        TooLarge::Total(max) => format!("the provider sent an answer of more than {max} bytes (`response`)"),
    };
    leg.fails(Failure::new(Outcome::Malformed).with_code("too_large"), &detail)
}

/// An answer that ended without a turn.
pub(super) fn of_no_turn(leg: &LegStage<'_>, no_turn: NoTurn) -> Failure {
    match no_turn {
        NoTurn::Nothing(what) => of_nonsense(leg, what),
        NoTurn::Cut => leg.fails(Failure::new(Outcome::Malformed).with_code("stream_broken"), "the answer ended without its end mark"),
        NoTurn::Broken => leg
            .fails(Failure::new(Outcome::Malformed).with_code("error_in_success"), "the provider broke off: the answer ended with `error`"),
        NoTurn::Mistake => leg.fails(
            Failure::new(Outcome::Status { status: 200, says: Says::Mistake, should_retry: None }),
            "the model wrote a call that its provider could not read",
        ),
    }
}

/// What is under an error, outermost first; without the address, which may hold more than a host.
fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = error.source();
    // A chain of sources is a handful; eight is a bound, no expectation.
    for _ in 0..8 {
        let Some(cause) = source else { break };
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
