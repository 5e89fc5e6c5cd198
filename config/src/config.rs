//! A configuration that was checked: settings in force, where each came from, and what they are called together.

use std::collections::BTreeMap;

use ambit_core::limit::Limits;
use ambit_core::money::Money;
use serde_json::Value as Json;

use crate::changes::SecretDigests;
use crate::demo;
use crate::files::Files;
use crate::layers::Layers;
use crate::node::Place;
use crate::otel::TraceExport;
use crate::revision::revision;
use crate::settings::{AgentLimits, Dialect, Effect, Model, Settings, Taint, Tool};
use crate::value::{Period, Size};

/// A configuration that was checked. Secrets in it print as `***`.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) settings: Settings,
    pub(crate) agents: BTreeMap<String, AgentDefinition>,
    pub(crate) layers: Layers,
    pub(crate) effective: Json,
    pub(crate) files: Files,
    /// The process's `PATH`, which MCP servers get.
    pub(crate) path: String,
    pub(crate) secrets: SecretDigests,
    profile: String,
    pub(crate) revision: String,
    notices: Vec<String>,
    traces: Option<TraceExport>,
}

/// One agent as configured. The digest that is its version is the orchestrator's to compute.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentDefinition {
    /// Its name.
    pub name: String,
    /// What it is for, for people; empty if nobody said.
    pub description: String,
    /// What the model is told first.
    pub instructions: String,
    /// Which chain answers it.
    pub chain: String,
    /// Its tools, and the MCP servers whose allowed tools it is offered.
    pub tools: Vec<String>,
    /// Its limits: the tighter of its own and the profile's on each axis.
    pub limits: Limits,
    /// What happens to writes once untrusted content is in the context.
    pub taint: Taint,
}

impl Config {
    pub(crate) fn new(settings: Settings, layers: Layers, effective: Json, files: Files, path: String, mut notices: Vec<String>) -> Self {
        let profile_limits = limits(&settings);
        let mut gone = Vec::new();
        if !settings.server.demo_service {
            gone.extend(settings.tools.iter().filter(|(_, tool)| tool.is_demo()).map(|(name, _)| name.clone()));
        }
        let agents = settings
            .agents
            .iter()
            .map(|(name, agent)| {
                let definition = AgentDefinition {
                    name: name.clone(),
                    description: agent.description.clone().unwrap_or_default(),
                    instructions: agent.instructions.trim().to_owned(),
                    chain: agent.chain.clone(),
                    tools: agent.tools.iter().filter(|tool| !gone.contains(tool)).cloned().collect(),
                    limits: tightened(&profile_limits, &agent.limits),
                    taint: agent.taint,
                };
                (name.clone(), definition)
            })
            .collect();
        if !gone.is_empty() {
            notices.push(format!(
                "`server.demo_service` is false, so that no agent has {}",
                crate::shape::listed(gone.iter().map(String::as_str))
            ));
        }
        let profile = layers.profile.clone();
        let revision = revision(&profile, &effective);
        let secrets = SecretDigests::default();
        Self { settings, agents, layers, effective, files, path, secrets, profile, revision, notices, traces: None }
    }

    /// With the digests of its secrets, by which another configuration tells whether they are the same.
    pub(crate) fn with_secrets(self, secrets: SecretDigests) -> Self {
        Self { secrets, ..self }
    }

    /// The same with traces that go somewhere. They change nothing that a session does and are no part of the revision.
    pub(crate) fn with_traces(mut self, traces: Option<TraceExport>) -> Self {
        self.traces = traces;
        self
    }

    /// Where traces go; `None` if nowhere.
    #[must_use]
    pub const fn traces(&self) -> Option<&TraceExport> {
        self.traces.as_ref()
    }

    /// Name of the selected profile.
    #[must_use]
    pub fn profile(&self) -> &str {
        &self.profile
    }

    /// Names the settings in force: 12 hexadecimal digits, equal for equal settings. Secrets do not enter it.
    #[must_use]
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// What should be logged once at start, a line each.
    #[must_use]
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// All settings in force, as they stand in the file, defaults included and secrets fetched.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The profile's limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        limits(&self.settings)
    }

    /// The agents by name.
    #[must_use]
    pub const fn agents(&self) -> &BTreeMap<String, AgentDefinition> {
        &self.agents
    }

    /// One request, from its head to the last byte of the answer.
    #[must_use]
    pub fn request(&self) -> Period {
        let usual = self.settings.limits.deadline.0.saturating_add(REQUEST_OVER_DEADLINE);
        self.settings.server.request.unwrap_or(Period(usual))
    }

    /// Where a key gets its value from; `None` for one that nothing sets.
    pub(crate) fn place(&self, key: &str) -> Option<Place> {
        self.layers.place(key)
    }
}

