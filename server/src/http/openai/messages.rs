//! The conversation of a request, in either OpenAI form, as input of a session.
//!
//! Only the user's words are the user's: all else is quoted, and what an assistant or a tool is said to have said taints
//! the session, since nobody here heard it.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::http::body::{INPUT_ITEMS_MAX, Reader, pointer};
use crate::http::openai::quote::{Voice, quoted};

/// What a request says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Conversation {
    pub(crate) input: Vec<Arc<str>>,
    /// True if history is quoted.
    pub(crate) tainted: bool,
    /// True if items were left out that carry no words: reasoning of another model.
    pub(crate) left_out: bool,
}

impl Conversation {
    /// The caller's context.
    pub(crate) fn context(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.input.push(quoted(Voice::Context, text).into());
        }
    }

    fn history(&mut self, voice: Voice, text: &str) {
        self.tainted = true;
        if !text.trim().is_empty() {
            self.input.push(quoted(voice, text).into());
        }
    }

    /// Refuses what was read without an error, and says nothing.
    fn settle(&self, reader: &mut Reader, at: &str) {
        if self.input.is_empty() && reader.errors.is_empty() {
            reader.wrong(at, "says nothing");
        }
    }

    fn user(&mut self, reader: &mut Reader, text: String, at: &str) {
        if text.trim().is_empty() {
            reader.wrong(at, "is blank");
        } else {
            self.input.push(text.into());
        }
    }

    /// `input` of a response: a text, or items.
    pub(crate) fn items(&mut self, reader: &mut Reader, value: &Value, at: &str) {
        if let Some(text) = value.as_str() {
            self.user(reader, text.to_owned(), at);
            return;
        }
        for (item, at) in list(reader, value, at) {
            let Some(item) = reader.object(item, &at) else { continue };
            let kind = match item.get("type") {
                None | Some(Value::Null) => "message",
                Some(kind) => kind.as_str().unwrap_or_default(),
            };
            match kind {
                "message" => self.message(reader, item, &at),
                "function_call" => self.call(reader, item, item.get("call_id"), &at),
                "function_call_output" => {
                    if let Some(output) = content(reader, item.get("output"), &pointer(&at, "output")) {
                        self.history(Voice::ToolResult, &labelled(item.get("call_id"), &output));
                    }
                }
                "reasoning" => self.left_out = true,
                "item_reference" => reader.wrong(&pointer(&at, "type"), "items cannot be referred to; continue with previous_response_id"),
                _ => reader.wrong(
                    &pointer(&at, "type"),
                    "expected message, function_call, function_call_output or reasoning; other items are not taken",
                ),
            }
        }
        self.settle(reader, at);
    }

    /// `messages` of a chat completion.
    pub(crate) fn messages(&mut self, reader: &mut Reader, value: &Value, at: &str) {
        for (message, at) in list(reader, value, at) {
            if let Some(message) = reader.object(message, &at) {
                self.message(reader, message, &at);
            }
        }
        self.settle(reader, at);
    }

    fn message(&mut self, reader: &mut Reader, message: &Map<String, Value>, at: &str) {
        let place = pointer(at, "content");
        let words = message.get("content");
        match message.get("role").and_then(Value::as_str).unwrap_or_default() {
            "user" => {
                if let Some(text) = content(reader, words, &place) {
                    self.user(reader, text, &place);
                }
            }
            "system" | "developer" => self.context(&content(reader, words, &place).unwrap_or_default()),
            "assistant" => {
                // What an assistant asked of tools may stand without words.
                let text = words.filter(|words| !words.is_null()).and_then(|words| content(reader, Some(words), &place));
                self.history(Voice::Assistant, &text.unwrap_or_default());
                if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
                    self.calls(reader, calls, &pointer(at, "tool_calls"));
                }
            }
            "tool" | "function" => {
                if let Some(text) = content(reader, words, &place) {
                    self.history(Voice::ToolResult, &labelled(message.get("tool_call_id").or(message.get("name")), &text));
                }
            }
            _ => reader.wrong(&pointer(at, "role"), "expected one of user, system, developer, assistant, tool"),
        }
    }

    fn calls(&mut self, reader: &mut Reader, calls: &Value, at: &str) {
        for (call, at) in list(reader, calls, at) {
            let Some(call) = reader.object(call, &at) else { continue };
            let at = pointer(&at, "function");
            match call.get("function") {
                None => reader.wrong(&at, "is required"),
                Some(function) => {
                    if let Some(function) = reader.object(function, &at) {
                        self.call(reader, function, call.get("id"), &at);
                    }
                }
            }
        }
    }

    fn call(&mut self, reader: &mut Reader, call: &Map<String, Value>, id: Option<&Value>, at: &str) {
        let mut text = |key: &str| match call.get(key) {
            Some(Value::String(text)) => text.as_str(),
            Some(value) => {
                reader.expected(&pointer(at, key), "a string", value);
                ""
            }
            None => {
                reader.wrong(&pointer(at, key), "is required");
                ""
            }
        };
        let called = format!("{}({})", text("name"), text("arguments"));
        self.history(Voice::ToolCall, &labelled(id, &called));
    }
}

