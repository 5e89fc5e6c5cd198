//! Our conversation in the JSON of the Responses API: a list of items, of which one message of ours may be several.
//!
//! Items are encoded once and copied from then on; only the message that carries a notice is encoded anew, for this one
//! call. Nothing is kept on the other side (`store: false`), so that each request tells all, the provider's own reasoning in
//! encrypted form included.

use std::borrow::Cow;

use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::NAME;
use crate::chat::{Form, Item, Message, RawCall, ToolChoice, ToolDeclaration};
use crate::dialect::carry::{self, Part};
use crate::dialect::provider::tool_name;
use crate::dialect::{Ask, json, noticed};

/// Kept of arguments that are no JSON, in characters: enough for the model to see what it did.
const UNPARSED_CHARS_MAX: usize = 1_024;
/// Beginnings of names of models that do not reason: asked for their encrypted reasoning they refuse the request.
const WITHOUT_REASONING: [&str; 3] = ["gpt-3", "gpt-4", "chatgpt-4"];

/// The body of one request.
pub(super) fn body(ask: &Ask<'_>, stream: bool) -> Vec<u8> {
    let encode = |item: Item<'_>, out: &mut Vec<u8>| match item {
        // Told beside the items.
        Item::System(_) => {}
        Item::Message(message) => items(ask.target, message, None, out),
    };
    ask.conversation.encoded(ask.target, encode, |encoding| {
        let all = encoding.bytes();
        let mut out = Vec::with_capacity(all.len() + 1_024);
        out.extend_from_slice(b"{\"model\":");
        json(&mut out, ask.model);
        out.extend_from_slice(b",\"store\":false");
        if !ask.conversation.system().is_empty() {
            out.extend_from_slice(b",\"instructions\":");
            json(&mut out, &**ask.conversation.system());
        }
        out.extend_from_slice(b",\"input\":[");
        match ask.notice.and_then(|notice| Some((notice, ask.conversation.notice_index()?))) {
            Some((notice, index)) => {
                let range = encoding.range(index);
                out.extend_from_slice(&all[..range.start]);
                items(ask.target, &ask.conversation.messages()[index], Some(notice), &mut out);
                out.extend_from_slice(&all[range.end..]);
            }
            None => out.extend_from_slice(all),
        }
        out.push(b']');
        if !ask.tools.is_empty() {
            out.extend_from_slice(b",\"tools\":");
            out.extend_from_slice(ask.tools.encoded(Form::OpenAiResponses, tools));
            out.extend_from_slice(b",\"parallel_tool_calls\":true");
            if ask.tool_choice == ToolChoice::None {
                out.extend_from_slice(b",\"tool_choice\":\"none\"");
            }
        }
        if may_reason(ask.model) {
            out.extend_from_slice(b",\"include\":[\"reasoning.encrypted_content\"]");
        }
        out.extend_from_slice(b",\"max_output_tokens\":");
        json(&mut out, &ask.max_output);
        if stream {
            out.extend_from_slice(b",\"stream\":true");
        }
        out.push(b'}');
        out
    })
}

/// Judged by the name under the words around it: `ft:` of tuned models, and what gateways put before a `/`.
fn may_reason(model: &str) -> bool {
    let model = model.strip_prefix("ft:").unwrap_or(model);
    let model = model.rsplit_once('/').map_or(model, |(_, name)| name);
    let model = model.strip_prefix("ft:").unwrap_or(model);
    let is_chat = model.starts_with("gpt-5") && model.contains("-chat");
    !is_chat && !WITHOUT_REASONING.iter().any(|beginning| model.starts_with(beginning))
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    /// Strict is the default there, and refuses most schemas.
    strict: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireItem<'a> {
    Message {
        role: &'static str,
        content: Cow<'a, str>,
    },
    FunctionCall {
        call_id: &'a str,
        name: Cow<'a, str>,
        arguments: Cow<'a, str>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: Cow<'a, str>,
    },
    /// As the provider wrote it.
    #[serde(untagged)]
    Carried(Value),
}

/// Appends the items of one message, separated by commas; at least one.
fn items(target: &str, message: &Message, notice: Option<&str>, out: &mut Vec<u8>) {
    let items = match message {
        Message::User { text } => vec![WireItem::Message { role: "user", content: noticed(text, notice) }],
        Message::Tool { call_id, text, .. } => vec![WireItem::FunctionCallOutput { call_id, output: noticed(text, notice) }],
        Message::Assistant { text, calls, carry } => turn(text.as_deref(), calls, carry::of(carry.as_deref(), target, NAME)),
    };
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json(out, item);
    }
}

/// A turn of the model: first its first reasoning, the words behind it, and the rest where it stood between calls.
fn turn<'a>(text: Option<&'a str>, calls: &'a [RawCall], reasoning: Vec<Part>) -> Vec<WireItem<'a>> {
    let mut reasoning = reasoning.into_iter().peekable();
    let mut reasoning_before = |call: usize| reasoning.next_if(|part| part.behind <= call).map(|part| WireItem::Carried(part.value));
    let mut items: Vec<WireItem<'_>> = std::iter::from_fn(|| reasoning_before(0)).collect();
    if let Some(text) = text {
        items.push(WireItem::Message { role: "assistant", content: text.into() });
    }
    for (index, call) in calls.iter().enumerate() {
        items.extend(std::iter::from_fn(|| reasoning_before(index)));
        items.push(WireItem::FunctionCall { call_id: &call.id, name: tool_name(&call.name), arguments: arguments(&call.arguments) });
    }
    items
}

