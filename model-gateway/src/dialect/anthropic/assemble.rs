//! Puts a turn together from a whole message or from the events of a stream.
//!
//! A message is a list of blocks. A stream opens a block, adds to it by its index, and closes it; which block an index means
//! is all that is remembered of the order. Blocks that nobody here knows are skipped.

use std::collections::BTreeMap;

use ambit_core::session::FinishReason;
use serde_json::{Map, Value};

use super::NAME;
use super::wire::{Delta, Event, Message, WireUsage};
use crate::chat::RawCall;
use crate::dialect::carry::{self, Part};
use crate::dialect::provider::{Assembly, Brought, NoTurn, is_error};
use crate::dialect::{Answer, CALLS_KEPT};
use crate::usage::Usage;

/// A turn under way.
#[derive(Debug, Default)]
pub(super) struct MessageAssembly {
    text: String,
    calls: Vec<CallUnderWay>,
    /// What was thought, to go back unchanged.
    thoughts: Vec<Part>,
    /// Which block an index means.
    by_index: BTreeMap<u64, Place>,
    /// The index that was opened last, for additions that name none.
    last: u64,
    finish: Option<String>,
    model: Option<String>,
    counts: WireUsage,
    /// True once all was reported: what the beginning of a stream says of the output is not all of it.
    counted: bool,
    /// True once a message had begun.
    begun: bool,
}

/// What an index means.
#[derive(Debug, Clone, Copy)]
enum Place {
    Call(usize),
    Thought(usize),
}

#[derive(Debug, Default)]
struct CallUnderWay {
    id: String,
    name: String,
    /// As the block began with them.
    input: Map<String, Value>,
    /// As they were added.
    arguments: String,
}

impl MessageAssembly {
    fn start(&mut self, message: Message) -> Result<Brought, Value> {
        if let Some(usage) = message.usage {
            self.counts.update(usage);
        }
        if let Some(error) = message.error.filter(is_error) {
            return Err(error);
        }
        if !message.model.0.is_empty() {
            self.model = Some(message.model.0);
        }
        let mut brought = Brought::default();
        if let Some(content) = message.content {
            self.begun = true;
            for block in content {
                if let Value::Object(block) = block {
                    let more = self.open(None, block);
                    brought.text.push_str(&more.text);
                    brought.call |= more.call;
                    brought.token |= more.token;
                }
            }
        }
        brought.token |= self.stop(message.stop_reason.0);
        Ok(brought)
    }

    /// True if the model said why it stopped.
    fn stop(&mut self, reason: String) -> bool {
        let said = !reason.is_empty();
        if said {
            self.finish = Some(reason);
        }
        said
    }

    /// A block begins, in a stream under an index.
    fn open(&mut self, index: Option<u64>, block: Map<String, Value>) -> Brought {
        self.begun = true;
        let index = index.inspect(|index| self.last = *index);
        let member = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        match member("type").as_str() {
            "text" => self.say(member("text")),
            "tool_use" => {
                if self.calls.len() < CALLS_KEPT {
                    let input = block.get("input").and_then(Value::as_object).cloned().unwrap_or_default();
                    self.calls.push(CallUnderWay { id: member("id"), name: member("name"), input, arguments: String::new() });
                    self.mean(index, Place::Call(self.calls.len() - 1));
                } else {
                    self.forget(index);
                }
                Brought { call: true, token: true, ..Brought::default() }
            }
            "thinking" | "redacted_thinking" => {
                // A block that begins empty is no sign of life yet: the wait for the first token goes on.
                let token = ["thinking", "signature", "data"].iter().any(|name| !member(name).is_empty());
                self.thoughts.push(Part { behind: self.calls.len(), value: Value::Object(block) });
                self.mean(index, Place::Thought(self.thoughts.len() - 1));
                Brought { token, ..Brought::default() }
            }
            _ => {
                self.forget(index);
                Brought::default()
            }
        }
    }

    fn mean(&mut self, index: Option<u64>, place: Place) {
        if let Some(index) = index {
            self.by_index.insert(index, place);
        }
    }