/// How much longer than the deadline of its session a request may last: the answer has to leave, too.
pub const REQUEST_OVER_DEADLINE: std::time::Duration = std::time::Duration::from_secs(5);
/// Making a connection, where nothing else is said and the attempt is not shorter.
const CONNECT: Period = Period(std::time::Duration::from_secs(5));

impl Model {
    /// How it is spoken to.
    #[must_use]
    pub fn spoken(&self) -> Dialect {
        self.dialect.unwrap_or(if self.base_url.is_some() { Dialect::OpenaiChat } else { Dialect::Scripted })
    }

    /// How long making a connection may take.
    #[must_use]
    pub fn connecting(&self) -> Period {
        self.connect.unwrap_or(CONNECT.min(self.attempt))
    }
}

impl Tool {
    /// What a call leaves behind.
    #[must_use]
    pub fn leaves(&self) -> Effect {
        self.effect.unwrap_or(match self.kind {
            crate::settings::ToolKind::Builtin => Effect::Read,
            crate::settings::ToolKind::Http => Effect::Write,
        })
    }

    /// How long one attempt may take: the class table of reads and writes where nothing else is said.
    #[must_use]
    pub fn attempting(&self) -> Period {
        const READ: Period = Period(std::time::Duration::from_secs(2));
        const WRITE: Period = Period(std::time::Duration::from_secs(4));
        self.attempt.unwrap_or(if self.leaves() == Effect::Read { READ } else { WRITE })
    }

    /// How many attempts one call has.
    #[must_use]
    pub fn attempts_max(&self) -> u32 {
        self.attempts.unwrap_or(if self.leaves() == Effect::Read { 3 } else { 1 })
    }

    /// How many calls run at once.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.bulkhead.permits.unwrap_or(if self.leaves() == Effect::Read { 32 } else { 16 })
    }

    /// True if it talks to the demo service.
    #[must_use]
    pub fn is_demo(&self) -> bool {
        self.url.as_deref().and_then(|url| url.split_once("://")).is_some_and(|(_, rest)| host(rest) == demo::SERVICE_HOST)
    }
}

/// The host of what follows `://` in a URL.
pub(crate) fn host(rest: &str) -> &str {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// The profile's limits in the core's terms.
fn limits(settings: &Settings) -> Limits {
    let l = &settings.limits;
    Limits {
        deadline_ms: l.deadline.ms(),
        model_calls: l.model_calls,
        tool_calls: l.tool_calls,
        parallel_tools: l.parallel_tools,
        model_attempts: l.model_attempts,
        tool_attempts: l.tool_attempts,
        prompt_chars: l.prompt_chars,
        context_chars: l.context_chars,
        tool_output: bytes32(l.tool_output),
        output_tokens_per_call: l.output_tokens_per_call,
        total_tokens: l.total_tokens,
        cost_usd: Money::from_usd(l.cost_usd),
        answer_reserve_ms: l.answer_reserve.ms(),
        transcript: l.transcript.bytes(),
        events: l.events,
    }
}

/// The tighter of two on each axis.
fn tightened(profile: &Limits, own: &AgentLimits) -> Limits {
    let wish = Limits {
        deadline_ms: own.deadline.map_or(profile.deadline_ms, Period::ms),
        model_calls: own.model_calls.unwrap_or(profile.model_calls),
        tool_calls: own.tool_calls.unwrap_or(profile.tool_calls),
        parallel_tools: own.parallel_tools.unwrap_or(profile.parallel_tools),
        model_attempts: own.model_attempts.unwrap_or(profile.model_attempts),
        tool_attempts: own.tool_attempts.unwrap_or(profile.tool_attempts),
        prompt_chars: own.prompt_chars.unwrap_or(profile.prompt_chars),
        context_chars: own.context_chars.unwrap_or(profile.context_chars),
        tool_output: own.tool_output.map_or(profile.tool_output, bytes32),
        output_tokens_per_call: own.output_tokens_per_call.unwrap_or(profile.output_tokens_per_call),
        total_tokens: own.total_tokens.unwrap_or(profile.total_tokens),
        cost_usd: own.cost_usd.map_or(profile.cost_usd, Money::from_usd),
        answer_reserve_ms: own.answer_reserve.map_or(profile.answer_reserve_ms, Period::ms),
        transcript: own.transcript.map_or(profile.transcript, Size::bytes),
        events: own.events.unwrap_or(profile.events),
    };
    profile.tightened_by(&wish)
}

/// Bytes of a size that is known to be at most 1 GiB.
pub(crate) fn bytes32(size: Size) -> u32 {
    u32::try_from(size.bytes()).unwrap_or(u32::MAX)
}
