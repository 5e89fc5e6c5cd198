//! From journal records to the events of a stream: a projection, the same live and in replay.
//!
//! Exactly one event is terminal; nothing follows it. An id names a place in two dimensions: how far the record's facts
//! were told (sequence, and which of the record's events), and how much text was shown by then (of which turn, how many
//! bytes). Text is cut into other pieces in replay than while it arrives; the bytes are the same, so that a reader may
//! resume after any single event and neither misses nor repeats a character.

use std::sync::Arc;

use ambit_core::session::{Command, Event, Heard};
use ambit_core::{Axis, Body, Digest, Limits, Settlement, Step};
use serde_json::{Value, json};

use crate::progress::Progress;
use crate::record::{self, Note, Unreadable};

/// The share of a limit from which a stream says that it is near: 80 %.
const APPROACHING_PERCENT: u64 = 80;

/// Place of an event in a session's stream. A piece of text stands behind the fact that was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventId {
    /// Sequence of the record; 0 stands before the first.
    pub seq: u64,
    /// 0 for the record's first fact.
    pub part: u32,
    /// The model call whose text was shown last; 0 before the first.
    pub step: Step,
    /// Bytes of its text shown up to this event and with it.
    pub text: u64,
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}.{}", self.seq, self.part, self.step.0, self.text)
    }
}

/// Where a reader resumes: behind the event of this id. The later parts of an id may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    seq: u64,
    part: u32,
    /// Of which turn how many bytes are known; `None`: all text that came before the fact.
    text: Option<(Step, u64)>,
}

/// The text is no id of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no id of an event")]
pub struct NoEventId;

impl std::str::FromStr for Cursor {
    type Err = NoEventId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        fn number<T: std::str::FromStr>(text: &str) -> Result<T, NoEventId> {
            text.parse().map_err(|_| NoEventId)
        }
        let numbers: Vec<&str> = text.splitn(5, '.').collect();
        match numbers[..] {
            [seq] => Ok(Self { seq: number(seq)?, part: 0, text: None }),
            [seq, part] => Ok(Self { seq: number(seq)?, part: number(part)?, text: None }),
            [seq, part, step, text] => {
                Ok(Self { seq: number(seq)?, part: number(part)?, text: Some((Step(number(step)?), number(text)?)) })
            }
            _ => Err(NoEventId),
        }
    }
}

impl Cursor {
    /// What a reader who stands here has not seen of an event: nothing, all of it, or the end of a text.
    pub(crate) fn unseen(self, mut event: StreamEvent) -> Option<StreamEvent> {
        let (here, there) = ((self.seq, self.part), (event.id.seq, event.id.part));
        let Some(bytes) = event.payload.text_bytes() else {
            // The terminal event is told to whoever asks, also from behind it.
            return (there > here || event.terminal).then_some(event);
        };
        let seen = match self.text {
            // Turns are compared as a whole: of one that was abandoned the journal may have less than was shown.
            Some((step, seen)) => match event.id.step.cmp(&step) {
                std::cmp::Ordering::Less => bytes,
                std::cmp::Ordering::Equal => seen.saturating_sub(event.id.text - bytes).min(bytes),
                std::cmp::Ordering::Greater => 0,
            },
            None if there < here => bytes,
            None => 0,
        };
        if seen == bytes {
            return None;
        }
        event.payload.skip(usize::try_from(seen).unwrap_or(usize::MAX));
        Some(event)
    }
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StreamEvent {
    /// Its place.
    pub(crate) id: EventId,
    /// Its type, as API.md names it.
    pub(crate) kind: &'static str,
    /// When it happened, milliseconds on the session's clock.
    pub(crate) at: u64,
    /// What is left.
    pub(crate) remaining: Remaining,
    /// What it says.
    pub(crate) payload: Payload,
    /// True for the last event of the stream.
    pub(crate) terminal: bool,
}

/// What an event says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Payload {
    /// This.
    Value(Value),
    /// Text that stands in the content.
    Text {
        /// The model call's step.
        step: Step,
        /// Where the text stands.
        digest: Digest,
        /// First byte to show.
        from: usize,
        /// How many bytes.
        bytes: u64,
    },
    /// Text that has just arrived.
    Live {
        /// The model call's step.
        step: Step,
        /// It.
        text: String,
    },
    /// The session as it stands, which the reader fills in.
    Session,
}

