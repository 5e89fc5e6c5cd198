//! What the model is told when its next answer has to be the last.

use ambit_core::{Axis, Reason};

/// The reason in words for the model, to stand inside the last message.
#[must_use]
pub(crate) const fn notice(reason: Reason) -> &'static str {
    match reason {
        Reason::Limit(Axis::Deadline) => {
            "[The time for this task is nearly over. No more tools can be called: answer now with what is known.]"
        }
        Reason::Limit(Axis::ModelCalls | Axis::ModelAttempts | Axis::Events) => {
            "[This is the last answer of this task. No more tools can be called: answer now with what is known.]"
        }
        Reason::Limit(Axis::ToolCalls | Axis::ToolAttempts) => {
            "[The tool calls of this task are used up. Answer now with what is known, and say what could not be looked up.]"
        }
        Reason::Limit(Axis::TotalTokens | Axis::CostUsd) => {
            "[The budget of this task is nearly used up. No more tools can be called: answer now, briefly, with what is known.]"
        }
        Reason::Limit(Axis::Transcript) | Reason::Context => {
            "[The history of this task has reached its limit. No more tools can be called: answer now with what is known.]"
        }
        Reason::Loop => "[The same tool call kept giving the same result. No more tools can be called: answer now with what is known.]",
        Reason::ApprovalDenied | Reason::ApprovalExpired => {
            "[A tool call was not approved. No more tools can be called: answer now and say what was not done.]"
        }
        Reason::Answered
        | Reason::Refused
        | Reason::Saturated
        | Reason::OutputTruncated
        | Reason::OutputInvalid
        | Reason::ContentFiltered
        | Reason::EmptyResponse
        | Reason::StreamInterrupted
        | Reason::ModelUnavailable
        | Reason::ModelRejected
        | Reason::DependencyUnavailable
        | Reason::StoreLost
        | Reason::Quota
        | Reason::Cancelled
        | Reason::Shutdown
        | Reason::Internal => "[No more tools can be called: answer now with what is known.]",
    }
}
