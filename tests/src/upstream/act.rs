//! One act: what the fake does with one arrival.
//!
//! An act is a form of answer (status, headers, payload), a tempo (latency, pause between pieces, hold points) and
//! possibly an accident: a [`Halt`] at a [`Point`]. The order of play is fixed:
//!
//! ```text
//! accept -Unread-> read request -Read-> latency, hold -> head -Head-> piece 1 .. piece n -Sent-> end of body
//!                                                              \-Pieces(k), Half-/
//! ```

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::data::ScriptError;
use super::reply::{Call, LineEnd, Reply, UsageChunk};

/// A place in the play of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The connection has data, nothing was read.
    Unread,
    /// The request was read whole, nothing was written.
    Read,
    /// The head of the answer was written.
    Head,
    /// So many pieces of the body were written.
    Pieces(usize),
    /// Half of the pieces were written, or half of the bytes of the only piece.
    Half,
    /// All pieces were written, but not the end of the body.
    Sent,
}

/// An accident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    /// The connection stays open and silent until the peer leaves.
    Hang,
    /// TCP reset.
    Reset,
    /// The connection is closed in order (FIN).
    Cut,
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `content-length`; the default of a body of one piece.
    Length,
    /// `transfer-encoding: chunked`; the default of streams.
    Chunked,
    /// By closing the connection; the default where the accident is a cut stream, so that it ends like a normal one.
    Close,
}

/// A piece of a body, written and flushed on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Pause before it.
    pub wait: Duration,
    /// The bytes as they go out.
    pub bytes: Bytes,
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Piece {
        Piece { wait: Duration::ZERO, bytes }
    }
}

/// The content of an answer.
#[derive(Debug, Clone)]
pub(super) enum Payload {
    /// No body at all.
    Nothing,
    /// A completion, in the form, and plain or streamed, as the request asks.
    Reply(Box<Reply>),
    /// The error body of a status, in the form of the request.
    Error(u16),
    /// JSON in which macros that look at the request are filled in when it is played.
    Json(Value),
    /// A body as it is.
    Body(Vec<Piece>),
    /// A body as it is, served as an event stream whatever was asked.
    Sse(Vec<Piece>),
    /// The same bytes for ever, as fast as the peer takes them.
    Endless(Bytes),
}

/// What the fake does with one arrival. Built by the constructors below, read from JSON or TOML (see [`super::data`]), or
/// written in the short notation (see [`super::notation`]).
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub struct Act {
    pub(super) latency: Duration,
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) payload: Payload,
    pub(super) pace: Duration,
    pub(super) shred: Option<usize>,
    pub(super) framing: Option<Framing>,
    pub(super) hold: Option<Point>,
    pub(super) halt: Option<(Point, Halt)>,
}

impl TryFrom<Value> for Act {
    type Error = ScriptError;

    fn try_from(value: Value) -> Result<Act, ScriptError> {
        super::data::act(value)
    }
}

/// Answers.
impl Act {
    pub(super) fn of(payload: Payload) -> Act {
        Act {
            latency: Duration::ZERO,
            status: 200,
            headers: Vec::new(),
            payload,
            pace: Duration::ZERO,
            shred: None,
            framing: None,
            hold: None,
            halt: None,
        }
    }

    /// A completion with this text, finish reason `stop`.
    #[must_use]
    pub fn text(text: &str) -> Act {
        Act::reply(Reply::text(text))
    }

    /// A completion with the text `ok`.
    #[must_use]
    pub fn ok() -> Act {
        Act::text("ok")
    }

    /// A completion that asks for these calls, finish reason `tool_calls`.
    #[must_use]
    pub fn calls(calls: impl IntoIterator<Item = Call>) -> Act {
        Act::reply(Reply::calls(calls))
    }

    /// A completion that asks for one call with an id that is unique for the arrival.
    #[must_use]
    pub fn call(name: &str, arguments: &Value) -> Act {
        Act::calls([Call::new(name, arguments)])
    }

    /// Any completion.
    #[must_use]
    pub fn reply(reply: Reply) -> Act {
        Act::of(Payload::Reply(Box::new(reply)))
    }

    /// A JSON body with status 200: what a tool answers.
    #[must_use]
    pub fn json(value: Value) -> Act {
        Act::of(Payload::Json(value))
    }

    /// A body as it is, with status 200 and no content type of its own.
    #[must_use]
    pub fn body(body: impl Into<Bytes>) -> Act {
        Act::of(Payload::Body(vec![body.into().into()]))
    }

    /// A body of so many bytes (the letter `x`), with status 200.
    #[must_use]
    pub fn huge(bytes: usize) -> Act {
        Act::body(vec![b'x'; bytes.min(super::limit::PAYLOAD_MAX)]).header("content-type", "text/plain")
    }

    /// The same bytes for ever.
    #[must_use]
    pub fn endless(bytes: impl Into<Bytes>) -> Act {
        Act::of(Payload::Endless(bytes.into())).header("content-type", "text/plain")
    }

    /// An event stream of these raw pieces, each flushed on its own, whatever the request asked for.
    #[must_use]
    pub fn sse<B: Into<Bytes>>(pieces: impl IntoIterator<Item = B>) -> Act {
        Act::of(Payload::Sse(pieces.into_iter().map(|piece| piece.into().into()).collect()))
    }

