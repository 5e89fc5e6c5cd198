//! The envelope: the worst case of a session and of a full process, from configuration alone, before anything runs.
//!
//! Pure. Every figure comes with its arithmetic, so that a reader can say which setting to change. What is bounded is
//! what Ambit does; a provider that reports more tokens than were reserved for a call is metered and ends the session,
//! so that the excess of one call may come on top ([`EXCESS`]).

mod text;

use ambit_core::limit::{self, Limits};
use ambit_core::money::{Money, Price};
use serde::Serialize;

use crate::config::{AgentDefinition, Config};
use crate::settings::{Effect, Model};

/// Bytes of one journal entry without the calls of its turn.
const ENTRY_BYTES: u64 = 1_024;
/// Bytes that each prepared call adds to the entry of its turn: names, two digests, sizes, class.
const CALL_BYTES: u64 = 512;
/// Bytes that each request on the wire adds to the entry of its step.
const ATTEMPT_BYTES: u64 = 256;
/// Bytes of one note: a piece of text of 1 KiB and what stands around it.
const NOTE_BYTES: u64 = 1_280;
/// Bytes of a character in UTF-8 at most.
const CHAR_BYTES: u64 = 4;
/// Bytes that one byte of text takes in JSON at most (`\u001f`).
const JSON_FACTOR: u64 = 6;
/// Memory of a process without sessions: code, runtime, the store's page caches.
const PROCESS_BYTES: u64 = 64 << 20;
/// How long after the deadline the last byte of a stream may leave, milliseconds.
const STREAM_GRACE_MS: u64 = 1_000;
/// What the figures for tokens and money leave out.
pub const EXCESS: &str = "a provider that reports more than was reserved for a call ends the session: the excess of one call comes on top";

/// The envelope of a configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bounds {
    /// Selected profile.
    pub profile: String,
    /// Revision of the configuration.
    pub config_revision: String,
    /// One session of each agent.
    pub agents: Vec<AgentBounds>,
    /// A process with as many sessions as it takes.
    pub process: ProcessBounds,
    /// What the figures for tokens and money leave out.
    pub excess: &'static str,
}

/// The worst case of one session of an agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentBounds {
    /// Its name.
    pub agent: String,
    /// The figures.
    pub envelope: Envelope,
    /// The same with their arithmetic, in the same order.
    pub lines: Vec<Line>,
}

/// The worst case of one session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Envelope {
    /// From the request to the last byte of the answer, milliseconds.
    pub last_byte_ms: u64,
    /// From the verdict to the end of the settlement, milliseconds.
    pub settlement_ms: u64,
    /// Requests to models.
    pub model_requests: u32,
    /// Requests to tools.
    pub tool_requests: u32,
    /// Tokens read by models.
    pub input_tokens: u64,
    /// Tokens written by models.
    pub output_tokens: u64,
    /// Money, US dollars.
    pub cost_usd: f64,
    /// Bytes of transcript.
    pub transcript_bytes: u64,
    /// Bytes in the store: entries, notes and content.
    pub journal_bytes: u64,
}

/// The worst case of a process at `server.max_in_flight`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessBounds {
    /// Sessions at once.
    pub sessions: u32,
    /// Requests to models at once.
    pub model_requests: u64,
    /// Requests to tools at once.
    pub tool_requests: u64,
    /// Money that all running sessions together may still spend, US dollars.
    pub cost_usd: f64,
    /// Bytes that all running sessions together may write to the store.
    pub journal_bytes: u64,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The same with their arithmetic, in the same order.
    pub lines: Vec<Line>,
}

/// One figure and how it comes about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// What it is.
    pub name: &'static str,
    /// The figure with its unit.
    pub value: String,
    /// The arithmetic, with the keys that it is made from.
    pub arithmetic: String,
}