impl Payload {
    /// Length of the text shown, if it is one.
    fn text_bytes(&self) -> Option<u64> {
        match self {
            Self::Text { bytes, .. } => Some(*bytes),
            Self::Live { text, .. } => Some(text.len() as u64),
            Self::Value(_) | Self::Session => None,
        }
    }

    /// Leaves out the first bytes of a text. A place inside a character is moved to the next.
    fn skip(&mut self, seen: usize) {
        match self {
            Self::Text { from, bytes, .. } => {
                *from += seen;
                *bytes -= seen as u64;
            }
            Self::Live { text, .. } => *text = tail(text, seen).to_owned(),
            Self::Value(_) | Self::Session => {}
        }
    }
}

/// A text from a byte on, or from the next character.
pub(crate) fn tail(text: &str, from: usize) -> &str {
    let from = (from..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    &text[from..]
}

/// What a session may still use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remaining {
    /// Milliseconds to the deadline.
    pub ms: u64,
    /// Model calls.
    pub model_calls: u32,
    /// Tool calls.
    pub tool_calls: u32,
}

/// One record as it comes from the store.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    /// Its place.
    pub(crate) seq: u64,
    /// True for a note.
    pub(crate) note: bool,
    /// When, milliseconds on the session's clock.
    pub(crate) at: u64,
    /// Its JSON.
    pub(crate) body: Arc<str>,
}

/// The stream of one session, fed record by record from the first.
#[derive(Debug)]
pub(crate) struct Projection {
    progress: Option<Progress>,
    /// Follow the settlement as well.
    settlement: bool,
    over: bool,
    /// The model call that is under way.
    open: Option<Step>,
    /// Bytes of the current step's text that were shown.
    shown: (Step, u64),
    /// Where the stream stands.
    place: EventId,
    /// Facts of the current record that were told.
    facts: u32,
    approached: Vec<Axis>,
    failure: Option<Digest>,
}

impl Projection {
    /// A stream that ends with the verdict, or, with `settlement`, with the settlement.
    #[must_use]
    pub(crate) fn new(settlement: bool) -> Self {
        Self {
            progress: None,
            settlement,
            over: false,
            open: None,
            shown: (Step(0), 0),
            place: EventId { seq: 0, part: 0, step: Step(0), text: 0 },
            facts: 0,
            approached: Vec::new(),
            failure: None,
        }
    }

    /// True once the terminal event was given.
    #[must_use]
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// Where the words of the last failure stand.
    #[must_use]
    pub(crate) const fn failure(&self) -> Option<Digest> {
        self.failure
    }

    /// The session so far.
    #[must_use]
    pub(crate) const fn progress(&self) -> Option<&Progress> {
        self.progress.as_ref()
    }

