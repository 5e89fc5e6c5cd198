//! Reads one successful answer, plain or streamed.
//!
//! What came decides, not what was asked for: servers answer a stream request with plain JSON and the other way round.
//! Three waits have bounds of their own here: between two pieces, for what may follow the model's last word (usage and
//! `[DONE]`), and for the end of the body after `[DONE]`, so that the connection can serve the next call.

use std::time::Duration;

use ambit_resilience::Failure;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use reqwest::Response;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::sse::{Reader, TooLarge};
use super::{Provider, fail};
use crate::dialect::{Answer, Ask};
use crate::stage::LegStage;
use crate::usage::Usage;

/// Longest wait for usage or an end mark once the model has said why it stopped.
const TAIL: Duration = Duration::from_secs(2);
/// Longest wait for the end of a body behind `[DONE]`: it is on its way or never comes.
const DRAIN: Duration = Duration::from_millis(20);
/// A plain body that takes longer is an answer on its way: errors come in one piece, and no error has a first token.
const AT_ONCE: Duration = Duration::from_millis(20);
/// Ends a stream of chat completions, and what proxies make of other streams.
const DONE: &str = "[DONE]";

/// Puts a turn together from a whole answer or from the events of a stream: what a dialect has to say to the reader.
///
/// **Invariant:** a call is never handed out from a turn that did not reach its end.
pub(crate) trait Assembly: Default {
    /// A whole answer.
    type Whole: DeserializeOwned;
    /// One event of a stream.
    type Event: DeserializeOwned;
    /// What it puts together, for messages.
    const NAME: &'static str;

    /// Takes one event, or gives back the error that it is.
    fn take(&mut self, event: Self::Event) -> Result<Brought, Value>;

    /// Takes a whole answer, or gives back the error that it is.
    fn take_whole(&mut self, whole: Self::Whole) -> Result<Brought, Value>;

    /// True once the model said why it stopped: a sufficient end.
    fn is_finished(&self) -> bool;

    /// What was used, once all of it was said: a break before that costs what was set aside.
    fn usage(&self) -> Option<Usage>;

    /// The turn, at its end. `marked` is true if an end mark other than the model's own reason was there.
    fn end(self, target: &str, marked: bool) -> Result<Answer, NoTurn>;
}

/// What a piece of an answer brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Brought {
    /// Words of the answer.
    pub(crate) text: String,
    /// True if a call began or went on.
    pub(crate) call: bool,
    /// True if anything of an answer was in it, words, reasoning, a call or its end.
    pub(crate) token: bool,
    /// True if it only kept the connection alive.
    pub(crate) idle: bool,
    /// True for the end mark: nothing follows.
    pub(crate) end: bool,
}

/// Why there is no turn though the answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// Nothing of a turn ever came; what is missing.
    Nothing(&'static str),
    /// It ended without an end mark.
    Cut,
    /// The provider says that something broke while the model wrote.
    Broken,
    /// The model wrote a call that its provider could not read.
    Mistake,
}

/// Reads the answer in `response`.
pub(super) async fn answer<A: Assembly>(
    provider: &Provider,
    ask: &Ask<'_>,
    leg: &LegStage<'_>,
    response: Response,
) -> Result<Answer, Failure> {
    let is_event_stream = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let mut reading = Reading { provider, leg, response, last_piece: None };
    // Blank beginnings say nothing about the form.
    let mut start: Vec<u8> = Vec::new();
    let first = loop {
        if let Some(first) = start.iter().find(|byte| !byte.is_ascii_whitespace()) {
            break Some(*first);
        }
        match reading.more(None).await? {
            More::Bytes(bytes) if start.len() + bytes.len() <= provider.bounds.total_max => start.extend_from_slice(&bytes),
            More::Bytes(_) => return Err(fail::of_excess(leg, TooLarge::Total(provider.bounds.total_max))),
            More::End | More::Waited => break None,
        }
    };
    match first {
        Some(first) if is_stream(is_event_stream, first) => stream::<A>(reading, ask, start).await,
        Some(_) => plain::<A>(reading, ask, start).await,
        None if is_event_stream => Err(fail::of_no_turn(leg, NoTurn::Cut)),
        None => Err(fail::of_nonsense(leg, "nothing")),
    }
}