/// Computes the envelope of a configuration.
#[must_use]
pub fn bounds(config: &Config) -> Bounds {
    let agents: Vec<AgentBounds> = config.agents().values().map(|agent| session(config, agent)).collect();
    Bounds {
        profile: config.profile().to_owned(),
        config_revision: config.revision().to_owned(),
        process: process(config, &agents),
        agents,
        excess: EXCESS,
    }
}

/// A tool as the envelope sees it.
struct Use {
    name: String,
    attempts: u32,
    timeout_ms: u64,
    is_write: bool,
}

/// The tools of an agent; an MCP server counts as one that may write, unless all its allowed tools are known to read.
fn uses(config: &Config, agent: &AgentDefinition) -> Vec<Use> {
    let settings = config.settings();
    let mut found = Vec::new();
    for name in &agent.tools {
        if let Some(tool) = settings.tools.get(name) {
            let is_write = tool.leaves() != Effect::Read;
            found.push(Use { name: format!("tools.{name}"), attempts: tool.attempts_max(), timeout_ms: tool.timeout.ms(), is_write });
        } else if let Some(server) = settings.mcp.get(name) {
            let reads = server.allow.iter().all(|tool| server.tools.get(tool).is_some_and(|policy| policy.effect == Some(Effect::Read)));
            let attempts = server.tools.values().map(|policy| policy.attempts).max().unwrap_or(1);
            let own = server.tools.values().filter_map(|policy| policy.timeout);
            let timeout_ms = own.chain([server.timeout]).map(crate::value::Period::ms).max().unwrap_or_default();
            found.push(Use { name: format!("mcp.{name}"), attempts, timeout_ms, is_write: !reads });
        }
    }
    found
}

fn models<'a>(config: &'a Config, agent: &AgentDefinition) -> Vec<(&'a String, &'a Model)> {
    let settings = config.settings();
    let targets = settings.chains.get(&agent.chain).map(|chain| chain.targets.as_slice()).unwrap_or_default();
    targets.iter().filter_map(|target| settings.models.get_key_value(target)).collect()
}

/// The worst case of one session.
fn session(config: &Config, agent: &AgentDefinition) -> AgentBounds {
    let l = &agent.limits;
    let (uses, models) = (uses(config, agent), models(config, agent));
    let mut lines = Vec::new();
    let mut line = |name, value: String, arithmetic: String| lines.push(Line { name, value, arithmetic });

    let last_byte_ms = l.deadline_ms.saturating_add(STREAM_GRACE_MS);
    line(
        "time to the last byte",
        text::time(last_byte_ms),
        format!("deadline {} + {} for a stream to close", text::time(l.deadline_ms), text::time(STREAM_GRACE_MS)),
    );

    let slowest = uses.iter().filter(|tool| tool.is_write).max_by_key(|tool| tool.timeout_ms);
    let settlement_ms = slowest.map_or(0, |tool| tool.timeout_ms.min(limit::SETTLEMENT_MS_MAX));
    line(
        "settlement after the verdict",
        text::time(settlement_ms),
        slowest.map_or_else(
            || "no tool that is no read".to_owned(),
            |tool| {
                format!(
                    "min({}.timeout {} of a write that was sent, {})",
                    tool.name,
                    text::time(tool.timeout_ms),
                    text::time(limit::SETTLEMENT_MS_MAX)
                )
            },
        ),
    );

    let attempts = models.iter().map(|(_, model)| model.attempts).fold(0, u32::saturating_add);
    let model_requests = l.model_attempts.min(l.model_calls.saturating_mul(attempts));
    let each = models.iter().map(|(name, model)| format!("models.{name}.attempts {}", model.attempts)).collect::<Vec<_>>().join(" + ");
    line(
        "requests to models",
        model_requests.to_string(),
        format!("min(model_attempts {}, model_calls {} x ({each}))", l.model_attempts, l.model_calls),
    );

    let most = uses.iter().max_by_key(|tool| tool.attempts);
    let tool_requests = l.tool_attempts.min(l.tool_calls.saturating_mul(most.map_or(0, |tool| tool.attempts)));
    line(
        "requests to tools",
        tool_requests.to_string(),
        most.map_or_else(
            || "no tools".to_owned(),
            |tool| {
                format!("min(tool_attempts {}, tool_calls {} x {}.attempts {})", l.tool_attempts, l.tool_calls, tool.name, tool.attempts)
            },
        ),
    );

    let input_tokens = l.total_tokens;
    line("tokens in", input_tokens.to_string(), format!("total_tokens {}", l.total_tokens));
    let output = models.iter().filter_map(|(_, model)| model.max_output_tokens).max().unwrap_or(u32::MAX).min(l.output_tokens_per_call);
    let output_tokens = l.total_tokens.min(u64::from(model_requests).saturating_mul(output.into()));
    line(
        "tokens out",
        output_tokens.to_string(),
        format!("min(total_tokens {}, {model_requests} requests x {output} tokens)", l.total_tokens),
    );

    let (cost, arithmetic) = cost(l, &models, output_tokens);
    line("money", cost.to_string(), arithmetic);

    line("transcript", text::bytes(l.transcript), format!("transcript {}", text::bytes(l.transcript)));

    let (journal_bytes, arithmetic) = journal(l, &models, model_requests, tool_requests);
    line("bytes in the store", text::bytes(journal_bytes), arithmetic);

    let envelope = Envelope {
        last_byte_ms,
        settlement_ms,
        model_requests,
        tool_requests,
        input_tokens,
        output_tokens,
        cost_usd: cost.usd(),
        transcript_bytes: l.transcript,
        journal_bytes,
    };
    AgentBounds { agent: agent.name.clone(), envelope, lines }
}

