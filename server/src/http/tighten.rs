//! `PATCH /v1/sessions/{id}/limits`: tighter limits for a session that runs.

use ambit_orchestrator::Tightened;
use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use crate::http::Api;
use crate::http::body::read_limits;
use crate::http::described::TightenDoc;
use crate::http::front::{Arrival, body_time};
use crate::http::problem::Problem;
use crate::http::sessions::{read_body, session_id, shown};
use crate::http::types::{Include, SessionObject};

/// Tightens the limits of a running session.
///
/// A limit below what the session has spent already ends it at its next step, with that limit as reason. A session that has
/// its verdict is answered as it is. One and the same wish may be sent again.
#[utoipa::path(
    patch, path = "/v1/sessions/{id}/limits", tag = "sessions",
    params(("id" = String, Path, description = "`ses_<ULID>`, or `resp_<ULID>`", pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")),
    request_body = TightenDoc,
    responses(
        (status = 200, description = "The session; its limits are in its journal", body = SessionObject),
        (status = 202, description = "The session; another process runs it and has not journalled the wish yet, which is kept", body = SessionObject),
        (status = 400, description = "INVALID_REQUEST, LIMITS_TOO_HIGH", body = Problem),
        (status = 404, description = "SESSION_NOT_FOUND", body = Problem),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = Problem),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = Problem),
        (status = 503, description = "STORE_UNAVAILABLE, OVERLOADED", body = Problem),
        (status = 504, description = "DEADLINE_EXCEEDED", body = Problem),
    ),
)]
pub(crate) async fn limits(
    State(api): State<Api>,
    Extension(arrival): Extension<Arrival>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let id = session_id(id)?;
    let body = read_body(&headers, body, body_time(arrival, api.request(), None)).await?;
    let wish = read_limits(&body).map_err(Problem::invalid)?;
    let status = match api.orchestrator.tighten(id, wish).await.map_err(|failed| Problem::of_tightening(&failed))? {
        Tightened::Settled => StatusCode::OK,
        Tightened::Waiting => StatusCode::ACCEPTED,
    };
    let view = api.orchestrator.view(id, false).await.map_err(|failed| Problem::of_lookup(&failed))?;
    Ok(shown(status, &view, Include::default()))
}
