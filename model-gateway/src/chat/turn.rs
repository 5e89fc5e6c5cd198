//! One model call: what is asked, and what comes back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ambit_core::port::TextSink;
use ambit_core::session::{FinishReason, ModelFault};
use ambit_core::signal::Subject;
use ambit_core::{Allowance, AttemptRecord, ErrorKind, Origin};
use tokio::time::Instant;

use crate::chain::Admission;
use crate::chat::{Conversation, Tools};

/// What a model that answered nothing is told, inside the last message.
pub const NUDGE: &str = "(Your last answer was empty. Answer now, in words, with what you know.)";

/// A call as the model wrote it: nothing of it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawCall {
    /// The id under which it wants the result; unique in the conversation.
    pub id: Arc<str>,
    /// The tool's name as given.
    pub name: Arc<str>,
    /// The arguments as given: usually JSON, sometimes not.
    pub arguments: Arc<str>,
}

impl RawCall {
    /// A call of these three texts.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, name: impl Into<Arc<str>>, arguments: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into() }
    }
}

/// Whether the model may call tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// It may not; they stay declared, so that the history remains readable and the provider's prompt cache valid.
    None,
}

/// One logical model call, with all of its attempts.
pub struct ModelCall<'a> {
    /// What was said so far.
    pub conversation: &'a Conversation,
    /// What is offered.
    pub tools: &'a Tools,
    /// Whether it may be called.
    pub tool_choice: ToolChoice,
    /// What the model is told inside the last message, after its content: the reason of a wind-down.
    pub notice: Option<&'a str>,
    /// True if the model answered nothing before: adds [`NUDGE`] in the same place.
    pub nudge: bool,
    /// Most tokens to ask for; the target's own maximum may be lower.
    pub max_output: u32,
    /// What all attempts together may use.
    pub allowance: Allowance,
    /// `allowance.deadline` on this process's clock.
    pub deadline: Instant,
    /// Whom signals are about.
    pub subject: Subject,
    /// What other tracing systems pass along, `tracestate`.
    pub trace_state: Option<&'a str>,
    /// The permit taken at the door, for the first call of a session. Without one the call may wait for a permit, as
    /// work that is continued.
    pub admission: Option<Admission>,
    /// Where text goes as it becomes certain; see [`ModelOutcome`]. `None`: nobody reads along.
    pub text: Option<&'a dyn TextSink>,
}

/// What a model call came to.
///
/// Text is passed to the sink under this rule: where tools may be called it is held until the turn has ended without
/// calls, or until it has been arriving for one second (a setting) without a call having begun; where none may be
/// called, each piece is passed on at once. From the first piece on nothing is repeated. Text of a turn that ends in
/// calls and was still held is not passed on: it is in the turn, and no answer.
#[derive(Debug)]
pub struct ModelOutcome {
    /// One record a request on the wire; empty if nothing was sent.
    pub attempts: Vec<AttemptRecord>,
    /// The turn, or why there is none.
    pub result: Result<Turn, ModelFailure>,
}

/// One turn of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// What it said, if anything.
    pub text: Option<Arc<str>>,
    /// The calls it asks for, in order, ids made unique. More than `TURN_CALLS_MAX` are cut to one more than that: the
    /// machine refuses such a turn.
    pub calls: Vec<RawCall>,
    /// What its provider wants echoed with this turn, opaque, and sent back to the same target only.
    pub carry: Option<Arc<str>>,
    /// Why it stopped.
    pub finish: FinishReason,
    /// The target that answered.
    pub served_by: Arc<str>,
    /// The model as the provider names it, else as configured.
    pub model: Arc<str>,
    /// Tokens read, as reported; 0 if it did not say.
    pub input_tokens: u64,
    /// Tokens written, likewise.
    pub output_tokens: u64,
    /// Input tokens for each 1,000 characters of instructions, messages and declarations; `None` if it did not say.
    pub tokens_per_kchar: Option<u32>,
}

/// Why there is no turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFailure {
    /// In the machine's words.
    pub fault: ModelFault,
    /// The text that was passed on before it broke off.
    pub partial: Option<Arc<str>>,
    /// For people: what happened, in the provider's words where it said something. At most 500 characters, one line.
    pub detail: String,
    /// The low-cardinality name of the last failure: `http_503`, `timeout`, `saturated`..
    pub code: Arc<str>,
    /// The provider's HTTP status, where there was one.
    pub status: Option<u16>,
    /// When it may be worth coming back.
    pub retry_after: Option<Duration>,
}

impl ModelFailure {
    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self.fault {
            ModelFault::Unavailable(_) => ErrorKind::Unavailable,
            ModelFault::Rejected | ModelFault::Context | ModelFault::ContentFiltered | ModelFault::Mistake => ErrorKind::Invalid,
            ModelFault::Saturated | ModelFault::Allowance => ErrorKind::LimitReached,
            ModelFault::Deadline => ErrorKind::DeadlineExceeded,
            ModelFault::Abandoned => ErrorKind::Cancelled,
            ModelFault::Internal => ErrorKind::Internal,
        }
    }

    /// Whose it is.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        match self.fault {
            ModelFault::Unavailable(_) | ModelFault::Rejected | ModelFault::Context | ModelFault::ContentFiltered | ModelFault::Mistake => {
                Origin::Provider
            }
            ModelFault::Saturated | ModelFault::Allowance | ModelFault::Deadline | ModelFault::Internal => Origin::Us,
            ModelFault::Abandoned => Origin::Caller,
        }
    }
}

impl fmt::Display for ModelFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model call failed with `{}`", self.code)
    }
}

impl std::error::Error for ModelFailure {}