/// Money: what the tokens cost where they are dearest, at most the limit.
fn cost(l: &Limits, models: &[(&String, &Model)], output_tokens: u64) -> (Money, String) {
    let prices = || models.iter().filter_map(|(_, model)| model.price.as_ref()).map(crate::convert::price);
    let dearest = prices().fold(Price::default(), |a, b| Price {
        input: a.input.max(b.input).max(b.cached),
        output: a.output.max(b.output),
        cached: Money::ZERO,
    });
    if prices().next().is_none() {
        return (Money::ZERO, "no price is set: as far as Ambit knows it is free".into());
    }
    // Each token is read or written; writing is dearer as a rule, and bounded by the calls.
    let written = if dearest.output >= dearest.input { output_tokens } else { 0 };
    let read = l.total_tokens.saturating_sub(written);
    let worst = dearest.input.times(read).saturating_add(dearest.output.times(written));
    let arithmetic = format!(
        "min(cost_usd {}, {read} tokens in x {} + {written} tokens out x {})",
        l.cost_usd,
        text::price(dearest.input),
        text::price(dearest.output)
    );
    (worst.min(l.cost_usd), arithmetic)
}

/// Bytes in the store.
fn journal(l: &Limits, models: &[(&String, &Model)], model_requests: u32, tool_requests: u32) -> (u64, String) {
    let entries = u64::from(l.events) * ENTRY_BYTES;
    let calls = u64::from(l.model_calls) * u64::from(limit::TURN_CALLS_MAX) * CALL_BYTES;
    let attempts = (u64::from(model_requests) + u64::from(tool_requests)) * ATTEMPT_BYTES;
    let notes = u64::from(limit::NOTES_MAX) * NOTE_BYTES;
    let response = models.iter().map(|(_, model)| model.response.bytes()).max().unwrap_or_default();
    let content = l.transcript + u64::from(l.prompt_chars) * CHAR_BYTES + response;
    let arithmetic = format!(
        "events {} x {} + model_calls {} x {} calls x {CALL_BYTES} B + {} requests x {ATTEMPT_BYTES} B + {} notes x {NOTE_BYTES} B + transcript {} + prompt_chars {} x {CHAR_BYTES} B + response {} of the answer that passes the transcript",
        l.events,
        text::bytes(ENTRY_BYTES),
        l.model_calls,
        limit::TURN_CALLS_MAX,
        u64::from(model_requests) + u64::from(tool_requests),
        limit::NOTES_MAX,
        text::bytes(l.transcript),
        l.prompt_chars,
        text::bytes(response),
    );
    (entries + calls + attempts + notes + content, arithmetic)
}

