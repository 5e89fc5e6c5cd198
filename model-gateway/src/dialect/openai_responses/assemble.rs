//! Puts a turn together from a whole response or from the events of a stream.
//!
//! A response is a list of items. A stream adds an item under an index, adds to it, and repeats it whole when it is done; its
//! last event repeats all of them, and that is what counts. Where that event never comes, words alone are still an answer if
//! every item was done and the stream ended in good order; calls are not. Items that nobody here knows are skipped.

use std::collections::BTreeMap;

use ambit_core::session::FinishReason;
use serde_json::{Map, Value, json};

use super::NAME;
use super::wire::{Event, Response, WireUsage};
use crate::chat::RawCall;
use crate::dialect::carry::{self, Part};
use crate::dialect::provider::{Assembly, Brought, NoTurn, is_error};
use crate::dialect::{Answer, CALLS_KEPT};
use crate::usage::Usage;

/// A turn under way.
#[derive(Debug, Default)]
pub(super) struct ResponseAssembly {
    text: String,
    refusal: String,
    /// What else there is, by its index.
    items: BTreeMap<u64, Thing>,
    /// Items that were added and are not done, and those that are.
    open: u64,
    done: u64,
    /// The item of the last event, for events that name none.
    last: u64,
    /// True once there was any output, be it an empty list.
    begun: bool,
    /// As the response ended.
    finish: Option<FinishReason>,
    model: Option<String>,
    usage: Option<Usage>,
}

/// An item that is more than words.
#[derive(Debug)]
enum Thing {
    Call { id: String, name: String, arguments: String },
    Reasoning(Value),
}

impl ResponseAssembly {
    /// Takes what a response says of itself, whole or not.
    fn describe(&mut self, model: String, usage: Option<WireUsage>) {
        if !model.is_empty() {
            self.model = Some(model);
        }
        self.usage = usage.and_then(WireUsage::read).or(self.usage);
    }

    /// Takes the response as it ended: all of it, whatever came before.
    fn whole(&mut self, response: Response) -> Result<Brought, Value> {
        let Response { status, error, incomplete_details, output, usage, model } = response;
        self.describe(model.0, usage);
        if let Some(error) = error.filter(is_error) {
            return Err(error);
        }
        self.finish = match status.0.as_str() {
            "failed" | "cancelled" => return Err(json!({"message": format!("the response ended as `{}`", status.0)})),
            "incomplete" => Some(match incomplete_details.unwrap_or_default().reason.0.as_str() {
                "content_filter" => FinishReason::ContentFilter,
                // `max_output_tokens`, and whatever else may cut an answer off.
                _ => FinishReason::Length,
            }),
            // It says that it goes on: no end.
            "in_progress" | "queued" => None,
            _ => Some(FinishReason::Stop),
        };
        let mut brought = Brought { token: true, ..Brought::default() };
        if let Some(output) = output {
            self.begun = true;
            // Some servers leave out at the end what they have streamed.
            if !output.is_empty() {
                let all = Self::of_items(output);
                brought.call = all.has_calls();
                let (text, refusal) = (missing(&self.text, &all.text), missing(&self.refusal, &all.refusal));
                self.text.push_str(text);
                self.refusal.push_str(refusal);
                brought.text = [text, refusal].concat();
                (self.items, self.done, self.open) = (all.items, all.done, 0);
            }
        }
        Ok(brought)
    }

    fn of_items(items: Vec<Value>) -> Self {
        let mut all = Self::default();
        for (index, item) in items.into_iter().enumerate() {
            if let Value::Object(item) = item {
                let words = words(&item);
                all.text.push_str(&words.0);
                all.refusal.push_str(&words.1);
                all.put(index as u64, item);
                all.done += 1;
            }
        }
        all
    }

    fn has_calls(&self) -> bool {
        self.items.values().any(|item| matches!(item, Thing::Call { .. }))
    }

    /// Puts an item that is more than words at its place, in place of what stood there.
    fn put(&mut self, index: u64, item: Map<String, Value>) -> bool {
        let member = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let thing = match member("type").as_str() {
            "function_call" => Thing::Call { id: member("call_id"), name: member("name"), arguments: member("arguments") },
            "reasoning" => Thing::Reasoning(Value::Object(item)),
            _ => return false,
        };
        let is_call = matches!(thing, Thing::Call { .. });
        let n_calls = self.items.values().filter(|item| matches!(item, Thing::Call { .. })).count();
        if !is_call || n_calls < CALLS_KEPT || self.items.contains_key(&index) {
            self.items.insert(index, thing);
        }
        is_call
    }

    fn item_done(&mut self, index: u64, item: Map<String, Value>) -> Brought {
        self.begun = true;
        self.open = self.open.saturating_sub(1);
        self.done += 1;
        let call = self.put(index, item);
        // A finished item is a sign of life, reasoning that nobody may read included.
        Brought { call, token: true, ..Brought::default() }
    }