/// Servers parse the arguments in a history and refuse all of it if they cannot.
fn arguments(text: &str) -> Cow<'_, str> {
    if text.trim().is_empty() {
        return "{}".into();
    }
    if serde_json::from_str::<IgnoredAny>(text).is_ok() {
        return text.into();
    }
    let kept: String = text.chars().take(UNPARSED_CHARS_MAX).collect();
    json!({ "unparsed": kept }).to_string().into()
}

fn tools(declarations: &[ToolDeclaration]) -> Vec<u8> {
    let tools: Vec<_> = declarations
        .iter()
        .map(|tool| WireTool {
            r#type: "function",
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.schema,
            strict: false,
        })
        .collect();
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
    fn a_request_is_one_that_strict_servers_take() {
        let (c, none, target) = (conversation(Some("so")), Tools::none(), "t".into());
        assert_eq!(
            sent(&ask(&c, &none, &target)),
            json!({
                "model": "m", "store": false, "instructions": "be \"brief\"",
                "input": [
                    {"type": "message", "role": "user", "content": "hi"},
                    {"type": "message", "role": "assistant", "content": "so"},
                    {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{\"a\": 1}"},
                    {"type": "function_call", "call_id": "2", "name": "look", "arguments": "{\"unparsed\":\"{\\\"a\\\"\"}"},
                    {"type": "function_call_output", "call_id": "1", "output": "one"},
                    {"type": "function_call_output", "call_id": "2", "output": "two"},
                ],
                "include": ["reasoning.encrypted_content"], "max_output_tokens": 64,
            })
        );
    }

    #[test]
    fn tools_stay_declared_when_they_are_switched_off() {
        let (c, tools, target) = (conversation(Some("so")), tools(), "t".into());
        let declared =
            json!([{"type": "function", "name": "look", "description": "looks", "parameters": {"type": "object"}, "strict": false}]);
        let auto = sent(&ask(&c, &tools, &target));
        assert_eq!((&auto["tools"], &auto["parallel_tool_calls"], auto.get("tool_choice")), (&declared, &json!(true), None));
        let off = sent(&Ask { tool_choice: ToolChoice::None, ..ask(&c, &tools, &target) });
        assert_eq!((&off["tools"], &off["tool_choice"]), (&declared, &json!("none")));
    }

    #[test]
    fn a_notice_stands_inside_the_last_item_and_leaves_no_trace() {
        let (mut c, none, target) = (conversation(Some("so")), Tools::none(), "t".into());
        let plain = sent(&ask(&c, &none, &target));
        let told = sent(&Ask { notice: Some("hurry"), ..ask(&c, &none, &target) });
        assert_eq!(told["input"][5]["output"], "two\n\nhurry");
        assert_eq!(told["input"].as_array().unwrap().len(), 6, "never an item of its own");
        assert_eq!(sent(&ask(&c, &none, &target)), plain, "the next call does not repeat it");
        c.push_assistant(Some("done".into()), vec![], None);
        let told = sent(&Ask { notice: Some("hurry"), ..ask(&c, &none, &target) });
        assert_eq!(told["input"][0]["content"], "hi\n\nhurry", "else at the end of the last words of the caller");
    }

    #[test]
    fn reasoning_goes_back_in_its_place_and_to_nobody_else() {
        let reasoning = |id: &str| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "e"});
        let parts = vec![Part { behind: 0, value: reasoning("a") }, Part { behind: 1, value: reasoning("b") }];
        let mut c = Conversation::new("");
        c.push_user("hi");
        let calls = vec![RawCall::new("1", "look", ""), RawCall::new("2", "look up", "")];
        c.push_assistant(Some("so".into()), calls, keep("t", NAME, parts, 2).map(Arc::from));
        let none = Tools::none();
        let to = |target: &Arc<str>| sent(&ask(&c, &none, target))["input"].as_array().unwrap()[1..].to_vec();
        let call = |id: &str, name: &str| json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"});
        let text = json!({"type": "message", "role": "assistant", "content": "so"});
        assert_eq!(to(&"t".into()), [reasoning("a"), text.clone(), call("1", "look"), reasoning("b"), call("2", "look_up")]);
        assert_eq!(to(&"u".into()), [text, call("1", "look"), call("2", "look_up")]);
    }

    #[test]
    fn encrypted_reasoning_is_asked_of_models_that_may_reason_and_a_stream_where_it_is_wanted() {
        let (c, none, target) = (conversation(Some("so")), Tools::none(), "t".into());
        for (model, asked) in [
            ("gpt-5-mini", true),
            ("o3", true),
            ("gpt-oss-20b", true),
            ("openai/gpt-5", true),
            ("ft:o4-mini:org::x", true),
            ("gpt-4.1", false),
            ("gpt-3.5-turbo", false),
            ("chatgpt-4o-latest", false),
            ("gpt-5-chat-latest", false),
            ("gpt-5.1-chat-latest", false),
            ("openai/gpt-4o", false),
            ("gateway/openai/gpt-5-chat", false),
            ("ft:gpt-4.1-mini:org::x", false),
            ("openai/ft:gpt-4.1-mini:org::x", false),
        ] {
            assert_eq!(sent(&Ask { model, ..ask(&c, &none, &target) }).get("include").is_some(), asked, "{model}");
        }
        let body: Value = serde_json::from_slice(&body(&ask(&c, &none, &target), true)).unwrap();
        assert_eq!(body["stream"], json!(true));
    }
}
