//! Turns: whether another model call can be afforded, what it is lent, whether it is the last, and what its answer means.

use crate::attempt::Allowance;
use crate::id::Body;
use crate::limit::{Axis, EVENTS_TOOL_CALL, LAST_OUTPUT_TOKENS, MESSAGE_CHARS, OUTPUT_TOKENS_MIN, SHORTENED_BYTES, TURN_CALLS_MAX};
use crate::money::Money;
use crate::session::batch::{Slot, SlotState};
use crate::session::command::Command;
use crate::session::event::{FinishReason, Reply};
use crate::session::machine::{Asked, Machine, Phase};
use crate::tool::{ToolCode, ToolResult};
use crate::verdict::{Cause, Reason, Status};

/// Characters that a token is taken to hold until a target has reported usage.
const CHARS_PER_TOKEN: u64 = 3;
/// Events that a turn with one call can bring, and the answer of the last call after it.
const TURN_EVENTS: u32 = 1 + EVENTS_TOOL_CALL + 1;

/// Characters that a call and its result add to the history once the result is shortened: its text, and the framing of
/// both.
const RESULT_CHARS: u64 = SHORTENED_BYTES as u64 + 8 * MESSAGE_CHARS;

/// What a model call can be given.
struct Offer {
    last: Option<Reason>,
    input: u64,
    output: u64,
    /// Kept back for the call after this one; nothing if this one is the last.
    kept_tokens: u64,
    kept_cost: Money,
}

impl Machine {
    /// Issues the next model call, as the last one where a bound is near, or concludes where none can be made.
    pub(super) fn next_turn(&mut self, nudge: bool, at: u64, commands: &mut Vec<Command>) {
        self.batch.slots.clear();
        let offer = match self.offer(at) {
            Ok(offer) if offer.last.is_some() && self.stops_at_limits() => Err(offer.last),
            Ok(offer) => Ok(offer),
            Err(reason) => Err(Some(reason)),
        };
        let offer = match offer {
            Ok(offer) => offer,
            Err(reason) => {
                let reason = reason.unwrap_or(Reason::Internal);
                self.conclude(Status::Incomplete, reason, None, at, commands);
                return;
            }
        };
        let ceiling = self.started.ceiling;
        let kept_attempts = u32::from(offer.last.is_none() && !self.stops_at_limits());
        let attempts = (self.budget.model_attempts_left(&self.limits) - kept_attempts).min(ceiling.attempts.max(1));
        let once = offer.input.saturating_add(offer.output);
        let cost_once = ceiling.price.of(offer.input, 0, offer.output);
        let allowance = Allowance {
            attempts,
            tokens: once.saturating_mul(attempts.into()).min(self.budget.tokens_left(&self.limits) - offer.kept_tokens),
            cost: cost_once.times(attempts.into()).min(self.budget.cost_left(&self.limits).saturating_sub(offer.kept_cost)),
            deadline: if offer.last.is_some() { self.last_call_deadline() } else { self.limits.reserve_at() },
        };
        // Once the model was told that it is the last, nothing makes it another: not a nudge, not a better estimate.
        self.winding = self.winding.or(offer.last);
        let step = self.step();
        self.budget.lend_model();
        self.phase = Phase::AwaitingModel(Asked { step, allowance, last: offer.last, nudge });
        let max_output = u32::try_from(offer.output).unwrap_or(u32::MAX);
        commands.push(Command::CallModel { step, allowance, max_output, last: offer.last, nudge });
    }

    /// What the next call can be given, or the bound that forbids it.
    fn offer(&mut self, at: u64) -> Result<Offer, Reason> {
        if at >= self.last_call_deadline() {
            return Err(Reason::Limit(Axis::Deadline));
        }
        for (left, axis) in [
            (self.budget.model_calls_left(&self.limits), Axis::ModelCalls),
            (self.budget.model_attempts_left(&self.limits), Axis::ModelAttempts),
            (self.events_left(), Axis::Events),
        ] {
            if left == 0 {
                return Err(Reason::Limit(axis));
            }
        }
        let mut last = self.winding.or_else(|| self.near_limit(at));
        let limit = self.limits.transcript;
        if self.transcript.bytes() > limit && !self.transcript.shorten(|transcript| transcript.bytes() <= limit) {
            last = last.or(Some(Reason::Limit(Axis::Transcript)));
        }
        if let Some(window) = self.started.ceiling.context_window {
            let room = window.saturating_sub(self.output_cap());
            if self.estimate(self.transcript.chars()) > room && !self.make_room(self.chars_within(room)) {
                last = last.or(Some(Reason::Context));
            }
        }
        if let Some(offer) = self.afford(last) {
            return Ok(offer);
        }
        // Not even a short last answer: make room in the history, as far as it goes.
        self.make_room(self.chars_within(self.affordable_input()));
        self.afford(last).ok_or_else(|| {
            let tokens = self.budget.tokens_left(&self.limits) < self.estimate(self.transcript.chars()) + OUTPUT_TOKENS_MIN;
            Reason::Limit(if tokens { Axis::TotalTokens } else { Axis::CostUsd })
        })
    }

