//! How a session ends: the verdict, fixed once, and the settlement of its effects afterwards.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::Body;
use crate::limit::Axis;

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// With a whole answer, if need be under a bound that the reason names.
    Completed,
    /// The answer is cut or missing; what there is, is kept.
    Incomplete,
    /// Without an answer, through a fault.
    Failed,
    /// Because somebody asked.
    Cancelled,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Completed, Self::Incomplete, Self::Failed, Self::Cancelled];

    /// Its name in API and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a session ended as it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The model answered.
    Answered,
    /// The model declined to answer.
    Refused,
    /// The context window of the model was reached.
    Context,
    /// The same call came back once too often.
    Loop,
    /// No permit could be had.
    Saturated,
    /// The model's output was cut by its own limit.
    OutputTruncated,
    /// The model's answer does not have the form asked for.
    OutputInvalid,
    /// The provider withheld the answer.
    ContentFiltered,
    /// The model answered nothing, twice.
    EmptyResponse,
    /// The answer broke off in the middle.
    StreamInterrupted,
    /// No model could be reached.
    ModelUnavailable,
    /// The provider refused the request itself.
    ModelRejected,
    /// A person said no.
    ApprovalDenied,
    /// No person said anything in time.
    ApprovalExpired,
    /// Something that the session cannot do without is down.
    DependencyUnavailable,
    /// The journal could not be written.
    StoreLost,
    /// The tenant's quota is used up.
    Quota,
    /// The caller, an operator or a closed connection asked to stop.
    Cancelled,
    /// The process is going down.
    Shutdown,
    /// Our own fault.
    Internal,
    /// A limit of the session was reached: its axis is the reason's name.
    #[serde(untagged)]
    Limit(Axis),
}

impl Reason {
    /// Its name in API and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Limit(axis) => axis.as_str(),
            Self::Context => "context",
            Self::Loop => "loop",
            Self::Saturated => "saturated",
            Self::OutputTruncated => "output_truncated",
            Self::OutputInvalid => "output_invalid",
            Self::ContentFiltered => "content_filtered",
            Self::EmptyResponse => "empty_response",
            Self::StreamInterrupted => "stream_interrupted",
            Self::ModelUnavailable => "model_unavailable",
            Self::ModelRejected => "model_rejected",
            Self::ApprovalDenied => "approval_denied",
            Self::ApprovalExpired => "approval_expired",
            Self::DependencyUnavailable => "dependency_unavailable",
            Self::StoreLost => "store_lost",
            Self::Quota => "quota",
            Self::Cancelled => "cancelled",
            Self::Shutdown => "shutdown",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why no model could be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nothing answered.
    Unreachable,
    /// It said that it has too much to do.
    Overloaded,
    /// It said that we ask too often.
    RateLimited,
    /// It said that nobody pays any more.
    Quota,
    /// It does not know our key, or the key may not.
    Auth,
    /// It does not know the model or the path.
    NotFound,
    /// What it sent cannot be understood.
    Protocol,
    /// Its answer broke off.
    StreamBroken,
}

impl Cause {
    /// Its name in API and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Overloaded => "overloaded",
            Self::RateLimited => "rate_limited",
            Self::Quota => "quota",
            Self::Auth => "auth",
            Self::NotFound => "not_found",
            Self::Protocol => "protocol",
            Self::StreamBroken => "stream_broken",
        }
    }

    /// True where the same request may succeed later without somebody changing something.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::Unreachable | Self::Overloaded | Self::RateLimited | Self::Protocol | Self::StreamBroken => true,
            Self::Quota | Self::Auth | Self::NotFound => false,
        }
    }
}

/// How a session ended, fixed once and never changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// How.
    pub status: Status,
    /// Why.
    pub reason: Reason,
    /// What the model said last; whole if the status is `completed`.
    pub answer: Option<Body>,
    /// Why no model could be used, where that is the reason.
    pub cause: Option<Cause>,
    /// True if no model turn was completed and no tool was called: a retry of the request repeats nothing.
    pub untouched: bool,
}

/// What became of the effects after the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// There were none to settle.
    None,
    /// Some are being awaited, reconciled or compensated.
    Pending,
    /// All are known and as they should be.
    Settled,
    /// Some need a person.
    NeedsAttention,
}

impl Settlement {
    /// Every settlement.
    pub const ALL: [Self; 4] = [Self::None, Self::Pending, Self::Settled, Self::NeedsAttention];

    /// Its name in API and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pending => "pending",
            Self::Settled => "settled",
            Self::NeedsAttention => "needs_attention",
        }
    }
}

impl fmt::Display for Settlement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
