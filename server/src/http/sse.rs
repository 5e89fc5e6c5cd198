//! Event streams: written by hand, since what a client survives depends on single bytes.
//!
//! One loop sends them all, in time and to their end; what an event looks like is up to a [`Speech`]. A keep-alive is `: ka` and **one** line feed: a comment that is followed by an empty line crashes a widely used
//! client once an `id:` was seen. Every stream ends with exactly one terminal event, whatever happens.

use std::collections::VecDeque;
use std::time::Duration;

use ambit_core::{Axis, Reason, SessionId, Status};
use ambit_orchestrator::{CancelOnDrop, Followed, Remaining, Said, SessionStream, wall_ms};
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{error, warn};

use crate::http::types::{Include, SessionObject, rfc3339};
use crate::telemetry::metrics::StreamGuard;

/// Between two signs of life.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Times in a row that a stream is read again after a failure.
const READ_FAILURES_MAX: u32 = 8;
/// Wait before that.
const READ_AGAIN: Duration = Duration::from_millis(250);
/// How long after the deadline a stream may still say something.
const GRACE: Duration = Duration::from_secs(1);

/// How one kind of client is told what happens in a session.
pub(crate) trait Speech: Send + 'static {
    /// What is sent for an event: nothing where this client is not told of it, but never nothing for the terminal one.
    fn say(&mut self, event: &Followed) -> Vec<Bytes>;

    /// The terminal event of a stream whose session cannot be read to its end.
    fn give_up(&mut self, status: Status, reason: Reason) -> Vec<Bytes>;
}

/// A stream about to be sent.
pub(crate) struct Events<S> {
    pub(crate) stream: SessionStream,
    pub(crate) speech: S,
    pub(crate) session: SessionId,
    /// When the terminal event is due at the latest; `None` where it follows a settlement, which has its own deadlines.
    pub(crate) due: Option<Instant>,
    /// Cancels the session if the reader goes away.
    pub(crate) guard: Option<CancelOnDrop>,
    /// Counts the stream as open for as long as it is.
    pub(crate) _open: StreamGuard,
}

struct State<S> {
    events: Events<S>,
    pending: VecDeque<Bytes>,
    /// When the next sign of life is due: events that this client is not told of are none.
    alive: Instant,
    over: bool,
    failures: u32,
}

