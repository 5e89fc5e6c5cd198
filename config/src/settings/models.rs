//! `[models.NAME]` and `[chains.NAME]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::value::{Period, Secret, Several, Size, Wait, words};

words! {
    /// How to speak to a provider.
    pub enum Dialect {
        /// Chat completions as OpenAI's API has them, plain and streamed; what most servers speak.
        OpenaiChat = "openai_chat",
        /// OpenAI's Responses API, plain and streamed. Nothing is stored there.
        OpenaiResponses = "openai_responses",
        /// Anthropic's Messages API, plain and streamed.
        Anthropic = "anthropic",
        /// No provider: a file of rules answers.
        Scripted = "scripted",
    }
}

words! {
    /// When answers are asked for as streams.
    pub enum Stream {
        /// Always: a long answer is bounded by silence and by `request`, since its first token comes early.
        Always = "always",
        /// Only where somebody reads along: cheaper, but a whole answer then has to come within `attempt`.
        WhenHeard = "when_heard",
    }
}

/// One configured way to one model.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// How to speak to the provider.
    ///
    /// It decides what is added to `base_url` (`/chat/completions`, `/responses`, or `/messages`) and where `api_key` goes
    /// (`authorization` as bearer token, with `anthropic` the header `x-api-key`).
    #[schemars(extend("x-default" = "`openai_chat` if `base_url` is set, else `scripted`"))]
    pub dialect: Option<Dialect>,
    /// Where the provider listens, up to and without the path that the dialect adds.
    ///
    /// For example `https://api.openai.com/v1`, `https://api.anthropic.com/v1` or `http://127.0.0.1:8000/v1`. Several take
    /// turns.
    pub base_url: Option<Several>,
    /// The provider's key.
    pub api_key: Option<Secret>,
    /// The model's name as the provider knows it.
    pub model: Option<String>,
    /// File of rules for the scripted dialect.
    #[schemars(extend("x-default" = "the shipped demo script", "x-path" = true))]
    pub script: Option<String>,
    /// Tokens that the model can take, input and output together.
    #[schemars(range(min = 256, max = 100_000_000), extend("x-unit" = "tokens", "x-default" = "not known: the transcript is shortened only for `limits.transcript`"))]
    pub context_window: Option<u32>,
    /// Tokens that the model writes at most in one answer.
    #[schemars(range(min = 16, max = 10_000_000), extend("x-unit" = "tokens", "x-default" = "`limits.output_tokens_per_call`"))]
    pub max_output_tokens: Option<u32>,
    /// What the provider charges.
    #[schemars(extend("x-default" = "free"))]
    pub price: Option<Price>,
    /// Headers added to every request; a value may be a reference to a secret.
    #[schemars(extend("x-names" = "free"))]
    pub headers: BTreeMap<String, Secret>,
    /// One logical call with all its attempts and the waits between them.
    #[schemars(extend("default" = "30s", "x-cost" = "a session may spend that long in one call"))]
    pub request: Period,
    /// One attempt, from sending to the head of the answer or its first token.
    #[schemars(extend("default" = "20s", "x-cost" = "a permit is held that long"))]
    pub attempt: Period,
    /// When answers are asked for as streams.
    #[schemars(extend("default" = "always", "x-cost" = "`when_heard`: answers that take longer than `attempt` fail"))]
    pub stream: Stream,
    /// Silence between two pieces of a stream.
    #[schemars(extend("default" = "15s", "x-cost" = "a permit is held that long by a dead stream"))]
    pub chunk: Period,
    /// Making a connection.
    #[schemars(extend("x-default" = "5s, or `attempt` if that is shorter"))]
    pub connect: Option<Period>,
    /// How long an unused connection is kept.
    #[schemars(extend("default" = "60s", "x-cost" = "an open socket"))]
    pub idle: Period,
    /// With less time left than this no attempt is started.
    #[schemars(extend("default" = "3s", "x-cost" = "that much of the deadline goes unused at worst"))]
    pub min_useful: Period,
    /// Attempts of one call on this target, the first included.
    #[schemars(range(min = 1, max = 5), extend("default" = 2, "x-unit" = "attempts", "x-cost" = "load on a provider in trouble"))]
    pub attempts: u32,
    /// How many calls run at once, and who waits for a place.
    pub bulkhead: Bulkhead,
    /// How long to wait before another attempt.
    pub retry: Retry,
    /// Largest answer.
    #[schemars(extend("default" = "2MiB", "x-max" = "64MiB", "x-cost" = "memory, times `bulkhead.permits`"))]
    pub response: Size,
    /// Longest line of a stream.
    #[schemars(extend("default" = "2MiB", "x-max" = "64MiB", "x-cost" = "memory, times `bulkhead.permits`"))]
    pub sse_line: Size,
}

/// What a provider charges, in US dollars for a million tokens.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens read.
    #[schemars(range(min = 0.0, max = 100_000.0), extend("x-unit" = "US dollars a million tokens"))]
    pub input: f64,
    /// Tokens written.
    #[schemars(range(min = 0.0, max = 100_000.0), extend("x-unit" = "US dollars a million tokens"))]
    pub output: f64,
    /// Tokens read from the provider's prompt cache.
    #[schemars(range(min = 0.0, max = 100_000.0), extend("x-unit" = "US dollars a million tokens", "x-default" = "as `input`"))]
    pub cached: Option<f64>,
}

/// Concurrent calls of one dependency.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bulkhead {
    /// Calls at once; a call keeps its place until the last byte of its answer.
    #[schemars(range(min = 1, max = 10_000), extend("default" = 8, "x-unit" = "calls", "x-cost" = "a connection and one answer's memory each"))]
    pub permits: u32,
    /// Calls of running sessions that may wait for a place, first in, first out.
    #[schemars(range(min = 0, max = 10_000), extend("x-unit" = "calls", "x-default" = "`server.max_in_flight` less `permits`", "x-cost" = "their sessions wait up to `continuing_wait`"))]
    pub queue: Option<u32>,
    /// How long the first call of a fresh session may wait; 0 means that saturation is answered at once.
    #[schemars(extend("default" = "0ms", "x-max" = "5s", "x-cost" = "callers wait that long to hear `SATURATED`"))]
    pub fresh_wait: Wait,
    /// How long a call of a session that has begun its work may wait.
    #[schemars(extend("default" = "2s", "x-max" = "1m", "x-cost" = "that much of the session's deadline"))]
    pub continuing_wait: Wait,
}

/// The wait before another attempt: uniform in [`min_delay`, min(`max_delay`, `base` x 2^(n+1))] before retry n, from 0.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// What doubles.
    #[schemars(extend("default" = "200ms", "x-max" = "1m"))]
    pub base: Period,
    /// Shortest wait.
    #[schemars(extend("default" = "100ms", "x-max" = "1m"))]
    pub min_delay: Wait,
    /// Longest wait, unless the other side asks for more.
    #[schemars(extend("default" = "5s", "x-max" = "1m", "x-cost" = "a permit is held through the wait"))]
    pub max_delay: Period,
}

/// Which targets answer.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// Names of models; exactly one.
    pub targets: Vec<String>,
}
