//! A completion by its meaning, written out plain or as a stream; here in the form of chat completions, in two others by
//! [`super::messages`] and [`super::responses`].

use bytes::Bytes;
use serde_json::{Value, json};

use super::shape::Shape;
use super::{messages, responses};

/// Unix seconds in every completion: fixed, so that two runs send the same bytes.
const CREATED: u64 = 1_750_000_000;

/// A tool call that the model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its id; `{{n}}` becomes the number of the arrival.
    pub id: String,
    /// The tool's name. `*tail` becomes the first name that the request offers and that ends with `tail`: names of MCP tools
    /// are given by Ambit.
    pub name: String,
    /// The arguments as the model wrote them, perhaps no JSON; `{{n}}` becomes the number of the arrival.
    pub arguments: String,
}

impl Call {
    /// A call with an id that is unique for the arrival (the place in the list is added when it is written).
    #[must_use]
    pub fn new(name: &str, arguments: &Value) -> Call {
        Call::raw(name, &arguments.to_string())
    }

    /// A call with arguments as they are.
    #[must_use]
    pub fn raw(name: &str, arguments: &str) -> Call {
        Call { id: "call_{{n}}_{{k}}".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    /// With this id.
    #[must_use]
    pub fn id(mut self, id: &str) -> Call {
        self.id = id.to_owned();
        self
    }
}

/// When a stream carries its usage chunk (empty `choices`, before `[DONE]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UsageChunk {
    /// If `stream_options.include_usage` asked for it.
    #[default]
    Asked,
    /// Whatever was asked.
    Always,
    /// Whatever was asked.
    Never,
}

/// Line ends of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LineEnd {
    /// One line feed.
    #[default]
    Lf,
    /// Carriage return and line feed.
    CrLf,
    /// One carriage return.
    Cr,
}

impl LineEnd {
    pub(super) fn text(self) -> &'static str {
        match self {
            LineEnd::Lf => "\n",
            LineEnd::CrLf => "\r\n",
            LineEnd::Cr => "\r",
        }
    }
}

/// A completion. Each piece of text is one chunk of a stream; arguments go out in two chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The text, in the pieces in which it is streamed.
    pub pieces: Vec<String>,
    /// The calls.
    pub calls: Vec<Call>,
    /// The finish reason, known or not. `None`: null, and a stream has no last chunk.
    pub finish: Option<String>,
    /// Prompt and completion tokens.
    pub usage: Option<(u64, u64)>,
    /// When a stream carries the usage.
    pub usage_chunk: UsageChunk,
    /// Whether a stream ends with `[DONE]`.
    pub done: bool,
    /// Line ends of a stream.
    pub line_end: LineEnd,
    /// The error that a stream breaks off with in place of an end, by its status. A plain answer is then that error.
    pub breaks: Option<u16>,
}

/// What the renderer needs to know of the request.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// In which form.
    pub(super) shape: Shape,
    /// Number of the arrival on its route, from 0.
    pub(super) nth: usize,
    /// `stream: true`.
    pub(super) stream: bool,
    /// `stream_options.include_usage: true`.
    pub(super) usage: bool,
    /// The model it named.
    pub(super) model: String,
    /// The names of the tools it offered.
    pub(super) offered: Vec<String>,
}

impl Asked {
    pub(super) fn of(nth: usize, shape: Shape, body: Option<&Value>) -> Asked {
        let Some(body) = body else { return Asked { nth, shape, ..Asked::default() } };
        Asked {
            shape,
            nth,
            stream: body["stream"] == true,
            usage: body["stream_options"]["include_usage"] == true,
            model: body["model"].as_str().unwrap_or("fake").to_owned(),
            offered: shape.offered(body),
        }
    }

    /// The name that the request offers for a pattern, or the pattern itself.
    fn named(&self, name: &str) -> String {
        let offered = name.strip_prefix('*').and_then(|tail| self.offered.iter().find(|offered| offered.ends_with(tail)));
        offered.map_or(name, String::as_str).to_owned()
    }
}

impl Reply {
    /// A text, streamed word by word.
    #[must_use]
    pub fn text(text: &str) -> Reply {
        Reply::pieces(text.split_inclusive(' '))
    }

    /// A text in these pieces.
    #[must_use]
    pub fn pieces<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Reply {
        Reply {
            pieces: pieces.into_iter().map(str::to_owned).collect(),
            calls: Vec::new(),
            finish: Some("stop".to_owned()),
            usage: Some((10, 5)),
            usage_chunk: UsageChunk::Asked,
            done: true,
            line_end: LineEnd::Lf,
            breaks: None,
        }
    }

    /// Calls without text.
    #[must_use]
    pub fn calls(calls: impl IntoIterator<Item = Call>) -> Reply {
        Reply { calls: calls.into_iter().collect(), finish: Some("tool_calls".to_owned()), ..Reply::pieces(std::iter::empty()) }
    }

