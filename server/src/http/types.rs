//! The objects of the API, as they leave. One field, one meaning; times are RFC 3339 UTC, durations milliseconds.

use std::collections::BTreeMap;

use ambit_core::{Limits, Reason, Status};
use ambit_orchestrator::{SessionView, StepTally};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::ToSchema;

use crate::http::described::{SessionStatus, SettlementState};

/// One session.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct SessionObject {
    /// `ses_<ULID>`.
    #[schema(pattern = "^ses_[0-7][0-9A-HJKMNP-TV-Z]{25}$")]
    id: String,
    /// Always `session`.
    object: &'static str,
    agent: String,
    /// Content hash of the agent's definition.
    agent_version: String,
    /// How it stands.
    #[schema(value_type = SessionStatus)]
    status: &'static str,
    /// Why it ended as it did.
    reason: Option<&'static str>,
    /// What the model said last, as items.
    output: Vec<OutputItem>,
    output_text: Option<String>,
    error: Option<SessionError>,
    limits: LimitsObject,
    spent: SpentObject,
    served_by: Option<ServedBy>,
    degraded: Vec<DegradedObject>,
    /// Why no model could be used.
    cause: Option<&'static str>,
    effects: EffectsObject,
    /// What became of its effects.
    #[schema(value_type = SettlementState)]
    settlement: &'static str,
    /// What a reader of the answer should know about it; none so far.
    flags: Vec<String>,
    /// What a person has to do for it to go on; none so far.
    required_actions: Vec<String>,
    /// The session that it continues.
    previous_session_id: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    deadline_at: String,
    #[schema(format = DateTime)]
    verdict_at: Option<String>,
    #[schema(format = DateTime)]
    closed_at: Option<String>,
    config_revision: String,
    /// The distributed trace that it is part of; null for sessions of before there were traces.
    trace_id: Option<String>,
    metadata: BTreeMap<String, String>,
    /// With `?include=steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<StepObject>>,
    /// With `?include=transcript`.
    #[serde(skip_serializing_if = "Option::is_none")]
    transcript: Option<Vec<LineObject>>,
}

impl SessionObject {
    /// Says that it ended, for a reader who cannot be told more.
    pub(crate) const fn give_up(&mut self, status: Status, reason: Reason) {
        (self.status, self.reason) = (status.as_str(), Some(reason.as_str()));
    }
}

/// A piece of the answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct OutputItem {
    /// Always `message`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Always `assistant`.
    role: &'static str,
    content: Vec<OutputText>,
}

/// Text of the answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct OutputText {
    /// Always `output_text`.
    #[serde(rename = "type")]
    kind: &'static str,
    text: String,
}

/// Why a session failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct SessionError {
    code: String,
    message: String,
}

/// The limits in force.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LimitsObject {
    deadline_ms: u64,
    model_calls: u32,
    tool_calls: u32,
    parallel_tools: u32,
    model_attempts: u32,
    tool_attempts: u32,
    prompt_chars: u32,
    output_tokens_per_call: u32,
    total_tokens: u64,
    cost_usd: f64,
    answer_reserve_ms: u64,
    /// Bytes.
    tool_output: u32,
    /// Bytes.
    transcript: u64,
    events: u32,
}

impl From<&Limits> for LimitsObject {
    fn from(limits: &Limits) -> Self {
        Self {
            deadline_ms: limits.deadline_ms,
            model_calls: limits.model_calls,
            tool_calls: limits.tool_calls,
            parallel_tools: limits.parallel_tools,
            model_attempts: limits.model_attempts,
            tool_attempts: limits.tool_attempts,
            prompt_chars: limits.prompt_chars,
            output_tokens_per_call: limits.output_tokens_per_call,
            total_tokens: limits.total_tokens,
            cost_usd: limits.cost_usd.usd(),
            answer_reserve_ms: limits.answer_reserve_ms,
            tool_output: limits.tool_output,
            transcript: limits.transcript,
            events: limits.events,
        }
    }
}

