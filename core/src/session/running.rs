//! The calls of a turn: gated, started, answered, given up.

use crate::attempt::{Allowance, AttemptRecord};
use crate::effect::Gate;
use crate::id::Step;
use crate::limit::{Axis, EVENTS_TOOL_CALL};
use crate::money::Money;
use crate::session::batch::{Next, Slot, SlotState};
use crate::session::command::Command;
use crate::session::effects::{EffectRecord, EffectState};
use crate::session::event::{Decision, Reply};
use crate::session::machine::{Heard, Machine, Phase};
use crate::session::started::TaintRule;
use crate::tool::{ToolCode, ToolResult};
use crate::verdict::Reason;

impl Machine {
    /// Takes the calls of a turn: what may not run gets its result at once, the rest is started as far as it goes.
    pub(super) fn run_batch(&mut self, reply: Reply, at: u64, commands: &mut Vec<Command>) {
        self.phase = Phase::Running;
        self.batch.slots = reply.calls.into_iter().map(Slot::new).collect();
        // One event is kept for the answer of the call after this turn.
        let by_events = self.events_left().saturating_sub(1) / EVENTS_TOOL_CALL;
        let mut affordable = self.budget.tool_calls_left(&self.limits).min(by_events);
        for index in 0..self.batch.slots.len() {
            match self.gate(index, &mut affordable) {
                Ok(ask) => self.batch.slots[index].state = SlotState::Queued { ask },
                Err(result) => self.answer(index, result),
            }
        }
        self.advance(at, commands);
    }

    /// Whether a call may run (`true` if a person has to say yes first), or the result that it gets instead.
    fn gate(&mut self, index: usize, affordable: &mut u32) -> Result<bool, ToolResult> {
        let call = &self.batch.slots[index].call;
        let class = call.class;
        let mut ask = match call.gate {
            Gate::Go => false,
            Gate::Ask => true,
            Gate::Refuse(code) => return Err(ToolResult { code, body: call.refusal, truncated: false }),
        };
        if self.tainted && (class.effect.is_write() || class.egress) {
            match self.started.taint {
                TaintRule::Allow => {}
                TaintRule::Approve => ask = true,
                TaintRule::Refuse => return Err(ToolResult::bare(ToolCode::Tainted)),
            }
        }
        if *affordable == 0 {
            return Err(ToolResult::bare(ToolCode::BudgetExhausted));
        }
        let (tool, canonical) = (call.tool.clone(), call.canonical);
        if !self.loops.admit(&tool, canonical, class.repeats) {
            self.winding = self.winding.or(Some(Reason::Loop));
            return Err(ToolResult::bare(ToolCode::LoopDetected));
        }
        *affordable -= 1;
        Ok(ask)
    }

    /// Starts what may start; goes on to the next turn once every call has its result.
    ///
    /// Every round answers, starts or asks about one call, or ends: at most as many rounds as the turn has calls.
    pub(super) fn advance(&mut self, at: u64, commands: &mut Vec<Command>) {
        loop {
            match self.batch.next(self.limits.parallel_tools) {
                Next::Wait => return,
                Next::Complete => {
                    self.next_turn(false, at, commands);
                    return;
                }
                Next::Skip(index) => self.drop_queued(index, ToolCode::NotAttempted),
                Next::Start(index) | Next::Ask(index) if at >= self.limits.reserve_at() => {
                    self.drop_queued(index, ToolCode::DeadlineExceeded);
                }
                Next::Ask(index) => {
                    let step = self.step();
                    let slot = &mut self.batch.slots[index];
                    slot.state = SlotState::Asking { step };
                    commands.push(Command::AskApproval { step, tool: slot.tool().clone(), arguments: slot.call.arguments });
                    self.phase = Phase::AwaitingApproval { step, index };
                    return;
                }
                Next::Start(index) => match self.tool_allowance(index) {
                    Some(allowance) => self.start_call(index, allowance, commands),
                    None if self.batch.running() > 0 => return,
                    None => self.drop_queued(index, ToolCode::BudgetExhausted),
                },
            }
        }
    }

    /// What the call at `index` can be lent: its own maximum, but one attempt stays for each call that still waits.
    fn tool_allowance(&self, index: usize) -> Option<Allowance> {
        if self.budget.tool_calls_left(&self.limits) == 0 {
            return None;
        }
        let left = self.budget.tool_attempts_left(&self.limits);
        let others = u32::try_from(self.batch.queued_beside(index)).unwrap_or(u32::MAX);
        let attempts = self.batch.slots[index].call.class.attempts.max(1).min(left.saturating_sub(others).max(1)).min(left);
        (attempts > 0).then(|| Allowance { attempts, tokens: 0, cost: Money::ZERO, deadline: self.limits.reserve_at() })
    }

    fn start_call(&mut self, index: usize, allowance: Allowance, commands: &mut Vec<Command>) {
        let step = self.step();
        self.issue(index, step, allowance, false, commands);
    }

    fn issue(&mut self, index: usize, step: Step, allowance: Allowance, again: bool, commands: &mut Vec<Command>) {
        self.budget.lend_tool(&allowance);
        let slot = &mut self.batch.slots[index];
        slot.state = SlotState::Running { step, allowance, dispatched: again };
        commands.push(Command::CallTool { step, allowance, tool: slot.tool().clone(), arguments: slot.call.arguments, again });
    }

