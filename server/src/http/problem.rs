//! The only place where errors become HTTP: `application/problem+json` (RFC 9457) with an OpenAI `error` member.
//!
//! An error means that no model turn was completed and no tool was called: a retry repeats nothing.

use std::time::Duration;

use ambit_core::{Cause, ErrorKind, Reason, SessionId, Status, Verdict};
use ambit_orchestrator::{LimitRefusal, LookupError, SessionView, StartError, Untightened};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::reload::{Refused, causes};

/// Longest `Retry-After` in its header; clients ignore more. The JSON member tells the truth.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// When to come back after a refusal for load.
const OVERLOADED_RETRY: Duration = Duration::from_secs(1);
/// Where a request names the session that it continues.
const PREVIOUS: &str = "/previous_session_id";
/// When to come back to a server that is being replaced.
const SHUTDOWN_RETRY: Duration = Duration::from_secs(2);
/// Most errors told of one request: enough to mend it, and no answer is much larger than what asked for it.
const ERRORS_MAX: usize = 64;
/// Longest text of a caller's own that an error repeats, characters.
const ECHO_MAX: usize = 128;

/// A code that a caller may meet. Few, and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Code {
    InvalidRequest,
    LimitsTooHigh,
    PromptTooLarge,
    ContextTooLong,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    AgentNotFound,
    SessionNotFound,
    IdempotencyInProgress,
    IdempotencyKeyReused,
    PayloadTooLarge,
    UnsupportedMediaType,
    Saturated,
    Overloaded,
    ShuttingDown,
    ModelUnavailable,
    ModelRejected,
    StoreUnavailable,
    DeadlineExceeded,
    ConfigInvalid,
    Internal,
}

