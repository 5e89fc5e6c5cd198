//! The session machine: total over phases and events, one mutation an event, no clock, no dice, no I/O.
//!
//! ```text
//!             Retrieve            CallModel              calls                 all have results
//!   start ──► Retrieving ──► AwaitingModel ──────────► Running ──────────────► AwaitingModel ..
//!                                   │                    │  ▲ yes, no, expired
//!                                   │                    ▼  │
//!                                   │            AwaitingApproval   (the clock stands)
//!                                   ▼
//!             verdict (once) ──► Settling ──► Closed
//! ```
//!
//! Whatever happens in whatever phase, [`Machine::handle`] says *applied*, *late* (it would have been heard earlier) or
//! *invalid* (nobody asked for it); only what was applied is journalled.

use std::sync::Arc;

use crate::attempt::Allowance;
use crate::id::{Body, Step};
use crate::limit::{Axis, LAST_CALL_MARGIN_MS, Limits, RESUMES_MAX, TIGHTENINGS_MAX};
use crate::session::batch::{Batch, SlotState};
use crate::session::budget::{Budget, Spent};
use crate::session::command::Command;
use crate::session::effects::{EffectRecord, EffectState, Effects};
use crate::session::event::{Canceller, Event, ModelFault};
use crate::session::loops::LoopGuard;
use crate::session::started::{OnLimit, Started};
use crate::session::transcript::Transcript;
use crate::tool::{ToolCode, ToolResult};
use crate::verdict::{Cause, Reason, Settlement, Status, Verdict};

/// What the machine made of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It changed the session; it belongs into the journal.
    Applied,
    /// It came too late to matter.
    Late,
    /// Nobody asked for it: a driver's mistake.
    Invalid,
}

/// What the session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Retrieving { step: Step, allowance: Allowance },
    AwaitingModel(Asked),
    Running,
    AwaitingApproval { step: Step, index: usize },
    Settling { until: u64 },
    Closed,
}

/// A model call that is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) step: Step,
    pub(super) allowance: Allowance,
    /// Set if tools are switched off because this is the last call.
    pub(super) last: Option<Reason>,
    pub(super) nudge: bool,
}

/// One session. See the module's picture.
#[derive(Debug, Clone)]
pub struct Machine {
    pub(super) started: Arc<Started>,
    pub(super) limits: Limits,
    pub(super) phase: Phase,
    pub(super) batch: Batch,
    pub(super) budget: Budget,
    pub(super) transcript: Transcript,
    pub(super) effects: Effects,
    pub(super) loops: LoopGuard,
    pub(super) verdict: Option<Verdict>,
    /// Why the next model call has to be the last, once something said so.
    pub(super) winding: Option<Reason>,
    /// Input tokens for 1,000 characters, as last reported.
    pub(super) tokens_per_kchar: Option<u32>,
    pub(super) tainted: bool,
    pub(super) nudged: bool,
    pub(super) saturated_once: bool,
    /// Until when compensations may run, once that is known.
    pub(super) compensating_until: Option<u64>,
    turns: u32,
    next_step: u32,
    events: u32,
    resumes: u32,
    tightenings: u32,
    disconnected: bool,
}

impl Machine {
    /// Begins a session: its first command is a retrieval or a model call.
    ///
    /// `at` is the moment on the session's clock, milliseconds since the request arrived.
    #[must_use]
    pub fn start(started: Arc<Started>, at: u64) -> (Self, Vec<Command>) {
        let mut machine = Self {
            limits: started.limits,
            phase: Phase::Closed,
            batch: Batch::default(),
            budget: Budget::default(),
            transcript: Transcript::new(&started),
            effects: Effects::default(),
            loops: LoopGuard::default(),
            verdict: None,
            winding: None,
            tokens_per_kchar: None,
            tainted: started.tainted,
            nudged: false,
            saturated_once: false,
            compensating_until: None,
            turns: 0,
            next_step: 0,
            events: 0,
            resumes: 0,
            tightenings: 0,
            disconnected: false,
            started,
        };
        let commands = machine.begin(at);
        (machine, commands)
    }

