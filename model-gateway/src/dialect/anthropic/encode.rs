//! Our conversation in the JSON of the Messages API.
//!
//! Each of our messages is encoded once into blocks; the messages around the blocks are put there for each request, since
//! the API wants roles to alternate: everything between two turns of the model is one message of the user, its results
//! first. Only the message that carries a notice is encoded anew, for this one call.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::NAME;
use crate::chat::{Form, Item, Message, RawCall, ToolChoice, ToolDeclaration};
use crate::dialect::carry::{self, Part};
use crate::dialect::provider::tool_name;
use crate::dialect::{Ask, json, noticed};

/// Who says what lies between two turns of the model.
const USER: &str = "user";
/// The model.
const ASSISTANT: &str = "assistant";
/// Kept of arguments that are no object, in characters: enough for the model to see what it did.
const UNPARSED_CHARS_MAX: usize = 1_024;
/// In place of words that are blank, which the API refuses.
const BLANK: &str = "(nothing)";
/// Behind a turn of the model with which a history ends: the API takes such a turn for the beginning of its answer, or refuses.
const GO_ON: &str = "Go on.";

/// The body of one request.
pub(super) fn body(ask: &Ask<'_>, stream: bool) -> Vec<u8> {
    let encode = |item: Item<'_>, out: &mut Vec<u8>| match item {
        // Told beside the messages.
        Item::System(_) => {}
        Item::Message(message) => blocks(ask.target, message, None, out),
    };
    ask.conversation.encoded(ask.target, encode, |encoding| {
        let all = encoding.bytes();
        let mut out = Vec::with_capacity(all.len() + 1_024);
        out.extend_from_slice(b"{\"model\":");
        json(&mut out, ask.model);
        out.extend_from_slice(b",\"max_tokens\":");
        json(&mut out, &ask.max_output);
        if !ask.conversation.system().trim().is_empty() {
            out.extend_from_slice(b",\"system\":");
            json(&mut out, &**ask.conversation.system());
        }
        out.extend_from_slice(b",\"messages\":[");
        let notice = ask.notice.and_then(|notice| Some((ask.conversation.notice_index()?, notice)));
        let mut before = None;
        for (index, message) in ask.conversation.messages().iter().enumerate() {
            let role = role(message);
            if before == Some(role) {
                out.push(b',');
            } else {
                begin(role, before.is_some(), &mut out);
            }
            before = Some(role);
            match notice {
                Some((at, notice)) if at == index => blocks(ask.target, message, Some(notice), &mut out),
                Some(_) | None => out.extend_from_slice(&all[encoding.range(index)]),
            }
        }
        if before == Some(ASSISTANT) {
            begin(USER, true, &mut out);
            json(&mut out, &Block::Text { text: GO_ON.into() });
        }
        if before.is_some() {
            out.extend_from_slice(b"]}");
        }
        out.push(b']');
        if !ask.tools.is_empty() {
            out.extend_from_slice(b",\"tools\":");
            out.extend_from_slice(ask.tools.encoded(Form::Anthropic, tools));
            if ask.tool_choice == ToolChoice::None {
                out.extend_from_slice(b",\"tool_choice\":{\"type\":\"none\"}");
            }
        }
        if stream {
            out.extend_from_slice(b",\"stream\":true");
        }
        out.push(b'}');
        out
    })
}

/// Begins a message, and ends the one before it.
fn begin(role: &str, ends_another: bool, out: &mut Vec<u8>) {
    if ends_another {
        out.extend_from_slice(b"]},");
    }
    out.extend_from_slice(b"{\"role\":");
    json(out, role);
    out.extend_from_slice(b",\"content\":[");
}

const fn role(message: &Message) -> &'static str {
    match message {
        Message::User { .. } | Message::Tool { .. } => USER,
        Message::Assistant { .. } => ASSISTANT,
    }
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Map<String, Value>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Cow<'a, str>,
    },
    /// As the provider wrote it.
    #[serde(untagged)]
    Carried(Value),
}