impl Code {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::LimitsTooHigh => "LIMITS_TOO_HIGH",
            Self::PromptTooLarge => "PROMPT_TOO_LARGE",
            Self::ContextTooLong => "CONTEXT_TOO_LONG",
            Self::Forbidden => "FORBIDDEN",
            Self::NotFound => "NOT_FOUND",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::AgentNotFound => "AGENT_NOT_FOUND",
            Self::SessionNotFound => "SESSION_NOT_FOUND",
            Self::IdempotencyInProgress => "IDEMPOTENCY_IN_PROGRESS",
            Self::IdempotencyKeyReused => "IDEMPOTENCY_KEY_REUSED",
            Self::PayloadTooLarge => "PAYLOAD_TOO_LARGE",
            Self::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
            Self::Saturated => "SATURATED",
            Self::Overloaded => "OVERLOADED",
            Self::ShuttingDown => "SHUTTING_DOWN",
            Self::ModelUnavailable => "MODEL_UNAVAILABLE",
            Self::ModelRejected => "MODEL_REJECTED",
            Self::StoreUnavailable => "STORE_UNAVAILABLE",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::ConfigInvalid => "CONFIG_INVALID",
            Self::Internal => "INTERNAL",
        }
    }

    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest | Self::LimitsTooHigh | Self::PromptTooLarge | Self::ContextTooLong | Self::ModelRejected => {
                StatusCode::BAD_REQUEST
            }
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound | Self::AgentNotFound | Self::SessionNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::IdempotencyInProgress => StatusCode::CONFLICT,
            Self::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Saturated | Self::Overloaded | Self::ShuttingDown | Self::ModelUnavailable | Self::StoreUnavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::ConfigInvalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "The request cannot be understood",
            Self::LimitsTooHigh => "The limits asked for are above the agent's",
            Self::PromptTooLarge => "The prompt is longer than allowed",
            Self::ContextTooLong => "The prompt does not fit the model",
            Self::Forbidden => "This is not allowed",
            Self::NotFound => "There is nothing here",
            Self::MethodNotAllowed => "This method is not offered here",
            Self::AgentNotFound => "There is no such agent",
            Self::SessionNotFound => "There is no such session",
            Self::IdempotencyInProgress => "The first request with this key is not done yet",
            Self::IdempotencyKeyReused => "The key was used for another request",
            Self::PayloadTooLarge => "The body is larger than allowed",
            Self::UnsupportedMediaType => "The body is not JSON",
            Self::Saturated => "Every permit for a model call is taken",
            Self::Overloaded => "No more can be taken on at this moment",
            Self::ShuttingDown => "The server is shutting down",
            Self::ModelUnavailable => "No model could be used",
            Self::ModelRejected => "The provider refused the request",
            Self::StoreUnavailable => "The journal cannot be written or read",
            Self::DeadlineExceeded => "The deadline passed before the first turn",
            Self::ConfigInvalid => "The configuration cannot be used",
            Self::Internal => "Ambit made a mistake",
        }
    }

    /// The OpenAI clients' words for the same.
    const fn openai(self) -> (&'static str, &'static str) {
        match self {
            Self::InvalidRequest => ("invalid_request_error", "invalid_request"),
            Self::LimitsTooHigh => ("invalid_request_error", "limits_too_high"),
            Self::PromptTooLarge => ("invalid_request_error", "prompt_too_large"),
            Self::ContextTooLong => ("invalid_request_error", "context_length_exceeded"),
            Self::Forbidden => ("permission_error", "forbidden"),
            Self::NotFound => ("invalid_request_error", "not_found"),
            Self::MethodNotAllowed => ("invalid_request_error", "method_not_allowed"),
            Self::AgentNotFound => ("invalid_request_error", "model_not_found"),
            Self::SessionNotFound => ("invalid_request_error", "session_not_found"),
            Self::IdempotencyInProgress => ("invalid_request_error", "idempotency_in_progress"),
            Self::IdempotencyKeyReused => ("invalid_request_error", "idempotency_key_reused"),
            Self::PayloadTooLarge => ("invalid_request_error", "payload_too_large"),
            Self::UnsupportedMediaType => ("invalid_request_error", "unsupported_media_type"),
            Self::Saturated | Self::Overloaded => ("server_error", "server_overloaded"),
            Self::ShuttingDown => ("server_error", "shutting_down"),
            Self::ModelUnavailable => ("server_error", "model_unavailable"),
            Self::ModelRejected => ("invalid_request_error", "model_rejected"),
            Self::StoreUnavailable => ("server_error", "store_unavailable"),
            Self::DeadlineExceeded => ("server_error", "deadline_exceeded"),
            Self::ConfigInvalid => ("invalid_request_error", "config_invalid"),
            Self::Internal => ("server_error", "internal"),
        }
    }

    /// When to come back, where nothing tells better; `None` where a retry does not help.
    const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Saturated | Self::Overloaded | Self::ModelUnavailable | Self::StoreUnavailable | Self::IdempotencyInProgress => {
                Some(OVERLOADED_RETRY)
            }
            Self::ShuttingDown => Some(SHUTDOWN_RETRY),
            Self::InvalidRequest
            | Self::LimitsTooHigh
            | Self::PromptTooLarge
            | Self::ContextTooLong
            | Self::Forbidden
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::AgentNotFound
            | Self::SessionNotFound
            | Self::IdempotencyKeyReused
            | Self::PayloadTooLarge
            | Self::UnsupportedMediaType
            | Self::ModelRejected
            | Self::DeadlineExceeded
            | Self::ConfigInvalid
            | Self::Internal => None,
        }
    }
}

/// One thing that is wrong with a request, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// What is wrong, and what is allowed.
    pub(crate) detail: String,
    /// JSON pointer into the body, or the name of a parameter or header.
    pub(crate) pointer: String,
}

/// An error as it leaves.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// URI reference that names the kind of problem.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    /// What happened this time.
    detail: String,
    code: Code,
    retryable: bool,
    /// When to come back, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// Why no model could be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    /// Where to look at what was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    /// What only the log says.
    #[serde(skip)]
    behind: String,
    error: OpenAiError,
}