    /// With this text before the calls.
    #[must_use]
    pub fn saying(mut self, text: &str) -> Reply {
        self.pieces = text.split_inclusive(' ').map(str::to_owned).collect();
        self
    }

    pub(super) fn numbered(&self, asked: &Asked) -> Vec<Call> {
        let fill = |text: &str, k: usize| text.replace("{{n}}", &asked.nth.to_string()).replace("{{k}}", &k.to_string());
        let number =
            |(k, call): (usize, &Call)| Call { id: fill(&call.id, k), name: asked.named(&call.name), arguments: fill(&call.arguments, k) };
        self.calls.iter().enumerate().map(number).collect()
    }

    fn usage_json(&self) -> Value {
        match self.usage {
            Some((input, output)) => {
                json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
            }
            None => Value::Null,
        }
    }

    /// Whether a stream tells its usage, given whether the request asked for it.
    pub(super) fn tells_usage(&self, asked: bool) -> bool {
        match self.usage_chunk {
            UsageChunk::Asked => asked,
            UsageChunk::Always => true,
            UsageChunk::Never => false,
        }
    }

    /// The whole completion in the form that was asked for.
    pub(super) fn plain(&self, asked: &Asked) -> Bytes {
        let whole = match (self.breaks, asked.shape) {
            (Some(status), shape) => shape.error(status),
            (None, Shape::Chat) => self.completion(asked),
            (None, Shape::Messages) => messages::plain(self, asked),
            (None, Shape::Responses) => responses::plain(self, asked),
        };
        Bytes::from(whole.to_string())
    }

    /// The completion as the events of a stream in the form that was asked for, one piece each.
    pub(super) fn streamed(&self, asked: &Asked) -> Vec<Bytes> {
        match asked.shape {
            Shape::Chat => self.chunks(asked),
            Shape::Messages => messages::streamed(self, asked),
            Shape::Responses => responses::streamed(self, asked),
        }
    }

    fn completion(&self, asked: &Asked) -> Value {
        let text = self.pieces.concat();
        let calls = self.numbered(asked);
        let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { Value::from(text) };
        let mut message = json!({"role": "assistant", "content": content});
        if !calls.is_empty() {
            message["tool_calls"] = calls.iter().map(plain_call).collect();
        }
        let mut completion = json!({
            "id": format!("chatcmpl-{}", asked.nth), "object": "chat.completion", "created": CREATED, "model": asked.model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish}],
        });
        if self.usage.is_some() {
            completion["usage"] = self.usage_json();
        }
        completion
    }

    fn chunks(&self, asked: &Asked) -> Vec<Bytes> {
        let mut events = vec![self.chunk(asked, &json!({"role": "assistant", "content": ""}), None)];
        for piece in &self.pieces {
            events.push(self.chunk(asked, &json!({"content": piece}), None));
        }
        for (index, call) in self.numbered(asked).iter().enumerate() {
            let (head, tail) = halves(&call.arguments);
            let first = json!({"tool_calls": [{"index": index, "id": call.id, "type": "function",
                "function": {"name": call.name, "arguments": head}}]});
            let second = json!({"tool_calls": [{"index": index, "function": {"arguments": tail}}]});
            events.push(self.chunk(asked, &first, None));
            events.push(self.chunk(asked, &second, None));
        }
        if let Some(status) = self.breaks {
            events.push(self.event(&asked.shape.error(status).to_string()));
            return events;
        }
        if let Some(reason) = &self.finish {
            events.push(self.chunk(asked, &json!({}), Some(reason)));
        }
        if self.tells_usage(asked.usage) && self.usage.is_some() {
            let mut chunk = skeleton(asked);
            chunk["choices"] = json!([]);
            chunk["usage"] = self.usage_json();
            events.push(self.event(&chunk.to_string()));
        }
        if self.done {
            events.push(self.event("[DONE]"));
        }
        events
    }

    fn chunk(&self, asked: &Asked, delta: &Value, finish: Option<&str>) -> Bytes {
        let mut chunk = skeleton(asked);
        chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        self.event(&chunk.to_string())
    }

    fn event(&self, data: &str) -> Bytes {
        let end = self.line_end.text();
        Bytes::from(format!("data: {data}{end}{end}"))
    }
}

fn skeleton(asked: &Asked) -> Value {
    json!({"id": format!("chatcmpl-{}", asked.nth), "object": "chat.completion.chunk", "created": CREATED, "model": asked.model})
}

fn plain_call(call: &Call) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}

/// Cuts a text near its middle, on a character boundary.
pub(super) fn halves(text: &str) -> (&str, &str) {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle -= 1;
    }
    text.split_at(middle)
}