    /// The bound on counts or time that makes the next call the last, if any.
    fn near_limit(&self, at: u64) -> Option<Reason> {
        let offers_tools = !self.started.tools.is_empty();
        // Who wants no last answer needs no call kept back for it: there the final call is one like the others.
        let reserves = !self.stops_at_limits();
        [
            (at >= self.limits.reserve_at(), Axis::Deadline),
            (reserves && self.budget.model_calls_left(&self.limits) == 1, Axis::ModelCalls),
            (reserves && self.budget.model_attempts_left(&self.limits) == 1, Axis::ModelAttempts),
            (offers_tools && self.budget.tool_calls_left(&self.limits) == 0, Axis::ToolCalls),
            (offers_tools && self.budget.tool_attempts_left(&self.limits) == 0, Axis::ToolAttempts),
            (reserves && offers_tools && self.events_left() < TURN_EVENTS, Axis::Events),
        ]
        .into_iter()
        .find_map(|(near, axis)| near.then_some(Reason::Limit(axis)))
    }

    /// Splits what is left of tokens and money between this call and the one after it.
    ///
    /// A call that is not the last leaves enough for another over the same history, its own output, one shortened
    /// result for each call that may still run, and a short answer. `None` if not even a last call can be paid.
    fn afford(&self, last: Option<Reason>) -> Option<Offer> {
        let price = self.started.ceiling.price;
        let tokens_left = self.budget.tokens_left(&self.limits);
        let cost_left = self.budget.cost_left(&self.limits);
        let input = self.estimate(self.transcript.chars());
        let cap = self.output_cap();
        let results = self.estimate(RESULT_CHARS).saturating_mul(self.calls_to_come());
        let mut reason = last;
        if reason.is_none() && !self.stops_at_limits() {
            // The next call reads this call's output as well: `output` counts twice, once as input.
            let history = input.saturating_add(results);
            let kept = history.saturating_add(LAST_OUTPUT_TOKENS);
            let by_tokens = tokens_left.saturating_sub(input.saturating_add(kept)) / 2;
            let kept_fixed = price.of(history, 0, LAST_OUTPUT_TOKENS);
            let free = cost_left.saturating_sub(price.of(input, 0, 0)).saturating_sub(kept_fixed);
            let by_cost = free.0.checked_div(price.input.0.saturating_add(price.output.0)).unwrap_or(u64::MAX);
            let output = cap.min(by_tokens).min(by_cost);
            if output >= LAST_OUTPUT_TOKENS.min(cap) {
                let kept_tokens = kept + output;
                let kept_cost = price.of(history + output, 0, LAST_OUTPUT_TOKENS);
                return Some(Offer { last: None, input, output, kept_tokens, kept_cost });
            }
            reason = Some(Reason::Limit(if by_cost < by_tokens { Axis::CostUsd } else { Axis::TotalTokens }));
        }
        let by_tokens = tokens_left.checked_sub(input)?;
        let for_output = cost_left.0.checked_sub(price.of(input, 0, 0).0)?;
        let by_cost = for_output.checked_div(price.output.0).unwrap_or(u64::MAX);
        let output = cap.min(by_tokens).min(by_cost);
        (output >= OUTPUT_TOKENS_MIN.min(cap)).then_some(Offer { last: reason, input, output, kept_tokens: 0, kept_cost: Money::ZERO })
    }

    /// Tokens that a last call may read, if it is to answer at all.
    fn affordable_input(&self) -> u64 {
        let price = self.started.ceiling.price;
        let by_tokens = self.budget.tokens_left(&self.limits).saturating_sub(LAST_OUTPUT_TOKENS);
        let for_input = self.budget.cost_left(&self.limits).saturating_sub(price.of(0, 0, LAST_OUTPUT_TOKENS));
        by_tokens.min(for_input.0.checked_div(price.input.0).unwrap_or(u64::MAX))
    }

    /// Most tool calls that the next turn can have run.
    fn calls_to_come(&self) -> u64 {
        let offered = if self.started.tools.is_empty() { 0 } else { self.budget.tool_calls_left(&self.limits) };
        offered.min(TURN_CALLS_MAX).into()
    }