/// Appends the blocks of one message, separated by commas; at least one.
fn blocks(target: &str, message: &Message, notice: Option<&str>, out: &mut Vec<u8>) {
    let blocks = match message {
        Message::User { text } => vec![Block::Text { text: worded(noticed(text, notice)) }],
        Message::Tool { call_id, text, .. } => {
            vec![Block::ToolResult { tool_use_id: call_name(call_id), content: worded(noticed(text, notice)) }]
        }
        Message::Assistant { text, calls, carry } => turn(text.as_deref(), calls, carry::of(carry.as_deref(), target, NAME)),
    };
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json(out, block);
    }
}

/// A turn of the model: what was thought first stands first, the words behind it, and the rest where it stood between calls.
fn turn<'a>(text: Option<&'a str>, calls: &'a [RawCall], thoughts: Vec<Part>) -> Vec<Block<'a>> {
    let mut thoughts = thoughts.into_iter().peekable();
    let mut thought_before = |call: usize| thoughts.next_if(|part| part.behind <= call).map(|part| Block::Carried(part.value));
    let mut blocks: Vec<Block<'_>> = std::iter::from_fn(|| thought_before(0)).collect();
    if let Some(text) = text.filter(|text| !text.trim().is_empty() || calls.is_empty()) {
        blocks.push(Block::Text { text: worded(text.into()) });
    }
    for (index, call) in calls.iter().enumerate() {
        blocks.extend(std::iter::from_fn(|| thought_before(index)));
        blocks.push(Block::ToolUse { id: call_name(&call.id), name: tool_name(&call.name), input: input(&call.arguments) });
    }
    blocks
}

/// Arguments have to be an object; what is none is shown to the model inside of one.
fn input(arguments: &str) -> Map<String, Value> {
    if arguments.trim().is_empty() {
        return Map::new();
    }
    serde_json::from_str(arguments).unwrap_or_else(|_| {
        let kept: String = arguments.chars().take(UNPARSED_CHARS_MAX).collect();
        Map::from_iter([("unparsed".to_owned(), json!(kept))])
    })
}

/// The API takes letters, digits, `_` and `-` in ids; one that another provider gave is written in hexadecimal digits, the
/// same in the call and in its result.
fn call_name(id: &str) -> Cow<'_, str> {
    if !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
        return id.into();
    }
    let mut name = "id_".to_owned();
    for byte in id.bytes() {
        // Writing into a text cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name.into()
}

