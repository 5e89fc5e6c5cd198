//! `/v1/responses`: a session in the form of OpenAI's Responses API.

mod body;
pub(crate) mod input_items;
mod object;
mod stream;

use std::time::Duration;

use ambit_core::SessionId;
use ambit_core::session::Canceller;
use ambit_orchestrator::{SessionView, wall_ms};
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::http::Api;
use crate::http::described::StreamEvent;
use crate::http::front::Arrival;
use crate::http::openai::begin::{begin, said};
use crate::http::openai::described::ResponseRequestDoc;
use crate::http::openai::items::Items;
use crate::http::openai::named;
use crate::http::openai::responses::body::Responses;
use crate::http::openai::responses::object::{PREFIX, ResponseObject};
use crate::http::openai::responses::stream::Narration;
use crate::http::problem::{FieldError, Problem};
use crate::http::sessions::{CANCEL_WAIT, label, name_session, pairs, session_id};
use crate::http::sse::Events;

/// What is left of a deleted response.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = DeletedResponse)]
pub(crate) struct Deleted {
    id: String,
    /// Always `response`.
    object: &'static str,
    /// Always true.
    deleted: bool,
}

/// Runs an agent, as clients of OpenAI's Responses API ask for it.
///
/// `model` is the agent's name. Answers with the finished response; `"stream": true` streams its events; `"background":
/// true` answers at once. The member `ambit` takes limits, tools, `on_limit`, metadata and `on_disconnect` as
/// `POST /v1/sessions` does. Parameters that mean nothing here are listed in the header `ambit-ignored-params`.
#[utoipa::path(
    post, path = "/v1/responses", tag = "openai", operation_id = "responses_create",
    params(("idempotency-key" = Option<String>, Header, description = "1 to 255 printable characters, bare or quoted", nullable = false, min_length = 1, max_length = 255, pattern = r#"^([!#-~]([ -~]*[!-~])?|"([ !#-\[\]-~]|\\["\\])+")$"#)),
    request_body(content = ResponseRequestDoc, description = "As OpenAI's, with our own member `ambit`"),
    responses(
        (status = 200, description = "The response, or its events", content((ResponseObject = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = 400, description = "INVALID_REQUEST, LIMITS_TOO_HIGH, PROMPT_TOO_LARGE, CONTEXT_TOO_LONG, MODEL_REJECTED", body = Problem),
        (status = 404, description = "AGENT_NOT_FOUND, SESSION_NOT_FOUND", body = Problem),
        (status = 409, description = "IDEMPOTENCY_IN_PROGRESS", body = Problem),
        (status = 413, description = "PAYLOAD_TOO_LARGE", body = Problem),
        (status = 415, description = "UNSUPPORTED_MEDIA_TYPE", body = Problem),
        (status = 422, description = "IDEMPOTENCY_KEY_REUSED", body = Problem),
        (status = 503, description = "SATURATED, OVERLOADED, SHUTTING_DOWN, MODEL_UNAVAILABLE, STORE_UNAVAILABLE", body = Problem),
        (status = 504, description = "DEADLINE_EXCEEDED", body = Problem),
    ),
)]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(arrival): Extension<Arrival>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let mut begun = begin::<Responses>(&api, arrival, &headers, body).await?;
    let id = begun.running.id;
    let mut response = if begun.ask.stream {
        let guard = begun.guard();
        let stream = api.orchestrator.follow(id, false).await.map_err(|failed| Problem::of_begun(&failed, id))?;
        let view = api.orchestrator.view(id, false).await.map_err(|failed| Problem::of_begun(&failed, id))?;
        let speech = Narration::new(&view, None);
        Events { stream, speech, session: id, due: begun.running.due, guard, _open: api.metrics.stream() }.into_response()
    } else if begun.ask.background {
        let view = api.orchestrator.view(id, false).await.map_err(|failed| Problem::of_begun(&failed, id))?;
        as_it_stands(&api, &view).await
    } else {
        let view = begun.verdict(&api).await?;
        let items = if begun.ask.forget { Items::of_answer(&view) } else { said(&api, &view).await };
        let mut response = Json(ResponseObject::of(&view, &items)).into_response();
        label(&mut response, &view);
        response
    };
    begun.name(&mut response);
    Ok(response)
}

/// One response as it stands; `?stream=true` follows it from its first event, or behind `starting_after`.
#[utoipa::path(
    get, path = "/v1/responses/{id}", tag = "openai", operation_id = "responses_get",
    params(
        ("id" = String, Path, description = "`resp_<ULID>`, or `ses_<ULID>`", pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$"),
        ("stream" = Option<bool>, Query, description = "Answer with events", nullable = false),
        ("starting_after" = Option<u64>, Query, description = "`sequence_number` of the last event that is known; only with `stream=true`", nullable = false),
    ),
    responses(
        (status = 200, description = "The response, or its events", content((ResponseObject = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = 400, description = "INVALID_REQUEST", body = Problem),
        (status = 404, description = "SESSION_NOT_FOUND", body = Problem),
        (status = 503, description = "STORE_UNAVAILABLE", body = Problem),
    ),
)]
pub(crate) async fn get(
    State(api): State<Api>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let id = session_id(id)?;
    let Following { stream, after } = following(query.as_deref().unwrap_or_default()).map_err(Problem::invalid)?;
    if !stream {
        return looked_up(&api, id).await;
    }
    let stream = api.orchestrator.follow(id, false).await.map_err(|failed| Problem::of_lookup(&failed))?;
    let view = api.orchestrator.view(id, false).await.map_err(|failed| Problem::of_lookup(&failed))?;
    let left = Duration::from_millis(view.deadline_ms.saturating_sub(wall_ms()));
    // What is over already is read to its end in any case.
    let due = view.verdict.is_none().then(|| Instant::now() + left);
    let speech = Narration::new(&view, after);
    Ok(Events { stream, speech, session: id, due, guard: None, _open: api.metrics.stream() }.into_response())
}

/// Deletes a response: no id finds it any more. One that runs is cancelled.
#[utoipa::path(
    delete, path = "/v1/responses/{id}", tag = "openai", operation_id = "responses_delete",
    params(("id" = String, Path, description = "`resp_<ULID>`, or `ses_<ULID>`", pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")),
    responses(
        (status = 200, description = "It is deleted", body = Deleted),
        (status = 404, description = "SESSION_NOT_FOUND", body = Problem),
        (status = 503, description = "STORE_UNAVAILABLE", body = Problem),
    ),
)]
pub(crate) async fn delete(State(api): State<Api>, id: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let id = session_id(id)?;
    api.orchestrator.delete(id).await.map_err(|failed| Problem::of_lookup(&failed))?;
    let mut response = Json(Deleted { id: named(PREFIX, id), object: "response", deleted: true }).into_response();
    name_session(&mut response, id);
    Ok(response)
}

/// Asks a response to stop. Asking again, or after its end, changes nothing.
#[utoipa::path(
    post, path = "/v1/responses/{id}/cancel", tag = "openai", operation_id = "responses_cancel",
    params(("id" = String, Path, description = "`resp_<ULID>`, or `ses_<ULID>`", pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")),
    responses(
        (status = 200, description = "The response", body = ResponseObject),
        (status = 404, description = "SESSION_NOT_FOUND", body = Problem),
        (status = 503, description = "STORE_UNAVAILABLE", body = Problem),
    ),
)]
pub(crate) async fn cancel(State(api): State<Api>, id: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let id = session_id(id)?;
    api.orchestrator.cancel(id, Canceller::Caller).await.map_err(|failed| Problem::of_lookup(&failed))?;
    api.orchestrator.wait(id, Instant::now() + CANCEL_WAIT).await;
    looked_up(&api, id).await
}

/// A session that somebody asks for by its id.
async fn looked_up(api: &Api, id: SessionId) -> Result<Response, Problem> {
    let view = api.orchestrator.view(id, false).await.map_err(|failed| Problem::of_lookup(&failed))?;
    Ok(as_it_stands(api, &view).await)
}

/// A session in its journal's words.
async fn as_it_stands(api: &Api, view: &SessionView) -> Response {
    let items = if view.verdict.is_some() { said(api, view).await } else { Items::new(view.id) };
    let mut response = Json(ResponseObject::of(view, &items)).into_response();
    name_session(&mut response, view.id);
    response
}

/// How a response is to be read.
#[derive(Debug, Default, PartialEq)]
struct Following {
    stream: bool,
    after: Option<u64>,
}

/// Other parameters are ignored, as in bodies of this form.
fn following(query: &str) -> Result<Following, Vec<FieldError>> {
    let mut following = Following::default();
    let mut errors = Vec::new();
    for (key, value) in pairs(query) {
        let mut wrong = |detail: &str| errors.push(FieldError { detail: detail.into(), pointer: key.clone() });
        match (key.as_str(), value.as_str()) {
            ("stream", "true") => following.stream = true,
            ("stream", "false") => following.stream = false,
            ("stream", _) => wrong("expected true or false"),
            // 63 bits: what a number of the document can say.
            ("starting_after", number) => match number.parse::<i64>().map(u64::try_from) {
                Ok(Ok(number)) => following.after = Some(number),
                Ok(Err(_)) | Err(_) => wrong("expected the sequence_number of an event"),
            },
            _ => {}
        }
    }
    if errors.is_empty() { Ok(following) } else { Err(errors) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_leniently_but_not_wrongly() {
        assert_eq!(
            following("stream=true&starting_after=7&include_obfuscation=false").unwrap(),
            Following { stream: true, after: Some(7) }
        );
        assert_eq!(following("").unwrap(), Following::default());
        for query in ["stream=yes", "starting_after=-1", "starting_after=x", "starting_after=9223372036854775808"] {
            assert_eq!(following(query).unwrap_err().len(), 1, "{query}");
        }
    }
}