/// What was spent.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct SpentObject {
    model_calls: u32,
    tool_calls: u32,
    model_attempts: u32,
    tool_attempts: u32,
    hedges: u32,
    input_tokens: u64,
    output_tokens: u64,
    /// All that counts against `limits.total_tokens`, reservations of unheard calls included.
    total_tokens: u64,
    cost_usd: f64,
    /// True if some figures are whole reservations, since the true ones are not known.
    cost_is_at_least: bool,
    elapsed_ms: u64,
    model_ms: u64,
    tool_ms: u64,
    /// Part of `model_ms` and `tool_ms` that was not on the wire: queue and back-off.
    queue_ms: u64,
    overhead_ms: u64,
}

/// Who answered.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ServedBy {
    /// What the provider calls the model; null for a session of an earlier version, which did not keep it.
    model: Option<String>,
    /// Name of the target.
    target: String,
    /// Place in the chain, from 0.
    position: u32,
    /// Always `model` so far.
    source: &'static str,
    age_s: Option<u64>,
}

/// A named loss of capability.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DegradedObject {
    capability: String,
    mode: String,
    reason: String,
}

/// Effects by their state.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct EffectsObject {
    done: u32,
    pending: u32,
    compensated: u32,
    unknown: u32,
    needs_attention: u32,
}

/// One step.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct StepObject {
    step: u32,
    /// `retrieve`, `model`, `tool`, `approval`, `reconcile`, `compensate`.
    kind: &'static str,
    tool: Option<String>,
    started_ms: u64,
    ended_ms: Option<u64>,
    outcome: Option<String>,
    attempts: usize,
}

impl From<&StepTally> for StepObject {
    fn from(step: &StepTally) -> Self {
        Self {
            step: step.step.0,
            kind: step.kind,
            tool: step.tool.as_deref().map(str::to_owned),
            started_ms: step.started_at,
            ended_ms: step.ended_at,
            outcome: step.outcome.as_deref().map(str::to_owned),
            attempts: step.attempts,
        }
    }
}

/// One line of the transcript.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LineObject {
    /// `user`, `assistant`, `tool_call`, `tool_result`.
    role: &'static str,
    tool: Option<String>,
    call_id: Option<String>,
    code: Option<&'static str>,
    text: String,
}

/// Which members a caller asks for beyond the usual.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Include {
    pub(crate) steps: bool,
    pub(crate) transcript: bool,
}

impl SessionObject {
    pub(crate) fn of(view: &SessionView, include: Include) -> Self {
        let verdict = view.verdict;
        let output_text = view.output_text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
        let failed = verdict.filter(|verdict| verdict.status == ambit_core::Status::Failed);
        Self {
            id: view.id.to_string(),
            object: "session",
            agent: view.agent.to_string(),
            agent_version: view.agent_version.clone(),
            status: view.status,
            reason: verdict.map(|verdict| verdict.reason.as_str()),
            output: output_text
                .iter()
                .map(|text| OutputItem {
                    kind: "message",
                    role: "assistant",
                    content: vec![OutputText { kind: "output_text", text: text.clone() }],
                })
                .collect(),
            output_text,
            error: failed.map(|verdict| SessionError {
                code: verdict.reason.as_str().to_ascii_uppercase(),
                message: view
                    .failure
                    .as_ref()
                    .map_or_else(|| format!("the session failed: {}", verdict.reason), |failure| failure.detail.clone()),
            }),
            limits: LimitsObject::from(&view.limits),
            spent: SpentObject {
                model_calls: view.spent.model_calls,
                tool_calls: view.spent.tool_calls,
                model_attempts: view.spent.model_attempts,
                tool_attempts: view.spent.tool_attempts,
                hedges: view.spent.hedges,
                input_tokens: view.spent.input_tokens,
                output_tokens: view.spent.output_tokens,
                total_tokens: view.spent.tokens(),
                cost_usd: view.spent.cost.usd(),
                cost_is_at_least: view.spent.at_least,
                elapsed_ms: view.elapsed_ms,
                model_ms: view.model_ms,
                tool_ms: view.tool_ms,
                queue_ms: view.idle_ms,
                overhead_ms: view.overhead_ms,
            },
            served_by: view.served_by.as_ref().map(|target| ServedBy {
                model: view.served_by_model.as_deref().map(str::to_owned),
                target: target.to_string(),
                position: view.served_by_position,
                source: "model",
                age_s: None,
            }),
            degraded: view
                .degraded
                .iter()
                .map(|found| DegradedObject {
                    capability: found.capability.to_string(),
                    mode: found.mode.to_string(),
                    reason: found.reason.to_string(),
                })
                .collect(),
            cause: view.cause.map(ambit_core::Cause::as_str),
            effects: EffectsObject {
                done: view.effects.done,
                pending: view.effects.pending,
                compensated: view.effects.compensated,
                unknown: view.effects.unknown,
                needs_attention: view.effects.needs_attention,
            },
            settlement: view.settlement.as_str(),
            flags: Vec::new(),
            required_actions: Vec::new(),
            previous_session_id: view.previous.map(|id| id.to_string()),
            created_at: rfc3339(view.created_ms),
            deadline_at: rfc3339(view.deadline_ms),
            verdict_at: view.verdict_ms.map(rfc3339),
            closed_at: view.closed_ms.map(rfc3339),
            config_revision: view.config_revision.to_string(),
            trace_id: view.trace.map(|id| id.to_string()),
            metadata: view.metadata.clone(),
            steps: include.steps.then(|| view.steps.iter().map(StepObject::from).collect()),
            transcript: include.transcript.then(|| {
                view.transcript
                    .iter()
                    .map(|line| LineObject {
                        role: line.role,
                        tool: line.tool.as_deref().map(str::to_owned),
                        call_id: line.call_id.as_deref().map(str::to_owned),
                        code: line.code,
                        text: line.text.to_string(),
                    })
                    .collect()
            }),
        }
    }
}