/// Lines of a stream begin with a field's name or a colon; JSON and pages with none of them.
fn is_stream(is_event_stream: bool, first: u8) -> bool {
    match first {
        b':' | b'd' | b'e' | b'i' | b'r' => true,
        b'{' | b'[' | b'<' | b'"' | b'n' => false,
        _ => is_event_stream,
    }
}

/// A body that is being read.
struct Reading<'a> {
    provider: &'a Provider,
    leg: &'a LegStage<'a>,
    response: Response,
    /// When the last piece came; `None` before the first, whose wait is the attempt's own.
    last_piece: Option<Instant>,
}

enum More {
    Bytes(Bytes),
    End,
    /// The time that was asked for is over.
    Waited,
}

impl Reading<'_> {
    /// Waits for more of the body, at most until `until`. Held text that falls due meanwhile is passed on.
    async fn more(&mut self, until: Option<Instant>) -> Result<More, Failure> {
        let silent = self.last_piece.map(|last| last + self.provider.chunk);
        // Each turn ends the wait or passes held text on, which can fall due once.
        loop {
            let release = self.leg.release_at();
            let wake = [silent, until, release].into_iter().flatten().min();
            let read = match wake {
                Some(wake) => timeout_at(wake, self.response.chunk()).await,
                None => Ok(self.response.chunk().await),
            };
            return match read {
                Ok(Ok(Some(bytes))) => Ok(More::Bytes(bytes)),
                Ok(Ok(None)) => Ok(More::End),
                Ok(Err(error)) => Err(fail::of_break(self.leg, error)),
                Err(_) if until.is_some_and(|until| until <= Instant::now()) => Ok(More::Waited),
                Err(_) if release == wake => {
                    self.leg.release();
                    continue;
                }
                Err(_) => Err(fail::of_silence(self.leg, self.provider.chunk)),
            };
        }
    }

    /// An error where an answer should be. What it says was used is owed; where it says nothing, only what began is.
    fn error(&self, error: &Value, usage: Option<Usage>, began: bool) -> Failure {
        match usage {
            Some(usage) => self.leg.reported(usage),
            None if !began => self.leg.unbilled(),
            None => {}
        }
        fail::of_error_object(self.provider, self.leg, self.response.headers(), error)
    }

    fn piece(&mut self) {
        self.last_piece = Some(Instant::now());
        self.leg.first_token();
    }
}

async fn plain<A: Assembly>(mut reading: Reading<'_>, ask: &Ask<'_>, mut body: Vec<u8>) -> Result<Answer, Failure> {
    let (leg, total_max) = (reading.leg, reading.provider.bounds.total_max);
    reading.last_piece = Some(Instant::now());
    let mut at_once = Some(Instant::now() + AT_ONCE);
    // Each turn eats bytes, of which there are at most `response`, or ends the wait for what comes at once.
    loop {
        match reading.more(at_once).await? {
            More::Bytes(bytes) if body.len() + bytes.len() > total_max => {
                return Err(fail::of_excess(leg, TooLarge::Total(total_max)));
            }
            More::Bytes(bytes) => {
                body.extend_from_slice(&bytes);
                reading.last_piece = Some(Instant::now());
            }
            // From here on the time between two pieces is what bounds it.
            More::Waited => {
                at_once = None;
                leg.first_token();
            }
            More::End => break,
        }
    }
    let mut assembly = A::default();
    let Some(whole) = parse::<A::Whole>(leg, &body, A::NAME, |error| reading.error(error, None, false))? else {
        return Err(fail::of_nonsense(leg, "null"));
    };
    let brought = assembly.take_whole(whole).map_err(|error| reading.error(&error, assembly.usage(), false))?;
    leg.first_token();
    if brought.call {
        leg.call_begun();
    }
    leg.text(&brought.text);
    finish(leg, ask, assembly, true)
}

