//! Our conversation in the JSON of chat completions.
//!
//! Messages are encoded once and copied from then on; only the message that carries a notice is encoded anew, for this
//! one call. Every history is one that strict servers take: one system message, first; results directly behind their
//! calls, as text; arguments that are JSON.

use reqwest::Url;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::wire::Carry;
use crate::chat::{Form, Item, Message, RawCall, ToolChoice, ToolDeclaration};
use crate::dialect::{Ask, json, noticed};

/// Kept of arguments that are no JSON, in characters: enough for the model to see what it did.
const UNPARSED_CHARS_MAX: usize = 1_024;

/// Hosts that refuse `max_tokens` for their newer models.
const COMPLETION_TOKENS_HOSTS: [&str; 2] = ["openai.com", "openai.azure.com"];

/// How a provider wants to be told the most tokens of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputMember {
    /// `max_tokens`: nearly all.
    MaxTokens,
    /// `max_completion_tokens`: whose newer models refuse the other.
    MaxCompletionTokens,
}

impl OutputMember {
    /// What the server at this address wants.
    pub(super) fn wanted_by(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let is_of = |domain: &&str| host == *domain || host.strip_suffix(*domain).is_some_and(|rest| rest.ends_with('.'));
        if COMPLETION_TOKENS_HOSTS.iter().any(is_of) { Self::MaxCompletionTokens } else { Self::MaxTokens }
    }
}

/// The body of one request.
pub(super) fn body(ask: &Ask<'_>, stream: bool, output: OutputMember) -> Vec<u8> {
    let encode = |item: Item<'_>, out: &mut Vec<u8>| message(ask.target, item, None, out);
    ask.conversation.encoded(ask.target, encode, |encoding| {
        let all = encoding.bytes();
        let mut out = Vec::with_capacity(all.len() + 1_024);
        out.extend_from_slice(b"{\"model\":");
        json(&mut out, ask.model);
        out.extend_from_slice(b",\"messages\":[");
        match ask.notice.and_then(|notice| Some((notice, ask.conversation.notice_index()?))) {
            Some((notice, index)) => {
                let range = encoding.range(index);
                out.extend_from_slice(&all[..range.start]);
                message(ask.target, Item::Message(&ask.conversation.messages()[index]), Some(notice), &mut out);
                out.extend_from_slice(&all[range.end..]);
            }
            None => out.extend_from_slice(all),
        }
        out.push(b']');
        if !ask.tools.is_empty() {
            out.extend_from_slice(b",\"tools\":");
            out.extend_from_slice(ask.tools.encoded(Form::OpenAiChat, tools));
            if ask.tool_choice == ToolChoice::None {
                out.extend_from_slice(b",\"tool_choice\":\"none\"");
            }
        }
        out.extend_from_slice(match output {
            OutputMember::MaxTokens => b",\"max_tokens\":",
            OutputMember::MaxCompletionTokens => b",\"max_completion_tokens\":",
        });
        json(&mut out, &ask.max_output);
        if stream {
            out.extend_from_slice(b",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
        }
        out.push(b'}');
        out
    })
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(flatten)]
    carried: Map<String, Value>,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireFunction<'a>,
    #[serde(flatten)]
    carried: Map<String, Value>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    arguments: std::borrow::Cow<'a, str>,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: WireDeclaration<'a>,
}

#[derive(Serialize)]
struct WireDeclaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

fn message(target: &str, item: Item<'_>, notice: Option<&str>, out: &mut Vec<u8>) {
    match item {
        Item::System(text) => json(out, &plain("system", Some(text))),
        Item::Message(Message::User { text }) => json(out, &plain("user", Some(&noticed(text, notice)))),
        Item::Message(Message::Tool { call_id, text, .. }) => {
            json(out, &WireMessage { tool_call_id: Some(call_id), ..plain("tool", Some(&noticed(text, notice))) });
        }
        Item::Message(Message::Assistant { text, calls, carry }) => {
            let carry = carry.as_deref().and_then(|carry| serde_json::from_str::<Carry>(carry).ok()).filter(|carry| carry.by == target);
            let Carry { message: carried, calls: of_calls, .. } = carry.unwrap_or_default();
            let mut of_calls = of_calls.into_iter();
            let tool_calls = calls.iter().map(|call| wire_call(call, of_calls.next().unwrap_or_default())).collect();
            json(out, &WireMessage { tool_calls, carried, ..plain("assistant", text.as_deref()) });
        }
    }
}

fn plain<'a>(role: &'static str, content: Option<&'a str>) -> WireMessage<'a> {
    WireMessage { role, tool_call_id: None, content, tool_calls: Vec::new(), carried: Map::new() }
}

fn wire_call(call: &RawCall, carried: Map<String, Value>) -> WireCall<'_> {
    WireCall {
        id: &call.id,
        r#type: "function",
        function: WireFunction { name: &call.name, arguments: arguments(&call.arguments) },
        carried,
    }
}

/// Servers parse the arguments in a history and refuse all of it if they cannot.
fn arguments(text: &str) -> std::borrow::Cow<'_, str> {
    if text.trim().is_empty() {
        return "{}".into();
    }
    if serde_json::from_str::<IgnoredAny>(text).is_ok() {
        return text.into();
    }
    let kept: String = text.chars().take(UNPARSED_CHARS_MAX).collect();
    serde_json::json!({ "unparsed": kept }).to_string().into()
}

