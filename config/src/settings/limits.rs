//! `[limits]` and `[agents.NAME.limits]`: one list of axes, two tables.

use ambit_core::limit;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::value::{Period, Size};

/// Declares the axes once: all of them with a default for the profile, each optional for an agent.
macro_rules! axes {
    ($($(#[doc = $doc:literal])+ $name:ident: $ty:ty = $default:literal, { $($attr:tt)* };)+) => {
        /// What a session may use, axis by axis.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct Limits {
            $($(#[doc = $doc])+ #[schemars($($attr)*, extend("default" = $default))] pub $name: $ty,)+
        }

        /// Limits of one agent; each can only be tighter than the profile's, and is the profile's where absent.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct AgentLimits {
            $($(#[doc = $doc])+ #[schemars($($attr)*, extend("x-default" = "as in `limits`"))] pub $name: Option<$ty>,)+
        }
    };
}

axes! {
    /// From the arrival of the request to the verdict.
    ///
    /// The answer is on its way at the latest then, whatever happens.
    deadline: Period = "45s", { extend("x-max" = "1d", "x-cost" = "each session may hold a place of `server.max_in_flight` that long") };
    /// Model calls (turns), retries not counted.
    model_calls: u32 = 8, { range(min = 1, max = limit::MODEL_CALLS_MAX), extend("x-unit" = "calls", "x-cost" = "time, tokens and money: each call reads the whole transcript again") };
    /// Tool calls dispatched; refused ones do not count.
    tool_calls: u32 = 10, { range(min = 0, max = limit::TOOL_CALLS_MAX), extend("x-unit" = "calls", "x-cost" = "five events of journal a call; effects on the world") };
    /// Tool calls of one session that run at the same time.
    parallel_tools: u32 = 4, { range(min = 1, max = limit::PARALLEL_TOOLS_MAX), extend("x-unit" = "calls", "x-cost" = "a connection and `http.tool_body` of memory each") };
    /// Requests on the wire to models, over all calls and retries of a session.
    model_attempts: u32 = 16, { range(min = 1, max = limit::MODEL_ATTEMPTS_MAX), extend("x-unit" = "requests", "x-cost" = "load on the provider during its outage") };
    /// Requests on the wire to tools, over all calls and retries of a session.
    tool_attempts: u32 = 20, { range(min = 0, max = limit::TOOL_ATTEMPTS_MAX), extend("x-unit" = "requests", "x-cost" = "load on the tools during their outage") };
    /// Instructions, input and retrieved passages together.
    prompt_chars: u32 = 16000, { range(min = 1, max = 10_000_000), extend("x-unit" = "characters", "x-cost" = "read by the model again in every call") };
    /// Retrieved passages; part of `prompt_chars`.
    context_chars: u32 = 12000, { range(min = 0, max = 10_000_000), extend("x-unit" = "characters", "x-cost" = "read by the model again in every call") };
    /// One tool result as the model reads it; head and tail are kept.
    tool_output: Size = "10KiB", { extend("x-max" = "1MiB", "x-cost" = "read by the model again in every later call") };
    /// Output of one model call.
    output_tokens_per_call: u32 = 2048, { range(min = limit::OUTPUT_TOKENS_MIN, max = 1_000_000), extend("x-unit" = "tokens", "x-cost" = "reserved, with its price, before every call") };
    /// Tokens read and written over the session.
    ///
    /// Reserved before each call by estimate; a usage above its estimate ends the session at the next step.
    total_tokens: u64 = 200_000, { range(min = limit::OUTPUT_TOKENS_MIN, max = 1_000_000_000_u64), extend("x-unit" = "tokens", "x-cost" = "money") };
    /// Money over the session, at the prices of the models.
    ///
    /// A model without `price` costs nothing as far as Ambit knows.
    cost_usd: f64 = 1.0, { range(min = 0.000_000_001, max = 1_000_000.0), extend("x-unit" = "US dollars", "x-cost" = "money") };
    /// Kept back at the end of the deadline for a last answer without tools.
    answer_reserve: Period = "8s", { extend("x-max" = "1d", "x-cost" = "steps end that much earlier") };
    /// The transcript of a session: what it may hold in memory.
    transcript: Size = "1MiB", { extend("x-max" = "64MiB", "x-cost" = "memory, times `server.max_in_flight`; bytes of content in the store") };
    /// Journal events of a session.
    ///
    /// Must hold what the other limits allow: one for each model call, five for each tool call, and a few besides.
    events: u32 = 512, { range(min = 1, max = limit::EVENTS_MAX), extend("x-unit" = "events", "x-cost" = "about 1 KiB of journal each") };
}
