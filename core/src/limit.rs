//! Every bound of a session, with its unit, and the ceilings that no configuration can lift.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::money::Money;

/// Most model calls any session may be configured to make. A session of 64 turns at 2 s each is past two minutes.
pub const MODEL_CALLS_MAX: u32 = 64;
/// Most tool calls any session may be configured to dispatch; refused ones append nothing.
pub const TOOL_CALLS_MAX: u32 = 256;
/// Most tool calls that may run at once in one session; each holds a connection and a body.
pub const PARALLEL_TOOLS_MAX: u32 = 32;
/// Most requests to models any session may be configured to send, over all retries, hedges and fallbacks.
pub const MODEL_ATTEMPTS_MAX: u32 = 512;
/// Most requests to tools any session may be configured to send.
pub const TOOL_ATTEMPTS_MAX: u32 = 1_024;
/// Most tool calls one turn may ask for; one more refuses the turn as an answer of broken form.
pub const TURN_CALLS_MAX: u32 = 64;
/// Most events any session may be configured to append: about 2 MiB of journal at 1 KiB each.
pub const EVENTS_MAX: u32 = 2_048;
/// Most notes (signals, pieces of text) one session may append; further ones are dropped and counted.
pub const NOTES_MAX: u32 = 1_024;
/// Longest deadline any session may be configured with, in milliseconds: a day.
pub const DEADLINE_MS_MAX: u64 = 86_400_000;
/// Largest transcript, in bytes: what a session may hold in memory.
pub const TRANSCRIPT_MAX: u64 = 64 << 20;
/// Times a session may be taken up again after a crash; a session that kills its process must not do so for ever.
pub const RESUMES_MAX: u32 = 8;
/// Times the limits of a running session may be tightened; each is an event.
pub const TIGHTENINGS_MAX: u32 = 16;
/// `Woke` events a session can hear: the answer reserve, the deadline, the end of its settlement, and one to spare.
pub const WAKES_MAX: u32 = 4;
/// Kept back from the last model call's own deadline, in milliseconds, for the answer to leave in time.
pub const LAST_CALL_MARGIN_MS: u64 = 250;
/// Identical results after which the next identical call is refused, unless the tool says otherwise.
pub const REPEATS_DEFAULT: u32 = 3;
/// What is left of an old tool output when the transcript is shortened, in bytes.
pub const SHORTENED_BYTES: u32 = 1_024;
/// Longest a single compensation may take, in milliseconds.
pub const COMPENSATION_MS: u64 = 10_000;
/// Longest all compensations of a session may take, in milliseconds.
pub const COMPENSATIONS_MS_MAX: u64 = 120_000;
/// Longest a settlement waits for writes that were sent and for their reconciliation, in milliseconds.
pub const SETTLEMENT_MS_MAX: u64 = 120_000;
/// Attempts of a compensation whose tool honours a key.
pub const COMPENSATION_ATTEMPTS_KEYED: u32 = 5;
/// Fewest output tokens a model call is worth making for.
pub const OUTPUT_TOKENS_MIN: u64 = 16;
/// Output tokens set aside for the last answer while earlier turns spend.
pub const LAST_OUTPUT_TOKENS: u64 = 256;
/// Characters added to each message by its role, ids and framing, for estimates.
pub const MESSAGE_CHARS: u64 = 32;
/// Most earlier sessions whose words one session may continue.
pub const CONTINUED_LINKS_MAX: u32 = 20;
/// Most characters of earlier inputs and answers that a session may begin with, on top of its own prompt.
pub const CONTINUED_CHARS_MAX: u64 = 16_000;
/// How long an idempotency key is kept once its session is closed, in milliseconds: a day, longer than anybody retries.
pub const IDEMPOTENCY_KEPT_MS: u64 = 86_400_000;
/// Longest idempotency key, in characters.
pub const IDEMPOTENCY_KEY_CHARS_MAX: usize = 255;

/// Events that do not depend on the number of calls: one retrieval, a disconnection and a cancellation, tightenings,
/// resumptions, wakes.
/// One resumption too many ends the session, one more its settlement.
const EVENTS_FIXED: u32 = 3 + TIGHTENINGS_MAX + (RESUMES_MAX + 2) + WAKES_MAX;
/// Events of one model call: its answer or its failure.
const EVENTS_MODEL_CALL: u32 = 1;
/// Events of one tool call: decided, dispatched, finished, reconciled, compensated.
pub(crate) const EVENTS_TOOL_CALL: u32 = 5;
// What the ceilings allow together fits the ceiling of events.
const _: () = assert!(EVENTS_FIXED + EVENTS_MODEL_CALL * MODEL_CALLS_MAX + EVENTS_TOOL_CALL * TOOL_CALLS_MAX <= EVENTS_MAX);