    /// Hears one event at `at`, milliseconds on the session's clock, and says what to do now.
    ///
    /// Total: any event in any phase. Past the deadline the verdict comes first, then the event is heard.
    pub fn handle(&mut self, event: Event, at: u64) -> (Heard, Vec<Command>) {
        let mut commands = Vec::new();
        let before = self.events;
        self.events = before.saturating_add(1);
        let heard = if self.is_overdue(&event, at) {
            let resumed = event == Event::Resumed;
            if resumed {
                self.may_resume();
                self.forget(|_| true);
            }
            self.conclude(Status::Incomplete, Reason::Limit(Axis::Deadline), None, at, &mut commands);
            if !resumed {
                self.hear(event, at, &mut commands);
            }
            Heard::Applied
        } else {
            self.hear(event, at, &mut commands)
        };
        if heard != Heard::Applied {
            self.events = before;
        }
        (heard, commands)
    }

    /// True if the deadline has passed without a verdict. `Dispatched` does not say so: to it `Applied` would mean that
    /// the write may leave.
    fn is_overdue(&self, event: &Event, at: u64) -> bool {
        self.verdict.is_none()
            && at >= self.limits.deadline_ms
            && !self.is_awaiting_approval()
            && !matches!(event, Event::Dispatched { .. })
    }

    /// Every phase x event pair, written out.
    fn hear(&mut self, event: Event, at: u64, commands: &mut Vec<Command>) -> Heard {
        match (self.phase, event) {
            (Phase::Retrieving { step: own, .. }, Event::Retrieved { step, passages, tainting }) if step == own => {
                if let Some(passages) = passages {
                    self.transcript.set_passages(passages);
                    self.tainted |= tainting;
                }
                self.phase = Phase::Running;
                self.next_turn(false, at, commands);
                Heard::Applied
            }

            (Phase::AwaitingModel(asked), Event::ModelReplied { step, attempts, reply }) if step == asked.step => {
                self.budget.settle_model(&attempts);
                self.phase = Phase::Running;
                self.model_replied(asked, reply, at, commands);
                Heard::Applied
            }
            (Phase::AwaitingModel(asked), Event::ModelFailed { step, attempts, fault, partial }) if step == asked.step => {
                self.budget.settle_model(&attempts);
                self.phase = Phase::Running;
                self.model_failed(asked, fault, partial, at, commands);
                Heard::Applied
            }

            (Phase::Running, Event::Dispatched { step }) => self.dispatched(step, at),
            (Phase::Running, Event::ToolFinished { step, attempts, result }) => match self.batch.running_as(step) {
                Some(index) => {
                    self.slot_finished(index, &attempts, result);
                    self.advance(at, commands);
                    Heard::Applied
                }
                None => self.detached_finished(step, &attempts, result),
            },

            (Phase::AwaitingApproval { step: own, index }, Event::ApprovalDecided { step, decision }) if step == own => {
                self.phase = Phase::Running;
                self.decided(index, decision, at, commands);
                self.advance(at, commands);
                Heard::Applied
            }

            // A write that outlived its turn answers while the session goes on or settles.
            (
                Phase::AwaitingModel(_) | Phase::AwaitingApproval { .. } | Phase::Retrieving { .. },
                Event::ToolFinished { step, attempts, result },
            ) => self.detached_finished(step, &attempts, result),
            (Phase::Settling { .. }, Event::ToolFinished { step, attempts, result }) => {
                let heard = self.detached_finished(step, &attempts, result);
                if heard == Heard::Applied {
                    self.settle(at, commands);
                }
                heard
            }
            (Phase::Settling { .. }, Event::Reconciled { step, finding }) => match self.effects.standing_at(EffectState::Reconciling(step))
            {
                Some(index) => {
                    self.reconciled(index, finding);
                    self.settle(at, commands);
                    Heard::Applied
                }
                None => self.stale(step),
            },
            (Phase::Settling { .. }, Event::Compensated { step, undone }) => {
                match self.effects.standing_at(EffectState::Compensating(step)) {
                    Some(index) => {
                        self.effects.records[index].state = if undone { EffectState::Compensated } else { EffectState::Attention };
                        self.settle(at, commands);
                        Heard::Applied
                    }
                    None => self.stale(step),
                }
            }

            (
                Phase::Retrieving { .. } | Phase::AwaitingModel(_) | Phase::Running | Phase::AwaitingApproval { .. },
                Event::Cancelled { by },
            ) => self.cancelled(by, at, commands),
            (
                Phase::Retrieving { .. } | Phase::AwaitingModel(_) | Phase::Running | Phase::AwaitingApproval { .. },
                Event::LimitsTightened { limits },
            ) => self.tightened(&limits, at, commands),
            (Phase::Retrieving { .. } | Phase::AwaitingModel(_) | Phase::Running | Phase::AwaitingApproval { .. }, Event::Resumed) => {
                self.resumed(at, commands);
                Heard::Applied
            }
            (Phase::Settling { .. }, Event::Resumed) => {
                self.resumed_settling(at, commands);
                Heard::Applied
            }

            (Phase::Retrieving { .. } | Phase::AwaitingModel(_) | Phase::Running, Event::Woke) => self.woke(at, commands),
            (Phase::Settling { until }, Event::Woke) if at >= until => {
                self.give_up_settling();
                self.settle(at, commands);
                Heard::Applied
            }
            (Phase::AwaitingApproval { .. } | Phase::Settling { .. } | Phase::Closed, Event::Woke) => Heard::Late,

            // Answers to steps that nobody waits for any more, or never asked for.
            (
                Phase::Retrieving { .. }
                | Phase::AwaitingModel(_)
                | Phase::Running
                | Phase::AwaitingApproval { .. }
                | Phase::Settling { .. }
                | Phase::Closed,
                Event::Retrieved { step, .. }
                | Event::ModelReplied { step, .. }
                | Event::ModelFailed { step, .. }
                | Event::ApprovalDecided { step, .. },
            )
            | (
                Phase::Retrieving { .. }
                | Phase::AwaitingModel(_)
                | Phase::AwaitingApproval { .. }
                | Phase::Settling { .. }
                | Phase::Closed,
                Event::Dispatched { step },
            )
            | (
                Phase::Retrieving { .. } | Phase::AwaitingModel(_) | Phase::Running | Phase::AwaitingApproval { .. } | Phase::Closed,
                Event::Reconciled { step, .. } | Event::Compensated { step, .. },
            )
            | (Phase::Closed, Event::ToolFinished { step, .. }) => self.stale(step),
            (Phase::Settling { .. } | Phase::Closed, Event::Cancelled { .. } | Event::LimitsTightened { .. })
            | (Phase::Closed, Event::Resumed) => Heard::Late,
        }
    }

