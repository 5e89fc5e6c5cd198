//! What requests in OpenAI's forms look like, for the OpenAPI document alone: `ask.rs` and the two `body.rs` read them.
//!
//! Described is what means something here. Other parameters are taken, change nothing, and are named in the answer's
//! `ambit-ignored-params`; `null` is the same as absent.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::http::described::{LimitsRequestDoc, MetadataDoc, OnDisconnectDoc, OnLimitDoc, ToolsRequestDoc};

/// A chat completion to make. Parameters of OpenAI's that mean nothing here are ignored and named in the answer.
#[derive(Deserialize, ToSchema)]
#[schema(as = ChatCompletionRequest)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ChatRequestDoc {
    /// Name of an agent.
    #[schema(min_length = 1)]
    model: String,
    messages: ChatMessagesDoc,
    /// Answer with chunks.
    stream: Option<bool>,
    stream_options: Option<StreamOptionsDoc>,
    /// False: texts are deleted once the session is closed.
    store: Option<bool>,
    metadata: Option<MetadataDoc>,
    /// Most output tokens of one model call.
    #[schema(minimum = 1)]
    max_completion_tokens: Option<u32>,
    /// The same by its older name; of both the smaller counts.
    #[schema(minimum = 1)]
    max_tokens: Option<u32>,
    /// Only these of the agent's tools.
    tools: Option<Vec<ChatToolDoc>>,
    tool_choice: Option<ToolChoiceDoc>,
    ambit: Option<AmbitDoc>,
}

/// A response to make. Parameters of OpenAI's that mean nothing here are ignored and named in the answer.
#[derive(Deserialize, ToSchema)]
#[schema(as = ResponseRequest)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ResponseRequestDoc {
    /// Name of an agent.
    #[schema(min_length = 1)]
    model: String,
    input: ResponseInputDoc,
    /// Context of the caller's; the agent's own instructions stay.
    instructions: Option<String>,
    /// Answer with events.
    stream: Option<bool>,
    /// Answer at once. Not together with `"store": false`.
    background: Option<bool>,
    /// False: texts are deleted once the session is closed.
    store: Option<bool>,
    metadata: Option<MetadataDoc>,
    /// Go on from this one.
    #[schema(pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")]
    previous_response_id: Option<String>,
    /// Most output tokens of one model call.
    #[schema(minimum = 1)]
    max_output_tokens: Option<u32>,
    /// Most tool calls.
    max_tool_calls: Option<u32>,
    /// Only these of the agent's tools.
    tools: Option<Vec<FunctionDoc>>,
    tool_choice: Option<ToolChoiceDoc>,
    ambit: Option<AmbitDoc>,
}

/// A tool of the agent's as chat completions name it. Its description and its schema are the agent's.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestChatTool)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ChatToolDoc {
    #[serde(rename = "type")]
    kind: FunctionKindDoc,
    function: FunctionNameDoc,
}

/// Its name.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestFunctionName)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct FunctionNameDoc {
    #[schema(min_length = 1)]
    name: String,
}

/// A tool of the agent's as responses name it. Its description and its schema are the agent's.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestFunction)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct FunctionDoc {
    #[serde(rename = "type")]
    kind: FunctionKindDoc,
    #[schema(min_length = 1)]
    name: String,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = RequestFunctionKind)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FunctionKindDoc {
    Function,
}

/// Whether tools may be called. An object of type `allowed_tools` leaves only the tools that it names; being made to call
/// one is ignored.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestToolChoice)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum ToolChoiceDoc {
    Mode(ToolChoiceModeDoc),
    #[schema(value_type = Object)]
    Tools(serde_json::Map<String, serde_json::Value>),
}

#[derive(Deserialize, ToSchema)]
#[schema(as = RequestToolChoiceMode)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolChoiceModeDoc {
    None,
    Auto,
    Required,
}

/// What only Ambit has. Unknown members are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = AmbitMember)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct AmbitDoc {
    /// Tighter limits; absent ones are the agent's.
    #[schema(nullable = false)]
    limits: Option<LimitsRequestDoc>,
    /// Fewer tools.
    #[schema(nullable = false)]
    tools: Option<ToolsRequestDoc>,
    #[schema(nullable = false)]
    on_limit: Option<OnLimitDoc>,
    #[schema(nullable = false)]
    metadata: Option<MetadataDoc>,
    #[schema(nullable = false)]
    on_disconnect: Option<OnDisconnectDoc>,
    /// Go on from this one.
    #[schema(nullable = false, pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")]
    previous_session_id: Option<String>,
}

/// Options of a stream.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestStreamOptions)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct StreamOptionsDoc {
    /// A last chunk with the usage.
    include_usage: Option<bool>,
}

/// Messages in their order. At least one says something.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestMessages, min_items = 1, max_items = 256)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ChatMessagesDoc(Vec<ChatMessageDoc>);

/// A text of the user, or messages. Items of other types are told in `docs/openai.md`.
#[derive(Deserialize, ToSchema)]
#[schema(as = ResponseInput)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum ResponseInputDoc {
    Text(WordsDoc),
    Messages(ResponseItemsDoc),
}

/// Items in their order.
#[derive(Deserialize, ToSchema)]
#[schema(as = ResponseItems, min_items = 1, max_items = 256, value_type = Vec<Object>)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ResponseItemsDoc(Vec<serde_json::Value>);

/// A message: the user's words are the user's, all else is quoted.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestMessage)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum ChatMessageDoc {
    User(UserMessageDoc),
    Assistant(AssistantMessageDoc),
    Other(OtherMessageDoc),
}

/// Words of the user.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestUserMessage)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct UserMessageDoc {
    role: UserRoleDoc,
    content: UserContentDoc,
}

/// Words that an assistant is said to have said; with `tool_calls` there may be none.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestAssistantMessage)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct AssistantMessageDoc {
    role: AssistantRoleDoc,
    content: Option<ContentDoc>,
}

/// Words of somebody else.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestOtherMessage)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct OtherMessageDoc {
    role: OtherRoleDoc,
    content: ContentDoc,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = RequestUserRole)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UserRoleDoc {
    User,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = RequestAssistantRole)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AssistantRoleDoc {
    Assistant,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = RequestOtherRole)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OtherRoleDoc {
    System,
    Developer,
    Tool,
}

/// What the user says: not blank in all.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestUserContent)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum UserContentDoc {
    Text(WordsDoc),
    Parts(WordsPartsDoc),
}

/// What somebody says.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestContent)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum ContentDoc {
    Text(String),
    Parts(PartsDoc),
}

/// Text that is not blank.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestWords, pattern = "\\S")]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct WordsDoc(String);

/// Parts that are text and not blank.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestWordsParts, min_items = 1, max_items = 256)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct WordsPartsDoc(Vec<WordsPartDoc>);

/// Parts that are text.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestParts, min_items = 1, max_items = 256)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct PartsDoc(Vec<PartDoc>);

/// A part of a message that is not blank.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestWordsPart)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct WordsPartDoc {
    #[serde(rename = "type")]
    kind: PartKindDoc,
    text: WordsDoc,
}

/// A part of a message.
#[derive(Deserialize, ToSchema)]
#[schema(as = RequestPart)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct PartDoc {
    #[serde(rename = "type")]
    kind: PartKindDoc,
    text: String,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = RequestPartKind)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PartKindDoc {
    Text,
    InputText,
    OutputText,
}
