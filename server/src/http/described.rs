//! What requests and streams look like, for the OpenAPI document alone: `body.rs` reads requests, and says everything that is
//! wrong at once; `sse.rs` writes events.

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::ToSchema;

/// A session to run.
#[derive(Deserialize, ToSchema)]
#[schema(as = SessionRequest)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct SessionRequestDoc {
    /// Name of an agent.
    #[schema(min_length = 1)]
    agent: String,
    /// What the agent is asked.
    input: InputDoc,
    /// The session to go on from: its inputs and its answer come first.
    #[schema(nullable = false, pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")]
    previous_session_id: Option<String>,
    /// Tighter limits; absent ones are the agent's.
    #[schema(nullable = false)]
    limits: Option<LimitsRequestDoc>,
    /// Fewer tools.
    #[schema(nullable = false)]
    tools: Option<ToolsRequestDoc>,
    /// What happens when a limit is near; `answer` is the default.
    #[schema(nullable = false)]
    on_limit: Option<OnLimitDoc>,
    /// The caller's own pairs.
    #[schema(nullable = false)]
    metadata: Option<MetadataDoc>,
    /// Answer with events. Not together with `background`.
    #[schema(nullable = false)]
    stream: Option<bool>,
    /// Answer 202 at once.
    #[schema(nullable = false)]
    background: Option<bool>,
    /// What a caller who leaves does to the session: `cancel` is the default for callers who wait, `continue` in the background
    /// and with an `Idempotency-Key`.
    #[schema(nullable = false)]
    on_disconnect: Option<OnDisconnectDoc>,
}

/// A text, or messages of the user.
#[derive(Deserialize, ToSchema)]
#[schema(as = SessionInput)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum InputDoc {
    Text(TextDoc),
    Messages(MessagesDoc),
}

/// Messages in their order.
#[derive(Deserialize, ToSchema)]
#[schema(as = SessionMessages, min_items = 1, max_items = 256)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct MessagesDoc(Vec<MessageDoc>);

/// Text that says something.
#[derive(Deserialize, ToSchema)]
#[schema(as = SessionText, min_length = 1, pattern = "\\S")]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct TextDoc(String);

/// A message of the user.
#[derive(Deserialize, ToSchema)]
#[schema(as = SessionMessage)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct MessageDoc {
    #[serde(rename = "type")]
    #[schema(nullable = false)]
    kind: Option<MessageKindDoc>,
    role: RoleDoc,
    content: ContentDoc,
}

/// What a message says.
#[derive(Deserialize, ToSchema)]
#[schema(as = SessionMessageContent)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum ContentDoc {
    Text(TextDoc),
    Parts(Vec<PartDoc>),
}

/// A part of a message.
#[derive(Deserialize, ToSchema)]
#[schema(as = SessionMessagePart)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct PartDoc {
    #[serde(rename = "type")]
    kind: PartKindDoc,
    text: TextDoc,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = SessionMessageKind)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MessageKindDoc {
    Message,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = SessionMessageRole)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RoleDoc {
    User,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = SessionMessagePartKind)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartKindDoc {
    InputText,
    Text,
}

/// `answer`: the reserve is used for a last call without tools; `stop`: it is not.
#[derive(Deserialize, ToSchema)]
#[schema(as = OnLimit)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnLimitDoc {
    Answer,
    Stop,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = OnDisconnect)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnDisconnectDoc {
    Cancel,
    Continue,
}

/// Pairs of the caller's own; a key has at most 64 characters.
#[derive(Deserialize, ToSchema)]
#[schema(as = Metadata, max_properties = 16)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct MetadataDoc {
    #[serde(flatten)]
    pairs: BTreeMap<String, MetadataValueDoc>,
}

/// A value of a pair.
#[derive(Deserialize, ToSchema)]
#[schema(as = MetadataValue, max_length = 512)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct MetadataValueDoc(String);

/// Limits as a request may tighten them. The largest values are those that any agent may have; an agent's own are lower.
#[derive(Deserialize, ToSchema)]
#[schema(as = LimitsRequest)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct LimitsRequestDoc {
    #[schema(nullable = false, minimum = 1, maximum = 86_400_000)]
    deadline_ms: Option<u64>,
    #[schema(nullable = false, minimum = 1, maximum = 64)]
    model_calls: Option<u32>,
    #[schema(nullable = false, maximum = 256)]
    tool_calls: Option<u32>,
    #[schema(nullable = false, minimum = 1, maximum = 512)]
    model_attempts: Option<u32>,
    #[schema(nullable = false, maximum = 1_024)]
    tool_attempts: Option<u32>,
    #[schema(nullable = false, minimum = 1, maximum = 1_000_000_000)]
    total_tokens: Option<u64>,
    #[schema(nullable = false, minimum = 0, maximum = 1_000_000)]
    cost_usd: Option<f64>,
}

/// Limits to tighten: at least one, none above the one in force.
#[derive(Deserialize, ToSchema)]
#[schema(as = TightenRequest, min_properties = 1)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct TightenDoc {
    #[schema(nullable = false, minimum = 1)]
    deadline_ms: Option<u64>,
    #[schema(nullable = false, minimum = 1)]
    model_calls: Option<u64>,
    #[schema(nullable = false)]
    tool_calls: Option<u64>,
    #[schema(nullable = false, minimum = 1)]
    model_attempts: Option<u64>,
    #[schema(nullable = false)]
    tool_attempts: Option<u64>,
    #[schema(nullable = false, minimum = 1)]
    total_tokens: Option<u64>,
    #[schema(nullable = false, minimum = 0)]
    cost_usd: Option<f64>,
}

/// Which of the agent's tools may be used.
#[derive(Deserialize, ToSchema)]
#[schema(as = ToolsRequest)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ToolsRequestDoc {
    /// Only these.
    #[schema(nullable = false, max_items = 256)]
    allow: Option<Vec<TextDoc>>,
    /// None of these.
    #[schema(nullable = false, max_items = 256)]
    deny: Option<Vec<TextDoc>>,
}

/// Which end of a list comes first.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum ListOrder {
    Desc,
    Asc,
}

/// How a session stands.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum SessionStatus {
    Running,
    AwaitingApproval,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

/// What became of effects after the verdict.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum SettlementState {
    None,
    Pending,
    Settled,
    NeedsAttention,
}

/// One event of a stream, by its fields.
#[derive(ToSchema)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct StreamEvent {
    /// Its place: resume behind it with `Last-Event-ID` or `starting_after`.
    id: Option<String>,
    /// Its type; chunks of chat completions have none.
    event: Option<String>,
    /// What it says, as JSON: of sessions `{type, seq, session_id, at, remaining, data}`, of OpenAI's streams their own objects.
    data: serde_json::Value,
}
