//! What a tool call ends in: exactly one result, with a code that a model and an operator can act on.

use serde::{Deserialize, Serialize};

use crate::id::Body;

/// How a call ended. `Ok` is the only success; every other names why, in the words of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ToolCode {
    /// It did what was asked.
    Ok,
    /// No tool of this name is offered in this session.
    UnknownTool,
    /// The principal may not use it.
    NotPermitted,
    /// The arguments are no JSON, or do not fit the schema.
    InvalidArguments,
    /// The tool itself says that it failed.
    ToolError,
    /// It could not be reached, or broke off.
    UpstreamUnavailable,
    /// It did not answer in time.
    UpstreamTimeout,
    /// It refused the request.
    UpstreamRejected,
    /// What it depends on is known to be down; nothing was sent.
    DependencyUnavailable,
    /// All its permits are taken; nothing was sent.
    Saturated,
    /// Too little time was left; nothing was sent, or a read was dropped.
    DeadlineExceeded,
    /// It was sent, it is no read, and nobody can say whether it took effect.
    OutcomeUnknown,
    /// Its answer does not fit its own schema.
    OutputInvalid,
    /// The session's calls are used up.
    BudgetExhausted,
    /// The same call with the same result, once too often.
    LoopDetected,
    /// A person said no.
    ApprovalDenied,
    /// No person said anything in time.
    ApprovalExpired,
    /// Untrusted content is in the context and this call could act on it.
    Tainted,
    /// The same key with other arguments.
    IdempotencyConflict,
    /// The same call is running already.
    InFlight,
    /// An earlier write of the turn failed, or the session ended first; nothing was sent.
    NotAttempted,
    /// The model's output ended inside this call.
    CallTruncated,
    /// Its host or address is not allowed.
    Blocked,
    /// The audit record could not be written; nothing was sent.
    AuditUnavailable,
    /// Recorded, to be run later.
    Deferred,
}

impl ToolCode {
    /// Its name in API, metrics and what the model reads.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::UnknownTool => "UNKNOWN_TOOL",
            Self::NotPermitted => "NOT_PERMITTED",
            Self::InvalidArguments => "INVALID_ARGUMENTS",
            Self::ToolError => "TOOL_ERROR",
            Self::UpstreamUnavailable => "UPSTREAM_UNAVAILABLE",
            Self::UpstreamTimeout => "UPSTREAM_TIMEOUT",
            Self::UpstreamRejected => "UPSTREAM_REJECTED",
            Self::DependencyUnavailable => "DEPENDENCY_UNAVAILABLE",
            Self::Saturated => "SATURATED",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::OutcomeUnknown => "OUTCOME_UNKNOWN",
            Self::OutputInvalid => "OUTPUT_INVALID",
            Self::BudgetExhausted => "BUDGET_EXHAUSTED",
            Self::LoopDetected => "LOOP_DETECTED",
            Self::ApprovalDenied => "APPROVAL_DENIED",
            Self::ApprovalExpired => "APPROVAL_EXPIRED",
            Self::Tainted => "TAINTED",
            Self::IdempotencyConflict => "IDEMPOTENCY_CONFLICT",
            Self::InFlight => "IN_FLIGHT",
            Self::NotAttempted => "NOT_ATTEMPTED",
            Self::CallTruncated => "CALL_TRUNCATED",
            Self::Blocked => "BLOCKED",
            Self::AuditUnavailable => "AUDIT_UNAVAILABLE",
            Self::Deferred => "DEFERRED",
        }
    }

    /// True where the world is certainly as it was: nothing was sent, or the other side refused before acting.
    #[must_use]
    pub const fn is_without_effect(self) -> bool {
        match self {
            Self::Ok | Self::OutcomeUnknown | Self::OutputInvalid | Self::Deferred => false,
            Self::UnknownTool
            | Self::NotPermitted
            | Self::InvalidArguments
            | Self::ToolError
            | Self::UpstreamUnavailable
            | Self::UpstreamTimeout
            | Self::UpstreamRejected
            | Self::DependencyUnavailable
            | Self::Saturated
            | Self::DeadlineExceeded
            | Self::BudgetExhausted
            | Self::LoopDetected
            | Self::ApprovalDenied
            | Self::ApprovalExpired
            | Self::Tainted
            | Self::IdempotencyConflict
            | Self::InFlight
            | Self::NotAttempted
            | Self::CallTruncated
            | Self::Blocked
            | Self::AuditUnavailable => true,
        }
    }
}

/// The one result of a call, as the machine knows it: its code and where its text stands.
///
/// An executor answers `UPSTREAM_UNAVAILABLE` and `UPSTREAM_TIMEOUT` for a call that is no read only if it never left;
/// else it answers `OUTCOME_UNKNOWN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// How it ended.
    pub code: ToolCode,
    /// What the model reads, cleaned and capped. `None` where the text is derived from the code alone.
    pub body: Option<Body>,
    /// True if the cap cut something out.
    #[serde(default)]
    pub truncated: bool,
}

impl ToolResult {
    /// A result that consists of its code.
    #[must_use]
    pub const fn bare(code: ToolCode) -> Self {
        Self { code, body: None, truncated: false }
    }
}