/// The elements of a list with their places.
fn list<'a>(reader: &mut Reader, value: &'a Value, at: &str) -> Vec<(&'a Value, String)> {
    match value.as_array() {
        None => reader.expected(at, "a list", value),
        Some(items) if items.is_empty() => reader.wrong(at, "is empty"),
        Some(items) if items.len() > INPUT_ITEMS_MAX => {
            reader.wrong(at, format!("has {} items, at most {INPUT_ITEMS_MAX} are taken", items.len()));
        }
        Some(items) => return items.iter().enumerate().map(|(index, item)| (item, pointer(at, &index.to_string()))).collect(),
    }
    Vec::new()
}

/// Text, or parts that are text.
fn content(reader: &mut Reader, value: Option<&Value>, at: &str) -> Option<String> {
    match value {
        None => {
            reader.wrong(at, "is required");
            None
        }
        Some(Value::String(text)) => Some(text.clone()),
        Some(value @ Value::Array(_)) => {
            let parts = list(reader, value, at);
            let texts: Vec<&str> = parts.iter().filter_map(|(part, at)| part_text(reader, part, at)).collect();
            // A list that was refused has no parts, and one with a part that was refused is short of it.
            (!parts.is_empty() && texts.len() == parts.len()).then(|| texts.concat())
        }
        Some(value) => {
            reader.expected(at, "a string or a list of parts", value);
            None
        }
    }
}

fn part_text<'a>(reader: &mut Reader, part: &'a Value, at: &str) -> Option<&'a str> {
    let part = reader.object(part, at)?;
    let member = match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text") => "text",
        Some("refusal") => "refusal",
        _ => {
            reader.wrong(&pointer(at, "type"), "only text can be given; images, audio and files are not taken");
            return None;
        }
    };
    match part.get(member) {
        Some(Value::String(piece)) => Some(piece),
        Some(value) => {
            reader.expected(&pointer(at, member), "a string", value);
            None
        }
        None => {
            reader.wrong(&pointer(at, member), "is required");
            None
        }
    }
}

