//! What a gateway is built from. Keys, defaults and validation of files are the business of `config`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ambit_core::money::Price;
use ambit_resilience::{BulkheadOptions, RetryOptions};
use secrecy::SecretString;

use crate::wall::WallClock;

/// Longest line of a stream where nothing else is said, bytes. One line may carry a whole answer.
pub const SSE_LINE_DEFAULT: usize = 2 << 20;
/// Largest answer where nothing else is said, bytes: all of a stream, its comments included.
pub const RESPONSE_DEFAULT: usize = 2 << 20;
/// How long text that may still turn into a tool call is held back where nothing else is said.
pub const HOLD_DEFAULT: Duration = Duration::from_secs(1);

/// What a gateway is built from.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The targets, each under a name of its own.
    pub targets: Vec<TargetOptions>,
    /// The chains, each under a name of its own.
    pub chains: Vec<ChainOptions>,
    /// What wall time it is, for the deadlines that go out as points in time.
    pub clock: WallClock,
    /// Seed of all jitter.
    pub seed: u64,
    /// How long text that may still turn into a tool call is held back from the reader.
    pub hold: Duration,
}

/// One configured way to a model.
#[derive(Debug, Clone)]
pub struct TargetOptions {
    /// Its name: metric label, and what records and answers call it.
    pub name: Arc<str>,
    /// How it is talked to.
    pub dialect: DialectOptions,
    /// The model, as the provider calls it.
    pub model: Arc<str>,
    /// Tokens that fit, in and out; `None` where nobody said.
    pub context_window: Option<u64>,
    /// Most output tokens it takes for one call; lowers what a call asks for.
    pub max_output_tokens: Option<NonZeroU32>,
    /// What it charges.
    pub price: Price,
    /// One logical call, with all its attempts and waits.
    pub request: Duration,
    /// One attempt, until the head of a plain answer or the first token of a stream.
    pub attempt: Duration,
    /// Between two pieces of a stream. Comments that only keep a connection alive are no pieces.
    pub chunk: Duration,
    /// Until a connection stands; at most `attempt`.
    pub connect: Duration,
    /// How long an unused connection is kept.
    pub idle: Duration,
    /// With less than this left no attempt is made.
    pub min_useful: Duration,
    /// Kept back from each deadline that is told to the provider, for the way back: 100 to 150 ms.
    pub margin: Duration,
    /// How it is retried.
    pub retry: RetryOptions,
    /// How many calls at once.
    pub bulkhead: BulkheadOptions,
}

/// How a target is talked to.
#[derive(Debug, Clone)]
pub enum DialectOptions {
    /// Chat completions as OpenAI defined them and most servers speak them.
    OpenAiChat(ProviderOptions),
    /// OpenAI's Responses API.
    OpenAiResponses(ProviderOptions),
    /// Anthropic's Messages API.
    Anthropic(ProviderOptions),
    /// No provider at all: a file of rules.
    Scripted(ScriptedOptions),
}

/// A provider that is reached over HTTP.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// Where it is, up to where the dialect's path follows (often `..../v1`); with several they take turns.
    pub base_urls: Vec<String>,
    /// Its key, sent where the dialect has it.
    pub api_key: Option<SecretString>,
    /// Sent with every request. None of them is shown anywhere.
    pub headers: Vec<(String, SecretString)>,
    /// When an answer is asked for as a stream.
    pub streaming: Streaming,
    /// Longest line of a stream, bytes.
    pub sse_line: usize,
    /// Largest answer, bytes.
    pub response: usize,
}

/// When an answer is asked for as a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streaming {
    /// Always: a long answer is only bounded by silence and by `request`, since its first token comes early.
    Always,
    /// Only where somebody reads along: a little cheaper; the whole answer then has to come within `attempt`.
    WhenHeard,
}

/// A file of rules in place of a provider.
#[derive(Debug, Clone)]
pub struct ScriptedOptions {
    /// Where the text comes from, for messages: a path, or `built in`.
    pub source: String,
    /// The file's text.
    pub text: String,
}

/// Targets in the order in which they are asked.
#[derive(Debug, Clone)]
pub struct ChainOptions {
    /// Its name.
    pub name: Arc<str>,
    /// Names of its targets; exactly one so far.
    pub targets: Vec<Arc<str>>,
}