    /// How often its limits were tightened, of at most [`TIGHTENINGS_MAX`].
    #[must_use]
    pub const fn tightenings(&self) -> u32 {
        self.tightenings
    }

    /// The next moment at which it wants [`Event::Woke`], milliseconds on its clock, and why.
    #[must_use]
    pub fn wake_at(&self) -> Option<(u64, &'static str)> {
        match self.phase {
            Phase::AwaitingModel(Asked { last: Some(_), .. }) => Some((self.limits.deadline_ms, "deadline")),
            Phase::Retrieving { .. } | Phase::AwaitingModel(_) | Phase::Running => Some((self.limits.reserve_at(), "answer reserve")),
            Phase::Settling { until } => Some((until, "end of settlement")),
            Phase::AwaitingApproval { .. } | Phase::Closed => None,
        }
    }

    /// The verdict, once it stands.
    #[must_use]
    pub const fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// What became of the effects: `None` without any, else pending until the session is closed.
    #[must_use]
    pub fn settlement(&self) -> Settlement {
        match self.phase {
            _ if self.effects.records.is_empty() => Settlement::None,
            Phase::Closed if self.effects.any_attention() => Settlement::NeedsAttention,
            Phase::Closed => Settlement::Settled,
            Phase::Retrieving { .. }
            | Phase::AwaitingModel(_)
            | Phase::Running
            | Phase::AwaitingApproval { .. }
            | Phase::Settling { .. } => Settlement::Pending,
        }
    }

    /// True once nothing will be heard any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// True while a person is being asked: the session's clock stands.
    #[must_use]
    pub fn is_awaiting_approval(&self) -> bool {
        matches!(self.phase, Phase::AwaitingApproval { .. })
    }

