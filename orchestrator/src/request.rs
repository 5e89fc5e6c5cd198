//! What a caller asks for, and what a session may then have: a request can only tighten.

use std::collections::BTreeMap;
use std::sync::Arc;

use ambit_core::session::{OnLimit, Principal};
use ambit_core::trace::TraceContext;
use ambit_core::{Axis, Digest, Limits, Money, SessionId};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::agent::Agent;

/// Most pairs of metadata.
pub const METADATA_PAIRS_MAX: usize = 16;
/// Longest key of metadata, characters.
pub const METADATA_KEY_MAX: usize = 64;
/// Longest value of metadata, characters.
pub const METADATA_VALUE_MAX: usize = 512;

/// One request for a session, read and authenticated.
#[derive(Debug, Clone)]
pub struct SessionRequest {
    /// Which agent.
    pub agent: String,
    /// What the caller says; at least one text.
    pub input: Vec<Arc<str>>,
    /// True if the input quotes what others said: calls that act are then held back as the agent's `taint` says.
    pub tainted: bool,
    /// The session that this one continues: its inputs and its answer come first, as far as there is room.
    pub previous: Option<SessionId>,
    /// The key under which the caller may ask again, with the digest of what it asks for. The start is then durable.
    pub idempotency: Option<IdempotencyKey>,
    /// True if its texts are deleted once it is closed; whoever reads its stream is given half a minute to end.
    pub forget: bool,
    /// Where it hangs in a distributed trace; a trace of its own, which nobody records, if nothing is said.
    pub trace: Option<TraceContext>,
    /// Tighter limits.
    pub limits: LimitsWish,
    /// Only these of the agent's tools, if given.
    pub tools_allow: Option<Vec<String>>,
    /// None of these.
    pub tools_deny: Vec<String>,
    /// What to do when a limit comes near.
    pub on_limit: OnLimit,
    /// The caller's own notes, kept with the session.
    pub metadata: BTreeMap<String, String>,
    /// Who asks.
    pub principal: Principal,
    /// When the head of the request arrived: the session's time runs from here.
    pub arrived: Instant,
    /// Milliseconds that the caller's headers leave, clamped to the agent's limit.
    pub header_deadline_ms: Option<u64>,
    /// True if it goes on when its caller goes away.
    pub continues: bool,
    /// True if somebody may read along while it runs: text then goes into the journal in pieces as it arrives, and an
    /// idempotency key whose session still runs gives that session rather than a refusal.
    pub heard: bool,
    /// True if the start must survive a loss of power before it is acknowledged (202, idempotency keys).
    pub durable: bool,
}

/// A caller's name for one request, so that asking again finds the same session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// 1 to 255 printable characters.
    pub key: Arc<str>,
    /// SHA-256 over the canonical JSON (RFC 8785) of the request.
    pub hash: Digest,
}

/// Limits as a caller wishes them; absent means those that hold already.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitsWish {
    /// Milliseconds.
    pub deadline_ms: Option<u64>,
    /// Count.
    pub model_calls: Option<u64>,
    /// Count.
    pub tool_calls: Option<u64>,
    /// Count.
    pub model_attempts: Option<u64>,
    /// Count.
    pub tool_attempts: Option<u64>,
    /// Tokens.
    pub total_tokens: Option<u64>,
    /// Dollars.
    pub cost_usd: Option<f64>,
    /// Output tokens of one model call; above the agent's it changes nothing, since callers name it without knowing that.
    pub output_tokens_per_call: Option<u64>,
}

/// One wish that goes beyond what the agent allows, or below what makes sense.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitRefusal {
    /// Which limit.
    pub axis: Axis,
    /// What was asked for.
    pub wished: f64,
    /// What the agent allows.
    pub allowed: f64,
}

impl LimitsWish {
    /// The agent's limits tightened by the wish, or every wish that is too high.
    ///
    /// # Errors
    /// All refusals at once, in the order of the axes.
    pub fn apply(&self, agent: &Limits) -> Result<Limits, Vec<LimitRefusal>> {
        let mut limits = *agent;
        let mut refusals = Vec::new();
        #[expect(clippy::cast_precision_loss, reason = "shown to people")]
        let mut narrow = |axis, wish: Option<u64>, allowed: u64| -> u64 {
            match wish {
                Some(wished) if wished > allowed => {
                    refusals.push(LimitRefusal { axis, wished: wished as f64, allowed: allowed as f64 });
                    allowed
                }
                Some(wished) => wished,
                None => allowed,
            }
        };
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        limits.deadline_ms = narrow(Axis::Deadline, self.deadline_ms, agent.deadline_ms);
        limits.model_calls = count(narrow(Axis::ModelCalls, self.model_calls, agent.model_calls.into()));
        limits.tool_calls = count(narrow(Axis::ToolCalls, self.tool_calls, agent.tool_calls.into()));
        limits.model_attempts = count(narrow(Axis::ModelAttempts, self.model_attempts, agent.model_attempts.into()));
        limits.tool_attempts = count(narrow(Axis::ToolAttempts, self.tool_attempts, agent.tool_attempts.into()));
        limits.total_tokens = narrow(Axis::TotalTokens, self.total_tokens, agent.total_tokens);
        if let Some(wished) = self.output_tokens_per_call {
            limits.output_tokens_per_call = count(wished.clamp(1, agent.output_tokens_per_call.into()));
        }
        if let Some(wished) = self.cost_usd {
            if wished > agent.cost_usd.usd() {
                refusals.push(LimitRefusal { axis: Axis::CostUsd, wished, allowed: agent.cost_usd.usd() });
            } else {
                limits.cost_usd = Money::from_usd(wished);
            }
        }
        if refusals.is_empty() { Ok(fitted(limits)) } else { Err(refusals) }
    }