/// A page of sessions.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct SessionList {
    /// Always `list`.
    pub(crate) object: &'static str,
    pub(crate) data: Vec<SessionObject>,
    pub(crate) first_id: Option<String>,
    pub(crate) last_id: Option<String>,
    pub(crate) has_more: bool,
}

/// One configured agent.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct AgentObject {
    pub(crate) name: String,
    /// Always `agent`.
    pub(crate) object: &'static str,
    pub(crate) description: String,
    /// Content hash of the definition.
    pub(crate) version: String,
    pub(crate) chain: String,
    pub(crate) tools: Vec<String>,
    pub(crate) limits: LimitsObject,
    /// The worst case of one session, computed from configuration alone.
    #[schema(value_type = Object)]
    pub(crate) envelope: serde_json::Value,
}

/// All configured agents.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct AgentList {
    /// Always `list`.
    pub(crate) object: &'static str,
    pub(crate) data: Vec<AgentObject>,
}

/// One configured tool, or one that an MCP server brings.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ToolObject {
    pub(crate) name: String,
    /// Always `tool`.
    pub(crate) object: &'static str,
    pub(crate) description: String,
    /// `read`, `write`, `irreversible`.
    pub(crate) effect: &'static str,
    pub(crate) trusted: bool,
    /// True if calls carry a key that the other side honours.
    pub(crate) keyed: bool,
    pub(crate) attempts: u32,
    /// JSON Schema of the arguments.
    #[schema(value_type = Object)]
    pub(crate) parameters: serde_json::Value,
}

/// All tools.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ToolList {
    /// Always `list`.
    pub(crate) object: &'static str,
    pub(crate) data: Vec<ToolObject>,
}

/// The selected profile.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ProfileObject {
    pub(crate) name: String,
    /// Always `profile`.
    pub(crate) object: &'static str,
    pub(crate) selected: bool,
    pub(crate) config_revision: String,
    /// Every setting in force, secrets as `***`.
    #[schema(value_type = Object)]
    pub(crate) settings: serde_json::Value,
}

/// The profiles of this process: the selected one.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ProfileList {
    /// Always `list`.
    pub(crate) object: &'static str,
    pub(crate) data: Vec<ProfileObject>,
}

/// What runs here.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Version {
    pub(crate) version: &'static str,
    pub(crate) config_revision: String,
    pub(crate) profile: String,
}

/// Whether the process takes sessions.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// `ready`, `not_ready` or `starting`.
    pub(crate) status: &'static str,
    /// What the start waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits_for: Option<String>,
    /// With `?verbose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checks: Option<BTreeMap<&'static str, String>>,
}

/// A moment as RFC 3339 in UTC, milliseconds kept.
pub(crate) fn rfc3339(ms: u64) -> String {
    let nanos = i128::from(ms) * 1_000_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanos).ok().and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_default()
}