/// What a session may use, axis by axis. An agent tightens the configured ones, a request tightens the agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// From the arrival of the request to the verdict, milliseconds.
    pub deadline_ms: u64,
    /// Model calls (turns), retries not counted.
    pub model_calls: u32,
    /// Tool calls dispatched.
    pub tool_calls: u32,
    /// Tool calls running at the same time.
    pub parallel_tools: u32,
    /// Requests on the wire to models.
    pub model_attempts: u32,
    /// Requests on the wire to tools.
    pub tool_attempts: u32,
    /// Instructions, input and retrieved passages together, characters.
    pub prompt_chars: u32,
    /// Retrieved passages, characters.
    pub context_chars: u32,
    /// One tool result as the model reads it, bytes.
    pub tool_output: u32,
    /// Output of one model call, tokens.
    pub output_tokens_per_call: u32,
    /// Tokens in and out over the session.
    pub total_tokens: u64,
    /// Money over the session.
    pub cost_usd: Money,
    /// Kept back at the end of the deadline for a last answer without tools, milliseconds.
    pub answer_reserve_ms: u64,
    /// The transcript, bytes.
    pub transcript: u64,
    /// Journal events.
    pub events: u32,
}

impl Limits {
    /// The defaults of the configuration.
    pub const DEFAULT: Self = Self {
        deadline_ms: 45_000,
        model_calls: 8,
        tool_calls: 10,
        parallel_tools: 4,
        model_attempts: 16,
        tool_attempts: 20,
        prompt_chars: 16_000,
        context_chars: 12_000,
        tool_output: 10 << 10,
        output_tokens_per_call: 2_048,
        total_tokens: 200_000,
        cost_usd: Money(1_000_000_000),
        answer_reserve_ms: 8_000,
        transcript: 1 << 20,
        events: 512,
    };

    /// The smaller of each axis: limits given later can only tighten.
    #[must_use]
    pub fn tightened_by(&self, other: &Self) -> Self {
        Self {
            deadline_ms: self.deadline_ms.min(other.deadline_ms),
            model_calls: self.model_calls.min(other.model_calls),
            tool_calls: self.tool_calls.min(other.tool_calls),
            parallel_tools: self.parallel_tools.min(other.parallel_tools),
            model_attempts: self.model_attempts.min(other.model_attempts),
            tool_attempts: self.tool_attempts.min(other.tool_attempts),
            prompt_chars: self.prompt_chars.min(other.prompt_chars),
            context_chars: self.context_chars.min(other.context_chars),
            tool_output: self.tool_output.min(other.tool_output),
            output_tokens_per_call: self.output_tokens_per_call.min(other.output_tokens_per_call),
            total_tokens: self.total_tokens.min(other.total_tokens),
            cost_usd: self.cost_usd.min(other.cost_usd),
            answer_reserve_ms: self.answer_reserve_ms.min(other.answer_reserve_ms),
            transcript: self.transcript.min(other.transcript),
            events: self.events.min(other.events),
        }
    }

    /// Most events a session under these limits can hear: the formula that `limits.events` is checked against.
    #[must_use]
    pub const fn events_needed(&self) -> u32 {
        EVENTS_FIXED
            .saturating_add(EVENTS_MODEL_CALL.saturating_mul(self.model_calls))
            .saturating_add(EVENTS_TOOL_CALL.saturating_mul(self.tool_calls))
    }

    /// The moment on the session's clock at which the answer reserve begins, milliseconds.
    #[must_use]
    pub const fn reserve_at(&self) -> u64 {
        self.deadline_ms.saturating_sub(self.answer_reserve_ms)
    }
}

/// One dimension on which a session can run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Time.
    Deadline,
    /// Model calls.
    ModelCalls,
    /// Tool calls.
    ToolCalls,
    /// Requests to models.
    ModelAttempts,
    /// Requests to tools.
    ToolAttempts,
    /// Tokens.
    TotalTokens,
    /// Money.
    CostUsd,
    /// Bytes of transcript.
    Transcript,
    /// Journal events.
    Events,
}

impl Axis {
    /// Every axis, in the order of severity in which they are reported.
    pub const ALL: [Self; 9] = [
        Self::Deadline,
        Self::ModelCalls,
        Self::ToolCalls,
        Self::ModelAttempts,
        Self::ToolAttempts,
        Self::TotalTokens,
        Self::CostUsd,
        Self::Transcript,
        Self::Events,
    ];

    /// Its one name: limit, request field, reason and metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::ModelCalls => "model_calls",
            Self::ToolCalls => "tool_calls",
            Self::ModelAttempts => "model_attempts",
            Self::ToolAttempts => "tool_attempts",
            Self::TotalTokens => "total_tokens",
            Self::CostUsd => "cost_usd",
            Self::Transcript => "transcript",
            Self::Events => "events",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limits_leave_room_for_every_event_they_allow() {
        assert!(Limits::DEFAULT.events_needed() <= Limits::DEFAULT.events);
        assert_eq!(Limits::DEFAULT.events_needed(), EVENTS_FIXED + 8 + 50);
    }

    #[test]
    fn what_does_not_depend_on_calls_is_counted_once() {
        let none = Limits { model_calls: 0, tool_calls: 0, ..Limits::DEFAULT };
        let (retrieved, disconnected, cancelled, tightened, woken) = (1, 1, 1, 16, 4);
        // Eight resumptions are had, the ninth ends the session, the tenth its settlement.
        let resumed = 10;
        assert_eq!(none.events_needed(), retrieved + disconnected + cancelled + tightened + woken + resumed);
    }

    #[test]
    fn limits_can_only_tighten() {
        let wish = Limits { deadline_ms: 90_000, model_calls: 2, ..Limits::DEFAULT };
        let got = Limits::DEFAULT.tightened_by(&wish);
        assert_eq!((got.deadline_ms, got.model_calls), (45_000, 2));
    }
}
