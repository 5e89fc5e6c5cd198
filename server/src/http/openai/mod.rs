//! The OpenAI-compatible endpoints: other shapes for the same sessions, under the same limits.
//!
//! `model` names an agent. Nothing that comes through these shapes lifts a limit, adds a tool or replaces an instruction.

mod ask;
mod begin;
pub(crate) mod chat;
mod described;
mod items;
mod messages;
pub(crate) mod models;
mod quote;
pub(crate) mod responses;

use ambit_core::SessionId;
use ambit_orchestrator::SessionView;
use serde::Serialize;
use utoipa::ToSchema;

/// The id of a session under another name.
fn named(prefix: &str, id: SessionId) -> String {
    format!("{prefix}{}", id.ulid())
}

/// Why a session failed, in the words of OpenAI's clients.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Failure {
    /// A code of OpenAI's where one fits; ours is in `ambit`.
    code: &'static str,
    message: String,
}

impl Failure {
    /// `None` if the session did not fail.
    fn of(view: &SessionView) -> Option<Self> {
        let verdict = view.verdict.filter(|verdict| verdict.status == ambit_core::Status::Failed)?;
        let code = match (verdict.reason, verdict.cause) {
            (ambit_core::Reason::ModelRejected | ambit_core::Reason::Context, _) => "invalid_prompt",
            (_, Some(ambit_core::Cause::RateLimited)) => "rate_limit_exceeded",
            _ => "server_error",
        };
        let words = view.failure.as_ref().map(|failure| failure.detail.clone());
        Some(Self { code, message: words.unwrap_or_else(|| format!("the session failed: {}", verdict.reason)) })
    }
}