fn worded(text: Cow<'_, str>) -> Cow<'_, str> {
    if text.trim().is_empty() { BLANK.into() } else { text }
}

fn tools(declarations: &[ToolDeclaration]) -> Vec<u8> {
    let tools: Vec<_> =
        declarations.iter().map(|tool| WireTool { name: &tool.name, description: &tool.description, input_schema: &tool.schema }).collect();
    let mut out = Vec::new();
    json(&mut out, &tools);
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::chat::{Conversation, Tools};
    use crate::dialect::asked::{ask, conversation, tools};
    use crate::dialect::carry::keep;

    fn sent(ask: &Ask<'_>) -> Value {
        serde_json::from_slice(&body(ask, false)).unwrap()
    }

    #[test]
    fn a_request_is_one_that_the_api_takes() {
        let (mut c, none, target) = (conversation(Some("so")), Tools::none(), "t".into());
        let one = json!({"type": "tool_result", "tool_use_id": "1", "content": "one"});
        let two = json!({"type": "tool_result", "tool_use_id": "2", "content": "two"});
        let mut messages = json!([
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "1", "name": "look", "input": {"a": 1}},
                {"type": "tool_use", "id": "2", "name": "look", "input": {"unparsed": "{\"a\""}},
            ]},
            {"role": "user", "content": [one, two]},
        ]);
        assert_eq!(sent(&ask(&c, &none, &target)), json!({"model": "m", "max_tokens": 64, "system": "be \"brief\"", "messages": messages}));

        c.push_user("go on");
        messages[2]["content"] = json!([one, two, {"type": "text", "text": "go on"}]);
        assert_eq!(sent(&ask(&c, &none, &target))["messages"], messages, "results first, and one message between two turns");
    }

    #[test]
    fn tools_stay_declared_when_they_are_switched_off() {
        let (c, tools, target) = (conversation(Some("so")), tools(), "t".into());
        let declared = json!([{"name": "look", "description": "looks", "input_schema": {"type": "object"}}]);
        let auto = sent(&ask(&c, &tools, &target));
        assert_eq!((&auto["tools"], auto.get("tool_choice")), (&declared, None));
        let off = sent(&Ask { tool_choice: ToolChoice::None, ..ask(&c, &tools, &target) });
        assert_eq!((&off["tools"], &off["tool_choice"]), (&declared, &json!({"type": "none"})));
    }

    #[test]
    fn a_notice_stands_inside_the_last_message_and_leaves_no_trace() {
        let (c, none, target) = (conversation(Some("so")), Tools::none(), "t".into());
        let plain = sent(&ask(&c, &none, &target));
        let told = sent(&Ask { notice: Some("hurry"), ..ask(&c, &none, &target) });
        assert_eq!(told["messages"][2]["content"][1]["content"], "two\n\nhurry");
        assert_eq!(told["messages"].as_array().unwrap().len(), 3, "never a message of its own");
        assert_eq!(sent(&ask(&c, &none, &target)), plain, "the next call does not repeat it");
    }

    #[test]
    fn what_was_thought_goes_back_in_its_place_and_to_nobody_else() {
        let thought = |signature: &str| json!({"type": "thinking", "thinking": "hm", "signature": signature});
        let parts = vec![Part { behind: 0, value: thought("a") }, Part { behind: 1, value: thought("b") }];
        let mut c = Conversation::new("");
        c.push_user("hi");
        let calls = vec![RawCall::new("1", "look", ""), RawCall::new("2", "look", "")];
        c.push_assistant(Some("so".into()), calls, keep("t", NAME, parts, 2).map(Arc::from));
        let none = Tools::none();
        let to = |target: &Arc<str>| sent(&ask(&c, &none, target))["messages"][1]["content"].clone();
        let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {}});
        let text = json!({"type": "text", "text": "so"});
        assert_eq!(to(&"t".into()), json!([thought("a"), text, call("1"), thought("b"), call("2")]));
        assert_eq!(to(&"u".into()), json!([text, call("1"), call("2")]));
    }

    #[test]
    fn what_the_api_would_refuse_is_never_sent() {
        let mut c = Conversation::new(" ");
        c.push_user(" ");
        c.push_assistant(Some("\n".into()), vec![RawCall::new("a.b", "look up", "[1]")], None);
        c.push_tool_result("a.b", "look up", "x");
        c.push_assistant(Some(" ".into()), vec![], None);
        let (none, target) = (Tools::none(), "t".into());
        let body = sent(&ask(&c, &none, &target));
        assert_eq!(body.get("system"), None);
        assert_eq!(
            body["messages"],
            json!([
                {"role": "user", "content": [{"type": "text", "text": BLANK}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "id_612e62", "name": "look_up", "input": {"unparsed": "[1]"}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "id_612e62", "content": "x"}]},
                {"role": "assistant", "content": [{"type": "text", "text": BLANK}]},
                {"role": "user", "content": [{"type": "text", "text": GO_ON}]},
            ])
        );
    }

    #[test]
    fn a_stream_is_asked_for_where_it_is_wanted() {
        let (c, none, target) = (conversation(Some("so")), Tools::none(), "t".into());
        let body: Value = serde_json::from_slice(&body(&ask(&c, &none, &target), true)).unwrap();
        assert_eq!(body["stream"], json!(true));
        assert_eq!(sent(&ask(&c, &none, &target)).get("stream"), None);
    }
}
