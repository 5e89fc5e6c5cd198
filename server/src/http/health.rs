//! Liveness, readiness, version, metrics: what machines ask.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::http::Api;
use crate::http::problem::{Code, Problem};
use crate::http::types::{Readiness, Version};

/// Whether the process runs at all; checks no dependency.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "It runs", body = String)))]
pub(crate) async fn livez() -> &'static str {
    "ok\n"
}

/// Whether the process takes sessions; false first when it is asked to stop.
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    params(("verbose" = Option<String>, Query, description = "Show each check")),
    responses((status = 200, description = "It does", body = Readiness), (status = 503, description = "It does not", body = Readiness)),
)]
pub(crate) async fn readyz(State(api): State<Api>, RawQuery(query): RawQuery) -> Response {
    let verbose = query.is_some_and(|query| query.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")));
    let ready = api.orchestrator.is_ready();
    let store = api.orchestrator.store().gauges();
    let checks = verbose.then(|| {
        let mut checks = BTreeMap::new();
        checks.insert("draining", (!ready).to_string());
        checks.insert("sessions", api.orchestrator.quiescence().sessions.to_string());
        checks.insert("store_queue", store.queued.to_string());
        checks
    });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(Readiness { status: if ready { "ready" } else { "not_ready" }, checks })).into_response()
}

/// What runs here.
#[utoipa::path(get, path = "/version", tag = "health", responses((status = 200, description = "Version, profile, revision", body = Version)))]
pub(crate) async fn version(State(api): State<Api>) -> Json<Version> {
    Json(Version {
        version: env!("CARGO_PKG_VERSION"),
        config_revision: api.config.revision().to_owned(),
        profile: api.config.profile().to_owned(),
    })
}

/// Prometheus text. On the admin listener only.
pub(crate) async fn metrics(State(api): State<Api>) -> Response {
    match api.metrics.text(&api.pools(), &api.in_flight()) {
        Ok(text) => ([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"))], text).into_response(),
        Err(_) => Problem::new(Code::Internal, "the metrics cannot be written").into_response(),
    }
}