    /// The fact that a write is about to leave: from here on it is in the books until its outcome is known.
    ///
    /// Only `Applied` lets it leave. What comes inside the answer reserve is late: its time is over.
    pub(super) fn dispatched(&mut self, step: Step, at: u64) -> Heard {
        let Some(index) = self.batch.running_as(step) else { return self.stale(step) };
        let overdue = at >= self.limits.reserve_at();
        let turn = self.turn();
        let slot = &mut self.batch.slots[index];
        let SlotState::Running { allowance, dispatched: dispatched @ false, .. } = &mut slot.state else { return Heard::Late };
        if !slot.call.class.effect.is_write() {
            return Heard::Invalid;
        }
        if overdue {
            return Heard::Late;
        }
        *dispatched = true;
        self.effects.sent(EffectRecord {
            step,
            turn,
            tool: slot.call.tool.clone(),
            arguments: slot.call.arguments,
            class: slot.call.class,
            state: EffectState::Sent,
            allowance: *allowance,
            completed: 0,
            again: false,
            reconciled: false,
            undo: false,
        });
        Heard::Applied
    }

    /// A running call answered.
    pub(super) fn slot_finished(&mut self, index: usize, attempts: &[AttemptRecord], result: ToolResult) {
        let Some((step, allowance, _)) = self.running_step(index) else { return };
        self.budget.settle_tool(&allowance, attempts);
        self.effects.finished(step, result.code);
        let unknown = self.effects.find(step).is_some_and(|effect| self.effects.records[effect].state == EffectState::Unknown);
        // Asked again, a refusal on this side says nothing about the first time.
        let result = if unknown && result.code.is_without_effect() { ToolResult::bare(ToolCode::OutcomeUnknown) } else { result };
        let call = &self.batch.slots[index].call;
        // A success is the tool's own output also where no request is counted (built in, or remembered).
        self.tainted |= !call.class.trusted && (!attempts.is_empty() || result.code == ToolCode::Ok);
        let (tool, canonical) = (call.tool.clone(), call.canonical);
        self.loops.finish(&tool, canonical, Some(result));
        self.answer(index, result);
    }

    pub(super) fn decided(&mut self, index: usize, decision: Decision, at: u64, commands: &mut Vec<Command>) {
        let (code, reason) = match decision {
            Decision::Approve => {
                // The exact arguments approved are the ones that run, unless time or budget ran out meanwhile.
                match self.tool_allowance(index) {
                    Some(allowance) if at < self.limits.reserve_at() => self.start_call(index, allowance, commands),
                    Some(_) => self.drop_queued(index, ToolCode::DeadlineExceeded),
                    None => self.drop_queued(index, ToolCode::BudgetExhausted),
                }
                return;
            }
            Decision::Deny => (ToolCode::ApprovalDenied, Reason::ApprovalDenied),
            Decision::Expired => (ToolCode::ApprovalExpired, Reason::ApprovalExpired),
        };
        self.winding = self.winding.or(Some(reason));
        self.drop_queued(index, code);
    }

    /// Gives a call its one result, here and in the transcript.
    fn answer(&mut self, index: usize, result: ToolResult) {
        self.batch.slots[index].state = SlotState::Done { code: result.code };
        self.transcript.answer(index, result);
    }

    /// Answers a call that never ran.
    fn drop_queued(&mut self, index: usize, code: ToolCode) {
        let call = &self.batch.slots[index].call;
        let (tool, canonical) = (call.tool.clone(), call.canonical);
        self.loops.finish(&tool, canonical, None);
        self.answer(index, ToolResult::bare(code));
    }

    /// Ends the batch: reads in flight are dropped, writes in flight go on without it, what waits is answered `code`.
    pub(super) fn clear_batch(&mut self, code: ToolCode, commands: &mut Vec<Command>) {
        for index in 0..self.batch.slots.len() {
            match self.batch.slots[index].state {
                SlotState::Done { .. } => {}
                SlotState::Queued { .. } | SlotState::Asking { .. } => self.drop_queued(index, code),
                SlotState::Running { dispatched: true, .. } => self.answer(index, ToolResult::bare(ToolCode::OutcomeUnknown)),
                SlotState::Running { step, allowance, dispatched: false } => {
                    if self.batch.slots[index].call.class.effect.is_write() {
                        // It has not left, and from now on it will be told that it must not.
                        self.budget.return_tool(&allowance);
                        self.answer(index, ToolResult::bare(ToolCode::NotAttempted));
                    } else {
                        commands.push(Command::Abandon { step });
                        self.budget.charge_tool(&allowance);
                        self.answer(index, ToolResult::bare(code));
                    }
                }
            }
        }
        self.batch.slots.clear();
    }

    /// After a crash: what certainly did not act runs again, keyed writes are asked again, other writes are unknown.
    pub(super) fn resume_batch(&mut self, commands: &mut Vec<Command>) {
        for index in 0..self.batch.slots.len() {
            let Some((step, allowance, dispatched)) = self.running_step(index) else { continue };
            let class = self.batch.slots[index].call.class;
            if !class.effect.is_write() {
                self.budget.charge_tool(&allowance);
                self.batch.slots[index].state = SlotState::Queued { ask: false };
            } else if !dispatched {
                self.budget.return_tool(&allowance);
                self.batch.slots[index].state = SlotState::Queued { ask: false };
            } else {
                self.budget.charge_tool(&allowance);
                match self.tool_allowance(index) {
                    Some(again) if class.keyed => {
                        if let Some(effect) = self.effects.find(step) {
                            self.effects.records[effect].allowance = again;
                            self.effects.records[effect].again = true;
                        }
                        self.issue(index, step, again, true, commands);
                    }
                    Some(_) | None => {
                        self.effects.finished(step, ToolCode::OutcomeUnknown);
                        self.answer(index, ToolResult::bare(ToolCode::OutcomeUnknown));
                    }
                }
            }
        }
        if self.budget.tool_attempts_left(&self.limits) == 0 {
            self.winding = self.winding.or(Some(Reason::Limit(Axis::ToolAttempts)));
        }
    }
}