impl<S: Speech> Events<S> {
    /// The response: headers at once, then events as they come.
    pub(crate) fn into_response(self) -> Response {
        let session = HeaderValue::from_str(&self.session.to_string());
        // A comment first: proxies and clients see the stream open before the model has said anything.
        let pending = VecDeque::from([Bytes::from_static(b": open\n")]);
        let state = State { events: self, pending, alive: Instant::now(), over: false, failures: 0 };
        let body = Body::from_stream(stream::unfold(state, |mut state| async move {
            let bytes = state.next().await?;
            state.alive = Instant::now() + KEEP_ALIVE;
            Some((Ok::<_, std::convert::Infallible>(bytes), state))
        }));
        let mut response = (
            [
                (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
                (header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
                (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
            ],
            body,
        )
            .into_response();
        if let Ok(session) = session {
            response.headers_mut().insert(HeaderName::from_static("ambit-session-id"), session);
        }
        response
    }
}

impl<S: Speech> State<S> {
    async fn next(&mut self) -> Option<Bytes> {
        // Each round sends something, takes an event of a bounded journal, or reads again after a failure, which is bounded.
        loop {
            if let Some(bytes) = self.pending.pop_front() {
                return Some(bytes);
            }
            if self.over {
                return None;
            }
            let due = self.events.due.map(|due| due + GRACE);
            let until = due.map_or(self.alive, |due| due.min(self.alive));
            match timeout_at(until, self.events.stream.next()).await {
                Err(_) if due.is_some_and(|due| due <= Instant::now()) => self.end(Status::Incomplete, Reason::Limit(Axis::Deadline)),
                Err(_) => return Some(Bytes::from_static(b": ka\n")),
                Ok(Ok(Some(event))) => {
                    self.failures = 0;
                    self.over = event.terminal;
                    if event.terminal
                        && let Some(guard) = self.events.guard.take()
                    {
                        guard.disarm();
                    }
                    self.pending.extend(self.events.speech.say(&event));
                }
                Ok(Ok(None)) => self.end(Status::Failed, Reason::StoreLost),
                Ok(Err(failed)) if self.failures < READ_FAILURES_MAX => {
                    self.failures += 1;
                    warn!(session = %self.events.session, error = %failed, "a stream cannot be read; trying again");
                    sleep(READ_AGAIN).await;
                }
                Ok(Err(failed)) => {
                    error!(session = %self.events.session, error = %failed, "a stream cannot go on");
                    self.end(Status::Failed, Reason::StoreLost);
                }
            }
        }
    }

    /// The terminal event of a stream whose session cannot be read to its end.
    fn end(&mut self, status: Status, reason: Reason) {
        self.over = true;
        if let Some(guard) = self.events.guard.take() {
            // The session is fine; it is its stream that cannot be read.
            guard.disarm();
        }
        self.pending.extend(self.events.speech.give_up(status, reason));
    }
}

/// The API's own events: `id:`, `event:`, `data:`.
pub(crate) struct Native {
    session: SessionId,
    heard: Heard,
}

/// What of a stream was told last, and what its end would repeat.
#[derive(Debug, Default)]
struct Heard {
    last: Option<(u64, Remaining)>,
    has_verdict: bool,
}

impl Native {
    pub(crate) fn new(session: SessionId) -> Self {
        Self { session, heard: Heard::default() }
    }

    /// For a reader of a settlement, who knows the verdict if there is one: it may begin behind it.
    pub(crate) fn settling(session: SessionId, has_verdict: bool) -> Self {
        Self { session, heard: Heard { last: None, has_verdict } }
    }
}

impl Speech for Native {
    fn say(&mut self, event: &Followed) -> Vec<Bytes> {
        self.heard.last = Some((event.id.seq, event.remaining));
        self.heard.has_verdict |= matches!(event.said, Said::Session(_));
        let payload = payload(event, self.session);
        // JSON has no line feeds of its own: one data line.
        vec![Bytes::from(format!("id: {}\nevent: {}\ndata: {payload}\n\n", event.id, event.kind))]
    }

    fn give_up(&mut self, status: Status, reason: Reason) -> Vec<Bytes> {
        // The verdict is told once: what then cannot be read is its settlement, which somebody has to look after.
        let kind = if self.heard.has_verdict { "settlement.needs_attention".to_owned() } else { format!("session.{status}") };
        let data = if self.heard.has_verdict {
            json!({"reason": reason.as_str()})
        } else {
            json!({"status": status.as_str(), "reason": reason.as_str()})
        };
        let (seq, left) = self.heard.last.map_or((Value::Null, Value::Null), |(seq, left)| (seq.into(), remaining(left)));
        let payload = json!({
            "type": kind, "seq": seq, "session_id": self.session.to_string(), "at": rfc3339(wall_ms()), "remaining": left, "data": data,
        });
        vec![Bytes::from(format!("event: {kind}\ndata: {payload}\n\n"))]
    }
}

/// An event as JSON: what stands behind `data:`, and what the command line prints.
pub(crate) fn payload(event: &Followed, session: SessionId) -> Value {
    let data: Value = match &event.said {
        Said::Value(value) => value.clone(),
        Said::Session(view) => serde_json::to_value(SessionObject::of(view, Include::default())).unwrap_or_default(),
    };
    json!({
        "type": event.kind,
        "seq": event.id.seq,
        "session_id": session.to_string(),
        "at": rfc3339(event.wall_ms),
        "remaining": remaining(event.remaining),
        "data": data,
    })
}

fn remaining(left: Remaining) -> Value {
    json!({"ms": left.ms, "model_calls": left.model_calls, "tool_calls": left.tool_calls})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(heard: Heard) -> Value {
        told_last(Native { session: "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse().unwrap(), heard })
    }

    fn told_last(mut native: Native) -> Value {
        let told = native.give_up(Status::Failed, Reason::StoreLost);
        let [event] = told.as_slice() else { panic!("one terminal event: {told:?}") };
        let text = std::str::from_utf8(event).unwrap();
        let (kind, data) = text.strip_prefix("event: ").unwrap().trim_end().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], kind);
        assert!(data["at"].is_string());
        data
    }

    #[test]
    fn a_stream_that_cannot_be_read_ends_as_the_session_only_before_its_verdict() {
        let unread = ended(Heard::default());
        assert_eq!(
            (&unread["type"], &unread["data"]["status"], &unread["seq"]),
            (&json!("session.failed"), &json!("failed"), &Value::Null)
        );
        let last = Some((7, Remaining { ms: 1, model_calls: 2, tool_calls: 3 }));
        let begun = ended(Heard { last, has_verdict: false });
        let left = json!({"ms": 1, "model_calls": 2, "tool_calls": 3});
        assert_eq!((&begun["type"], &begun["seq"], &begun["remaining"]), (&json!("session.failed"), &json!(7), &left));
        let settling = ended(Heard { last, has_verdict: true });
        assert_eq!((&settling["type"], &settling["data"]), (&json!("settlement.needs_attention"), &json!({"reason": "store_lost"})));
        assert_eq!((&settling["seq"], &settling["remaining"]), (&json!(7), &left));
        let id: SessionId = "ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse().unwrap();
        assert_eq!(told_last(Native::settling(id, true))["type"], "settlement.needs_attention");
        assert_eq!(told_last(Native::settling(id, false))["type"], "session.failed");
    }
}