async fn stream<A: Assembly>(mut reading: Reading<'_>, ask: &Ask<'_>, start: Vec<u8>) -> Result<Answer, Failure> {
    let (leg, provider) = (reading.leg, reading.provider);
    let mut events = Reader::new(provider.bounds);
    let mut assembly = A::default();
    let mut last_word: Option<Instant> = None;
    let mut bytes = Bytes::from(start);
    // Each turn eats bytes, of which there are at most `response`, or ends the stream; the time is bounded outside.
    let marked = loop {
        events.feed(&bytes).map_err(|excess| fail::of_excess(leg, excess))?;
        if take_events(&mut reading, &mut events, &mut assembly)? {
            // Read to its end the connection can be used again.
            let _ = timeout(DRAIN, reading.response.chunk()).await;
            break true;
        }
        if assembly.is_finished() {
            last_word.get_or_insert_with(Instant::now);
        }
        match reading.more(last_word.map(|at| at + TAIL)).await {
            Ok(More::Bytes(more)) => bytes = more,
            Ok(More::End) => {
                events.finish();
                break take_events(&mut reading, &mut events, &mut assembly)?;
            }
            Ok(More::Waited) => break false,
            // Whatever happens behind the model's last word, the turn is whole.
            Err(_) if assembly.is_finished() => break false,
            Err(failure) => return Err(failure),
        }
    };
    finish(leg, ask, assembly, marked)
}

/// Takes the events that are complete. True once the end mark came.
fn take_events<A: Assembly>(reading: &mut Reading<'_>, events: &mut Reader, assembly: &mut A) -> Result<bool, Failure> {
    let leg = reading.leg;
    while let Some(data) = events.next() {
        if data.trim() == DONE {
            return Ok(true);
        }
        if data.trim().is_empty() {
            continue;
        }
        let began = reading.last_piece.is_some();
        let Some(event) = parse::<A::Event>(leg, data.as_bytes(), A::NAME, |error| reading.error(error, assembly.usage(), began))? else {
            continue;
        };
        let brought = assembly.take(event).map_err(|error| reading.error(&error, assembly.usage(), began))?;
        if let Some(usage) = assembly.usage() {
            leg.reported(usage);
        }
        if brought.token || (began && !brought.idle) {
            reading.piece();
        }
        if brought.call {
            leg.call_begun();
        }
        leg.text(&brought.text);
        if brought.end {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One JSON text of an answer; `None` for `null`, an error for what is none of this dialect.
fn parse<T: DeserializeOwned>(
    leg: &LegStage<'_>,
    json: &[u8],
    name: &str,
    error: impl FnOnce(&Value) -> Failure,
) -> Result<Option<T>, Failure> {
    serde_json::from_slice::<Option<T>>(json).map_err(|_| match serde_json::from_slice::<Value>(json) {
        // Not of that shape: perhaps an error of another.
        Ok(value) if value.get("error").is_some_and(is_error) => error(&value),
        Ok(_) => fail::of_nonsense(leg, &format!("JSON that is no {name}")),
        Err(_) if json.trim_ascii_start().starts_with(b"<") => {
            fail::of_nonsense(leg, "a page of HTML: check `base_url`, or whether a login stands before it")
        }
        Err(_) => fail::of_nonsense(leg, "something that is no JSON"),
    })
}

/// Some servers send the member always, and mean nothing by it.
pub(crate) fn is_error(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(object) => !object.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => true,
    }
}

fn finish<A: Assembly>(leg: &LegStage<'_>, ask: &Ask<'_>, assembly: A, marked: bool) -> Result<Answer, Failure> {
    if let Some(usage) = assembly.usage() {
        leg.reported(usage);
    }
    assembly.end(ask.target, marked).map_err(|no_turn| fail::of_no_turn(leg, no_turn))
}
