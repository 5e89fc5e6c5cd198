//! The admin listener: the configuration in force, reload, drain, and what machines ask. Its own OpenAPI document.

use std::sync::LazyLock;

use ambit_config::Change;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde::Serialize;
use tracing::info;
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::document::complete;
use crate::http::problem::Problem;
use crate::http::types::rfc3339;
use crate::http::{Api, health, pages};
use crate::reload::Trigger;

/// Most changes that one answer lists.
const CHANGES_SHOWN_MAX: usize = 200;

#[derive(OpenApi)]
#[openapi(
    info(title = "Ambit administration", description = "For who operates the process. On the admin listener only."),
    tags((name = "admin", description = "Configuration, reload, drain"), (name = "health", description = "What machines ask")),
)]
struct Doc;

/// The document as it is served: what it describes is fixed when the program is built.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| complete(&documented().1).to_string());

/// The routes of the admin listener, and the document that describes them.
pub(crate) fn documented() -> (Router<Api>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Doc::openapi())
        .routes(routes!(config))
        .routes(routes!(reload))
        .routes(routes!(drain))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::version))
        .routes(routes!(health::metrics))
        .routes(routes!(openapi))
        .routes(routes!(pages::index))
        .routes(routes!(pages::page))
        .split_for_parts()
}

/// One key that differs.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ChangeObject {
    key: String,
    /// As JSON, at most 200 characters of it; secrets as `***`. Null if it was not there.
    before: Option<String>,
    /// The same afterwards; null if it is not there any more.
    after: Option<String>,
    /// Where the new value comes from.
    source: Option<String>,
}

/// The configuration in force.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ConfigObject {
    /// Always `config`.
    object: &'static str,
    revision: String,
    profile: String,
    /// Since when it is in force.
    since: String,
    /// Every setting; secrets as `***`.
    #[schema(value_type = Object)]
    settings: serde_json::Value,
    /// Where each value comes from, by key.
    #[schema(value_type = Object)]
    sources: serde_json::Value,
    /// What the file said when it was last read, and only a restart brings.
    needs_restart: Vec<ChangeObject>,
}

/// What a reload came to.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ReloadObject {
    /// Always `reload`.
    object: &'static str,
    /// `applied`, or `unchanged`.
    outcome: &'static str,
    previous_revision: String,
    revision: String,
    /// What sessions that begin from now on have otherwise; at most 200 keys.
    changed: Vec<ChangeObject>,
    /// How many keys have changed, listed or not.
    changed_count: usize,
    /// What only a restart brings.
    needs_restart: Vec<ChangeObject>,
    /// MCP servers that were not there, whose tools are left out for now.
    left_out: Vec<LeftOut>,
    /// What should be known besides.
    notices: Vec<String>,
}

/// An MCP server that was not there.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LeftOut {
    server: String,
    reason: String,
}

/// What still runs in a process that takes no more sessions.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DrainObject {
    /// Always `drain`.
    object: &'static str,
    /// Sessions without a verdict.
    in_flight: usize,
    /// Sessions that are not closed: those in flight, and those that settle.
    open: usize,
    /// When the last verdict falls at the latest, milliseconds from now. Settlements may take two minutes more.
    deadline_ms: u64,
}

/// The configuration in force, with the source of each value. Secrets are masked.
#[utoipa::path(get, path = "/admin/config", tag = "admin", responses((status = 200, description = "The configuration in force", body = ConfigObject)))]
pub(crate) async fn config(State(api): State<Api>) -> Json<ConfigObject> {
    let in_force = api.reloader.in_force();
    let config = &in_force.config;
    Json(ConfigObject {
        object: "config",
        revision: config.revision().to_owned(),
        profile: config.profile().to_owned(),
        since: rfc3339(in_force.since_ms),
        settings: config.show_json().clone(),
        sources: api.reloader.places(),
        needs_restart: changes(&in_force.needs_restart),
    })
}

/// Reads the configuration again and lets sessions begin with it from now on; those that run keep what they began with.
///
/// One that cannot be used changes nothing; `errors` has everything that is wrong with it. While one reload runs and another
/// one waits, a third is refused as `OVERLOADED`.
#[utoipa::path(
    post, path = "/admin/reload", tag = "admin",
    responses(
        (status = 200, description = "What has changed", body = ReloadObject),
        (status = 422, description = "CONFIG_INVALID", body = Problem),
        (status = 503, description = "OVERLOADED, SHUTTING_DOWN", body = Problem),
    ),
)]
pub(crate) async fn reload(State(api): State<Api>) -> Result<Json<ReloadObject>, Problem> {
    let report = api.reloader.reload(Trigger::Request).await.map_err(|refused| Problem::of_reload(&refused))?;
    Ok(Json(ReloadObject {
        object: "reload",
        outcome: report.outcome(),
        changed: changes(&report.changed),
        changed_count: report.changed.len(),
        needs_restart: changes(&report.needs_restart),
        left_out: report.left_out.iter().map(|(server, reason)| LeftOut { server: server.to_string(), reason: reason.clone() }).collect(),
        previous_revision: report.previous_revision,
        revision: report.revision,
        notices: report.notices,
    }))
}

/// Takes no more sessions, lets those that run finish, and ends the process, as SIGTERM does. Asking again changes nothing.
#[utoipa::path(post, path = "/admin/drain", tag = "admin", responses((status = 202, description = "What still runs", body = DrainObject)))]
pub(crate) async fn drain(State(api): State<Api>) -> (StatusCode, Json<DrainObject>) {
    // Before the answer, so that whoever reads it finds the process not ready.
    api.orchestrator.shut_the_door();
    if !api.leave.is_cancelled() {
        info!("asked to drain");
        api.leave.cancel();
    }
    let deadline = api.reloader.deadline_max();
    let object = DrainObject {
        object: "drain",
        in_flight: api.in_flight().iter().map(|(_, count)| count).sum(),
        open: api.orchestrator.quiescence().sessions,
        deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
    };
    (StatusCode::ACCEPTED, Json(object))
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "health", responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], DOCUMENT.as_str()).into_response()
}

fn changes(changes: &[Change]) -> Vec<ChangeObject> {
    let shown = |change: &Change| ChangeObject {
        key: change.key.clone(),
        before: change.before.clone(),
        after: change.after.clone(),
        source: change.source.clone(),
    };
    changes.iter().take(CHANGES_SHOWN_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_changes_are_listed_as_may_be_and_not_one_more() {
        let all: Vec<Change> =
            (0..=CHANGES_SHOWN_MAX).map(|n| Change { key: n.to_string(), before: None, after: None, source: None }).collect();
        assert_eq!((changes(&all[1..]).len(), changes(&all).len()), (CHANGES_SHOWN_MAX, CHANGES_SHOWN_MAX));
    }
}
