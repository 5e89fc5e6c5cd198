//! The words of a result that is no plain output of a tool: one JSON object that a model can act on.

use std::time::Duration;

use ambit_core::ToolCode;

use crate::prepare::arguments::BadArguments;
use crate::prepare::json::Json;

/// The text of a result that consists of its code: what the model reads of a call that never ran.
#[must_use]
pub fn refusal_text(code: ToolCode, tool: &str) -> String {
    let detail = match code {
        ToolCode::Ok => "done",
        ToolCode::UnknownTool => "no tool of this name is offered",
        ToolCode::NotPermitted => "the caller may not use this tool",
        ToolCode::InvalidArguments => "the arguments do not fit the tool's schema",
        ToolCode::ToolError => "the tool reports that it failed",
        ToolCode::UpstreamUnavailable => "the tool could not be reached",
        ToolCode::UpstreamTimeout => "the tool did not answer in time",
        ToolCode::UpstreamRejected => "the tool refused the request",
        ToolCode::DependencyUnavailable => "what the tool depends on is known to be down; nothing was sent",
        ToolCode::Saturated => "too many calls of this tool are running; nothing was sent",
        ToolCode::DeadlineExceeded => "too little time is left for this call",
        ToolCode::OutcomeUnknown => "the call was sent and nobody can say whether it took effect; do not repeat it",
        ToolCode::OutputInvalid => "the tool's answer cannot be used",
        ToolCode::BudgetExhausted => "this session's tool calls are used up; answer with what is known",
        ToolCode::LoopDetected => "the same call gave the same result too often; answer with what is known",
        ToolCode::ApprovalDenied => "a person refused this call",
        ToolCode::ApprovalExpired => "nobody approved this call in time",
        ToolCode::Tainted => "untrusted content was read before; calls that could act on it are refused",
        ToolCode::IdempotencyConflict => "the same key was used with other arguments",
        ToolCode::InFlight => "the same call is running already",
        ToolCode::NotAttempted => "not sent, because an earlier call failed or the session is over",
        ToolCode::CallTruncated => "the output ended inside this call; nothing was sent",
        ToolCode::Blocked => "the host or address is not allowed",
        ToolCode::AuditUnavailable => "the audit record could not be written; nothing was sent",
        ToolCode::Deferred => "recorded, to be run later",
    };
    Words::of(code, detail).tool(tool).text()
}

/// True where the model may sensibly ask again, with or without a change.
const fn is_retryable(code: ToolCode) -> bool {
    match code {
        ToolCode::InvalidArguments
        | ToolCode::UnknownTool
        | ToolCode::UpstreamUnavailable
        | ToolCode::UpstreamTimeout
        | ToolCode::Saturated
        | ToolCode::CallTruncated
        | ToolCode::InFlight => true,
        ToolCode::Ok
        | ToolCode::NotPermitted
        | ToolCode::ToolError
        | ToolCode::UpstreamRejected
        | ToolCode::DependencyUnavailable
        | ToolCode::DeadlineExceeded
        | ToolCode::OutcomeUnknown
        | ToolCode::OutputInvalid
        | ToolCode::BudgetExhausted
        | ToolCode::LoopDetected
        | ToolCode::ApprovalDenied
        | ToolCode::ApprovalExpired
        | ToolCode::Tainted
        | ToolCode::IdempotencyConflict
        | ToolCode::NotAttempted
        | ToolCode::Blocked
        | ToolCode::AuditUnavailable
        | ToolCode::Deferred => false,
    }
}

/// Collects the members of such an object, in the order in which they are said.
pub(crate) struct Words(Vec<(String, Json)>);

impl Words {
    /// Begins with what every such result says.
    pub(crate) fn of(code: ToolCode, detail: impl Into<String>) -> Self {
        let status = if code == ToolCode::Ok {
            "ok"
        } else if code == ToolCode::Deferred {
            "deferred"
        } else {
            "error"
        };
        Self(Vec::new())
            .with("status", status)
            .with("code", code.as_str())
            .with("detail", detail.into())
            .with("retryable", is_retryable(code))
    }

    /// Names the tool.
    pub(crate) fn tool(self, tool: &str) -> Self {
        self.with("tool", tool)
    }

    /// Adds one member, or changes it where it stands.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Json>) -> Self {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
        self
    }

    /// Says when to come back, in whole seconds rounded up.
    pub(crate) fn retry_after(self, after: Option<Duration>) -> Self {
        match after {
            Some(after) => self.with("retry_after_s", u64::try_from(after.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)),
            None => self,
        }
    }

    /// Says whether asking again makes sense, where the code alone does not.
    pub(crate) fn retryable(self, retryable: bool) -> Self {
        self.with("retryable", retryable)
    }

    /// The object as the model reads it.
    pub(crate) fn text(self) -> String {
        Json::Object(self.0).to_text()
    }
}

/// What the model reads about arguments that it should correct.
pub(crate) fn bad_arguments(tool: &str, bad: &BadArguments) -> String {
    match bad {
        BadArguments::NotJson { reason, at } => {
            let words = Words::of(ToolCode::InvalidArguments, "json").tool(tool).with("reason", reason.as_str());
            match at {
                Some(at) => words.with("at_byte", *at).text(),
                None => words.text(),
            }
        }
        BadArguments::Mistakes(mistakes) => {
            let words = Words::of(ToolCode::InvalidArguments, "schema").tool(tool);
            let mut mistakes = mistakes.iter();
            let words = match mistakes.next() {
                Some(first) => words.with("pointer", first.pointer.as_str()).with("reason", first.reason.as_str()),
                None => words,
            };
            let more: Vec<Json> = mistakes
                .map(|m| Json::Object(vec![("pointer".into(), m.pointer.as_str().into()), ("reason".into(), m.reason.as_str().into())]))
                .collect();
            if more.is_empty() { words.text() } else { words.with("more", Json::Array(more)).text() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::schema::Mistake;

    #[test]
    fn a_refusal_says_what_and_whether_to_ask_again() {
        insta::assert_snapshot!(refusal_text(ToolCode::LoopDetected, "search"), @r#"{"status":"error","code":"LOOP_DETECTED","detail":"the same call gave the same result too often; answer with what is known","retryable":false,"tool":"search"}"#);
        insta::assert_snapshot!(
            Words::of(ToolCode::Saturated, "busy").retry_after(Some(Duration::from_millis(1_001))).text(),
            @r#"{"status":"error","code":"SATURATED","detail":"busy","retryable":true,"retry_after_s":2}"#
        );
    }

    #[test]
    fn mistakes_are_told_with_pointer_and_reason() {
        let mistake = |pointer: &str| Mistake { pointer: pointer.into(), reason: "no".into() };
        insta::assert_snapshot!(bad_arguments("t", &BadArguments::Mistakes(vec![mistake("/a"), mistake("/b")])), @r#"{"status":"error","code":"INVALID_ARGUMENTS","detail":"schema","retryable":true,"tool":"t","pointer":"/a","reason":"no","more":[{"pointer":"/b","reason":"no"}]}"#);
        insta::assert_snapshot!(bad_arguments("t", &BadArguments::NotJson { reason: "expected `:`".into(), at: Some(3) }), @r#"{"status":"error","code":"INVALID_ARGUMENTS","detail":"json","retryable":true,"tool":"t","reason":"expected `:`","at_byte":3}"#);
    }
}