    fn output_cap(&self) -> u64 {
        u64::from(self.limits.output_tokens_per_call).max(1)
    }

    /// Tokens that `chars` characters are taken for: a third of them, or as measured and a tenth more.
    fn estimate(&self, chars: u64) -> u64 {
        match self.tokens_per_kchar {
            None => chars.div_ceil(CHARS_PER_TOKEN),
            Some(ratio) => chars.saturating_mul(u64::from(ratio)).saturating_mul(11).div_ceil(10_000),
        }
    }

    /// Characters whose estimate is at most `tokens`.
    fn chars_within(&self, tokens: u64) -> u64 {
        match self.tokens_per_kchar {
            None => tokens.saturating_mul(CHARS_PER_TOKEN),
            Some(ratio) => tokens.saturating_mul(10_000) / (u64::from(ratio).max(1) * 11),
        }
    }

    /// Shortens old tool outputs until the transcript has at most `chars` characters. True if it has.
    pub(super) fn make_room(&mut self, chars: u64) -> bool {
        self.transcript.shorten(|transcript| transcript.chars() <= chars)
    }

    pub(super) fn model_replied(&mut self, asked: Asked, reply: Reply, at: u64, commands: &mut Vec<Command>) {
        if reply.tokens_per_kchar.is_some_and(|ratio| ratio > 0) {
            self.tokens_per_kchar = reply.tokens_per_kchar;
        }
        if reply.calls.len() > TURN_CALLS_MAX as usize {
            let cause = Some(Cause::Protocol);
            self.conclude_because(Status::Failed, Reason::ModelUnavailable, cause, None, at, commands);
            return;
        }
        let text = reply.text.filter(|text| text.bytes > 0);
        self.transcript.push_turn(text, reply.carry, &reply.calls);
        self.count_turn();
        match reply.finish {
            FinishReason::ContentFilter => {
                self.refuse_all(reply, ToolCode::NotAttempted, Reason::ContentFiltered, text, at, commands);
            }
            FinishReason::Refusal if reply.calls.is_empty() => {
                self.conclude(Status::Completed, asked.last.unwrap_or(Reason::Refused), text, at, commands);
            }
            FinishReason::Stop | FinishReason::Length | FinishReason::Refusal if !reply.calls.is_empty() => {
                match asked.last.or_else(|| self.overspent()) {
                    Some(reason) => self.refuse_all(reply, ToolCode::BudgetExhausted, reason, text, at, commands),
                    None => self.run_batch(reply, at, commands),
                }
            }
            FinishReason::Length => self.conclude(Status::Incomplete, Reason::OutputTruncated, text, at, commands),
            FinishReason::Stop | FinishReason::Refusal => match text {
                Some(_) => self.conclude(Status::Completed, asked.last.unwrap_or(Reason::Answered), text, at, commands),
                None if self.nudged => self.conclude(Status::Incomplete, Reason::EmptyResponse, None, at, commands),
                None => {
                    self.nudged = true;
                    self.next_turn(true, at, commands);
                    // Where no nudge could be paid, the empty answer is the reason and not the bound.
                    self.rename_if_concluded(Reason::EmptyResponse, commands);
                }
            },
        }
    }

    /// The bound that a call's true usage went past, its estimate having been too low: nothing more is begun.
    fn overspent(&self) -> Option<Reason> {
        let spent = &self.budget.spent;
        if spent.tokens() > self.limits.total_tokens {
            Some(Reason::Limit(Axis::TotalTokens))
        } else if spent.cost > self.limits.cost_usd {
            Some(Reason::Limit(Axis::CostUsd))
        } else {
            None
        }
    }

    /// Calls that may not run any more: each is answered, none is started, and the session ends.
    fn refuse_all(&mut self, reply: Reply, code: ToolCode, reason: Reason, text: Option<Body>, at: u64, commands: &mut Vec<Command>) {
        self.batch.slots = reply.calls.into_iter().map(Slot::new).collect();
        for (index, slot) in self.batch.slots.iter_mut().enumerate() {
            slot.state = SlotState::Done { code };
            self.transcript.answer(index, ToolResult::bare(code));
        }
        self.conclude(Status::Incomplete, reason, text, at, commands);
    }

    fn rename_if_concluded(&mut self, reason: Reason, commands: &mut [Command]) {
        if let Some(verdict) = &mut self.verdict {
            verdict.reason = reason;
            for command in commands {
                if let Command::Finish(finished) = command {
                    finished.reason = reason;
                }
            }
        }
    }
}
