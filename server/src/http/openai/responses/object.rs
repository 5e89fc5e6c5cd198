//! The `response` object, with every member that OpenAI's has. What was asked for but is not in force is null; ours is
//! in `ambit`.

use std::collections::BTreeMap;

use ambit_core::{Reason, Status};
use ambit_orchestrator::SessionView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::openai::items::{Item, Items};
use crate::http::openai::{Failure, named};
use crate::http::types::{Include, SessionObject};

/// Prefix of a session's id as a response.
pub(crate) const PREFIX: &str = "resp_";

/// One response: a session in OpenAI's form.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Response)]
pub(crate) struct ResponseObject {
    /// `resp_<ULID>`: the session's id under another name.
    pub(crate) id: String,
    /// Always `response`.
    object: &'static str,
    /// Seconds since 1970.
    created_at: u64,
    /// `in_progress`, `completed`, `incomplete`, `failed`, `cancelled`.
    pub(crate) status: &'static str,
    /// Seconds since 1970, once completed.
    completed_at: Option<u64>,
    error: Option<Failure>,
    incomplete_details: Option<IncompleteDetails>,
    /// Name of the agent.
    model: String,
    /// What was said, a message for each turn; empty until the verdict.
    output: Vec<Item>,
    usage: Option<Usage>,
    metadata: BTreeMap<String, String>,
    previous_response_id: Option<String>,
    /// Always `auto`: the agent's own tools are used as it sees fit.
    tool_choice: &'static str,
    /// Always empty: tools are the agent's, and are not shown here.
    #[schema(value_type = Vec<Object>)]
    tools: [(); 0],
    /// Always true.
    parallel_tool_calls: bool,
    text: TextFormat,
    /// Always `disabled`.
    truncation: &'static str,
    #[serde(flatten)]
    unused: Unused,
    /// The session itself.
    ambit: SessionObject,
}

/// Why an answer is cut or missing.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct IncompleteDetails {
    /// `max_output_tokens` for every bound, `content_filter`; the true reason is in `ambit`.
    reason: &'static str,
}

/// Tokens.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ResponseUsage)]
pub(crate) struct Usage {
    input_tokens: u64,
    input_tokens_details: InputTokens,
    output_tokens: u64,
    output_tokens_details: OutputTokens,
    total_tokens: u64,
}

/// Parts of the input tokens: not counted apart.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct InputTokens {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

/// Parts of the output tokens: not counted apart.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct OutputTokens {
    reasoning_tokens: u64,
}

/// The form of the answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct TextFormat {
    format: PlainText,
}

/// Plain text.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct PlainText {
    /// Always `text`.
    #[serde(rename = "type")]
    kind: &'static str,
}

/// Members of OpenAI's that say nothing here: always null.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct Unused {
    #[schema(value_type = Option<Object>)]
    background: Option<()>,
    #[schema(value_type = Option<Object>)]
    conversation: Option<()>,
    #[schema(value_type = Option<Object>)]
    instructions: Option<()>,
    #[schema(value_type = Option<Object>)]
    max_output_tokens: Option<()>,
    #[schema(value_type = Option<Object>)]
    max_tool_calls: Option<()>,
    #[schema(value_type = Option<Object>)]
    prompt: Option<()>,
    #[schema(value_type = Option<Object>)]
    prompt_cache_key: Option<()>,
    #[schema(value_type = Option<Object>)]
    reasoning: Option<()>,
    #[schema(value_type = Option<Object>)]
    safety_identifier: Option<()>,
    #[schema(value_type = Option<Object>)]
    service_tier: Option<()>,
    #[schema(value_type = Option<Object>)]
    store: Option<()>,
    #[schema(value_type = Option<Object>)]
    temperature: Option<()>,
    #[schema(value_type = Option<Object>)]
    top_logprobs: Option<()>,
    #[schema(value_type = Option<Object>)]
    top_p: Option<()>,
    #[schema(value_type = Option<Object>)]
    user: Option<()>,
}

impl ResponseObject {
    /// The session with its verdict, or as it stands.
    pub(crate) fn of(view: &SessionView, items: &Items) -> Self {
        let verdict = view.verdict;
        let is = |status: Status| verdict.is_some_and(|verdict| verdict.status == status);
        let incomplete = verdict.filter(|verdict| verdict.status == Status::Incomplete);
        Self {
            id: named(PREFIX, view.id),
            object: "response",
            created_at: view.created_ms / 1_000,
            status: verdict.map_or("in_progress", |verdict| verdict.status.as_str()),
            completed_at: view.verdict_ms.filter(|_| is(Status::Completed)).map(|ms| ms / 1_000),
            error: Failure::of(view),
            incomplete_details: incomplete.map(|verdict| IncompleteDetails {
                reason: if verdict.reason == Reason::ContentFiltered { "content_filter" } else { "max_output_tokens" },
            }),
            model: view.agent.to_string(),
            output: items.all().to_vec(),
            usage: verdict.map(|_| Usage {
                input_tokens: view.spent.input_tokens,
                input_tokens_details: InputTokens::default(),
                output_tokens: view.spent.output_tokens,
                output_tokens_details: OutputTokens::default(),
                total_tokens: view.spent.input_tokens + view.spent.output_tokens,
            }),
            metadata: view.metadata.clone(),
            previous_response_id: view.previous.map(|previous| named(PREFIX, previous)),
            tool_choice: "auto",
            tools: [],
            parallel_tool_calls: true,
            text: TextFormat { format: PlainText { kind: "text" } },
            truncation: "disabled",
            unused: Unused::default(),
            ambit: SessionObject::of(view, Include::default()),
        }
    }

    /// The session as it stood when it began: what a stream says first, also when it is read again after the end.
    pub(crate) fn opening(view: &SessionView) -> Self {
        let opening = SessionView {
            status: "running",
            verdict: None,
            output_text: None,
            spent: ambit_core::session::Spent::default(),
            elapsed_ms: 0,
            model_ms: 0,
            tool_ms: 0,
            idle_ms: 0,
            overhead_ms: 0,
            served_by: None,
            degraded: Vec::new(),
            cause: None,
            effects: ambit_orchestrator::EffectCounts::default(),
            settlement: ambit_core::Settlement::None,
            verdict_ms: None,
            closed_ms: None,
            failure: None,
            steps: Vec::new(),
            transcript: Vec::new(),
            ..view.clone()
        };
        Self::of(&opening, &Items::new(view.id))
    }

    /// The same ended without a verdict that could be read.
    pub(crate) fn given_up(mut self, status: Status, reason: Reason, items: &Items) -> Self {
        self.status = status.as_str();
        self.ambit.give_up(status, reason);
        self.output = items.all().to_vec();
        match status {
            Status::Failed => {
                self.error = Some(Failure { code: "server_error", message: format!("the stream could not be read to its end: {reason}") });
            }
            Status::Completed | Status::Incomplete | Status::Cancelled => {
                self.incomplete_details = Some(IncompleteDetails { reason: "max_output_tokens" });
            }
        }
        self
    }
}
