//! The HTTP API: routes, and what they all share. Errors become HTTP in `problem.rs` only.

mod admin;
mod body;
mod catalog;
mod deadline;
mod described;
mod document;
mod entrance;
mod front;
mod health;
mod idempotency;
mod json;
mod openai;
mod pages;
mod problem;
mod sessions;
mod sse;
mod standing;
mod tighten;
mod types;

use std::sync::Arc;
use std::time::Duration;

use ambit_config::Config;
use ambit_core::signal::DependencyKind;
use ambit_orchestrator::Orchestrator;
use axum::extract::DefaultBodyLimit;
use axum::http::Uri;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::health::StoreCheck;
use crate::http::problem::{Code, Problem};
use crate::reload::Reloader;
use crate::telemetry::metrics::{Metrics, Pool};

pub(crate) use catalog::local;
pub(crate) use entrance::Entrance;
pub(crate) use front::Front;
pub(crate) use sse::payload as event_json;
pub(crate) use types::{Include, SessionList, SessionObject, rfc3339};

/// What every handler may use.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) orchestrator: Orchestrator,
    pub(crate) metrics: Arc<Metrics>,
    /// Holds the configuration in force.
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) max_in_flight: usize,
    pub(crate) front: Front,
    /// What was last seen of the store.
    pub(crate) store: Arc<StoreCheck>,
    /// Says that the process should finish what runs and end.
    pub(crate) leave: CancellationToken,
    /// Since when this process offers its agents, milliseconds since 1970.
    pub(crate) since_ms: u64,
}

impl Api {
    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.reloader.in_force().config.clone()
    }

    /// Longest that one request may take, from its head to the last byte.
    pub(crate) fn request(&self) -> Duration {
        self.config().request().0
    }

    /// Every agent with its sessions in flight; also one that is configured no more, as long as a session of it runs.
    fn in_flight(&self) -> Vec<(Arc<str>, usize)> {
        let mut running = self.orchestrator.in_flight();
        for agent in self.orchestrator.agents().keys() {
            running.entry(agent.clone()).or_insert(0);
        }
        running.into_iter().collect()
    }

    fn pools(&self) -> Vec<Pool> {
        let setup = self.orchestrator.setup();
        let models = setup.gateway().pools().map(|pool| Pool {
            kind: DependencyKind::Model,
            name: pool.pool.to_string(),
            limit: pool.permits as usize,
            in_use: pool.in_use as usize,
            sleeping: pool.sleeping as usize,
            queued: pool.queued as usize,
        });
        let tools = setup.executor().bulkheads().into_iter().map(|pool| Pool {
            kind: DependencyKind::Tool,
            name: pool.pool().to_string(),
            limit: pool.permits() as usize,
            in_use: pool.in_use() as usize,
            sleeping: pool.sleeping() as usize,
            queued: pool.queued() as usize,
        });
        models.chain(tools).collect()
    }
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Ambit", description = "Runs tool-using agents that always stop: on time, within budget, with every side effect accounted for."),
    tags((name = "sessions", description = "Bounded runs of agents"), (name = "catalog", description = "What is configured"), (name = "health", description = "What machines ask"), (name = "openai", description = "The same sessions in OpenAI's forms, and agents as models")),
)]
struct Doc;

/// The API's routes, and the document that describes them.
fn documented() -> (Router<Api>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Doc::openapi())
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::get))
        .routes(routes!(sessions::events))
        .routes(routes!(sessions::cancel))
        .routes(routes!(tighten::limits))
        .routes(routes!(catalog::agents))
        .routes(routes!(catalog::agent))
        .routes(routes!(catalog::tools))
        .routes(routes!(catalog::profiles))
        .routes(routes!(openai::responses::create))
        .routes(routes!(openai::responses::get, openai::responses::delete))
        .routes(routes!(openai::responses::cancel))
        .routes(routes!(openai::responses::input_items::input_items))
        .routes(routes!(openai::chat::create))
        .routes(routes!(openai::models::list))
        .routes(routes!(openai::models::get))
        .routes(routes!(standing::health))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::version))
        .routes(routes!(document::openapi))
        .routes(routes!(pages::index))
        .routes(routes!(pages::page))
        .split_for_parts()
}

/// The OpenAPI document.
pub(crate) fn openapi() -> String {
    serde_json::to_string_pretty(&document::complete(&documented().1)).unwrap_or_default()
}

/// What answers on the API's address.
pub(crate) fn router(api: Api) -> Router {
    finish(documented().0, api)
}

/// What answers on the admin address.
pub(crate) fn admin_router(api: Api) -> Router {
    finish(admin::documented().0, api)
}

/// Layers, from the inside out: a panic becomes `INTERNAL`; then what every request passes first.
fn finish(routes: Router<Api>, api: Api) -> Router {
    routes
        .fallback(async |uri: Uri| nothing_here(uri.path()).into_response())
        .method_not_allowed_fallback(async || {
            Problem::new(Code::MethodNotAllowed, "no such method on this path; the header `allow` lists those there are").into_response()
        })
        .layer(DefaultBodyLimit::max(sessions::BODY_MAX))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(api.front.clone(), front::front))
        .with_state(api)
}

/// Paths of the API's contract that are not built yet, and what they are for.
const NOT_BUILT: [(&str, &str); 5] = [
    ("/v1/attention", "the list of effects that need a person is"),
    ("/v1/audit", "the audit log is"),
    ("/mcp", "the MCP server is"),
    ("/console", "the console is"),
    ("/admin/breakers", "the override of breakers is"),
];
/// The same below a session.
const NOT_BUILT_OF_A_SESSION: [(&str, &str); 2] = [("/approvals", "approvals are"), ("/receipt", "receipts are")];

fn nothing_here(path: &str) -> Problem {
    let below = |part: &str| path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let known = NOT_BUILT.iter().find(|(part, _)| below(part));
    let of_a_session = || NOT_BUILT_OF_A_SESSION.iter().find(|(part, _)| path.starts_with("/v1/sessions/") && path.contains(part));
    let detail = match known.or_else(of_a_session) {
        Some((_, what)) => format!("{what} not built yet; GET /openapi.json lists what there is"),
        None => "no such path; GET /openapi.json lists them".to_owned(),
    };
    Problem::new(Code::NotFound, detail)
}

fn panicked(_panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    tracing::error!("a handler panicked");
    Problem::new(Code::Internal, "the request could not be answered; quote the request id").into_response()
}

/// The view of a session as JSON, for the command line.
pub(crate) fn session_json(view: &ambit_orchestrator::SessionView) -> String {
    let Json(object) = Json(SessionObject::of(view, Include::default()));
    serde_json::to_string_pretty(&object).unwrap_or_default()
}