/// The same for clients of the OpenAI API.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct OpenAiError {
    message: String,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<String>,
    code: &'static str,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let (kind, openai) = code.openai();
        Self {
            kind: code.uri(),
            title: code.title(),
            status: code.status().as_u16(),
            error: OpenAiError { message: detail.clone(), kind, param: None, code: openai },
            detail,
            code,
            retryable: code.retry_after().is_some(),
            retry_after_ms: code.retry_after().map(millis),
            cause: None,
            errors: Vec::new(),
            session_id: None,
            instance: None,
            behind: String::new(),
        }
    }

    /// Keeps what is behind an error for the log.
    fn because(mut self, failed: &dyn std::error::Error) -> Self {
        let mut next = Some(failed);
        while let Some(error) = next {
            self.behind.push_str(if self.behind.is_empty() { "" } else { ": " });
            self.behind.push_str(&error.to_string());
            next = error.source();
        }
        self
    }

    /// All that is wrong with a request, at once.
    pub(crate) fn invalid(errors: Vec<FieldError>) -> Self {
        Self::wrong(Code::InvalidRequest, errors)
    }

    /// What is wrong, at one place: a JSON pointer, or the name of a parameter or header.
    pub(crate) fn at(code: Code, pointer: &str, detail: impl Into<String>) -> Self {
        let (detail, pointer) = (detail.into(), pointer.to_owned());
        let mut problem = Self::new(code, detail.clone());
        problem.error.param = Some(pointer.clone());
        problem.errors = vec![FieldError { detail, pointer }];
        problem
    }

    /// The first [`ERRORS_MAX`] of what is wrong; the detail says how many there are in all.
    fn wrong(code: Code, mut errors: Vec<FieldError>) -> Self {
        for error in &mut errors {
            error.pointer = echo(&error.pointer);
        }
        let place = |error: &FieldError| if error.pointer.is_empty() { String::new() } else { format!("`{}`: ", error.pointer) };
        let first = errors.first().map_or_else(String::new, |error| format!("{}{}", place(error), error.detail));
        let more = errors.len().saturating_sub(1);
        let detail = if more == 0 { first } else { format!("{first} (and {more} more)") };
        errors.truncate(ERRORS_MAX);
        let mut problem = Self::new(code, detail);
        problem.error.param = errors.first().map(|error| error.pointer.clone()).filter(|pointer| !pointer.is_empty());
        problem.errors = errors;
        problem
    }

    pub(crate) fn overloaded(max: usize) -> Self {
        Self::new(Code::Overloaded, format!("{max} sessions are running, which is the limit (server.max_in_flight)"))
    }

    pub(crate) fn shutting_down() -> Self {
        Self::new(Code::ShuttingDown, "the server takes no new sessions")
    }

    pub(crate) fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after_ms = Some(millis(after));
        self
    }

    /// No retry helps.
    pub(crate) fn for_good(mut self) -> Self {
        (self.retryable, self.retry_after_ms) = (false, None);
        self
    }

    pub(crate) fn session(mut self, id: SessionId) -> Self {
        self.session_id = Some(id.to_string());
        self.instance = Some(format!("/v1/sessions/{id}"));
        self
    }

    /// Why a session that was begun cannot be shown: another request would begin another session.
    pub(crate) fn of_begun(failed: &LookupError, id: SessionId) -> Self {
        Self::of_lookup(failed).for_good().session(id)
    }

    /// The same for a form of request that has its members elsewhere.
    pub(crate) fn pointing(mut self, place: impl Fn(&str) -> String) -> Self {
        for error in &mut self.errors {
            let moved = place(&error.pointer);
            self.detail = self.detail.replace(&format!("`{}`", error.pointer), &format!("`{moved}`"));
            error.pointer = moved;
        }
        self.error.message.clone_from(&self.detail);
        self.error.param = self.error.param.map(|pointer| place(&pointer));
        self
    }

    /// The member `error`, for streams that are under way.
    pub(crate) const fn openai(&self) -> &OpenAiError {
        &self.error
    }

    #[cfg(test)]
    pub(crate) const fn code(&self) -> Code {
        self.code
    }

    #[cfg(test)]
    pub(crate) const fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Why a session was not let in.
    pub(crate) fn of_start(failed: &StartError) -> Self {
        match failed {
            StartError::AgentNotFound { name, known } => {
                Self::at(Code::AgentNotFound, "/agent", format!("agent `{}` does not exist; there are: {}", echo(name), known.join(", ")))
            }
            StartError::UnknownTools { names, known } => Self::invalid(
                names
                    .iter()
                    .map(|name| FieldError {
                        detail: format!("the agent has no tool `{}`; it has: {}", echo(name), known.join(", ")),
                        pointer: "/tools".into(),
                    })
                    .collect(),
            ),
            StartError::LimitsTooHigh(refusals) => Self::too_high(refusals, "/limits", "the agent's"),
            StartError::PromptTooLarge { chars, limit } => Self::at(
                Code::PromptTooLarge,
                "/input",
                format!("instructions and input have {chars} characters, the limit is {limit} (limits.prompt_chars)"),
            ),
            StartError::ContextTooLong { tokens, window } => {
                Self::new(Code::ContextTooLong, format!("the prompt needs about {tokens} tokens, the model's window has {window}"))
            }
            StartError::DeadlineExceeded => Self::new(Code::DeadlineExceeded, "the deadline had passed on arrival; nothing was sent"),
            StartError::DeadlineTooShort { left_ms, needed_ms } => Self::new(
                Code::DeadlineExceeded,
                format!("the deadline leaves {left_ms} ms, and no model is called with less than {needed_ms} ms; nothing was sent"),
            ),
            StartError::IdempotencyInProgress { session, left } => {
                let problem = Self::new(Code::IdempotencyInProgress, "the session of this idempotency key still runs").retry_after(*left);
                match session {
                    Some(id) => problem.session(*id),
                    None => problem,
                }
            }
            StartError::IdempotencyKeyReused => Self::at(
                Code::IdempotencyKeyReused,
                "idempotency-key",
                "the idempotency key was used for another request; each request needs a key of its own",
            ),
            StartError::PreviousNotFound { id } => Self::at(Code::SessionNotFound, PREVIOUS, format!("session `{id}` does not exist")),
            StartError::PreviousUnusable { .. } => Self::at(Code::InvalidRequest, PREVIOUS, failed.to_string()),
            StartError::Saturated(refusal) => Self::new(Code::Saturated, refusal.to_string()).retry_after(refusal.retry_after),
            StartError::Overloaded { max } => Self::overloaded(*max),
            StartError::ShuttingDown => Self::shutting_down(),
            StartError::Store(failed) => Self::of_store(failed),
            StartError::Unreadable(_) | StartError::NoChain { .. } | StartError::Interrupted => {
                Self::new(Code::Internal, "the session could not be started").because(failed)
            }
        }
    }

    /// Wishes for limits that go beyond `whose`; `at` is the pointer to where they stand.
    fn too_high(refusals: &[LimitRefusal], at: &str, whose: &str) -> Self {
        let errors: Vec<FieldError> = refusals
            .iter()
            .map(|refusal| {
                let field = if refusal.axis == ambit_core::Axis::Deadline { "deadline_ms" } else { refusal.axis.as_str() };
                FieldError {
                    detail: format!("{} is above {whose} limit of {}", refusal.wished, refusal.allowed),
                    pointer: format!("{at}/{field}"),
                }
            })
            .collect();
        Self::wrong(Code::LimitsTooHigh, errors)
    }

    /// Why the limits of a session were not tightened.
    pub(crate) fn of_tightening(failed: &Untightened) -> Self {
        match failed {
            Untightened::Lookup(failed) => Self::of_lookup(failed),
            Untightened::TooHigh(refusals) => Self::too_high(refusals, "", "the session's"),
            Untightened::TooOften => Self::invalid(vec![FieldError { detail: failed.to_string(), pointer: String::new() }]),
            Untightened::Lost => Self::new(Code::StoreUnavailable, failed.to_string()).retry_after(OVERLOADED_RETRY),
        }
    }

    /// Why the configuration in force stays.
    pub(crate) fn of_reload(refused: &Refused) -> Self {
        match refused {
            Refused::Invalid(wrong) => {
                let place = |problem: &ambit_config::Problem| problem.place.as_ref().map_or_else(String::new, |place| format!("{place}: "));
                let hint = |problem: &ambit_config::Problem| problem.hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
                let error = |problem: &ambit_config::Problem| FieldError {
                    detail: format!("{}{}{}", place(problem), problem.reason, hint(problem)),
                    pointer: problem.key.clone(),
                };
                let errors: Vec<FieldError> = wrong.problems.iter().map(error).collect();
                let count = wrong.problems.len() + wrong.more;
                let detail = format!("the configuration has {count} problem(s); the one in force stays");
                Self { errors, ..Self::new(Code::ConfigInvalid, detail) }
            }
            Refused::Unbuildable(_) | Refused::Unread => {
                Self::new(Code::ConfigInvalid, format!("{}; the one in force stays", causes(refused)))
            }
            Refused::Busy => Self::new(Code::Overloaded, refused.to_string()).retry_after(OVERLOADED_RETRY),
            Refused::Leaving => Self::shutting_down(),
        }
    }

    fn of_store(failed: &ambit_store::StoreError) -> Self {
        match failed.kind() {
            ErrorKind::Internal => Self::new(Code::Internal, "the journal is not as it should be").because(failed),
            ErrorKind::Invalid
            | ErrorKind::Unauthenticated
            | ErrorKind::Forbidden
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::LimitReached
            | ErrorKind::Unavailable
            | ErrorKind::DeadlineExceeded
            | ErrorKind::Cancelled => Self::new(Code::StoreUnavailable, failed.to_string()),
        }
    }

    /// Why a session cannot be shown.
    pub(crate) fn of_lookup(failed: &LookupError) -> Self {
        match failed {
            LookupError::NotFound(id) => Self::new(Code::SessionNotFound, format!("session `{id}` does not exist")),
            LookupError::Store(failed) => Self::of_store(failed),
            LookupError::Unreadable(wrong) => Self::new(Code::Internal, "the session's journal cannot be understood").because(wrong),
        }
    }

    /// The error that a verdict is for a caller who waits, if it is one: only where a retry repeats nothing.
    pub(crate) fn of_verdict(view: &SessionView) -> Option<Self> {
        let Verdict { status, reason, cause, untouched, answer } = view.verdict?;
        if !untouched || answer.is_some() {
            return None;
        }
        let words = view.failure.as_ref().map(|failure| failure.detail.clone());
        let after = view.failure.as_ref().and_then(|failure| failure.retry_after);
        let (code, detail) = match (status, reason) {
            (Status::Failed, Reason::ModelUnavailable) => (Code::ModelUnavailable, words.unwrap_or_else(|| "no model answered".into())),
            (Status::Failed, Reason::ModelRejected) => {
                (Code::ModelRejected, words.unwrap_or_else(|| "the provider refused the request".into()))
            }
            (Status::Failed, Reason::Context) => {
                (Code::ContextTooLong, words.unwrap_or_else(|| "the prompt does not fit the model's window".into()))
            }
            (Status::Failed, Reason::Saturated) => {
                (Code::Saturated, words.unwrap_or_else(|| "no permit for a model call could be had".into()))
            }
            (Status::Failed, Reason::StoreLost) => (Code::StoreUnavailable, "the journal could not be written".into()),
            (Status::Failed, Reason::Internal) => (Code::Internal, "the session could not go on; quote the request id".into()),
            (Status::Incomplete, Reason::Limit(ambit_core::Axis::Deadline)) => {
                (Code::DeadlineExceeded, format!("no turn could be completed within the deadline of {} ms", view.limits.deadline_ms))
            }
            (Status::Cancelled, Reason::Shutdown) => (Code::ShuttingDown, "the server is shutting down".into()),
            (Status::Completed | Status::Incomplete | Status::Failed | Status::Cancelled, _) => return None,
        };
        let mut problem = Self::new(code, detail).session(view.id);
        if code == Code::ModelUnavailable {
            problem.cause = cause.map(Cause::as_str);
            if cause.is_some_and(|cause| !cause.is_retryable()) {
                problem = problem.for_good();
            }
        }
        if let Some(after) = after.filter(|_| problem.retryable) {
            problem = problem.retry_after(after);
        }
        Some(problem)
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(HeaderName::from_static("x-should-retry"), HeaderValue::from_static(if self.retryable { "true" } else { "false" }));
        if let Some(ms) = self.retry_after_ms {
            let shown = Duration::from_millis(ms).min(RETRY_AFTER_MAX);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(u64::try_from(shown.as_millis().div_ceil(1_000)).unwrap_or(60)));
            headers.insert(HeaderName::from_static("retry-after-ms"), HeaderValue::from(ms));
        }
        if let Some(id) = self.session_id.as_deref().and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(HeaderName::from_static("ambit-session-id"), id);
        }
        headers
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A caller's own text, cut to what helps to find the place.
pub(crate) fn echo(text: &str) -> String {
    match text.char_indices().nth(ECHO_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let headers = self.headers();
        let body = serde_json::to_vec(&self).unwrap_or_default();
        // The request id is put in by whoever knows it: the front.
        let mut response = (status, headers, body).into_response();
        response.extensions_mut().insert(IsProblem { behind: self.behind });
        response
    }
}

