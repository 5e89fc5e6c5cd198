//! Reads one successful answer, plain or streamed.
//!
//! What came decides, not what was asked for: servers answer a stream request with plain JSON and the other way round.
//! Three waits have bounds of their own here: between two pieces, for what may follow the model's last word (usage and
//! `[DONE]`), and for the end of the body after `[DONE]`, so that the connection can serve the next call.

use std::time::Duration;

use ambit_resilience::Failure;
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use reqwest::Response;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::assemble::Assembly;
use super::sse::{Reader, TooLarge};
use super::wire::Completion;
use super::{Client, fail};
use crate::dialect::{Answer, Ask};
use crate::stage::LegStage;

/// Longest wait for usage or an end mark once the model has said why it stopped.
const TAIL: Duration = Duration::from_secs(2);
/// Longest wait for the end of a body behind `[DONE]`: it is on its way or never comes.
const DRAIN: Duration = Duration::from_millis(20);
/// Ends a stream.
const DONE: &str = "[DONE]";

/// Reads the answer in `response`.
pub(super) async fn answer(client: &Client, ask: &Ask<'_>, leg: &LegStage<'_>, response: Response) -> Result<Answer, Failure> {
    let is_event_stream = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let mut reading = Reading { client, leg, response, last_piece: None };
    // Blank beginnings say nothing about the form.
    let mut start: Vec<u8> = Vec::new();
    let first = loop {
        if let Some(first) = start.iter().find(|byte| !byte.is_ascii_whitespace()) {
            break Some(*first);
        }
        match reading.more(None).await? {
            More::Bytes(bytes) if start.len() + bytes.len() <= client.bounds.total_max => start.extend_from_slice(&bytes),
            More::Bytes(_) => return Err(fail::of_excess(leg, TooLarge::Total(client.bounds.total_max))),
            More::End | More::Waited => break None,
        }
    };
    match first {
        Some(first) if is_stream(is_event_stream, first) => stream(reading, ask, start).await,
        Some(_) => plain(reading, ask, start).await,
        None if is_event_stream => Err(fail::of_no_turn(leg, super::assemble::NoTurn::Cut)),
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
    client: &'a Client,
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
        let silent = self.last_piece.map(|last| last + self.client.chunk);
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
                Err(_) => Err(fail::of_silence(self.leg, self.client.chunk)),
            };
        }
    }

    fn piece(&mut self) {
        self.last_piece = Some(Instant::now());
        self.leg.first_token();
    }
}

async fn plain(mut reading: Reading<'_>, ask: &Ask<'_>, mut body: Vec<u8>) -> Result<Answer, Failure> {
    let (leg, total_max) = (reading.leg, reading.client.bounds.total_max);
    reading.piece();
    while let More::Bytes(bytes) = reading.more(None).await? {
        if body.len() + bytes.len() > total_max {
            return Err(fail::of_excess(leg, TooLarge::Total(total_max)));
        }
        body.extend_from_slice(&bytes);
        reading.piece();
    }
    let headers = reading.response.headers();
    let Some(completion) = parse(reading.client, leg, headers, &body, false)? else {
        return Err(fail::of_nonsense(leg, "null"));
    };
    let mut assembly = Assembly::default();
    let brought = assembly.take_whole(completion);
    if brought.call {
        leg.call_begun();
    }
    leg.text(&brought.text);
    finish(leg, ask, assembly, true)
}

async fn stream(mut reading: Reading<'_>, ask: &Ask<'_>, start: Vec<u8>) -> Result<Answer, Failure> {
    let (leg, client) = (reading.leg, reading.client);
    let mut events = Reader::new(client.bounds);
    let mut assembly = Assembly::default();
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
fn take_events(reading: &mut Reading<'_>, events: &mut Reader, assembly: &mut Assembly) -> Result<bool, Failure> {
    let leg = reading.leg;
    while let Some(data) = events.next() {
        if data.trim() == DONE {
            return Ok(true);
        }
        if data.trim().is_empty() {
            continue;
        }
        let began = reading.last_piece.is_some();
        let completion = parse(reading.client, leg, reading.response.headers(), data.as_bytes(), began)?;
        let Some(completion) = completion else { continue };
        let brought = assembly.take(completion);
        if let Some(usage) = assembly.usage() {
            leg.reported(usage);
        }
        if brought.token || began {
            reading.piece();
        }
        if brought.call {
            leg.call_begun();
        }
        leg.text(&brought.text);
    }
    Ok(false)
}

/// One JSON text of an answer; `None` for `null`, an error for an error object and for what is no completion.
fn parse(client: &Client, leg: &LegStage<'_>, headers: &HeaderMap, json: &[u8], began: bool) -> Result<Option<Completion>, Failure> {
    match serde_json::from_slice::<Option<Completion>>(json) {
        Ok(Some(Completion { error: Some(error), .. })) if is_error(&error) => {
            Err(fail::of_error_object(client, leg, headers, &error, began))
        }
        Ok(completion) => Ok(completion),
        // Not of that shape: perhaps an error of another.
        Err(_) => Err(match serde_json::from_slice::<Value>(json) {
            Ok(value) if value.get("error").is_some_and(is_error) => fail::of_error_object(client, leg, headers, &value, began),
            Ok(_) => fail::of_nonsense(leg, "JSON that is no completion"),
            Err(_) if json.trim_ascii_start().starts_with(b"<") => {
                fail::of_nonsense(leg, "a page of HTML: check `base_url`, or whether a login stands before it")
            }
            Err(_) => fail::of_nonsense(leg, "something that is no JSON"),
        }),
    }
}

/// Some servers send the member always, and mean nothing by it.
fn is_error(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(object) => !object.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Array(_) => true,
    }
}

fn finish(leg: &LegStage<'_>, ask: &Ask<'_>, assembly: Assembly, marked: bool) -> Result<Answer, Failure> {
    if let Some(usage) = assembly.usage() {
        leg.reported(usage);
    }
    assembly.end(ask.target, marked).map_err(|no_turn| fail::of_no_turn(leg, no_turn))
}