    /// Takes the next record and gives its events.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub(crate) fn feed(&mut self, record: &Record) -> Result<Vec<StreamEvent>, Unreadable> {
        let mut events = Vec::new();
        if self.over {
            return Ok(events);
        }
        self.facts = 0;
        match (&mut self.progress, record.note) {
            (None, false) => {
                let started = Arc::new(record::read_started(record.seq, &record.body)?);
                let said = json!({"agent": started.agent, "limits": limits_json(&started.limits)});
                let (progress, commands) = Progress::start(started, record.at);
                self.progress = Some(progress);
                self.push(&mut events, record, "session.started", Payload::Value(said));
                self.commands(&mut events, record, &commands);
                self.closing(&mut events, record);
            }
            (None, true) => {}
            (Some(_), true) => {
                let note = record::read_note(record.seq, &record.body)?;
                self.note(&mut events, record, note);
            }
            (Some(progress), false) => {
                let event = record::read_event(record.seq, &record.body)?;
                let turns = progress.machine.transcript().turns().len();
                let (heard, commands) = progress.hear(event.clone(), record.at);
                if heard == Heard::Applied {
                    self.fact(&mut events, record, &event);
                    self.refused(&mut events, record, turns);
                    self.approaching(&mut events, record);
                    self.commands(&mut events, record, &commands);
                    self.closing(&mut events, record);
                }
            }
        }
        Ok(events)
    }

    /// What has arrived of the turn under way and was not shown: `text` is all of it so far.
    pub(crate) fn live(&mut self, step: Step, text: &str, at: u64) -> Option<StreamEvent> {
        let shown = usize::try_from(self.shown_of(step)).unwrap_or(usize::MAX);
        if self.over || self.open != Some(step) || text.len() <= shown {
            return None;
        }
        Some(self.text(step, at, Payload::Live { step, text: tail(text, shown).to_owned() }))
    }

    fn note(&mut self, events: &mut Vec<StreamEvent>, record: &Record, note: Note) {
        match note {
            // What was shown as it arrived is not shown again, and behind a piece that was lost nothing is shown: the
            // whole turn brings the rest.
            Note::Text { step, offset, bytes, digest } => {
                let shown = self.shown_of(step);
                if offset <= shown && shown < offset + bytes {
                    let from = usize::try_from(shown - offset).unwrap_or(usize::MAX);
                    events.push(self.text(step, record.at, Payload::Text { step, digest, from, bytes: offset + bytes - shown }));
                }
            }
            Note::AttemptFailed { step, target, kind, code } => {
                let said = json!({"step": step, "target": target, "kind": kind.as_str(), "code": code});
                self.push(events, record, "model.attempt_failed", Payload::Value(said));
            }
            // The words come with the terminal event; `model.finished` says that it happened.
            Note::Failure { digest, .. } => self.failure = Some(digest),
            Note::Degraded { capability, mode, reason } => {
                let said = json!({"capability": capability, "mode": mode, "reason": reason});
                self.push(events, record, "session.degraded", Payload::Value(said));
            }
        }
    }

    fn shown_of(&self, step: Step) -> u64 {
        if self.shown.0 == step { self.shown.1 } else { 0 }
    }

    fn fact(&mut self, events: &mut Vec<StreamEvent>, record: &Record, event: &Event) {
        match event {
            Event::ModelReplied { step, attempts, reply } => {
                self.rest(events, record, *step, reply.text);
                let tokens = attempts.iter().map(ambit_core::AttemptRecord::tokens).sum::<u64>();
                let calls = reply.calls.len();
                let said = json!({"step": step, "finish": reply.finish, "calls": calls, "attempts": attempts.len(), "tokens": tokens});
                self.push(events, record, "model.finished", Payload::Value(said));
            }
            Event::ModelFailed { step, attempts, fault, partial } => {
                self.rest(events, record, *step, *partial);
                let said = json!({"step": step, "fault": fault, "attempts": attempts.len()});
                self.push(events, record, "model.finished", Payload::Value(said));
            }
            Event::ToolFinished { step, attempts, result } => {
                let tally = self.progress.as_ref().and_then(|progress| progress.tally.steps.iter().find(|tally| tally.step == *step));
                let tool = tally.and_then(|tally| tally.tool.clone());
                let duration = tally.map(|tally| tally.ended_at.unwrap_or(record.at).saturating_sub(tally.started_at));
                let said = json!({
                    "step": step, "tool": tool, "code": result.code.as_str(), "attempts": attempts.len(),
                    "truncated": result.truncated, "duration_ms": duration,
                });
                self.push(events, record, "tool.finished", Payload::Value(said));
            }
            Event::Reconciled { step, finding } => {
                self.push(events, record, "settlement.reconciled", Payload::Value(json!({"step": step, "finding": finding})));
            }
            Event::Compensated { step, undone } => {
                self.push(events, record, "settlement.compensated", Payload::Value(json!({"step": step, "undone": undone})));
            }
            Event::Retrieved { .. }
            | Event::Dispatched { .. }
            | Event::ApprovalDecided { .. }
            | Event::Cancelled { .. }
            | Event::LimitsTightened { .. }
            | Event::Woke
            | Event::Resumed => {}
        }
    }

    /// What of a text was not shown in pieces.
    fn rest(&mut self, events: &mut Vec<StreamEvent>, record: &Record, step: Step, text: Option<Body>) {
        let shown = self.shown_of(step);
        if let Some(text) = text.filter(|text| u64::from(text.bytes) > shown) {
            let from = usize::try_from(shown).unwrap_or(usize::MAX);
            let bytes = u64::from(text.bytes) - shown;
            events.push(self.text(step, record.at, Payload::Text { step, digest: text.digest, from, bytes }));
        }
        self.open = None;
    }

    /// Calls of the turn just heard, if it is one more than `before`, that got a result without running.
    fn refused(&mut self, events: &mut Vec<StreamEvent>, record: &Record, before: usize) {
        let Some(turn) = self.progress.as_ref().and_then(|progress| progress.machine.transcript().turns().get(before)) else { return };
        let refused: Vec<Value> = turn
            .calls
            .iter()
            .filter_map(|call| Some(json!({"tool": call.tool, "call_id": call.id, "code": call.result?.code.as_str()})))
            .collect();
        for said in refused {
            self.push(events, record, "tool.refused", Payload::Value(said));
        }
    }

    fn commands(&mut self, events: &mut Vec<StreamEvent>, record: &Record, commands: &[Command]) {
        for command in commands {
            match command {
                Command::CallModel { step, last, .. } => {
                    self.open = Some(*step);
                    let last = last.map(|reason| reason.as_str());
                    self.push(events, record, "model.started", Payload::Value(json!({"step": step, "last_because": last})));
                }
                Command::CallTool { step, tool, again, .. } => {
                    self.push(events, record, "tool.started", Payload::Value(json!({"step": step, "tool": tool, "again": again})));
                }
                Command::AskApproval { step, tool, .. } => {
                    self.push(events, record, "session.awaiting_approval", Payload::Value(json!({"step": step, "tool": tool})));
                }
                Command::Finish(verdict) => {
                    let kind = match verdict.status {
                        ambit_core::Status::Completed => "session.completed",
                        ambit_core::Status::Incomplete => "session.incomplete",
                        ambit_core::Status::Failed => "session.failed",
                        ambit_core::Status::Cancelled => "session.cancelled",
                    };
                    self.push(events, record, kind, Payload::Session);
                    if !self.settlement {
                        self.end(events);
                    }
                }
                Command::Retrieve { .. } | Command::Abandon { .. } | Command::Reconcile { .. } | Command::Compensate { .. } => {}
            }
        }
    }

    /// The settlement's own end, for those who follow it.
    fn closing(&mut self, events: &mut Vec<StreamEvent>, record: &Record) {
        let Some(settlement) = self.progress.as_ref().filter(|progress| progress.machine.is_closed()).map(|p| p.machine.settlement())
        else {
            return;
        };
        if self.settlement && !self.over {
            let kind = match settlement {
                Settlement::NeedsAttention => "settlement.needs_attention",
                Settlement::None | Settlement::Settled | Settlement::Pending => "settlement.settled",
            };
            self.push(events, record, kind, Payload::Session);
            self.end(events);
        }
    }

    fn end(&mut self, events: &mut [StreamEvent]) {
        if let Some(last) = events.last_mut() {
            last.terminal = true;
            self.over = true;
        }
    }

    fn approaching(&mut self, events: &mut Vec<StreamEvent>, record: &Record) {
        let Some(progress) = &self.progress else { return };
        let (spent, limits) = (progress.machine.spent(), progress.machine.limits());
        let near: Vec<Axis> = used(spent, limits, record.at)
            .into_iter()
            .filter(|(axis, used, limit)| *limit > 0 && used * 100 >= limit * APPROACHING_PERCENT && !self.approached.contains(axis))
            .map(|(axis, ..)| axis)
            .collect();
        for axis in near {
            self.approached.push(axis);
            self.push(events, record, "session.limit_approaching", Payload::Value(json!({"axis": axis.as_str()})));
        }
    }

    fn push(&mut self, events: &mut Vec<StreamEvent>, record: &Record, kind: &'static str, payload: Payload) {
        if self.over {
            return;
        }
        self.place = EventId { seq: record.seq, part: self.facts, ..self.place };
        self.facts += 1;
        events.push(StreamEvent { id: self.place, kind, at: record.at, remaining: self.remaining(record.at), payload, terminal: false });
    }

    /// A piece of text, which moves the stream on by its bytes.
    fn text(&mut self, step: Step, at: u64, payload: Payload) -> StreamEvent {
        let bytes = payload.text_bytes().unwrap_or(0);
        self.shown = (step, self.shown_of(step) + bytes);
        self.place = EventId { step, text: self.shown.1, ..self.place };
        StreamEvent { id: self.place, kind: "output_text.delta", at, remaining: self.remaining(at), payload, terminal: false }
    }

    fn remaining(&self, at: u64) -> Remaining {
        self.progress.as_ref().map_or_else(Remaining::default, |progress| Remaining::of(progress, at))
    }
}

