//! A session as chunks of a chat completion: the role first, text, the reason of its end, the usage if asked for, `[DONE]`.
//!
//! What the agent says before it calls tools comes first, an empty line between turns. An error after the head of the
//! answer is one `data: {"error": ..}`, and nothing follows it.

use ambit_core::{Reason, Status};
use ambit_orchestrator::{Followed, Said, SessionView};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::http::openai::Failure;
use crate::http::openai::chat::object::{ChatUsage, Head, finish_reason};
use crate::http::openai::items::{Change, Items};
use crate::http::problem::Problem;
use crate::http::sse::Speech;
use crate::http::types::{Include, SessionObject};

/// Between the texts of two turns.
const BETWEEN: &str = "\n\n";

/// What one reader is told.
pub(crate) struct Chunks {
    head: Head,
    items: Items,
    began: bool,
    include_usage: bool,
}

impl Chunks {
    pub(crate) fn new(view: &SessionView, include_usage: bool) -> Self {
        Self { head: Head::of(view, "chat.completion.chunk"), items: Items::new(view.id), began: false, include_usage }
    }

    fn delta(&self, delta: Value, finish_reason: Option<&str>) -> Map<String, Value> {
        self.chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason}]))
    }

    fn chunk(&self, choices: Value) -> Map<String, Value> {
        let mut chunk = match serde_json::to_value(&self.head) {
            Ok(Value::Object(head)) => head,
            Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | Err(_) => Map::new(),
        };
        chunk.insert("choices".into(), choices);
        if self.include_usage {
            chunk.insert("usage".into(), Value::Null);
        }
        chunk
    }

    fn text(&self, changes: Vec<Change>) -> Vec<Bytes> {
        let mut told = Vec::new();
        for change in changes {
            match change {
                // A turn opens with its first text.
                Change::Opened(0) | Change::Closed(_) => {}
                Change::Opened(_) => told.push(write(&self.delta(json!({"content": BETWEEN}), None))),
                Change::Said(_, text) => told.push(write(&self.delta(json!({"content": text}), None))),
            }
        }
        told
    }

    fn end(&self, view: &SessionView) -> Vec<Bytes> {
        if let Some(problem) = Problem::of_verdict(view) {
            return vec![write(&json!({"error": problem.openai()}))];
        }
        if let Some(Failure { code, message }) = Failure::of(view) {
            return vec![write(&json!({"error": {"message": message, "type": "server_error", "param": null, "code": code}}))];
        }
        let mut last = self.delta(json!({}), Some(finish_reason(view)));
        last.insert("ambit".into(), serde_json::to_value(SessionObject::of(view, Include::default())).unwrap_or_default());
        let mut told = vec![write(&last)];
        if self.include_usage {
            let mut usage = self.chunk(json!([]));
            usage.insert("usage".into(), serde_json::to_value(ChatUsage::of(view)).unwrap_or_default());
            told.push(write(&usage));
        }
        told.push(Bytes::from_static(b"data: [DONE]\n\n"));
        told
    }
}

impl Speech for Chunks {
    fn say(&mut self, event: &Followed) -> Vec<Bytes> {
        let mut told = Vec::new();
        if !std::mem::replace(&mut self.began, true) {
            told.push(write(&self.delta(json!({"role": "assistant", "content": "", "refusal": null}), None)));
        }
        let changes = self.items.hear(event);
        told.extend(self.text(changes));
        if let (Said::Session(view), true) = (&event.said, event.terminal) {
            told.extend(self.end(view));
        }
        told
    }

    fn give_up(&mut self, status: Status, reason: Reason) -> Vec<Bytes> {
        let message = format!("the stream could not be read to its end: {status}, {reason}");
        vec![write(&json!({"error": {"message": message, "type": "server_error", "param": null, "code": "server_error"}}))]
    }
}

fn write(said: &impl serde::Serialize) -> Bytes {
    // JSON has no line feeds of its own: one data line.
    Bytes::from(format!("data: {}\n\n", serde_json::to_string(said).unwrap_or_default()))
}
