//! Puts a turn together from a whole answer or from the pieces of a stream.
//!
//! Calls are told apart by their index; where a server sends none, a new id begins a call and everything else goes on
//! with the last one. Members come in any order, so that nothing is interpreted before the end of the turn.
//! **Invariant:** a call is never handed out from a turn that did not reach its end.

use std::collections::BTreeMap;

use ambit_core::session::FinishReason;
use serde_json::{Map, Value};

use super::wire::{CallDelta, Carry, Choice, Completion, Delta, FunctionDelta};
use crate::chat::RawCall;
use crate::dialect::provider::{Assembly, Brought, Count, NoTurn, is_error};
use crate::dialect::{Answer, CALLS_KEPT};
use crate::usage::Usage;

/// A turn under way.
#[derive(Debug, Default)]
pub(super) struct ChatAssembly {
    text: String,
    refusal: String,
    reasoning: String,
    details: Vec<Value>,
    calls: Vec<CallUnderWay>,
    /// Which call an index means.
    by_index: BTreeMap<u64, usize>,
    /// The call that pieces without index and id go on with.
    last: Option<usize>,
    finish: Option<String>,
    model: Option<String>,
    usage: Option<Usage>,
    /// True once a choice was seen.
    chosen: bool,
}

#[derive(Debug, Default)]
struct CallUnderWay {
    id: String,
    name: String,
    arguments: String,
    extra: Map<String, Value>,
}

impl ChatAssembly {
    /// Takes a whole answer or a piece. Only the first choice counts; there is no other, none was asked for.
    fn completion(&mut self, completion: Completion) -> Result<Brought, Value> {
        if let Some(usage) = completion.usage.and_then(|usage| usage.read()) {
            self.usage = Some(usage);
        }
        if let Some(error) = completion.error.filter(is_error) {
            return Err(error);
        }
        if !completion.model.0.is_empty() {
            self.model = Some(completion.model.0);
        }
        Ok(completion.choices.into_iter().flatten().next().map(|choice| self.choice(choice)).unwrap_or_default())
    }

    fn choice(&mut self, choice: Choice) -> Brought {
        self.chosen = true;
        let mut brought = choice.delta.map(|delta| self.delta(delta)).unwrap_or_default();
        if !choice.finish_reason.0.is_empty() {
            self.finish = Some(choice.finish_reason.0);
            brought.token = true;
        }
        brought
    }

    fn delta(&mut self, delta: Delta) -> Brought {
        let Delta { content, refusal, reasoning_content, reasoning, reasoning_details, tool_calls, function_call } = delta;
        self.text.push_str(&content.0);
        self.refusal.push_str(&refusal.0);
        self.reasoning.push_str(&reasoning_content.0);
        if let Some(Value::Array(details)) = reasoning_details {
            self.details.extend(details);
        }
        let mut call = false;
        for piece in tool_calls.into_iter().flatten() {
            self.call(piece);
            call = true;
        }
        if let Some(function) = function_call.filter(|function| !function.name.0.is_empty() || !function.arguments.0.is_empty()) {
            self.legacy_call(function);
            call = true;
        }
        let thinks = !reasoning_content.0.is_empty() || !reasoning.0.is_empty();
        let token = call || thinks || !content.0.is_empty() || !refusal.0.is_empty();
        Brought { text: content.0 + &refusal.0, call, token, ..Brought::default() }
    }

    fn call(&mut self, piece: CallDelta) {
        let CallDelta { index, id, function, extra, _kind } = piece;
        let Some(place) = self.place(index.0, &id.0) else { return };
        self.last = Some(place);
        let call = &mut self.calls[place];
        if !id.0.is_empty() {
            call.id = id.0;
        }
        call.extra.extend(extra.into_iter().filter(|(_, value)| !value.is_null()));
        if let Some(FunctionDelta { name, arguments }) = function {
            // Some servers repeat the whole name in each piece, others send it in pieces.
            if name.0 != call.name {
                call.name.push_str(&name.0);
            }
            // One server sends the whole arguments again at the end.
            let again = !call.arguments.is_empty() && arguments.0 == call.arguments && is_json(&arguments.0);
            if !again {
                call.arguments.push_str(&arguments.0);
            }
        }
    }

