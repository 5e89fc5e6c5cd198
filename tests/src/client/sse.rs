//! An event stream as a strict client reads it.
//!
//! Besides events it keeps the raw bytes and counts comments, and it refuses what breaks clients that are in use: a comment
//! followed by a blank line once an `id:` was seen (openai-python then dispatches an empty event).

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use serde_json::Value;

use super::TERMINAL;
use crate::within;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// `id:`, if it had one.
    pub id: Option<String>,
    /// `event:`, if it had one.
    pub kind: Option<String>,
    /// `data:`, several lines joined by a line feed.
    pub data: String,
}

impl Event {
    /// The type, empty if it had none.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or_default()
    }

    /// The data as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        match serde_json::from_str(&self.data) {
            Ok(value) => value,
            Err(error) => panic!("the data of `{}` is no JSON ({error}): {}", self.kind(), self.data),
        }
    }

    /// Whether it ends a session's stream.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        TERMINAL.contains(&self.kind())
    }
}

/// Bytes in, events out. Pieces may break anywhere.
#[derive(Debug, Default)]
pub struct Parser {
    pending: Vec<u8>,
    event: Event,
    any_data: bool,
    any_id: bool,
    after_comment: bool,
    comments: usize,
}

impl Parser {
    /// Takes a piece and returns the events that it completed.
    ///
    /// # Panics
    /// When a line is no UTF-8, or a comment is followed by a blank line after an id was seen.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<Event> {
        self.pending.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some((line, taken)) = next_line(&self.pending) {
            let line = std::str::from_utf8(line).expect("a stream is UTF-8").to_owned();
            self.pending.drain(..taken);
            events.extend(self.line(&line));
        }
        events
    }

    /// Comments so far.
    #[must_use]
    pub fn comments(&self) -> usize {
        self.comments
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            assert!(!(self.after_comment && self.any_id), "a comment is followed by a blank line: this breaks clients");
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.any_data).then_some(event);
        }
        self.after_comment = line.starts_with(':') && !self.any_data;
        if line.starts_with(':') {
            self.comments += 1;
            return None;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => {
                self.event.id = Some(value.to_owned());
                self.any_id = true;
            }
            "event" => self.event.kind = Some(value.to_owned()),
            "data" => {
                if self.any_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.any_data = true;
            }
            _ => {}
        }
        None
    }
}

/// The first whole line and how many bytes it takes with its end. A carriage return at the very end waits for more.
fn next_line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
    match (bytes[end], bytes.get(end + 1)) {
        (b'\r', Some(b'\n')) => Some((&bytes[..end], end + 2)),
        (b'\r', None) => None,
        (_, _) => Some((&bytes[..end], end + 1)),
    }
}

/// The events of a body, one by one. Dropping it closes the connection: the client is gone.
pub struct SseReader {
    body: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    parser: Parser,
    ready: std::collections::VecDeque<Event>,
    raw: Vec<u8>,
}

impl std::fmt::Debug for SseReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SseReader").field("raw", &String::from_utf8_lossy(&self.raw)).finish_non_exhaustive()
    }
}

impl SseReader {
    pub(super) fn over(response: reqwest::Response) -> SseReader {
        let body = response.bytes_stream().boxed();
        SseReader { body, parser: Parser::default(), ready: std::collections::VecDeque::new(), raw: Vec::new() }
    }

    /// The next event; `None` at the end of the body.
    ///
    /// # Panics
    /// When nothing comes within [`crate::WAIT_MAX`], or the body breaks off instead of ending.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let piece = within("an event", self.body.next()).await?;
            let piece = piece.unwrap_or_else(|error| panic!("the stream broke off ({error}) after:\n{self:?}"));
            self.raw.extend_from_slice(&piece);
            self.ready.extend(self.parser.feed(&piece));
        }
    }

    /// Reads up to and with the first event of this type and returns all that was read.
    ///
    /// # Panics
    /// When the body ends before.
    pub async fn until(&mut self, kind: &str) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let found = event.kind() == kind;
            events.push(event);
            if found {
                return events;
            }
        }
        panic!("the stream ended without `{kind}`:\n{self:?}")
    }

    /// Reads to the end of the body, which must close with exactly one terminal event and nothing after it.
    ///
    /// # Panics
    /// When it does not.
    pub async fn to_verdict(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        let terminal = events.iter().filter(|event| event.is_terminal()).count();
        let last = events.last().is_some_and(Event::is_terminal);
        assert!(terminal == 1 && last, "a stream ends with exactly one terminal event, not so:\n{self:?}");
        events
    }

    /// All bytes so far, as they came.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Comments so far.
    #[must_use]
    pub fn comments(&self) -> usize {
        self.parser.comments()
    }
}

/// The text that a stream's deltas (`data.delta`, or `data.text`) spell.
#[must_use]
pub fn spelled(events: &[Event]) -> String {
    let deltas = events.iter().filter(|event| event.kind() == "output_text.delta").map(Event::json);
    deltas.filter_map(|event| event["data"]["delta"].as_str().or(event["data"]["text"].as_str()).map(str::to_owned)).collect()
}