    fn arguments(&mut self, index: u64, change: impl FnOnce(&mut String)) -> Brought {
        if let Some(Thing::Call { arguments, .. }) = self.items.get_mut(&index) {
            change(arguments);
        }
        Brought { call: true, token: true, ..Brought::default() }
    }
}

impl Assembly for ResponseAssembly {
    type Whole = Response;
    type Event = Event;
    const NAME: &'static str = "response";

    fn take(&mut self, event: Event) -> Result<Brought, Value> {
        let Event { kind, response, output_index, item, delta, arguments, error, code, message } = event;
        let added = kind.0 == "response.output_item.added";
        let index = output_index.0.unwrap_or(if added { self.open + self.done } else { self.last });
        self.last = index;
        if kind.0 == "error" || error.as_ref().is_some_and(is_error) {
            return Err(error.filter(is_error).unwrap_or_else(|| json!({"code": code.0, "message": message.0})));
        }
        Ok(match kind.0.as_str() {
            "ping" | "keepalive" => Brought { idle: true, ..Brought::default() },
            "response.completed" | "response.incomplete" | "response.failed" => {
                let mut response = response.unwrap_or_default();
                // The event's own name counts where the response does not say how it ended.
                if response.status.0.is_empty() || response.status.0 == "in_progress" {
                    response.status.0 = kind.0.trim_start_matches("response.").to_owned();
                }
                Brought { end: true, ..self.whole(response)? }
            }
            "response.output_item.added" => {
                self.begun = true;
                self.open += 1;
                let call = self.put(index, item.unwrap_or_default());
                Brought { call, token: call, ..Brought::default() }
            }
            "response.output_item.done" => self.item_done(index, item.unwrap_or_default()),
            "response.output_text.delta" => {
                self.begun = true;
                self.text.push_str(&delta.0);
                Brought { token: !delta.0.is_empty(), text: delta.0, ..Brought::default() }
            }
            "response.refusal.delta" => {
                self.begun = true;
                self.refusal.push_str(&delta.0);
                Brought { token: !delta.0.is_empty(), text: delta.0, ..Brought::default() }
            }
            "response.function_call_arguments.delta" => self.arguments(index, |whole| whole.push_str(&delta.0)),
            "response.function_call_arguments.done" => self.arguments(index, |whole| *whole = arguments.0),
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                Brought { token: !delta.0.is_empty(), ..Brought::default() }
            }
            // `response.created` and its kin, parts, annotations, and whatever else is sent.
            _ => {
                if let Some(Response { model, usage, .. }) = response {
                    self.describe(model.0, usage);
                }
                Brought::default()
            }
        })
    }

    fn take_whole(&mut self, response: Response) -> Result<Brought, Value> {
        self.whole(response)
    }

    fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    fn usage(&self) -> Option<Usage> {
        self.usage
    }

    fn end(self, target: &str, marked: bool) -> Result<Answer, NoTurn> {
        if !self.begun {
            return Err(NoTurn::Nothing("no output"));
        }
        let is_whole = self.open == 0 && self.done > 0;
        let finish = match self.finish {
            Some(FinishReason::Stop) if self.text.is_empty() && !self.refusal.is_empty() => FinishReason::Refusal,
            Some(finish) => finish,
            None if is_whole && (marked || !self.has_calls()) => FinishReason::Stop,
            None => return Err(NoTurn::Cut),
        };
        let (mut calls, mut reasoning) = (Vec::new(), Vec::new());
        for item in self.items.into_values() {
            match item {
                Thing::Call { id, name, arguments } => calls.push(RawCall::new(id, name, arguments)),
                Thing::Reasoning(value) if can_go_back(&value) => reasoning.push(Part { behind: calls.len(), value }),
                Thing::Reasoning(_) => {}
            }
        }
        let carry = carry::keep(target, NAME, reasoning, calls.len());
        let text = if self.text.is_empty() { self.refusal } else { self.text };
        Ok(Answer { text, calls, carry, finish, model: self.model, usage: self.usage })
    }
}

/// What was not yet said of the whole. Words that somebody may have read stay as they were: where the whole says others, they
/// count.
fn missing<'a>(said: &str, whole: &'a str) -> &'a str {
    whole.strip_prefix(said).unwrap_or_default()
}

/// Words and refusal of a message.
fn words(item: &Map<String, Value>) -> (String, String) {
    let mut words = (String::new(), String::new());
    let parts = item.get("content").and_then(Value::as_array).filter(|_| item.get("type").and_then(Value::as_str) == Some("message"));
    for part in parts.into_iter().flatten() {
        let member = |name: &str| part.get(name).and_then(Value::as_str).unwrap_or_default();
        match member("type") {
            "output_text" | "text" => words.0.push_str(member("text")),
            "refusal" => words.1.push_str(member("refusal")),
            _ => {}
        }
    }
    words
}

/// True for reasoning that says something without its id, which means nothing where nothing is stored.
fn can_go_back(reasoning: &Value) -> bool {
    let has_text = |name: &str| reasoning.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    has_text("encrypted_content") || reasoning.get("content").and_then(Value::as_array).is_some_and(|content| !content.is_empty())
}
