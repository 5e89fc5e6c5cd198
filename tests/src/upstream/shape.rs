//! The three forms in which a model is asked and answers, and what the fake reads of a request in each.

use serde_json::{Value, json};

/// The form of a request to a model; the path says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// Chat completions.
    #[default]
    Chat,
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's Responses API.
    Responses,
}

/// One entry of a history, whatever its form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Words of the caller, or instructions.
    Words,
    /// A turn of the model, with the ids of its calls.
    Turn(Vec<String>),
    /// The result of a call: its id, and the text if there is one.
    Result(String, Option<String>),
}

impl Shape {
    /// All of them.
    pub const ALL: [Shape; 3] = [Shape::Chat, Shape::Messages, Shape::Responses];

    /// Its word in `models.*.dialect`.
    #[must_use]
    pub const fn dialect(self) -> &'static str {
        match self {
            Shape::Chat => "openai_chat",
            Shape::Messages => "anthropic",
            Shape::Responses => "openai_responses",
        }
    }

    /// Its path below an upstream's address.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Shape::Chat => super::CHAT_PATH,
            Shape::Messages => "/v1/messages",
            Shape::Responses => "/v1/responses",
        }
    }

    /// The form of what is asked under this target; `None` for what is no model.
    pub(super) fn of(target: &str) -> Option<Shape> {
        let path = target.split('?').next().unwrap_or_default();
        Shape::ALL.into_iter().find(|shape| shape.path() == path)
    }

    /// The names of the tools that a request offers.
    pub(super) fn offered(self, body: &Value) -> Vec<String> {
        let name = |tool: &Value| match self {
            Shape::Chat => tool["function"]["name"].as_str().map(str::to_owned),
            Shape::Messages | Shape::Responses => tool["name"].as_str().map(str::to_owned),
        };
        body["tools"].as_array().into_iter().flatten().filter_map(name).collect()
    }

    /// Whether a request leaves its model no tools.
    pub(super) fn are_tools_off(self, body: &Value) -> bool {
        let choice = match self {
            Shape::Chat | Shape::Responses => &body["tool_choice"],
            Shape::Messages => &body["tool_choice"]["type"],
        };
        choice == "none" || body["tools"].as_array().is_none_or(Vec::is_empty)
    }

    /// The history that a request carries.
    ///
    /// # Errors
    /// With what its form forbids, in words.
    pub(super) fn history(self, body: &Value) -> Result<Vec<Said>, String> {
        match self {
            Shape::Chat => chat(list(body, "messages")?),
            Shape::Messages => messages(list(body, "messages")?),
            Shape::Responses => Ok(responses(list(body, "input")?)),
        }
    }

    /// The error body of a status.
    pub(super) fn error(self, status: u16) -> Value {
        let message = format!("the fake answers {status}");
        let kind = self.error_kind(status);
        match self {
            Shape::Chat | Shape::Responses => json!({"error": {"message": message, "type": kind, "param": null, "code": kind}}),
            Shape::Messages => json!({"type": "error", "error": {"type": kind, "message": message}}),
        }
    }

    fn error_kind(self, status: u16) -> &'static str {
        match (self, status) {
            (Shape::Chat | Shape::Responses, 401) => "invalid_api_key",
            (Shape::Chat | Shape::Responses, 402) => "insufficient_quota",
            (Shape::Chat | Shape::Responses, 404) => "model_not_found",
            (Shape::Chat | Shape::Responses, 429) => "rate_limit_exceeded",
            (Shape::Responses, 503 | 529) => "server_is_overloaded",
            (Shape::Chat | Shape::Responses, 500..) => "server_error",
            (Shape::Messages, 401) => "authentication_error",
            (Shape::Messages, 402) => "billing_error",
            (Shape::Messages, 404) => "not_found_error",
            (Shape::Messages, 429) => "rate_limit_error",
            (Shape::Messages, 503 | 529) => "overloaded_error",
            (Shape::Messages, 500..) => "api_error",
            (Shape::Chat | Shape::Messages | Shape::Responses, _) => "invalid_request_error",
        }
    }
}

fn list<'a>(body: &'a Value, name: &str) -> Result<&'a [Value], String> {
    body[name].as_array().map(Vec::as_slice).ok_or_else(|| format!("`{name}` is no list"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What a result says: a text, or parts in their JSON.
fn content(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(_) => Some(value.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn chat(messages: &[Value]) -> Result<Vec<Said>, String> {
    let mut history = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let calls: Vec<String> = message["tool_calls"].as_array().into_iter().flatten().map(|call| text(&call["id"])).collect();
        history.push(match message["role"].as_str().unwrap_or("(none)") {
            "tool" => Said::Result(text(&message["tool_call_id"]), content(&message["content"])),
            "assistant" => Said::Turn(calls),
            role if !calls.is_empty() => return Err(format!("message {at} ({role}) has a call and is of the wrong role")),
            _ => Said::Words,
        });
    }
    Ok(history)
}

/// Roles alternate, no message and no text is empty, and results stand before words.
fn messages(messages: &[Value]) -> Result<Vec<Said>, String> {
    let mut history = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != expected {
            return Err(format!("message {at} is not of the role `{expected}`"));
        }
        let blocks = list(message, "content")?;
        if blocks.is_empty() {
            return Err(format!("message {at} has no content"));
        }
        let of_kind = |kind: &'static str| blocks.iter().filter(move |block| block["type"] == kind);
        if of_kind("text").any(|block| text(&block["text"]).trim().is_empty()) {
            return Err(format!("message {at} has a blank text"));
        }
        if expected == "assistant" {
            history.push(Said::Turn(of_kind("tool_use").map(|block| text(&block["id"])).collect()));
            continue;
        }
        let results = of_kind("tool_result").count();
        if blocks.iter().take(results).any(|block| block["type"] != "tool_result") {
            return Err(format!("message {at} has words before its results"));
        }
        history.extend(of_kind("tool_result").map(|block| Said::Result(text(&block["tool_use_id"]), content(&block["content"]))));
        if results < blocks.len() {
            history.push(Said::Words);
        }
    }
    Ok(history)
}

/// A turn is what stands together of words, reasoning and calls.
fn responses(items: &[Value]) -> Vec<Said> {
    let mut history: Vec<Said> = Vec::new();
    for item in items {
        let call = match (item["type"].as_str().unwrap_or("message"), item["role"].as_str()) {
            ("function_call_output", _) => {
                history.push(Said::Result(text(&item["call_id"]), content(&item["output"])));
                continue;
            }
            ("function_call", _) => Some(text(&item["call_id"])),
            ("message", Some("assistant")) | ("reasoning", _) => None,
            _ => {
                history.push(Said::Words);
                continue;
            }
        };
        if let Some(Said::Turn(calls)) = history.last_mut() {
            calls.extend(call);
        } else {
            history.push(Said::Turn(call.into_iter().collect()));
        }
    }
    history
}
