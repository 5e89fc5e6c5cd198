//! The account of a session: what was spent, what is lent to commands that run, what is left.

use crate::attempt::{Allowance, AttemptKind, AttemptRecord};
use crate::limit::Limits;
use crate::money::Money;

/// What a session has used so far. Only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// `CallModel` commands issued.
    pub model_calls: u32,
    /// `CallTool` commands issued.
    pub tool_calls: u32,
    /// Requests on the wire to models.
    pub model_attempts: u32,
    /// Requests on the wire to tools.
    pub tool_attempts: u32,
    /// Hedged requests among them.
    pub hedges: u32,
    /// Tokens read by models.
    pub input_tokens: u64,
    /// Tokens written by models.
    pub output_tokens: u64,
    /// Tokens charged whole for calls whose answer was never heard.
    pub charged_tokens: u64,
    /// Money.
    pub cost: Money,
    /// True if some of the figures are the whole reservation, since the true ones are not known.
    pub at_least: bool,
}

impl Spent {
    /// Tokens in and out, and those charged.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens).saturating_add(self.charged_tokens)
    }
}

/// Books every command's allowance and its return.
#[derive(Debug, Clone, Default)]
pub(super) struct Budget {
    pub(super) spent: Spent,
    /// Attempts lent to tool calls that have not answered.
    tool_attempts_lent: u32,
}

impl Budget {
    pub(super) fn tokens_left(&self, limits: &Limits) -> u64 {
        limits.total_tokens.saturating_sub(self.spent.tokens())
    }

    pub(super) fn cost_left(&self, limits: &Limits) -> Money {
        limits.cost_usd.saturating_sub(self.spent.cost)
    }

    pub(super) fn model_calls_left(&self, limits: &Limits) -> u32 {
        limits.model_calls.saturating_sub(self.spent.model_calls)
    }

    pub(super) fn model_attempts_left(&self, limits: &Limits) -> u32 {
        limits.model_attempts.saturating_sub(self.spent.model_attempts)
    }

    pub(super) fn tool_calls_left(&self, limits: &Limits) -> u32 {
        limits.tool_calls.saturating_sub(self.spent.tool_calls)
    }

    /// What no running call has borrowed.
    pub(super) fn tool_attempts_left(&self, limits: &Limits) -> u32 {
        limits.tool_attempts.saturating_sub(self.spent.tool_attempts).saturating_sub(self.tool_attempts_lent)
    }

    /// A model call goes out. Model calls never overlap, so what it borrows is nobody else's.
    pub(super) fn lend_model(&mut self) {
        self.spent.model_calls += 1;
    }

    pub(super) fn settle_model(&mut self, attempts: &[AttemptRecord]) {
        for record in attempts {
            self.spent.model_attempts = self.spent.model_attempts.saturating_add(1);
            self.spent.hedges += u32::from(record.kind == AttemptKind::Hedge);
            self.spent.input_tokens = self.spent.input_tokens.saturating_add(record.input_tokens);
            self.spent.output_tokens = self.spent.output_tokens.saturating_add(record.output_tokens);
            self.spent.cost = self.spent.cost.saturating_add(record.cost);
            self.spent.at_least |= record.at_least;
        }
    }

    /// A model call will not be heard of again: all that it was lent is gone.
    pub(super) fn charge_model(&mut self, allowance: &Allowance) {
        self.spent.model_attempts = self.spent.model_attempts.saturating_add(allowance.attempts);
        self.spent.charged_tokens = self.spent.charged_tokens.saturating_add(allowance.tokens);
        self.spent.cost = self.spent.cost.saturating_add(allowance.cost);
        self.spent.at_least = true;
    }

    pub(super) fn lend_tool(&mut self, allowance: &Allowance) {
        self.spent.tool_calls += 1;
        self.tool_attempts_lent = self.tool_attempts_lent.saturating_add(allowance.attempts);
    }

    pub(super) fn settle_tool(&mut self, allowance: &Allowance, attempts: &[AttemptRecord]) {
        self.return_tool(allowance);
        let sent = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        self.spent.tool_attempts = self.spent.tool_attempts.saturating_add(sent);
        for record in attempts {
            self.spent.cost = self.spent.cost.saturating_add(record.cost);
        }
    }

    /// A tool call will not be heard of again.
    pub(super) fn charge_tool(&mut self, allowance: &Allowance) {
        self.return_tool(allowance);
        self.spent.tool_attempts = self.spent.tool_attempts.saturating_add(allowance.attempts);
    }

    /// A tool call never left: nothing of its allowance was used.
    pub(super) fn return_tool(&mut self, allowance: &Allowance) {
        self.tool_attempts_lent = self.tool_attempts_lent.saturating_sub(allowance.attempts);
    }
}