    /// A status with the error body of a provider.
    #[must_use]
    pub fn error(status: u16) -> Act {
        Act::of(Payload::Error(status)).status(status)
    }

    /// A completion with this text whose stream breaks off with the error of this status; a plain one is that error.
    #[must_use]
    pub fn breaking(text: &str, status: u16) -> Act {
        Act::text(text).changing(|reply| reply.breaks = Some(status))
    }

    /// A login page: HTML with status 200.
    #[must_use]
    pub fn login_page() -> Act {
        Act::body("<!doctype html><html><head><title>Sign in</title></head><body><form></form></body></html>")
            .header("content-type", "text/html; charset=utf-8")
    }

    /// An error body with status 200.
    #[must_use]
    pub fn error_in_200() -> Act {
        Act::error(500).status(200)
    }

    /// The JSON value `null` with status 200.
    #[must_use]
    pub fn null() -> Act {
        Act::json(Value::Null)
    }

    /// Bytes that are neither JSON nor UTF-8, called JSON.
    #[must_use]
    pub fn garbage() -> Act {
        Act::body(&b"\x00\xff\xfe{]{\"choices\":\x80"[..]).header("content-type", "application/json")
    }

    /// Reads the request and stays silent.
    #[must_use]
    pub fn silent() -> Act {
        Act::of(Payload::Nothing).halting(Point::Read, Halt::Hang)
    }

    /// Accepts the connection, reads nothing and stays silent.
    #[must_use]
    pub fn deaf() -> Act {
        Act::of(Payload::Nothing).halting(Point::Unread, Halt::Hang)
    }

    /// Resets the connection before reading (`rst0`) once the client has begun to send.
    #[must_use]
    pub fn reset_unread() -> Act {
        Act::of(Payload::Nothing).halting(Point::Unread, Halt::Reset)
    }

    /// Resets the connection after the whole request was read (`rst1`).
    #[must_use]
    pub fn reset_read() -> Act {
        Act::of(Payload::Nothing).halting(Point::Read, Halt::Reset)
    }

    /// A completion that ends in its middle without any terminal marker: a stream in good order, a plain body short of
    /// its `content-length`.
    #[must_use]
    pub fn cut() -> Act {
        Act::text("this answer has no end").halting(Point::Half, Halt::Cut)
    }
}

/// Changes.
impl Act {
    /// With this status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Act {
        self.status = status;
        self
    }

    /// With this header, replacing one of the same name. `{{http_date:+3600s}}` and `{{epoch_ms:+7200s}}` in the value are
    /// filled in when it is played. An empty value removes the header that would be sent by default.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Act {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this time before the head.
    #[must_use]
    pub fn after(mut self, latency: Duration) -> Act {
        self.latency = latency;
        self
    }

    /// With this pause before every piece of the body.
    #[must_use]
    pub fn every(mut self, pace: Duration) -> Act {
        self.pace = pace;
        self
    }

    /// Cut into pieces of so many bytes, each flushed: splits characters, line ends and events.
    #[must_use]
    pub fn shredded(mut self, bytes: usize) -> Act {
        self.shred = Some(bytes.max(1));
        self
    }

    /// With this framing instead of the default one.
    #[must_use]
    pub fn framing(mut self, framing: Framing) -> Act {
        self.framing = Some(framing);
        self
    }

    /// Waits at this point until [`super::Upstream::release`]. Not possible at [`Point::Unread`].
    #[must_use]
    pub fn held_at(mut self, point: Point) -> Act {
        self.hold = Some(point);
        self
    }

    /// Waits before the head until [`super::Upstream::release`].
    #[must_use]
    pub fn held(self) -> Act {
        self.held_at(Point::Read)
    }

    /// Has this accident at this point.
    #[must_use]
    pub fn halting(mut self, point: Point, halt: Halt) -> Act {
        self.halt = Some((point, halt));
        self
    }

    /// Without the end mark of the stream, `[DONE]` or `message_stop`.
    #[must_use]
    pub fn without_done(self) -> Act {
        self.changing(|reply| reply.done = false)
    }

    /// With this finish reason, known or not; `None` sends null and, in a stream, no last chunk.
    #[must_use]
    pub fn finish(self, reason: Option<&str>) -> Act {
        self.changing(|reply| reply.finish = reason.map(str::to_owned))
    }

    /// With this usage, or none.
    #[must_use]
    pub fn usage(self, usage: Option<(u64, u64)>) -> Act {
        self.changing(|reply| reply.usage = usage)
    }

    /// With the usage chunk sent by this rule.
    #[must_use]
    pub fn usage_chunk(self, rule: UsageChunk) -> Act {
        self.changing(|reply| reply.usage_chunk = rule)
    }

    /// With these line ends in the stream.
    #[must_use]
    pub fn line_end(self, end: LineEnd) -> Act {
        self.changing(|reply| reply.line_end = end)
    }

    fn changing(mut self, change: impl FnOnce(&mut Reply)) -> Act {
        match &mut self.payload {
            Payload::Reply(reply) => change(reply),
            Payload::Nothing | Payload::Error(_) | Payload::Json(_) | Payload::Body(_) | Payload::Sse(_) | Payload::Endless(_) => {
                panic!("only a completion has a finish reason, usage and stream form: {self:?}")
            }
        }
        self
    }

    /// Whether the act is played before the request is read.
    pub(super) fn is_unread(&self) -> bool {
        matches!(self.halt, Some((Point::Unread, _)))
    }
}