impl Remaining {
    fn of(progress: &Progress, at: u64) -> Self {
        let (spent, limits) = (progress.machine.spent(), progress.machine.limits());
        Self {
            ms: limits.deadline_ms.saturating_sub(at),
            model_calls: limits.model_calls.saturating_sub(spent.model_calls),
            tool_calls: limits.tool_calls.saturating_sub(spent.tool_calls),
        }
    }
}

/// What is used of each axis a caller can watch, against its limit.
fn used(spent: &ambit_core::session::Spent, limits: &Limits, at: u64) -> [(Axis, u64, u64); 7] {
    [
        (Axis::Deadline, at, limits.deadline_ms),
        (Axis::ModelCalls, spent.model_calls.into(), limits.model_calls.into()),
        (Axis::ToolCalls, spent.tool_calls.into(), limits.tool_calls.into()),
        (Axis::ModelAttempts, spent.model_attempts.into(), limits.model_attempts.into()),
        (Axis::ToolAttempts, spent.tool_attempts.into(), limits.tool_attempts.into()),
        (Axis::TotalTokens, spent.tokens(), limits.total_tokens),
        // A price in nano-dollars times a hundred stays within 64 bits below 180 million dollars.
        (Axis::CostUsd, spent.cost.0 / 1_000, limits.cost_usd.0 / 1_000),
    ]
}

