//! The answers of chat completion servers, read leniently: what is missing, null or of an odd type is nothing, and what
//! is unknown is skipped. A whole answer and a piece of a stream have the same shape but for one member's name.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dialect::provider::{Count, Json, Text};
use crate::usage::Usage;

/// A completion, or a piece of one.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Completion {
    /// `None` where there is none or it is null.
    #[serde(default)]
    pub(super) choices: Option<Vec<Choice>>,
    #[serde(default)]
    pub(super) usage: Option<WireUsage>,
    #[serde(default)]
    pub(super) error: Option<Value>,
    #[serde(default)]
    pub(super) model: Text,
}

/// The one choice that is asked for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Choice {
    #[serde(default, alias = "message")]
    pub(super) delta: Option<Delta>,
    #[serde(default)]
    pub(super) finish_reason: Text,
}

/// What a message says, or what a piece adds to it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta {
    #[serde(default)]
    pub(super) content: Text,
    #[serde(default)]
    pub(super) refusal: Text,
    #[serde(default)]
    pub(super) reasoning_content: Text,
    /// The same thing under another name; read as a sign of life only.
    #[serde(default)]
    pub(super) reasoning: Text,
    #[serde(default)]
    pub(super) reasoning_details: Option<Value>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<CallDelta>>,
    /// What came before `tool_calls`.
    #[serde(default)]
    pub(super) function_call: Option<FunctionDelta>,
}

/// A call, or what a piece adds to one.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CallDelta {
    #[serde(default)]
    pub(super) index: Count,
    #[serde(default)]
    pub(super) id: Text,
    #[serde(default)]
    pub(super) function: Option<FunctionDelta>,
    #[serde(default, rename = "type")]
    pub(super) _kind: IgnoredAny,
    /// Members that nobody here knows: their provider wants them back.
    #[serde(flatten)]
    pub(super) extra: Map<String, Value>,
}

/// Name and arguments of a call, or pieces of them.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FunctionDelta {
    #[serde(default)]
    pub(super) name: Text,
    #[serde(default)]
    pub(super) arguments: Json,
}

/// What was used.
#[derive(Debug, Default, Deserialize)]
pub(super) struct WireUsage {
    #[serde(default)]
    prompt_tokens: Count,
    #[serde(default)]
    completion_tokens: Count,
    #[serde(default)]
    prompt_tokens_details: Option<Cached>,
    /// One provider's own name for the same.
    #[serde(default)]
    prompt_cache_hit_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
struct Cached {
    #[serde(default)]
    cached_tokens: Count,
}

impl WireUsage {
    /// `None` where it says nothing about either side.
    pub(super) fn read(&self) -> Option<Usage> {
        if self.prompt_tokens.0.is_none() && self.completion_tokens.0.is_none() {
            return None;
        }
        let cached = self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens.0);
        Some(Usage {
            input: self.prompt_tokens.0.unwrap_or(0),
            cached: cached.or(self.prompt_cache_hit_tokens.0).unwrap_or(0),
            output: self.completion_tokens.0.unwrap_or(0),
        })
    }
}

/// What a provider wants back with a turn, as it is kept with the turn. Sent only to the target that said it.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Carry {
    /// The target.
    pub(super) by: String,
    /// Members of the message.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) message: Map<String, Value>,
    /// Members of each call, by its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) calls: Vec<Map<String, Value>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_under_each_name_and_is_none_where_nothing_is_said() {
        let usage = |json: &str| serde_json::from_str::<WireUsage>(json).unwrap().read();
        let cached = Some(Usage { input: 10, cached: 4, output: 5 });
        assert_eq!(usage("{\"prompt_tokens\":10,\"completion_tokens\":5,\"prompt_tokens_details\":{\"cached_tokens\":4}}"), cached);
        assert_eq!(
            usage("{\"prompt_tokens\":10,\"completion_tokens\":5.0,\"prompt_cache_hit_tokens\":4,\"prompt_tokens_details\":null}"),
            cached
        );
        assert_eq!(usage("{\"completion_tokens\":5}"), Some(Usage { output: 5, ..Usage::default() }));
        assert_eq!(usage("{\"prompt_tokens\":null,\"total_tokens\":3}"), None);
    }
}