    /// The same, where a wish that is too high changes nothing.
    #[must_use]
    pub(crate) fn within(&self, limits: &Limits) -> Limits {
        let Self { deadline_ms, model_calls, tool_calls, model_attempts, tool_attempts, total_tokens, cost_usd, output_tokens_per_call } =
            *self;
        let count = |wish: Option<u64>, limit: u32| wish.and_then(|wish| u32::try_from(wish).ok()).unwrap_or(limit);
        let wished = Limits {
            deadline_ms: deadline_ms.unwrap_or(limits.deadline_ms),
            model_calls: count(model_calls, limits.model_calls),
            tool_calls: count(tool_calls, limits.tool_calls),
            model_attempts: count(model_attempts, limits.model_attempts),
            tool_attempts: count(tool_attempts, limits.tool_attempts),
            total_tokens: total_tokens.unwrap_or(limits.total_tokens),
            cost_usd: cost_usd.map_or(limits.cost_usd, Money::from_usd),
            output_tokens_per_call: count(output_tokens_per_call, limits.output_tokens_per_call),
            ..*limits
        };
        fitted(limits.tightened_by(&wished))
    }
}

/// A deadline below the agent's keeps its proportions: the answer reserve is at most a quarter of it.
fn fitted(mut limits: Limits) -> Limits {
    limits.answer_reserve_ms = limits.answer_reserve_ms.min(limits.deadline_ms / 4);
    limits
}

impl SessionRequest {
    /// The limits of the session: the agent's, tightened by the body, then clamped by the headers.
    ///
    /// # Errors
    /// Every wish of the body that goes beyond the agent's limits.
    pub fn limits(&self, agent: &Agent) -> Result<Limits, Vec<LimitRefusal>> {
        let mut limits = self.limits.apply(&agent.limits)?;
        if let Some(left) = self.header_deadline_ms {
            limits.deadline_ms = limits.deadline_ms.min(left);
        }
        Ok(fitted(limits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_at_the_limit_is_had_and_one_past_it_is_refused() {
        let at = LimitsWish { model_calls: Some(8), cost_usd: Some(1.0), ..LimitsWish::default() };
        assert_eq!(at.apply(&Limits::DEFAULT).unwrap(), Limits::DEFAULT);
        let past = LimitsWish { model_calls: Some(9), deadline_ms: Some(45_001), cost_usd: Some(1.5), ..LimitsWish::default() };
        let axes: Vec<_> = past.apply(&Limits::DEFAULT).unwrap_err().into_iter().map(|refusal| refusal.axis).collect();
        assert_eq!(axes, [Axis::Deadline, Axis::ModelCalls, Axis::CostUsd]);
    }

    #[test]
    fn fewer_output_tokens_are_had_and_more_change_nothing() {
        let agent = Limits::DEFAULT.output_tokens_per_call;
        for (wished, had) in [(0, 1), (7, 7), (agent.into(), agent), (u64::from(agent) + 1, agent)] {
            let wish = LimitsWish { output_tokens_per_call: Some(wished), ..LimitsWish::default() };
            assert_eq!(wish.apply(&Limits::DEFAULT).unwrap().output_tokens_per_call, had, "{wished}");
        }
    }

    #[test]
    fn a_wish_that_was_left_in_the_store_tightens_what_it_still_can() {
        let wish = LimitsWish { model_calls: Some(9), tool_calls: Some(2), total_tokens: Some(u64::MAX), ..LimitsWish::default() };
        assert_eq!(wish.within(&Limits::DEFAULT), Limits { tool_calls: 2, ..Limits::DEFAULT });
        assert_eq!(LimitsWish::default().within(&Limits::DEFAULT), Limits::DEFAULT);
        let text = crate::record::write(&wish);
        assert_eq!(serde_json::from_str::<LimitsWish>(&text).unwrap(), wish);
    }

    #[test]
    fn a_short_deadline_keeps_time_for_the_work() {
        let wish = LimitsWish { deadline_ms: Some(4_000), ..LimitsWish::default() };
        assert_eq!(wish.apply(&Limits::DEFAULT).unwrap().answer_reserve_ms, 1_000);
    }
}
