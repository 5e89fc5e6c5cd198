//! What a session can hear: the one answer to each command, facts on the way, and wishes from outside.
//!
//! These types are the journal's format, version 1 (see `docs/decisions/0001-journal-types.md`): golden journals in
//! `core/tests` fail when a change would alter it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::attempt::AttemptRecord;
use crate::effect::{Effect, Gate};
use crate::id::{Body, Digest, Step};
use crate::limit::Limits;
use crate::tool::ToolResult;
use crate::verdict::Cause;

/// Something that happened, told to the machine once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Answer to `Retrieve`.
    Retrieved {
        /// Which step.
        step: Step,
        /// The passages, if any were found.
        passages: Option<Body>,
        /// True if they come from a knowledge base that is not trusted.
        tainting: bool,
    },
    /// Answer to `CallModel`: a whole turn.
    ModelReplied {
        /// Which step.
        step: Step,
        /// One record a request on the wire.
        attempts: Vec<AttemptRecord>,
        /// What the model said.
        reply: Reply,
    },
    /// Answer to `CallModel`: no turn.
    ModelFailed {
        /// Which step.
        step: Step,
        /// One record a request on the wire; empty if nothing was sent.
        attempts: Vec<AttemptRecord>,
        /// What went wrong.
        fault: ModelFault,
        /// Text that had arrived and was passed on before it broke off.
        partial: Option<Body>,
    },
    /// Fact: a call that is no read is about to leave.
    Dispatched {
        /// Which step.
        step: Step,
    },
    /// Answer to `CallTool`.
    ToolFinished {
        /// Which step.
        step: Step,
        /// One record a request on the wire; empty if nothing was sent.
        attempts: Vec<AttemptRecord>,
        /// Its one result.
        result: ToolResult,
    },
    /// Answer to `AskApproval`.
    ApprovalDecided {
        /// Which step.
        step: Step,
        /// What the person said.
        decision: Decision,
    },
    /// Answer to `Reconcile`.
    Reconciled {
        /// Which step.
        step: Step,
        /// What the downstream says.
        finding: Finding,
    },
    /// Answer to `Compensate`.
    Compensated {
        /// Which step.
        step: Step,
        /// Whether the effect is undone.
        undone: bool,
    },
    /// Somebody wants it to stop.
    Cancelled {
        /// Who.
        by: Canceller,
    },
    /// An operator tightened the limits of the running session.
    LimitsTightened {
        /// The new limits; larger values are ignored.
        limits: Limits,
    },
    /// The moment that `wake_at` named has come.
    Woke,
    /// The process that owned the session is gone; another one took it over.
    Resumed,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It had said all, or it waits for its tools.
    Stop,
    /// Its output limit cut it off.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
    /// It declined.
    Refusal,
}

/// One turn of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// What it said, if anything.
    pub text: Option<Body>,
    /// The calls it asks for, prepared.
    pub calls: Vec<PreparedCall>,
    /// What a provider wants echoed with this turn (reasoning, thinking blocks); counted, never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry: Option<Body>,
    /// Why it stopped.
    pub finish: FinishReason,
    /// Input tokens for each 1,000 characters sent, as the target reported; estimates follow it from then on.
    pub tokens_per_kchar: Option<u32>,
}

/// One call of a turn, resolved, authorised, validated and classified before anything is journalled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedCall {
    /// The id under which the model wants its result.
    pub id: Arc<str>,
    /// The tool as resolved, or the name as given where there is none.
    pub tool: Arc<str>,
    /// The arguments as the model gave them, normalised.
    pub arguments: Body,
    /// Digest of the canonical arguments: what the loop guard compares.
    pub canonical: Digest,
    /// Whether it may go, has to be asked for, or is refused with which text.
    pub gate: Gate,
    /// What a refused call answers; `None` where the code says all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Body>,
    /// What the registry says about the tool.
    pub class: CallClass,
}

/// What the registry says about a tool, as far as the machine must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallClass {
    /// What it does to the world.
    pub effect: Effect,
    /// True if the downstream honours a key, so that the call may be asked again after a crash.
    pub keyed: bool,
    /// True if something undoes it.
    pub compensable: bool,
    /// True if it can be undone from its arguments alone, also when nobody knows whether it took effect.
    pub compensable_blind: bool,
    /// True if what undoes it honours a key, so that undoing may be repeated.
    pub compensation_keyed: bool,
    /// True if the downstream can be asked whether it took effect.
    pub reconcilable: bool,
    /// True if its output may be believed.
    pub trusted: bool,
    /// True if its destination or free text leaves the tenant.
    pub egress: bool,
    /// Identical results after which the next identical call is refused; 0 for a poller.
    pub repeats: u32,
    /// Most requests on the wire for one call.
    pub attempts: u32,
}

/// Why there was no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFault {
    /// Every target failed or could not be asked.
    Unavailable(Cause),
    /// The provider refused the request itself.
    Rejected,
    /// The request does not fit the model's window.
    Context,
    /// The provider withheld the answer.
    ContentFiltered,
    /// The model's own mistake, reported as an error: it may try again.
    Mistake,
    /// No permit could be had; nothing was sent.
    Saturated,
    /// The time given was over.
    Deadline,
    /// The lent allowance was used up before an answer came.
    Allowance,
    /// It was abandoned.
    Abandoned,
    /// Our own fault.
    Internal,
}

/// What a person said about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Yes.
    Approve,
    /// No.
    Deny,
    /// Nothing, in time.
    Expired,
}

/// What the downstream says about a call of unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It took effect.
    Found,
    /// It did not.
    Absent,
    /// It cannot tell.
    Unknown,
}

/// Who wants a session to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Canceller {
    /// The caller, by request.
    Caller,
    /// An operator.
    Operator,
    /// The caller's connection closed.
    Disconnect,
    /// The process is going down and its patience is over.
    Shutdown,
    /// The journal cannot be written any more.
    StoreLost,
    /// A recovery came to other decisions than the journal records, or cannot go on.
    Recovery,
}

impl Event {
    /// Its name in the journal, in tables and in what a person reads.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Retrieved { .. } => "Retrieved",
            Self::ModelReplied { .. } => "ModelReplied",
            Self::ModelFailed { .. } => "ModelFailed",
            Self::Dispatched { .. } => "Dispatched",
            Self::ToolFinished { .. } => "ToolFinished",
            Self::ApprovalDecided { .. } => "ApprovalDecided",
            Self::Reconciled { .. } => "Reconciled",
            Self::Compensated { .. } => "Compensated",
            Self::Cancelled { .. } => "Cancelled",
            Self::LimitsTightened { .. } => "LimitsTightened",
            Self::Woke => "Woke",
            Self::Resumed => "Resumed",
        }
    }
}