fn tools(declarations: &[ToolDeclaration]) -> Vec<u8> {
    let tools: Vec<_> = declarations
        .iter()
        .map(|tool| WireTool {
            r#type: "function",
            function: WireDeclaration { name: &tool.name, description: &tool.description, parameters: &tool.schema },
        })
        .collect();
    let mut out = Vec::new();
    json(&mut out, &tools);
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::chat::{Conversation, Tools};
    use crate::dialect::asked::{ask, conversation, tools};

    fn sent(ask: &Ask<'_>) -> Value {
        serde_json::from_slice(&body(ask, false, OutputMember::MaxTokens)).unwrap()
    }

    #[test]
    fn a_request_is_one_that_strict_servers_take() {
        let (c, none, target) = (conversation(None), Tools::none(), "t".into());
        assert_eq!(
            sent(&ask(&c, &none, &target)),
            json!({
                "model": "m",
                "messages": [
                    {"role": "system", "content": "be \"brief\""},
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": null, "tool_calls": [
                        {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{\"a\": 1}"}},
                        {"id": "2", "type": "function", "function": {"name": "look", "arguments": "{\"unparsed\":\"{\\\"a\\\"\"}"}},
                    ]},
                    {"role": "tool", "tool_call_id": "1", "content": "one"},
                    {"role": "tool", "tool_call_id": "2", "content": "two"},
                ],
                "max_tokens": 64,
            })
        );
    }

    #[test]
    fn tools_stay_declared_when_they_are_switched_off() {
        let (c, tools, target) = (conversation(None), tools(), "t".into());
        let declared =
            json!([{"type": "function", "function": {"name": "look", "description": "looks", "parameters": {"type": "object"}}}]);
        let auto = sent(&ask(&c, &tools, &target));
        assert_eq!((&auto["tools"], auto.get("tool_choice")), (&declared, None));
        let off = sent(&Ask { tool_choice: ToolChoice::None, ..ask(&c, &tools, &target) });
        assert_eq!((&off["tools"], &off["tool_choice"]), (&declared, &json!("none")));
    }

    #[test]
    fn a_notice_stands_inside_the_last_message_and_leaves_no_trace() {
        let (mut c, none, target) = (conversation(None), Tools::none(), "t".into());
        let plain = sent(&ask(&c, &none, &target));
        let told = sent(&Ask { notice: Some("hurry"), ..ask(&c, &none, &target) });
        assert_eq!(told["messages"][4]["content"], "two\n\nhurry");
        assert_eq!(told["messages"].as_array().unwrap().len(), 5, "never a message of its own");
        assert_eq!(sent(&ask(&c, &none, &target)), plain, "the next call does not repeat it");

        c.push_assistant(Some("done".into()), vec![], None);
        let told = sent(&Ask { notice: Some("hurry"), ..ask(&c, &none, &target) });
        assert_eq!(told["messages"][1]["content"], "hi\n\nhurry", "else at the end of the last words of the caller");
        c.push_user("more");
        let told = sent(&Ask { notice: Some("hurry"), ..ask(&c, &none, &target) });
        assert_eq!(told["messages"][6]["content"], "more\n\nhurry");
    }

    #[test]
    fn what_a_provider_wants_back_goes_to_it_and_to_nobody_else() {
        let carry = json!({"by": "t", "message": {"reasoning_content": "hm"}, "calls": [{"extra_content": {"sig": "s"}}]}).to_string();
        let mut c = Conversation::new("");
        c.push_user("hi");
        c.push_assistant(None, vec![RawCall::new("1", "look", "")], Some(carry.into()));
        c.push_tool_result("1", "look", "one");
        let none = Tools::none();
        let to = |target: &Arc<str>| sent(&ask(&c, &none, target))["messages"][1].clone();
        let call = json!({"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
        let mut echoed = call.clone();
        echoed["extra_content"] = json!({"sig": "s"});
        assert_eq!(to(&"t".into()), json!({"role": "assistant", "content": null, "tool_calls": [echoed], "reasoning_content": "hm"}));
        assert_eq!(to(&"u".into()), json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    }

    #[test]
    fn the_output_bound_is_named_as_the_host_wants_it() {
        let check = |url: &str, expected| assert_eq!(OutputMember::wanted_by(&Url::parse(url).unwrap()), expected, "{url}");
        check("http://127.0.0.1:9/v1/chat/completions", OutputMember::MaxTokens);
        check("https://api.openai.com/v1/chat/completions", OutputMember::MaxCompletionTokens);
        check("https://x.openai.azure.com/openai/v1/chat/completions", OutputMember::MaxCompletionTokens);
        check("https://notopenai.com/chat/completions", OutputMember::MaxTokens);
    }

    #[test]
    fn a_stream_asks_for_its_usage_and_the_output_bound_has_the_right_name() {
        let (c, none, target) = (conversation(None), Tools::none(), "t".into());
        let body = body(&ask(&c, &none, &target), true, OutputMember::MaxCompletionTokens);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
        assert_eq!((&body["stream"], &body["max_completion_tokens"], body.get("max_tokens")), (&json!(true), &json!(64), None));
    }
}