    /// Which call a piece belongs to; `None` for a call too many.
    fn place(&mut self, index: Option<u64>, id: &str) -> Option<usize> {
        let known = match index {
            Some(index) => match self.by_index.get(&index) {
                // One index for several calls: each has its own id and began anew.
                Some(place) if !id.is_empty() && !self.calls[*place].id.is_empty() && self.calls[*place].id != id => {
                    self.calls.iter().rposition(|call| call.id == id)
                }
                found => found.copied(),
            },
            None if id.is_empty() => self.last,
            None => self.calls.iter().rposition(|call| call.id == id),
        };
        let place = match known {
            Some(place) => place,
            None if self.calls.len() == CALLS_KEPT => return None,
            None => {
                self.calls.push(CallUnderWay::default());
                self.calls.len() - 1
            }
        };
        if let Some(index) = index {
            self.by_index.insert(index, place);
        }
        Some(place)
    }

    fn legacy_call(&mut self, function: FunctionDelta) {
        self.call(CallDelta { function: Some(function), index: Count(Some(0)), ..CallDelta::default() });
    }

    /// Kept for turns with calls only: nobody wants to read old reasoning once the tool loop is over.
    fn carry(&self, target: &str) -> Option<String> {
        let mut carry = Carry { by: target.to_owned(), ..Carry::default() };
        if !self.calls.is_empty() {
            if !self.reasoning.is_empty() {
                carry.message.insert("reasoning_content".to_owned(), Value::from(self.reasoning.as_str()));
            }
            if !self.details.is_empty() {
                carry.message.insert("reasoning_details".to_owned(), Value::from(self.details.clone()));
            }
            if self.calls.iter().any(|call| !call.extra.is_empty()) {
                carry.calls = self.calls.iter().map(|call| call.extra.clone()).collect();
            }
        }
        if carry.message.is_empty() && carry.calls.is_empty() {
            return None;
        }
        serde_json::to_string(&carry).ok()
    }
}

impl Assembly for ChatAssembly {
    type Whole = Completion;
    type Event = Completion;
    const NAME: &'static str = "completion";

    fn take(&mut self, completion: Completion) -> Result<Brought, Value> {
        self.completion(completion)
    }

    /// A whole answer's calls stand in an array: none goes on with another, whatever ids and indices say.
    fn take_whole(&mut self, mut completion: Completion) -> Result<Brought, Value> {
        let calls = completion.choices.iter_mut().flatten().take(1).filter_map(|choice| choice.delta.as_mut()?.tool_calls.as_mut());
        for (index, call) in calls.flatten().enumerate() {
            call.index = Count(Some(index as u64));
        }
        self.completion(completion)
    }

    /// True once the model said why it stopped: a sufficient end.
    fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// What was used, as far as it was said.
    fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The turn, at its end. `marked` is true if an end mark other than the model's own reason was there.
    fn end(self, target: &str, marked: bool) -> Result<Answer, NoTurn> {
        if !self.chosen {
            return Err(NoTurn::Nothing("no choices"));
        }
        let finish = match self.finish.as_deref() {
            None if !marked => return Err(NoTurn::Cut),
            Some("error") => return Err(NoTurn::Broken),
            Some("malformed_function_call" | "MALFORMED_FUNCTION_CALL") => return Err(NoTurn::Mistake),
            Some("length" | "max_tokens" | "model_length" | "MAX_TOKENS") => FinishReason::Length,
            Some("content_filter" | "safety" | "SAFETY") => FinishReason::ContentFilter,
            Some("refusal") => FinishReason::Refusal,
            // `stop`, `tool_calls`, `function_call`, and whatever else servers write: whether there are calls decides.
            None | Some(_) if !self.refusal.is_empty() && self.text.is_empty() => FinishReason::Refusal,
            None | Some(_) => FinishReason::Stop,
        };
        let carry = self.carry(target);
        let text = if self.text.is_empty() { self.refusal } else { self.text };
        let calls = self.calls.into_iter().map(|call| RawCall::new(call.id, call.name, call.arguments)).collect();
        Ok(Answer { text, calls, carry, finish, model: self.model, usage: self.usage })
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
