//! The answers of the Responses API, read leniently: what is missing, null or of an odd type is nothing, and what is unknown
//! is skipped.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::dialect::provider::{Count, Json, Text};
use crate::usage::Usage;

/// A whole answer; also what the first and the last event of a stream hold.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Response {
    #[serde(default)]
    pub(super) status: Text,
    #[serde(default)]
    pub(super) error: Option<Value>,
    #[serde(default)]
    pub(super) incomplete_details: Option<Incomplete>,
    /// Items as they are: some have to go back unchanged.
    #[serde(default)]
    pub(super) output: Option<Vec<Value>>,
    #[serde(default)]
    pub(super) usage: Option<WireUsage>,
    #[serde(default)]
    pub(super) model: Text,
}

/// Why an answer is not whole.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Incomplete {
    #[serde(default)]
    pub(super) reason: Text,
}

/// One event of a stream: the members of all kinds.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Event {
    #[serde(default, rename = "type")]
    pub(super) kind: Text,
    #[serde(default)]
    pub(super) response: Option<Response>,
    #[serde(default)]
    pub(super) output_index: Count,
    #[serde(default)]
    pub(super) item: Option<Map<String, Value>>,
    #[serde(default)]
    pub(super) delta: Text,
    #[serde(default)]
    pub(super) arguments: Json,
    /// Of the event `error`, beside its members `code` and `message`.
    #[serde(default)]
    pub(super) error: Option<Value>,
    #[serde(default)]
    pub(super) code: Text,
    #[serde(default)]
    pub(super) message: Text,
}

/// What was used.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub(super) struct WireUsage {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
    #[serde(default)]
    input_tokens_details: Option<Details>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Count,
}

impl WireUsage {
    /// `None` where it says nothing about either side.
    pub(super) fn read(self) -> Option<Usage> {
        if self.input_tokens.0.is_none() && self.output_tokens.0.is_none() {
            return None;
        }
        let cached = self.input_tokens_details.and_then(|details| details.cached_tokens.0).unwrap_or(0);
        Some(Usage { input: self.input_tokens.0.unwrap_or(0), cached, output: self.output_tokens.0.unwrap_or(0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_with_what_came_from_the_cache_and_is_none_where_nothing_is_said() {
        let usage = |json: &str| serde_json::from_str::<WireUsage>(json).unwrap().read();
        assert_eq!(
            usage(r#"{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":5,"total_tokens":15}"#),
            Some(Usage { input: 10, cached: 4, output: 5 })
        );
        assert_eq!(usage(r#"{"output_tokens":5,"input_tokens_details":null}"#), Some(Usage { output: 5, ..Usage::default() }));
        assert_eq!(usage(r#"{"total_tokens":3}"#), None);
    }
}
