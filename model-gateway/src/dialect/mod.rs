//! How a target is talked to: one file a provider dialect, all with the same question and the same answer.
//!
//! A dialect sends one request, reads one answer, and says what it saw as an [`Outcome`](ambit_resilience::Outcome). It
//! never repeats, never decides what a failure means, and passes text on only through the [`LegStage`].

pub(crate) mod anthropic;
#[cfg(test)]
mod asked;
mod carry;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
pub(crate) mod provider;
pub(crate) mod scripted;

use std::borrow::Cow;
use std::sync::Arc;

use ambit_core::limit::TURN_CALLS_MAX;
use ambit_core::session::FinishReason;
use ambit_resilience::Failure;
use serde::Serialize;

use self::provider::Protocol;
use crate::chat::{Conversation, RawCall, ToolChoice, Tools};
use crate::options::{DialectOptions, ProviderOptions};
use crate::stage::LegStage;
use crate::usage::Usage;

/// Calls kept of one turn: one more than a turn may have, so that the machine sees that it is too many.
const CALLS_KEPT: usize = TURN_CALLS_MAX as usize + 1;

/// One request, the same for every leg of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    /// The target that is asked, by name.
    pub(crate) target: &'a Arc<str>,
    pub(crate) model: &'a str,
    pub(crate) conversation: &'a Conversation,
    pub(crate) tools: &'a Tools,
    pub(crate) tool_choice: ToolChoice,
    /// Told inside the last message, after its content.
    pub(crate) notice: Option<&'a str>,
    /// Most tokens of the answer.
    pub(crate) max_output: u32,
}

/// A whole answer, as a dialect read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) calls: Vec<RawCall>,
    /// What the provider wants echoed, in the dialect's own form.
    pub(crate) carry: Option<String>,
    pub(crate) finish: FinishReason,
    /// As the provider names it.
    pub(crate) model: Option<String>,
    pub(crate) usage: Option<Usage>,
}

impl Answer {
    /// True for an answer without words and calls though the model stopped normally.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.calls.is_empty() && self.finish == FinishReason::Stop
    }
}

/// The dialects there are.
#[derive(Debug)]
pub(crate) enum Dialect {
    OpenAiChat(openai_chat::Client),
    OpenAiResponses(openai_responses::Client),
    Anthropic(anthropic::Client),
    Scripted(scripted::Script),
}

impl Dialect {
    /// Sends one request and reads its answer.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn ask(&self, ask: &Ask<'_>, leg: &LegStage<'_>) -> Result<Answer, Failure> {
        match self {
            Self::OpenAiChat(client) => client.ask(ask, leg).await,
            Self::OpenAiResponses(client) => client.ask(ask, leg).await,
            Self::Anthropic(client) => client.ask(ask, leg).await,
            Self::Scripted(script) => Ok(script.play(ask, leg).await),
        }
    }
}

/// A provider over HTTP and how its dialect asks it; `None` for what reaches out nowhere.
pub(crate) const fn over_http(options: &DialectOptions) -> Option<(&ProviderOptions, Protocol)> {
    match options {
        DialectOptions::OpenAiChat(provider) => Some((provider, openai_chat::PROTOCOL)),
        DialectOptions::OpenAiResponses(provider) => Some((provider, openai_responses::PROTOCOL)),
        DialectOptions::Anthropic(provider) => Some((provider, anthropic::PROTOCOL)),
        DialectOptions::Scripted(_) => None,
    }
}

/// A text with the notice behind it, where there is one.
fn noticed<'a>(text: &'a str, notice: Option<&str>) -> Cow<'a, str> {
    match notice {
        Some(notice) => format!("{text}\n\n{notice}").into(),
        None => text.into(),
    }
}

/// Appends JSON. Neither our types nor a vector of bytes can fail at it.
fn json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let _ = serde_json::to_writer(out, value);
}
