//! The HTTP API: routes, and what they all share. Errors become HTTP in `problem.rs` only.

mod body;
mod catalog;
mod deadline;
mod front;
mod health;
mod problem;
mod sessions;
mod sse;
mod types;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ambit_config::Config;
use ambit_orchestrator::Orchestrator;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use rand::RngExt as _;
use rand::rngs::StdRng;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::problem::{Code, Problem};
use crate::telemetry::metrics::{Metrics, Pool};
use crate::telemetry::traces::Traces;

pub(crate) use catalog::local;
pub(crate) use types::{Include, SessionObject};

/// What every handler may use.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) orchestrator: Orchestrator,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) traces: Traces,
    pub(crate) config: Arc<Config>,
    pub(crate) max_in_flight: usize,
    /// Longest that one request may take, from its head to the last byte.
    pub(crate) request: Duration,
    /// Where the API listens, once it does.
    pub(crate) address: Arc<OnceLock<SocketAddr>>,
    pub(crate) rng: Arc<Mutex<StdRng>>,
}

impl Api {
    fn next_request_id(&self) -> String {
        let number: u128 = self.rng.lock().unwrap_or_else(PoisonError::into_inner).random();
        format!("req_{number:032x}")
    }

    /// True for the origin that this process serves itself.
    fn is_own(&self, origin: &str) -> bool {
        let Some(address) = self.address.get() else { return false };
        origin == address.to_string() || origin == format!("localhost:{}", address.port())
    }

    /// Every agent with its sessions in flight.
    fn in_flight(&self) -> Vec<(Arc<str>, usize)> {
        let running = self.orchestrator.in_flight();
        self.orchestrator.agents().keys().map(|agent| (agent.clone(), running.get(agent).copied().unwrap_or(0))).collect()
    }

    fn pools(&self) -> Vec<Pool> {
        let models = self.orchestrator.gateway().pools().map(|pool| Pool {
            name: pool.pool.to_string(),
            limit: pool.permits as usize,
            in_use: pool.in_use as usize,
            sleeping: pool.sleeping as usize,
            queued: pool.queued as usize,
        });
        let tools = self.orchestrator.executor().bulkheads().into_iter().map(|pool| Pool {
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
    tags((name = "sessions", description = "Bounded runs of agents"), (name = "catalog", description = "What is configured"), (name = "health", description = "What machines ask")),
)]
struct Doc;

/// The API's routes, and the document that describes them.
fn documented() -> (Router<Api>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Doc::openapi())
        .routes(routes!(sessions::create, sessions::list))
        .routes(routes!(sessions::get))
        .routes(routes!(sessions::events))
        .routes(routes!(sessions::cancel))
        .routes(routes!(catalog::agents))
        .routes(routes!(catalog::agent))
        .routes(routes!(catalog::tools))
        .routes(routes!(catalog::profiles))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::version))
        .split_for_parts()
}

/// The OpenAPI document as JSON.
pub(crate) fn openapi() -> String {
    documented().1.to_pretty_json().unwrap_or_default()
}

/// What answers on the API's address.
pub(crate) fn router(api: Api) -> Router {
    let (routes, document) = documented();
    let document = Arc::<str>::from(document.to_json().unwrap_or_default());
    let routes = routes.route(
        "/openapi.json",
        get(move || {
            let document = document.clone();
            async move { ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], document.to_string()) }
        }),
    );
    finish(routes, api)
}

/// What answers on the admin address.
pub(crate) fn admin_router(api: Api) -> Router {
    let routes = Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/version", get(health::version))
        .route("/metrics", get(health::metrics));
    finish(routes, api)
}

/// Layers, from the inside out: a panic becomes `INTERNAL`; then what every request passes first.
fn finish(routes: Router<Api>, api: Api) -> Router {
    routes
        .fallback(async |uri: Uri| nothing_here(uri.path()).into_response())
        .method_not_allowed_fallback(async || Problem::new(Code::MethodNotAllowed, "no such method on this path").into_response())
        .layer(DefaultBodyLimit::max(sessions::BODY_MAX))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(api.clone(), front::front))
        .with_state(api)
}

/// Paths of the API's contract that are not built yet, and what they are for.
const NOT_BUILT: [(&str, &str); 9] = [
    ("/v1/responses", "OpenAI responses are"),
    ("/v1/chat/completions", "OpenAI chat completions are"),
    ("/v1/models", "the OpenAI list of models is"),
    ("/v1/attention", "the list of effects that need a person is"),
    ("/v1/audit", "the audit log is"),
    ("/v1/health", "the health of capabilities is"),
    ("/mcp", "the MCP server is"),
    ("/console", "the console is"),
    ("/admin", "administration over HTTP is"),
];
/// The same below a session.
const NOT_BUILT_OF_A_SESSION: [(&str, &str); 3] =
    [("/approvals", "approvals are"), ("/receipt", "receipts are"), ("/limits", "tightening the limits of a running session is")];

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
