//! The `chat.completion` object. Calls of tools are the agent's own matter, and never shown.

use ambit_core::{Reason, Status};
use ambit_orchestrator::SessionView;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::openai::named;
use crate::http::types::{Include, SessionObject};

/// Prefix of a session's id as a completion.
const PREFIX: &str = "chatcmpl-";

/// One completion: a session in OpenAI's form.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    #[serde(flatten)]
    head: Head,
    /// Always one.
    choices: [Choice; 1],
    usage: ChatUsage,
    /// The session itself.
    ambit: SessionObject,
}

/// What a completion and each of its chunks begin with.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Head {
    /// `chatcmpl-<ULID>`.
    id: String,
    /// `chat.completion` or `chat.completion.chunk`.
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    /// Name of the agent.
    model: String,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    service_tier: Option<()>,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    system_fingerprint: Option<()>,
}

/// The answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Choice {
    /// Always 0.
    index: u32,
    message: Message,
    /// Always null.
    #[schema(value_type = Option<Object>)]
    logprobs: Option<()>,
    /// `stop`, `length` where the text is cut or missing, `content_filter`.
    finish_reason: &'static str,
}

/// What was said.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ChatCompletionMessage)]
pub(crate) struct Message {
    /// Always `assistant`.
    role: &'static str,
    content: Option<String>,
    /// Always null: a refusal is told in words.
    #[schema(value_type = Option<Object>)]
    refusal: Option<()>,
    /// Always empty.
    #[schema(value_type = Vec<Object>)]
    annotations: [(); 0],
}

/// Tokens.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ChatUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptTokens,
    completion_tokens_details: CompletionTokens,
}

/// Parts of the prompt's tokens: not counted apart.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct PromptTokens {
    audio_tokens: u64,
    cached_tokens: u64,
}

/// Parts of the answer's tokens: not counted apart.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub(crate) struct CompletionTokens {
    accepted_prediction_tokens: u64,
    audio_tokens: u64,
    reasoning_tokens: u64,
    rejected_prediction_tokens: u64,
}

impl ChatCompletion {
    /// The session with its verdict.
    pub(crate) fn of(view: &SessionView) -> Self {
        Self {
            head: Head::of(view, "chat.completion"),
            choices: [Choice {
                index: 0,
                message: Message {
                    role: "assistant",
                    content: view.output_text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned),
                    refusal: None,
                    annotations: [],
                },
                logprobs: None,
                finish_reason: finish_reason(view),
            }],
            usage: ChatUsage::of(view),
            ambit: SessionObject::of(view, Include::default()),
        }
    }
}

impl Head {
    pub(crate) fn of(view: &SessionView, object: &'static str) -> Self {
        Self {
            id: named(PREFIX, view.id),
            object,
            created: view.created_ms / 1_000,
            model: view.agent.to_string(),
            service_tier: None,
            system_fingerprint: None,
        }
    }
}

impl ChatUsage {
    pub(crate) fn of(view: &SessionView) -> Self {
        let (prompt_tokens, completion_tokens) = (view.spent.input_tokens, view.spent.output_tokens);
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokens::default(),
            completion_tokens_details: CompletionTokens::default(),
        }
    }
}

/// Why the text ends where it does. Everything but a whole answer is `length`: the true reason is in `ambit`.
pub(crate) fn finish_reason(view: &SessionView) -> &'static str {
    match view.verdict.map(|verdict| (verdict.status, verdict.reason)) {
        Some((Status::Completed, _)) => "stop",
        Some((_, Reason::ContentFiltered)) => "content_filter",
        Some((Status::Incomplete | Status::Failed | Status::Cancelled, _)) | None => "length",
    }
}
