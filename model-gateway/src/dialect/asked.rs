//! What the tests of all dialects ask: one conversation with two calls, one of them with arguments that are no JSON.

use std::sync::Arc;

use serde_json::json;

use super::Ask;
use crate::chat::{Conversation, RawCall, ToolChoice, ToolDeclaration, Tools};

pub(super) fn ask<'a>(conversation: &'a Conversation, tools: &'a Tools, target: &'a Arc<str>) -> Ask<'a> {
    Ask { target, model: "m", conversation, tools, tool_choice: ToolChoice::Auto, notice: None, max_output: 64 }
}

pub(super) fn tools() -> Tools {
    Tools::new(vec![ToolDeclaration { name: "look".into(), description: "looks".into(), schema: Arc::new(json!({"type": "object"})) }])
}

/// The turn says `words` beside its calls.
pub(super) fn conversation(words: Option<&str>) -> Conversation {
    let mut c = Conversation::new("be \"brief\"");
    c.push_user("hi");
    c.push_assistant(words.map(Into::into), vec![RawCall::new("1", "look", "{\"a\": 1}"), RawCall::new("2", "look", "{\"a\"")], None);
    c.push_tool_result("1", "look", "one");
    c.push_tool_result("2", "look", "two");
    c
}