    /// The name of what it waits for.
    #[must_use]
    pub const fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Retrieving { .. } => "Retrieving",
            Phase::AwaitingModel(_) => "AwaitingModel",
            Phase::Running => "Running",
            Phase::AwaitingApproval { .. } => "AwaitingApproval",
            Phase::Settling { .. } => "Settling",
            Phase::Closed => "Closed",
        }
    }

    /// What it began with.
    #[must_use]
    pub fn started(&self) -> &Arc<Started> {
        &self.started
    }

    /// The limits in force.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What was spent so far.
    #[must_use]
    pub const fn spent(&self) -> &Spent {
        &self.budget.spent
    }

    /// Everything said so far, by reference.
    #[must_use]
    pub const fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// The id under which the model wants the result of the call that runs as `step`.
    #[must_use]
    pub fn call_id(&self, step: Step) -> Option<&Arc<str>> {
        self.batch.running_as(step).and_then(|index| self.batch.slots.get(index)).map(|slot| &slot.call.id)
    }

    /// The writes that were sent.
    #[must_use]
    pub fn effects(&self) -> &[EffectRecord] {
        &self.effects.records
    }

    /// Events heard so far.
    #[must_use]
    pub const fn events(&self) -> u32 {
        self.events
    }

    /// True once untrusted content is in the context.
    #[must_use]
    pub const fn is_tainted(&self) -> bool {
        self.tainted
    }

    pub(super) fn step(&mut self) -> Step {
        self.next_step += 1;
        Step(self.next_step)
    }

    pub(super) const fn turn(&self) -> u32 {
        self.turns
    }

    /// A turn of the model is complete.
    pub(super) fn count_turn(&mut self) {
        self.turns += 1;
    }

    /// True if a retry of the whole request would repeat nothing.
    fn is_untouched(&self) -> bool {
        self.turns == 0 && self.budget.spent.tool_calls == 0
    }

    fn begin(&mut self, at: u64) -> Vec<Command> {
        let mut commands = Vec::new();
        if self.started.retrieval {
            self.retrieve(&mut commands);
        } else {
            self.next_turn(false, at, &mut commands);
        }
        commands
    }

    fn retrieve(&mut self, commands: &mut Vec<Command>) {
        let step = self.step();
        let allowance = Allowance { attempts: 1, tokens: 0, cost: crate::money::Money::ZERO, deadline: self.limits.reserve_at() };
        self.phase = Phase::Retrieving { step, allowance };
        commands.push(Command::Retrieve { step, allowance });
    }

    /// Events that may still be heard, the current one not counted.
    pub(super) const fn events_left(&self) -> u32 {
        self.limits.events.saturating_sub(self.events)
    }

    /// An answer to a step that is not awaited: late if the step was ever issued, else invalid.
    pub(super) fn stale(&self, step: Step) -> Heard {
        if step.0 >= 1 && step.0 <= self.next_step { Heard::Late } else { Heard::Invalid }
    }

    fn detached_finished(&mut self, step: Step, attempts: &[crate::attempt::AttemptRecord], result: ToolResult) -> Heard {
        match self.effects.finished(step, result.code) {
            Some(allowance) => {
                self.budget.settle_tool(&allowance, attempts);
                Heard::Applied
            }
            None => self.stale(step),
        }
    }

    fn cancelled(&mut self, by: Canceller, at: u64, commands: &mut Vec<Command>) -> Heard {
        let (status, reason) = match by {
            Canceller::Disconnect if !self.effects.records.is_empty() => {
                // After a write the session finishes what it began; the second disconnection says nothing new.
                let heard = if self.disconnected { Heard::Late } else { Heard::Applied };
                self.disconnected = true;
                return heard;
            }
            Canceller::Caller | Canceller::Operator | Canceller::Disconnect => (Status::Cancelled, Reason::Cancelled),
            Canceller::Shutdown => (Status::Cancelled, Reason::Shutdown),
            Canceller::StoreLost => (Status::Failed, Reason::StoreLost),
            Canceller::Recovery => {
                // Whatever was out died with its process.
                self.forget(|_| true);
                (Status::Failed, Reason::Internal)
            }
        };
        self.conclude(status, reason, None, at, commands);
        Heard::Applied
    }

    fn tightened(&mut self, limits: &Limits, at: u64, commands: &mut Vec<Command>) -> Heard {
        if self.tightenings >= TIGHTENINGS_MAX {
            return Heard::Invalid;
        }
        self.tightenings += 1;
        self.limits = self.limits.tightened_by(limits);
        if at >= self.limits.deadline_ms && !self.is_awaiting_approval() {
            self.conclude(Status::Incomplete, Reason::Limit(Axis::Deadline), None, at, commands);
        }
        Heard::Applied
    }

    /// The answer reserve has begun: what still runs makes room for the last call.
    fn woke(&mut self, at: u64, commands: &mut Vec<Command>) -> Heard {
        if at < self.limits.reserve_at() {
            return Heard::Late;
        }
        match self.phase {
            Phase::Retrieving { step, .. } => {
                commands.push(Command::Abandon { step });
                self.phase = Phase::Running;
                self.next_turn(false, at, commands);
                Heard::Applied
            }
            Phase::AwaitingModel(Asked { last: Some(_), .. }) => Heard::Late,
            Phase::AwaitingModel(asked) => {
                commands.push(Command::Abandon { step: asked.step });
                self.budget.charge_model(&asked.allowance);
                self.phase = Phase::Running;
                self.next_turn(asked.nudge, at, commands);
                Heard::Applied
            }
            Phase::Running => {
                self.clear_batch(ToolCode::DeadlineExceeded, commands);
                self.next_turn(false, at, commands);
                Heard::Applied
            }
            Phase::AwaitingApproval { .. } | Phase::Settling { .. } | Phase::Closed => Heard::Late,
        }
    }

    /// Counts a resumption; false once there were too many: a session that kills its process must not do so for ever.
    pub(super) fn may_resume(&mut self) -> bool {
        self.resumes += 1;
        self.resumes <= RESUMES_MAX
    }

    /// Of these sent writes nobody will hear any more: their outcome is unknown, their allowance gone.
    pub(super) fn forget(&mut self, which: impl Fn(Step) -> bool) {
        for step in self.effects.awaited().into_iter().filter(|&step| which(step)) {
            if let Some(allowance) = self.effects.finished(step, ToolCode::OutcomeUnknown) {
                self.budget.charge_tool(&allowance);
            }
        }
    }

    fn resumed(&mut self, at: u64, commands: &mut Vec<Command>) {
        if !self.may_resume() {
            self.forget(|_| true);
            self.conclude(Status::Failed, Reason::Internal, None, at, commands);
            return;
        }
        // A write that outlived its turn has no place left in which to ask again.
        let batch = std::mem::take(&mut self.batch);
        self.forget(|step| batch.running_as(step).is_none());
        self.batch = batch;
        match self.phase {
            Phase::Retrieving { .. } => self.retrieve(commands),
            Phase::AwaitingModel(asked) => {
                self.budget.charge_model(&asked.allowance);
                self.phase = Phase::Running;
                self.next_turn(asked.nudge, at, commands);
            }
            Phase::Running => {
                self.resume_batch(commands);
                self.advance(at, commands);
            }
            Phase::AwaitingApproval { step, index } => {
                let call = &self.batch.slots[index].call;
                commands.push(Command::AskApproval { step, tool: call.tool.clone(), arguments: call.arguments });
            }
            Phase::Settling { .. } | Phase::Closed => {}
        }
    }

    /// Fixes the verdict: drops what may be dropped, gives every open call its result, and begins the settlement.
    pub(super) fn conclude(&mut self, status: Status, reason: Reason, answer: Option<Body>, at: u64, commands: &mut Vec<Command>) {
        self.conclude_because(status, reason, None, answer, at, commands);
    }

    pub(super) fn conclude_because(
        &mut self,
        status: Status,
        reason: Reason,
        cause: Option<Cause>,
        answer: Option<Body>,
        at: u64,
        commands: &mut Vec<Command>,
    ) {
        let untouched = self.is_untouched();
        match self.phase {
            Phase::Retrieving { step, .. } => commands.push(Command::Abandon { step }),
            Phase::AwaitingModel(asked) => {
                commands.push(Command::Abandon { step: asked.step });
                self.budget.charge_model(&asked.allowance);
            }
            Phase::Running | Phase::AwaitingApproval { .. } | Phase::Settling { .. } | Phase::Closed => {}
        }
        let code = if reason == Reason::Limit(Axis::Deadline) { ToolCode::DeadlineExceeded } else { ToolCode::NotAttempted };
        self.clear_batch(code, commands);
        let verdict = Verdict { status, reason, answer: answer.or_else(|| self.transcript.last_text()), cause, untouched };
        self.verdict = Some(verdict);
        commands.push(Command::Finish(verdict));
        self.phase = Phase::Settling { until: at.saturating_add(crate::limit::SETTLEMENT_MS_MAX) };
        self.settle(at, commands);
    }

    /// The moment after which the last model call may not run.
    pub(super) const fn last_call_deadline(&self) -> u64 {
        self.limits.deadline_ms.saturating_sub(LAST_CALL_MARGIN_MS)
    }

    pub(super) fn stops_at_limits(&self) -> bool {
        self.started.on_limit == OnLimit::Stop
    }

    pub(super) fn running_step(&self, index: usize) -> Option<(Step, Allowance, bool)> {
        match self.batch.slots[index].state {
            SlotState::Running { step, allowance, dispatched } => Some((step, allowance, dispatched)),
            SlotState::Queued { .. } | SlotState::Asking { .. } | SlotState::Done { .. } => None,
        }
    }

    fn model_failed(&mut self, asked: Asked, fault: ModelFault, partial: Option<Body>, at: u64, commands: &mut Vec<Command>) {
        let untouched = self.is_untouched();
        match fault {
            ModelFault::Unavailable(_) if partial.is_some() => {
                self.conclude_because(Status::Incomplete, Reason::StreamInterrupted, Some(Cause::StreamBroken), partial, at, commands);
            }
            ModelFault::Unavailable(cause) => {
                self.conclude_because(Status::Failed, Reason::ModelUnavailable, Some(cause), None, at, commands);
            }
            ModelFault::Rejected => self.conclude(Status::Failed, Reason::ModelRejected, None, at, commands),
            ModelFault::Internal | ModelFault::Abandoned => self.conclude(Status::Failed, Reason::Internal, None, at, commands),
            ModelFault::ContentFiltered => self.conclude(Status::Incomplete, Reason::ContentFiltered, partial, at, commands),
            ModelFault::Context if self.make_room(self.transcript.chars() / 2) => self.next_turn(asked.nudge, at, commands),
            ModelFault::Context if untouched => self.conclude(Status::Failed, Reason::Context, None, at, commands),
            ModelFault::Context => self.conclude(Status::Incomplete, Reason::Context, None, at, commands),
            ModelFault::Mistake => match asked.last {
                Some(reason) => self.conclude(Status::Incomplete, reason, None, at, commands),
                None => self.next_turn(asked.nudge, at, commands),
            },
            ModelFault::Saturated if untouched => self.conclude(Status::Failed, Reason::Saturated, None, at, commands),
            ModelFault::Saturated if !self.saturated_once => {
                self.saturated_once = true;
                self.next_turn(asked.nudge, at, commands);
            }
            ModelFault::Saturated => self.conclude(Status::Incomplete, Reason::Saturated, None, at, commands),
            ModelFault::Allowance if partial.is_some() => {
                self.conclude(Status::Incomplete, Reason::StreamInterrupted, partial, at, commands);
            }
            // The answer was cut by the time that was left, not by a fault; what was said is kept.
            ModelFault::Deadline if partial.is_some() => {
                self.conclude(Status::Incomplete, Reason::Limit(Axis::Deadline), partial, at, commands);
            }
            ModelFault::Deadline => match asked.last {
                Some(_) => self.conclude(Status::Incomplete, Reason::Limit(Axis::Deadline), None, at, commands),
                None => {
                    self.winding = Some(Reason::Limit(Axis::Deadline));
                    self.next_turn(asked.nudge, at, commands);
                }
            },
            ModelFault::Allowance => match asked.last {
                Some(reason) => self.conclude(Status::Incomplete, reason, None, at, commands),
                None => {
                    self.winding = Some(Reason::Limit(Axis::ModelAttempts));
                    self.next_turn(asked.nudge, at, commands);
                }
            },
        }
    }
}