/// A text behind the name that the caller gives it.
fn labelled(name: Option<&Value>, text: &str) -> String {
    match name.and_then(Value::as_str) {
        Some(name) => format!("{name}: {text}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(take: fn(&mut Conversation, &mut Reader, &Value, &str), value: &Value) -> (Conversation, Vec<String>) {
        let (mut conversation, mut reader) = (Conversation::default(), Reader::default());
        take(&mut conversation, &mut reader, value, "/in");
        (conversation, reader.errors.into_iter().map(|error| error.pointer).collect())
    }

    #[test]
    fn only_the_users_words_are_the_users() {
        let (said, errors) = read(
            Conversation::messages,
            &json!([
                {"role": "system", "content": "You are root."},
                {"role": "developer", "content": [{"type": "text", "text": "Obey."}]},
                {"role": "user", "content": "hi"},
            ]),
        );
        assert!(errors.is_empty() && !said.tainted, "{errors:?}");
        assert_eq!(&*said.input[0], quoted(Voice::Context, "You are root."));
        assert_eq!(&*said.input[1], quoted(Voice::Context, "Obey."));
        assert_eq!(&*said.input[2], "hi");
    }

    #[test]
    fn history_is_quoted_and_taints() {
        let (chat, errors) = read(
            Conversation::messages,
            &json!([
                {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "all is well\n> not"},
                {"role": "assistant", "content": "Well."},
                {"role": "user", "content": "and now?"},
            ]),
        );
        assert_eq!(errors, Vec::<String>::new());
        let (items, errors) = read(
            Conversation::items,
            &json!([
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "all is well\n> not"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well.", "annotations": []}]},
                {"role": "user", "content": [{"type": "input_text", "text": "and now?"}]},
            ]),
        );
        assert_eq!(errors, Vec::<String>::new());
        assert!(chat.tainted && items.tainted && items.left_out);
        assert_eq!(chat.input, items.input);
        assert_eq!(&*chat.input[0], quoted(Voice::ToolCall, "c1: look({})"));
        assert_eq!(&*chat.input[1], quoted(Voice::ToolResult, "c1: all is well\n> not"));
        assert_eq!(&*chat.input[3], "and now?");
    }

    #[test]
    fn what_is_no_text_is_refused_at_its_place() {
        let check = |take: fn(&mut Conversation, &mut Reader, &Value, &str), value: Value, places: &[&str]| {
            assert_eq!(read(take, &value).1, places, "{value}");
        };
        for part in ["image_url", "input_audio", "file", "input_image", "input_file"] {
            let content = json!([{"type": "text", "text": "see"}, {"type": part}]);
            check(Conversation::messages, json!([{"role": "user", "content": content}]), &["/in/0/content/1/type"]);
            check(Conversation::items, json!([{"role": "user", "content": content}]), &["/in/0/content/1/type"]);
        }
        check(Conversation::messages, json!([]), &["/in"]);
        check(Conversation::messages, json!("hi"), &["/in"]);
        check(Conversation::messages, json!([{"role": "root", "content": "x"}, 7]), &["/in/0/role", "/in/1"]);
        check(Conversation::messages, json!([{"role": "user", "content": " "}, {"role": "user"}]), &["/in/0/content", "/in/1/content"]);
        check(
            Conversation::messages,
            json!([{"role": "assistant", "tool_calls": [{"function": {}}, {}]}]),
            &["/in/0/tool_calls/0/function/name", "/in/0/tool_calls/0/function/arguments", "/in/0/tool_calls/1/function"],
        );
        check(Conversation::items, json!(""), &["/in"]);
        check(
            Conversation::items,
            json!([{"type": "item_reference", "id": "msg_1"}, {"type": "web_search_call"}]),
            &["/in/0/type", "/in/1/type"],
        );
    }

    #[test]
    fn what_says_nothing_is_refused() {
        let refused =
            |take: fn(&mut Conversation, &mut Reader, &Value, &str), value: Value| assert_eq!(read(take, &value).1, ["/in"], "{value}");
        for blank in [json!(""), json!(" \n"), json!([{"type": "text", "text": ""}])] {
            for role in ["system", "developer", "assistant"] {
                refused(Conversation::messages, json!([{"role": role, "content": blank}]));
                refused(Conversation::items, json!([{"role": role, "content": blank}]));
            }
        }
        refused(Conversation::messages, json!([{"role": "assistant", "content": null}]));
        refused(Conversation::items, json!([{"type": "reasoning", "id": "rs_1", "summary": []}]));
        assert_eq!(read(Conversation::messages, &json!([{"role": "system", "content": "Go."}])).1, Vec::<String>::new());
    }

    #[test]
    fn as_many_messages_as_natively_and_not_one_more() {
        let messages = |n: usize| json!(vec![json!({"role": "user", "content": "x"}); n]);
        assert_eq!(read(Conversation::messages, &messages(INPUT_ITEMS_MAX)).0.input.len(), INPUT_ITEMS_MAX);
        assert_eq!(read(Conversation::messages, &messages(INPUT_ITEMS_MAX + 1)).1, ["/in"]);
    }
}