    fn forget(&mut self, index: Option<u64>) {
        if let Some(index) = index {
            self.by_index.remove(&index);
        }
    }

    /// Something is added to a block.
    fn add(&mut self, index: Option<u64>, delta: Delta) -> Brought {
        let Delta { text, partial_json, thinking, signature, stop_reason: _ } = delta;
        let token = [&text, &partial_json, &thinking, &signature].iter().any(|added| !added.0.is_empty());
        let mut brought = self.say(text.0);
        brought.token |= token;
        match self.by_index.get(&index.unwrap_or(self.last)) {
            Some(Place::Call(at)) => {
                self.calls[*at].arguments.push_str(&partial_json.0);
                brought.call = true;
            }
            Some(Place::Thought(at)) => {
                let block = &mut self.thoughts[*at].value;
                for (name, added) in [("thinking", thinking.0), ("signature", signature.0)] {
                    if !added.is_empty() {
                        append(block, name, &added);
                    }
                }
            }
            None => {}
        }
        brought
    }

    fn say(&mut self, text: String) -> Brought {
        self.text.push_str(&text);
        Brought { token: !text.is_empty(), text, ..Brought::default() }
    }
}

impl Assembly for MessageAssembly {
    type Whole = Message;
    type Event = Event;
    const NAME: &'static str = "message";

    fn take(&mut self, event: Event) -> Result<Brought, Value> {
        let Event { kind, message, index, content_block, delta, usage, error } = event;
        if let Some(error) = error.filter(is_error) {
            return Err(error);
        }
        Ok(match kind.0.as_str() {
            "ping" => Brought { idle: true, ..Brought::default() },
            "message_start" => {
                self.begun = true;
                self.start(message.unwrap_or_default())?
            }
            "content_block_start" => self.open(index.0, content_block.unwrap_or_default()),
            "content_block_delta" => self.add(index.0, delta.unwrap_or_default()),
            "message_delta" => {
                if let Some(usage) = usage {
                    self.counts.update(usage);
                    self.counted = true;
                }
                let token = self.stop(delta.unwrap_or_default().stop_reason.0);
                Brought { token, ..Brought::default() }
            }
            "message_stop" => Brought { token: true, end: true, ..Brought::default() },
            // `content_block_stop`, and whatever else is sent.
            _ => Brought::default(),
        })
    }

    fn take_whole(&mut self, message: Message) -> Result<Brought, Value> {
        self.counted = true;
        self.start(message)
    }

    fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    fn usage(&self) -> Option<Usage> {
        self.counts.read().filter(|_| self.counted)
    }

    fn end(self, target: &str, marked: bool) -> Result<Answer, NoTurn> {
        if !self.begun {
            return Err(NoTurn::Nothing("no message"));
        }
        let finish = match self.finish.as_deref() {
            None if !marked => return Err(NoTurn::Cut),
            // `pause_turn`: it would go on if it were asked to. The turn is as unfinished as one that was cut off.
            Some("max_tokens" | "model_context_window_exceeded" | "pause_turn") => FinishReason::Length,
            Some("refusal") => FinishReason::Refusal,
            // `end_turn`, `stop_sequence`, `tool_use`, and whatever else servers write: whether there are calls decides.
            None | Some(_) => FinishReason::Stop,
        };
        let usage = self.usage();
        let carry = carry::keep(target, NAME, self.thoughts, self.calls.len());
        let calls = self.calls.into_iter().map(CallUnderWay::call).collect();
        Ok(Answer { text: self.text, calls, carry, finish, model: self.model, usage })
    }
}

impl CallUnderWay {
    fn call(self) -> RawCall {
        let arguments = if self.arguments.is_empty() { Value::Object(self.input).to_string() } else { self.arguments };
        RawCall::new(self.id, self.name, arguments)
    }
}

/// Adds to a text member of a block.
fn append(block: &mut Value, name: &str, added: &str) {
    let Value::Object(block) = block else { return };
    if let Some(Value::String(text)) = block.get_mut(name) {
        text.push_str(added);
    } else {
        block.insert(name.to_owned(), Value::from(added));
    }
}