/// The worst case of a full process: every session is one of the agent that is worst on that axis.
fn process(config: &Config, agents: &[AgentBounds]) -> ProcessBounds {
    let settings = config.settings();
    let sessions = settings.server.max_in_flight;
    let n = u64::from(sessions);
    let mut lines = vec![Line { name: "sessions", value: sessions.to_string(), arithmetic: format!("server.max_in_flight {sessions}") }];
    let mut line = |name, value: String, arithmetic: String| lines.push(Line { name, value, arithmetic });

    let permits: u64 = settings.models.values().map(|model| u64::from(model.bulkhead.permits)).sum();
    let model_requests = n.min(permits);
    line("requests to models at once", model_requests.to_string(), format!("min({sessions} sessions, {permits} permits of all models)"));

    let parallel = config.agents().values().map(|agent| u64::from(agent.limits.parallel_tools)).max().unwrap_or_default();
    // A server has permits for its reads and for its writes.
    let of_servers: u64 = settings.mcp.values().map(|server| server.bulkhead.permits.map_or(48, |permits| 2 * u64::from(permits))).sum();
    let tool_permits: u64 = settings.tools.values().map(|tool| u64::from(tool.permits())).sum::<u64>() + of_servers;
    let tool_requests = (n * parallel).min(tool_permits);
    line(
        "requests to tools at once",
        tool_requests.to_string(),
        format!("min({sessions} sessions x parallel_tools {parallel}, {tool_permits} permits of all tools)"),
    );

    let cost = agents.iter().map(|agent| Money::from_usd(agent.envelope.cost_usd)).max().unwrap_or_default();
    let all = cost.times(n);
    line("money of all running sessions", all.to_string(), format!("{sessions} sessions x {cost}"));

    let journal = agents.iter().map(|agent| agent.envelope.journal_bytes).max().unwrap_or_default();
    let journal_bytes = journal.saturating_mul(n);
    line(
        "bytes in the store of all running sessions",
        text::bytes(journal_bytes),
        format!("{sessions} sessions x {}", text::bytes(journal)),
    );

    let held = config
        .agents()
        .values()
        .map(|agent| agent.limits.transcript + u64::from(agent.limits.prompt_chars) * CHAR_BYTES)
        .max()
        .unwrap_or_default();
    let answer = settings.models.values().map(|model| model.response.bytes() + model.sse_line.bytes()).max().unwrap_or_default();
    let body = settings.http.tool_body.bytes();
    let of_sessions = n.saturating_mul(held);
    let of_models = model_requests.saturating_mul(held.saturating_mul(JSON_FACTOR).saturating_add(answer));
    let of_tools = tool_requests.saturating_mul(2 * body);
    let memory_bytes = PROCESS_BYTES.saturating_add(of_sessions).saturating_add(of_models).saturating_add(of_tools);
    line(
        "memory",
        text::bytes(memory_bytes),
        format!(
            "{} for the process + {sessions} sessions x {} of transcript and prompt + {model_requests} requests to models x ({} as JSON + {} of answer) + {tool_requests} requests to tools x 2 x tool_body {}",
            text::bytes(PROCESS_BYTES),
            text::bytes(held),
            text::bytes(held.saturating_mul(JSON_FACTOR)),
            text::bytes(answer),
            text::bytes(body),
        ),
    );
    ProcessBounds { sessions, model_requests, tool_requests, cost_usd: all.usd(), journal_bytes, memory_bytes, lines }
}
