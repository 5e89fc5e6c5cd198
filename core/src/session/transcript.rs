//! What the model will be shown, by reference: the input, the passages, and the turns with their results.
//!
//! Append-only, but for old tool outputs, which may be shortened to make room. Knows sizes, never texts.

use std::sync::Arc;

use crate::id::Body;
use crate::limit::{MESSAGE_CHARS, SHORTENED_BYTES};
use crate::session::event::PreparedCall;
use crate::session::started::Started;
use crate::tool::ToolResult;

/// Everything said so far, in order.
#[derive(Debug, Clone)]
pub struct Transcript {
    passages: Option<Body>,
    turns: Vec<Turn>,
    chars: u64,
    bytes: u64,
}

/// One completed turn of the model and what became of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// What the model said, if anything.
    pub text: Option<Body>,
    /// What the provider wants echoed with it.
    pub carry: Option<Body>,
    /// Its calls, in the order asked.
    pub calls: Vec<TurnCall>,
}

/// One call of a turn with its one result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnCall {
    /// The id under which the model wants its result.
    pub id: Arc<str>,
    /// The tool.
    pub tool: Arc<str>,
    /// The arguments.
    pub arguments: Body,
    /// Its result; `None` only while the turn's calls are running.
    pub result: Option<ToolResult>,
    /// True if only the first [`SHORTENED_BYTES`] of the result are shown any more.
    pub shortened: bool,
}

impl Transcript {
    pub(super) fn new(started: &Started) -> Self {
        let mut transcript = Self { passages: None, turns: Vec::new(), chars: u64::from(started.ceiling.tools_chars), bytes: 0 };
        transcript.grow(started.instructions);
        for item in &started.input {
            transcript.grow(item.body);
        }
        transcript
    }

    /// The passages found for the input, if any.
    #[must_use]
    pub const fn passages(&self) -> Option<Body> {
        self.passages
    }

    /// The turns so far.
    #[must_use]
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Size in bytes of all texts.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Size in characters, with the tools' declarations and what framing adds: what estimates are made from.
    #[must_use]
    pub const fn chars(&self) -> u64 {
        self.chars
    }

    /// The last thing the model said in words.
    #[must_use]
    pub fn last_text(&self) -> Option<Body> {
        self.turns.iter().rev().find_map(|turn| turn.text)
    }

    pub(super) fn set_passages(&mut self, passages: Body) {
        self.passages = Some(passages);
        self.grow(passages);
    }

    pub(super) fn push_turn(&mut self, text: Option<Body>, carry: Option<Body>, calls: &[PreparedCall]) {
        for body in [text, carry].into_iter().flatten() {
            self.grow(body);
        }
        let calls = calls.iter().map(|call| self.turn_call(call)).collect();
        self.turns.push(Turn { text, carry, calls });
    }

    fn turn_call(&mut self, call: &PreparedCall) -> TurnCall {
        self.grow(call.arguments);
        TurnCall { id: call.id.clone(), tool: call.tool.clone(), arguments: call.arguments, result: None, shortened: false }
    }

    /// Gives the call at `index` of the last turn its one result. A second one is ignored: the first stands.
    pub(super) fn answer(&mut self, index: usize, result: ToolResult) {
        let Some(call) = self.turns.last_mut().and_then(|turn| turn.calls.get_mut(index)) else { return };
        if call.result.is_none() {
            call.result = Some(result);
            // What a bare code is put into words with is short and bounded.
            self.chars += MESSAGE_CHARS * 4;
            if let Some(body) = result.body {
                self.grow(body);
            }
        }
    }

    /// Shortens tool outputs, oldest first, until `fits` is content or nothing is left to shorten. True if it fits.
    pub(super) fn shorten(&mut self, fits: impl Fn(&Self) -> bool) -> bool {
        let shortened = u64::from(SHORTENED_BYTES);
        for turn in 0..self.turns.len() {
            for call in 0..self.turns[turn].calls.len() {
                if fits(self) {
                    return true;
                }
                let call = &mut self.turns[turn].calls[call];
                let Some(body) = call.result.and_then(|result| result.body) else { continue };
                if !call.shortened && body.bytes > SHORTENED_BYTES {
                    call.shortened = true;
                    self.bytes -= u64::from(body.bytes) - shortened;
                    self.chars -= u64::from(body.chars).saturating_sub(shortened);
                }
            }
        }
        fits(self)
    }

    fn grow(&mut self, body: Body) {
        self.bytes += u64::from(body.bytes);
        self.chars += u64::from(body.chars) + MESSAGE_CHARS;
    }
}
