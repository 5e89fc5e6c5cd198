//! What requests in OpenAI's forms look like, for the OpenAPI document alone. Parameters that are not described are ignored.

use serde::Deserialize;
use utoipa::ToSchema;

use crate::http::described::{LimitsRequestDoc, MetadataDoc, OnDisconnectDoc, OnLimitDoc, TextDoc, ToolsRequestDoc};

/// A request in the form of OpenAI's Responses API.
#[derive(Deserialize, ToSchema)]
#[schema(as = ResponsesRequest)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ResponsesRequestDoc {
    /// Name of an agent.
    #[schema(min_length = 1)]
    model: String,
    /// What the agent is asked.
    input: ItemsOrTextDoc,
    /// Quoted to the agent as context from the caller.
    instructions: Option<String>,
    /// The response to go on from.
    #[schema(pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")]
    previous_response_id: Option<String>,
    /// Tightens the limit of each model call.
    #[schema(minimum = 1)]
    max_output_tokens: Option<u64>,
    /// Tightens the limit.
    max_tool_calls: Option<u64>,
    /// Answer at once, and go on. Not together with `store: false`.
    background: Option<bool>,
    text: Option<TextOptionsDoc>,
    #[serde(flatten)]
    common: CommonDoc,
}

/// A request in the form of OpenAI's chat completions.
#[derive(Deserialize, ToSchema)]
#[schema(as = ChatRequest)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ChatRequestDoc {
    /// Name of an agent.
    #[schema(min_length = 1)]
    model: String,
    /// The conversation. Only the user's words are the user's; all else is quoted.
    #[schema(min_items = 1, max_items = 256)]
    messages: Vec<ChatMessageDoc>,
    /// Tightens the limit of each model call.
    #[schema(minimum = 1)]
    max_completion_tokens: Option<u64>,
    /// The same.
    #[schema(minimum = 1)]
    max_tokens: Option<u64>,
    #[schema(minimum = 1, maximum = 1)]
    n: Option<u64>,
    response_format: Option<PlainFormatDoc>,
    #[serde(flatten)]
    common: CommonDoc,
}

/// Parameters of both forms.
#[derive(Deserialize, ToSchema)]
#[schema(as = OpenAiRequest)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct CommonDoc {
    metadata: Option<MetadataDoc>,
    /// `false`: texts are deleted once the session is closed.
    store: Option<bool>,
    /// Answer with events.
    stream: Option<bool>,
    stream_options: Option<StreamOptionsDoc>,
    /// Only these of the agent's tools.
    tools: Option<Vec<FunctionToolDoc>>,
    tool_choice: Option<ToolChoiceDoc>,
    /// What OpenAI's form has no place for: only tighter, only fewer.
    ambit: Option<AmbitDoc>,
}

/// Our own member.
#[derive(Deserialize, ToSchema)]
#[schema(as = AmbitOptions)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct AmbitDoc {
    #[schema(nullable = false)]
    limits: Option<LimitsRequestDoc>,
    #[schema(nullable = false)]
    tools: Option<ToolsRequestDoc>,
    #[schema(nullable = false)]
    on_limit: Option<OnLimitDoc>,
    /// Added to `metadata`; 16 pairs in all.
    #[schema(nullable = false)]
    metadata: Option<MetadataDoc>,
    #[schema(nullable = false)]
    on_disconnect: Option<OnDisconnectDoc>,
    /// The session to go on from.
    #[schema(nullable = false, pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")]
    previous_session_id: Option<String>,
}

/// A text, or items.
#[derive(Deserialize, ToSchema)]
#[schema(as = ResponsesInput)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum ItemsOrTextDoc {
    Text(TextDoc),
    Items(ItemsDoc),
}

/// Items in their order.
#[derive(Deserialize, ToSchema)]
#[schema(as = ResponsesInputItems, min_items = 1, max_items = 256)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ItemsDoc(Vec<ItemDoc>);

/// A message, a call of a tool, its output, or reasoning, which is left out.
#[derive(Deserialize, ToSchema)]
#[schema(as = ResponsesInputItem)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ItemDoc {
    #[serde(rename = "type")]
    kind: Option<ItemKindDoc>,
    /// Of a message.
    role: Option<SpeakerDoc>,
    /// Of a message: a text, or parts.
    content: Option<WordsDoc>,
    /// Of a call.
    name: Option<String>,
    /// Of a call.
    arguments: Option<String>,
    /// Of an output: a text, or parts.
    output: Option<WordsDoc>,
}

/// A message.
#[derive(Deserialize, ToSchema)]
#[schema(as = ChatMessage)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct ChatMessageDoc {
    role: SpeakerDoc,
    /// A text, or parts of type `text`.
    content: Option<WordsDoc>,
}

/// A text, or parts.
#[derive(Deserialize, ToSchema)]
#[schema(as = Words)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum WordsDoc {
    Text(String),
    Parts(WordPartsDoc),
}

/// Parts in their order.
#[derive(Deserialize, ToSchema)]
#[schema(as = WordParts, min_items = 1, max_items = 256)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct WordPartsDoc(Vec<WordPartDoc>);

/// A part that is text; images, audio and files are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = WordPart)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct WordPartDoc {
    #[serde(rename = "type")]
    kind: WordKindDoc,
    text: String,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = WordKind)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WordKindDoc {
    Text,
    InputText,
    OutputText,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = ResponsesInputItemKind)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ItemKindDoc {
    Message,
    FunctionCall,
    FunctionCallOutput,
    Reasoning,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = Speaker)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SpeakerDoc {
    User,
    System,
    Developer,
    Assistant,
    Tool,
}

/// A tool of the agent's, by its name: here, or below `function`.
#[derive(Deserialize, ToSchema)]
#[schema(as = FunctionTool)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct FunctionToolDoc {
    #[serde(rename = "type")]
    kind: FunctionDoc,
    name: Option<String>,
    function: Option<NamedDoc>,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = FunctionName)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct NamedDoc {
    #[schema(min_length = 1)]
    name: String,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = FunctionToolKind)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FunctionDoc {
    Function,
}

/// `none` switches tools off; being made to call one is ignored.
#[derive(Deserialize, ToSchema)]
#[schema(as = ToolChoice)]
#[serde(untagged)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) enum ToolChoiceDoc {
    Word(ToolChoiceWordDoc),
    One(NamedToolDoc),
}

#[derive(Deserialize, ToSchema)]
#[schema(as = ToolChoiceWord)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolChoiceWordDoc {
    None,
    Auto,
    Required,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = NamedToolChoice)]
pub(crate) struct NamedToolDoc {}

#[derive(Deserialize, ToSchema)]
#[schema(as = StreamOptions)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct StreamOptionsDoc {
    /// A last chunk with the usage.
    include_usage: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = TextOptions)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct TextOptionsDoc {
    format: Option<PlainFormatDoc>,
}

/// Other formats are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = PlainFormat)]
#[expect(dead_code, reason = "described, never built")]
pub(crate) struct PlainFormatDoc {
    #[serde(rename = "type")]
    kind: PlainDoc,
}

#[derive(Deserialize, ToSchema)]
#[schema(as = PlainFormatKind)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlainDoc {
    Text,
}
