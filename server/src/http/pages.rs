//! The page of each error code: what happened, what it means for side effects, what to do. The pages are those of
//! `docs/errors/`, in the binary, so that the `type` of a problem leads to its page on the server that answered.

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::http::problem::{Code, Problem};

/// Where the pages stand.
pub(crate) const PROBLEMS: &str = "/problems";
/// The table of all codes.
const INDEX: &str = include_str!("../../../docs/errors/README.md");

impl Code {
    /// Every code. `Internal` stays the last one, so that a new code cannot be left out.
    pub(crate) const ALL: [Self; Self::Internal as usize + 1] = [
        Self::InvalidRequest,
        Self::LimitsTooHigh,
        Self::PromptTooLarge,
        Self::ContextTooLong,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::AgentNotFound,
        Self::SessionNotFound,
        Self::IdempotencyInProgress,
        Self::IdempotencyKeyReused,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::Saturated,
        Self::Overloaded,
        Self::ShuttingDown,
        Self::ModelUnavailable,
        Self::ModelRejected,
        Self::StoreUnavailable,
        Self::DeadlineExceeded,
        Self::ConfigInvalid,
        Self::Internal,
    ];

    const fn page(self) -> &'static str {
        match self {
            Self::InvalidRequest => include_str!("../../../docs/errors/INVALID_REQUEST.md"),
            Self::LimitsTooHigh => include_str!("../../../docs/errors/LIMITS_TOO_HIGH.md"),
            Self::PromptTooLarge => include_str!("../../../docs/errors/PROMPT_TOO_LARGE.md"),
            Self::ContextTooLong => include_str!("../../../docs/errors/CONTEXT_TOO_LONG.md"),
            Self::Forbidden => include_str!("../../../docs/errors/FORBIDDEN.md"),
            Self::NotFound => include_str!("../../../docs/errors/NOT_FOUND.md"),
            Self::MethodNotAllowed => include_str!("../../../docs/errors/METHOD_NOT_ALLOWED.md"),
            Self::AgentNotFound => include_str!("../../../docs/errors/AGENT_NOT_FOUND.md"),
            Self::SessionNotFound => include_str!("../../../docs/errors/SESSION_NOT_FOUND.md"),
            Self::IdempotencyInProgress => include_str!("../../../docs/errors/IDEMPOTENCY_IN_PROGRESS.md"),
            Self::IdempotencyKeyReused => include_str!("../../../docs/errors/IDEMPOTENCY_KEY_REUSED.md"),
            Self::PayloadTooLarge => include_str!("../../../docs/errors/PAYLOAD_TOO_LARGE.md"),
            Self::UnsupportedMediaType => include_str!("../../../docs/errors/UNSUPPORTED_MEDIA_TYPE.md"),
            Self::Saturated => include_str!("../../../docs/errors/SATURATED.md"),
            Self::Overloaded => include_str!("../../../docs/errors/OVERLOADED.md"),
            Self::ShuttingDown => include_str!("../../../docs/errors/SHUTTING_DOWN.md"),
            Self::ModelUnavailable => include_str!("../../../docs/errors/MODEL_UNAVAILABLE.md"),
            Self::ModelRejected => include_str!("../../../docs/errors/MODEL_REJECTED.md"),
            Self::StoreUnavailable => include_str!("../../../docs/errors/STORE_UNAVAILABLE.md"),
            Self::DeadlineExceeded => include_str!("../../../docs/errors/DEADLINE_EXCEEDED.md"),
            Self::ConfigInvalid => include_str!("../../../docs/errors/CONFIG_INVALID.md"),
            Self::Internal => include_str!("../../../docs/errors/INTERNAL.md"),
        }
    }

    /// The URI reference that names this kind of problem and leads to its page.
    pub(crate) fn uri(self) -> String {
        format!("{PROBLEMS}/{}", self.as_str().to_ascii_lowercase().replace('_', "-"))
    }

    /// A code by the last part of its URI, by its own name, or by the name of its file, as the links between pages have it.
    fn of_name(name: &str) -> Option<Self> {
        let name = name.strip_suffix(".md").unwrap_or(name).replace('-', "_");
        Self::ALL.into_iter().find(|code| code.as_str().eq_ignore_ascii_case(&name))
    }
}

/// The table of all error codes.
#[utoipa::path(
    get, path = "/problems", tag = "health",
    responses((status = 200, description = "Every error code, as Markdown", body = String, content_type = "text/markdown")),
)]
pub(crate) async fn index() -> Response {
    markdown(INDEX)
}

/// What an error code means and what to do about it.
#[utoipa::path(
    get, path = "/problems/{name}", tag = "health",
    params(("name" = String, Path, description = "Last part of a problem's `type`", pattern = "^[a-z]+(-[a-z]+)*$")),
    responses(
        (status = 200, description = "The page, as Markdown", body = String, content_type = "text/markdown"),
        (status = 404, description = "NOT_FOUND", body = Problem),
    ),
)]
pub(crate) async fn page(name: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let name = name.map(|Path(name)| name).unwrap_or_default();
    if name == "README.md" {
        return Ok(index().await);
    }
    let code = Code::of_name(&name).ok_or_else(|| Problem::new(Code::NotFound, "no such error code; GET /problems lists them"))?;
    Ok(markdown(code.page()))
}

fn markdown(text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("text/markdown; charset=utf-8"))], text).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_code_is_found_by_each_of_its_names() {
        for code in Code::ALL {
            for name in [code.as_str().to_owned(), code.uri().replace("/problems/", ""), format!("{}.md", code.as_str())] {
                assert_eq!(Code::of_name(&name), Some(code), "{name}");
            }
        }
        for name in ["", "README", "nothing", "saturated.html"] {
            assert_eq!(Code::of_name(name), None, "{name}");
        }
    }

    /// A page says the status, the advice to retry and an example, and all of it is what the code does.
    #[test]
    fn pages_are_true() {
        for code in Code::ALL {
            let (page, name) = (code.page(), code.as_str());
            let problem = Problem::new(code, "x");
            let retry = if problem.is_retryable() { "`true`" } else { "`false`" };
            let head = format!("# {name}\n\nHTTP {}; x-should-retry: {retry}", code.status().as_u16());
            assert!(page.starts_with(&head), "{name} begins otherwise than:\n{head}");
            let row = format!("| [{name}]({name}.md) | {} | {} ", code.status().as_u16(), problem.is_retryable());
            assert!(INDEX.contains(&row), "{name} has no row in the index that begins with: {row}");
            assert_eq!(page.contains("; Retry-After: "), problem.is_retryable(), "{name}");

            let (_, example) = page.split_once("```json\n").unwrap();
            let shown: Value = serde_json::from_str(example.split_once("\n```").unwrap().0).unwrap();
            let sent = serde_json::to_value(&problem).unwrap();
            for member in ["type", "title", "status", "code", "retryable"] {
                assert_eq!(shown[member], sent[member], "{member} of the example of {name}");
            }
            for member in ["type", "code"] {
                assert_eq!(shown["error"][member], sent["error"][member], "error.{member} of the example of {name}");
            }
            assert_eq!(shown["retry_after_ms"].is_u64(), problem.is_retryable(), "{name}");
            assert_eq!(shown["error"]["message"], shown["detail"], "{name}");
        }
    }
}
