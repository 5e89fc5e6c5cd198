//! From journal records to the events of a stream: a projection, the same live and in replay.
//!
//! Exactly one event is terminal; nothing follows it. An id is the record's sequence, with `.N` behind it for the
//! N-th further event of the same record, so that a reader may resume after any single event.

use std::sync::Arc;

use ambit_core::session::{Command, Event, Heard};
use ambit_core::{Axis, Body, Digest, Limits, Settlement, Step};
use serde_json::{Value, json};

use crate::progress::Progress;
use crate::record::{self, Note, Unreadable};

/// The share of a limit from which a stream says that it is near: 80 %.
const APPROACHING_PERCENT: u64 = 80;

/// Place of an event in a session's stream: sequence of its record, then which event of that record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct EventId {
    /// Sequence of the record; 0 stands before the first.
    pub seq: u64,
    /// 0 for the record's first event.
    pub part: u32,
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.part {
            0 => write!(f, "{}", self.seq),
            part => write!(f, "{}.{part}", self.seq),
        }
    }
}

impl std::str::FromStr for EventId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('.') {
            None => Ok(Self { seq: text.parse()?, part: 0 }),
            Some((seq, part)) => Ok(Self { seq: seq.parse()?, part: part.parse()? }),
        }
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
    /// Text that stands in the content: from byte `from` on.
    Text {
        /// The model call's step.
        step: Step,
        /// Where the text stands.
        digest: Digest,
        /// First byte to show.
        from: usize,
    },
    /// The session as it stands, which the reader fills in.
    Session,
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
    /// Bytes of the current step's text that were shown.
    shown: (Step, u64),
    approached: Vec<Axis>,
    failure: Option<Digest>,
}

impl Projection {
    /// A stream that ends with the verdict, or, with `settlement`, with the settlement.
    #[must_use]
    pub(crate) fn new(settlement: bool) -> Self {
        Self { progress: None, settlement, over: false, shown: (Step(0), 0), approached: Vec::new(), failure: None }
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
                let (heard, commands) = progress.hear(event.clone(), record.at);
                if heard == Heard::Applied {
                    self.fact(&mut events, record, &event);
                    self.approaching(&mut events, record);
                    self.commands(&mut events, record, &commands);
                    self.closing(&mut events, record);
                }
            }
        }
        Ok(events)
    }

    fn note(&mut self, events: &mut Vec<StreamEvent>, record: &Record, note: Note) {
        match note {
            // Behind a piece that was lost nothing is shown: the whole turn brings the rest.
            Note::Text { step, offset, .. } if offset != self.shown_of(step) => {}
            Note::Text { step, offset, bytes, digest } => {
                self.shown = (step, offset + bytes);
                self.push(events, record, "output_text.delta", Payload::Text { step, digest, from: 0 });
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
                self.refused(events, record);
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
    fn rest(&self, events: &mut Vec<StreamEvent>, record: &Record, step: Step, text: Option<Body>) {
        let shown = self.shown_of(step);
        if let Some(text) = text.filter(|text| u64::from(text.bytes) > shown) {
            let from = usize::try_from(shown).unwrap_or(usize::MAX);
            self.push(events, record, "output_text.delta", Payload::Text { step, digest: text.digest, from });
        }
    }

    /// Calls of the turn just heard that got a result without running.
    fn refused(&mut self, events: &mut Vec<StreamEvent>, record: &Record) {
        let Some(turn) = self.progress.as_ref().and_then(|progress| progress.machine.transcript().turns().last()) else { return };
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

    fn push(&self, events: &mut Vec<StreamEvent>, record: &Record, kind: &'static str, payload: Payload) {
        if self.over {
            return;
        }
        let part = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let remaining = self.progress.as_ref().map_or_else(Remaining::default, |progress| Remaining::of(progress, record.at));
        events.push(StreamEvent { id: EventId { seq: record.seq, part }, kind, at: record.at, remaining, payload, terminal: false });
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
