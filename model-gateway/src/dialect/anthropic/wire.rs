//! The answers of the Messages API, read leniently: what is missing, null or of an odd type is nothing, and what is unknown
//! is skipped.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::dialect::provider::{Count, Text};
use crate::usage::Usage;

/// A whole answer; also what `message_start` begins one with.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Message {
    /// Blocks as they are: some have to go back unchanged.
    #[serde(default)]
    pub(super) content: Option<Vec<Value>>,
    #[serde(default)]
    pub(super) stop_reason: Text,
    #[serde(default)]
    pub(super) model: Text,
    #[serde(default)]
    pub(super) usage: Option<WireUsage>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

/// One event of a stream: the members of all kinds.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Event {
    #[serde(default, rename = "type")]
    pub(super) kind: Text,
    #[serde(default)]
    pub(super) message: Option<Message>,
    #[serde(default)]
    pub(super) index: Count,
    #[serde(default)]
    pub(super) content_block: Option<Map<String, Value>>,
    #[serde(default)]
    pub(super) delta: Option<Delta>,
    #[serde(default)]
    pub(super) usage: Option<WireUsage>,
    #[serde(default)]
    pub(super) error: Option<Value>,
}

/// What an event adds to a block, or to the message.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Delta {
    #[serde(default)]
    pub(super) text: Text,
    #[serde(default)]
    pub(super) partial_json: Text,
    #[serde(default)]
    pub(super) thinking: Text,
    #[serde(default)]
    pub(super) signature: Text,
    #[serde(default)]
    pub(super) stop_reason: Text,
}

/// What was used. Each count is the whole so far, and those from and into the prompt cache stand beside the rest.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
pub(super) struct WireUsage {
    #[serde(default)]
    input_tokens: Count,
    #[serde(default)]
    cache_creation_input_tokens: Count,
    #[serde(default)]
    cache_read_input_tokens: Count,
    #[serde(default)]
    output_tokens: Count,
}

impl WireUsage {
    /// Takes over what a later report says.
    pub(super) fn update(&mut self, later: Self) {
        let Self { input_tokens, cache_creation_input_tokens, cache_read_input_tokens, output_tokens } = later;
        for (count, later) in [
            (&mut self.input_tokens, input_tokens),
            (&mut self.cache_creation_input_tokens, cache_creation_input_tokens),
            (&mut self.cache_read_input_tokens, cache_read_input_tokens),
            (&mut self.output_tokens, output_tokens),
        ] {
            count.0 = later.0.or(count.0);
        }
    }

    /// `None` where it says nothing about either side.
    pub(super) fn read(self) -> Option<Usage> {
        if self.input_tokens.0.is_none() && self.output_tokens.0.is_none() {
            return None;
        }
        let count = |count: Count| count.0.unwrap_or(0);
        let cached = count(self.cache_read_input_tokens);
        // What is written to the cache was read all the same.
        let input = count(self.input_tokens).saturating_add(count(self.cache_creation_input_tokens)).saturating_add(cached);
        Some(Usage { input, cached, output: count(self.output_tokens) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(json: &str) -> WireUsage {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn usage_counts_what_the_cache_took_and_gave() {
        let all = usage(r#"{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":4,"output_tokens":5}"#);
        assert_eq!(all.read(), Some(Usage { input: 17, cached: 4, output: 5 }));
        assert_eq!(usage(r#"{"input_tokens":10,"cache_read_input_tokens":null}"#).read(), Some(Usage { input: 10, ..Usage::default() }));
        assert_eq!(usage(r#"{"cache_read_input_tokens":4}"#).read(), None);
    }

    #[test]
    fn a_later_report_replaces_what_it_names_and_adds_nothing_up() {
        let mut counts = usage(r#"{"input_tokens":10,"cache_read_input_tokens":4,"output_tokens":1}"#);
        counts.update(usage(r#"{"output_tokens":9,"input_tokens":null}"#));
        counts.update(usage(r#"{"output_tokens":12}"#));
        assert_eq!(counts.read(), Some(Usage { input: 14, cached: 4, output: 12 }));
    }
}
