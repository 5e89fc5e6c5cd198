//! The transcript in words: what the machine knows by reference, as the conversation that a model reads.
//!
//! Grows with the machine's transcript and is never rebuilt, unless a step died with it in hand.

use std::collections::HashSet;
use std::sync::Arc;

use ambit_core::ToolCode;
use ambit_core::limit::SHORTENED_BYTES;
use ambit_core::session::{Machine, Speaker, TurnCall};
use ambit_model_gateway::{Conversation, RawCall};
use ambit_tool_executor::{cap, fence, refusal_text};

use crate::content::Texts;

/// A conversation and how much of the transcript it holds.
pub(crate) struct Rendered {
    pub(crate) conversation: Conversation,
    inputs: bool,
    turns: usize,
    shortened: HashSet<Arc<str>>,
}

/// How results of tools are put before a model.
pub(crate) struct Fencing<'a> {
    /// Tools whose output may be believed.
    pub(crate) trusted: &'a HashSet<Arc<str>>,
    /// Drawn for this session; no output can have been written with it in mind.
    pub(crate) marker: u64,
}

impl Rendered {
    pub(crate) fn new(machine: &Machine, texts: &Texts) -> Self {
        let conversation = Conversation::new(texts.get(machine.started().instructions));
        Self { conversation, inputs: false, turns: 0, shortened: HashSet::new() }
    }

    /// Adds what the transcript has that the conversation has not. True if results were shortened.
    pub(crate) fn catch_up(&mut self, machine: &Machine, texts: &Texts, fencing: &Fencing<'_>) -> bool {
        let transcript = machine.transcript();
        if !self.inputs {
            self.inputs = true;
            for item in &machine.started().input {
                match item.speaker {
                    Speaker::User => self.conversation.push_user(texts.get(item.body)),
                    Speaker::Agent => self.conversation.push_assistant(Some(texts.get(item.body)), Vec::new(), None),
                }
            }
            if let Some(passages) = transcript.passages() {
                self.conversation.push_user(texts.get(passages));
            }
        }
        for turn in transcript.turns().iter().skip(self.turns) {
            let calls = turn.calls.iter().map(|call| RawCall::new(call.id.clone(), call.tool.clone(), texts.get(call.arguments))).collect();
            self.conversation.push_assistant(turn.text.map(|text| texts.get(text)), calls, turn.carry.map(|carry| texts.get(carry)));
            for call in &turn.calls {
                self.conversation.push_tool_result(call.id.clone(), call.tool.clone(), words(call, texts, fencing));
            }
        }
        self.turns = transcript.turns().len();
        let before = self.shortened.len();
        for call in transcript.turns().iter().flat_map(|turn| &turn.calls) {
            if call.shortened && self.shortened.insert(call.id.clone()) {
                self.conversation.shorten(&call.id, words(call, texts, fencing));
            }
        }
        self.shortened.len() > before
    }
}

/// A result as the model reads it: fenced where it comes from outside and is not to be believed.
fn words(call: &TurnCall, texts: &Texts, fencing: &Fencing<'_>) -> Arc<str> {
    let Some(result) = call.result else { return refusal_text(ToolCode::NotAttempted, &call.tool).into() };
    let Some(body) = result.body else { return refusal_text(result.code, &call.tool).into() };
    let mut text = texts.get(body);
    if call.shortened {
        text = cap(&text, SHORTENED_BYTES as usize).text.into();
    }
    let from_outside = matches!(
        result.code,
        ToolCode::Ok | ToolCode::ToolError | ToolCode::UpstreamRejected | ToolCode::UpstreamUnavailable | ToolCode::OutputInvalid
    );
    if from_outside && !fencing.trusted.contains(&call.tool) { fence(&call.tool, &text, fencing.marker).into() } else { text }
}