/// The limits under their names in the API.
#[must_use]
pub fn limits_json(limits: &Limits) -> Value {
    json!({
        "deadline_ms": limits.deadline_ms,
        "model_calls": limits.model_calls,
        "tool_calls": limits.tool_calls,
        "parallel_tools": limits.parallel_tools,
        "model_attempts": limits.model_attempts,
        "tool_attempts": limits.tool_attempts,
        "prompt_chars": limits.prompt_chars,
        "context_chars": limits.context_chars,
        "tool_output_bytes": limits.tool_output,
        "output_tokens_per_call": limits.output_tokens_per_call,
        "total_tokens": limits.total_tokens,
        "cost_usd": limits.cost_usd.usd(),
        "answer_reserve_ms": limits.answer_reserve_ms,
        "transcript_bytes": limits.transcript,
        "events": limits.events,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(seq: u64, part: u32) -> StreamEvent {
        event(EventId { seq, part, step: Step(1), text: 10 }, Payload::Value(Value::Null))
    }

    fn said(seq: u64, part: u32, step: u32, upto: u64, text: &str) -> StreamEvent {
        event(EventId { seq, part, step: Step(step), text: upto }, Payload::Live { step: Step(step), text: text.into() })
    }

    fn event(id: EventId, payload: Payload) -> StreamEvent {
        StreamEvent { id, kind: "any", at: 0, remaining: Remaining::default(), payload, terminal: false }
    }

    /// What a reader at a place gets of an event: nothing, a fact, or this text.
    fn got(cursor: &str, event: StreamEvent) -> Option<String> {
        cursor.parse::<Cursor>().unwrap().unseen(event).map(|event| match event.payload {
            Payload::Live { text, .. } => text,
            Payload::Value(_) | Payload::Text { .. } | Payload::Session => "fact".into(),
        })
    }

    #[test]
    fn a_reader_gets_what_lies_behind_its_place() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(got("3.1.4.10", fact(3, 1)), None);
        assert_eq!(got("3.1.4.10", fact(3, 2)), some("fact"));
        assert_eq!(got("3.1.4.10", said(3, 1, 4, 10, "abcd")), None);
        assert_eq!(got("3.1.4.10", said(3, 1, 4, 14, "abcd")), some("abcd"));
        // Cut across the place, and told of an earlier fact than when it was live.
        assert_eq!(got("3.1.4.10", said(3, 1, 4, 12, "abcd")), some("cd"));
        assert_eq!(got("5.0.4.10", said(3, 1, 4, 12, "abcd")), some("cd"));
        // An earlier turn is seen and a later one is not, however much of the earlier one the journal has.
        assert_eq!(got("5.0.4.10", said(3, 1, 2, 900, "abcd")), None);
        assert_eq!(got("5.0.4.10", said(7, 1, 6, 4, "abcd")), some("abcd"));
        // A place inside a character is that character's end.
        assert_eq!(got("3.1.4.1", said(3, 1, 4, 4, "€x")), some("x"));
        // Ids without the later parts: text behind the fact is not known to be seen.
        assert_eq!(got("3", said(3, 0, 4, 4, "abcd")), some("abcd"));
        assert_eq!(got("3", said(2, 7, 4, 4, "abcd")), None);
        assert_eq!(got("0", fact(1, 0)), some("fact"));
    }

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let id = EventId { seq: 12, part: 3, step: Step(5), text: 340 };
        assert_eq!(id.to_string().parse::<Cursor>().unwrap(), Cursor { seq: 12, part: 3, text: Some((Step(5), 340)) });
        for wrong in ["", "x", "1.", "1.2.", "1.2.3", "1.2.3.4.5", "-1", "1.2.3.x"] {
            assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
        }
    }
}