/// Marks a response whose body is a problem.
#[derive(Debug, Clone)]
pub(crate) struct IsProblem {
    /// What is behind it, for the log.
    pub(crate) behind: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(problem: &Problem, name: &str) -> Option<String> {
        problem.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn every_code_says_whether_and_when_to_come_back() {
        for code in Code::ALL {
            let problem = Problem::new(code, "x");
            assert_eq!(header(&problem, "x-should-retry"), Some(problem.retryable.to_string()), "{code:?}");
            assert_eq!(problem.retry_after_ms.is_some(), problem.retryable, "{code:?}");
            assert_eq!(header(&problem, "retry-after").is_some(), problem.retryable, "{code:?}");
            assert_eq!(code.status().is_client_error(), code.openai().0 != "server_error", "{code:?}");
            let given_up = problem.for_good();
            assert_eq!(
                (header(&given_up, "x-should-retry").as_deref(), header(&given_up, "retry-after")),
                (Some("false"), None),
                "{code:?}"
            );
        }
    }

    #[test]
    fn the_header_is_whole_seconds_up_to_a_minute_and_the_body_tells_the_truth() {
        for (ms, seconds) in [(0, "0"), (1, "1"), (1_000, "1"), (1_001, "2"), (60_000, "60"), (60_001, "60"), (3_600_000, "60")] {
            let problem = Problem::new(Code::Saturated, "x").retry_after(Duration::from_millis(ms));
            assert_eq!(header(&problem, "retry-after").as_deref(), Some(seconds), "{ms}");
            assert_eq!((problem.retry_after_ms, header(&problem, "retry-after-ms")), (Some(ms), Some(ms.to_string())), "{ms}");
        }
    }

    #[test]
    fn all_errors_are_told_up_to_a_bound() {
        let errors = |n: usize| (0..n).map(|i| FieldError { detail: "bad".into(), pointer: format!("/{i}") }).collect::<Vec<_>>();
        for (given, told, detail) in [(1, 1, "`/0`: bad"), (64, 64, "`/0`: bad (and 63 more)"), (65, 64, "`/0`: bad (and 64 more)")] {
            let problem = Problem::invalid(errors(given));
            assert_eq!((problem.errors.len(), problem.detail.as_str()), (told, detail));
            assert_eq!(problem.error.param.as_deref(), Some("/0"));
        }
    }

    #[test]
    fn what_a_caller_said_is_repeated_in_part_only() {
        let problem = Problem::invalid(vec![FieldError { detail: "bad".into(), pointer: "é".repeat(129) }]);
        assert_eq!(problem.errors[0].pointer, format!("{}...", "é".repeat(128)));
        let name = "n".repeat(200_000);
        let problem = Problem::of_start(&StartError::AgentNotFound { name, known: vec!["ops".into()] });
        assert!(problem.detail.len() < 200, "{}", problem.detail);
        assert_eq!(problem.error.param.as_deref(), Some("/agent"));
    }

    #[test]
    fn limits_that_are_too_high_name_their_place() {
        let refusal = ambit_orchestrator::LimitRefusal { axis: ambit_core::Axis::Deadline, wished: 2.0, allowed: 1.0 };
        let problem = Problem::of_start(&StartError::LimitsTooHigh(vec![refusal]));
        assert_eq!((problem.code, problem.error.param.as_deref()), (Code::LimitsTooHigh, Some("/limits/deadline_ms")));
    }
}
