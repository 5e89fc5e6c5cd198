//! `/v1/chat/completions`: a session in the form of OpenAI's chat completions.

mod body;
mod object;
mod stream;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use crate::http::Api;
use crate::http::described::StreamEvent;
use crate::http::front::Arrival;
use crate::http::openai::begin::begin;
use crate::http::openai::chat::body::Chat;
use crate::http::openai::chat::object::ChatCompletion;
use crate::http::openai::chat::stream::Chunks;
use crate::http::openai::described::ChatRequestDoc;
use crate::http::problem::Problem;
use crate::http::sessions::label;
use crate::http::sse::Events;

/// Runs an agent, as clients of OpenAI's chat completions ask for it.
///
/// `model` is the agent's name. Answers with the completion, or with its chunks. The member `ambit` takes limits, tools,
/// `on_limit`, metadata, `on_disconnect` and `previous_session_id` as `POST /v1/sessions` does. Parameters that mean
/// nothing here are listed in the header `ambit-ignored-params`.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "openai", operation_id = "chat_create",
    params(("idempotency-key" = Option<String>, Header, description = "1 to 255 printable characters, bare or quoted", nullable = false, min_length = 1, max_length = 255, pattern = r#"^([!#-~]([ -~]*[!-~])?|"([ !#-\[\]-~]|\\["\\])+")$"#)),
    request_body(content = ChatRequestDoc, description = "As OpenAI's, with our own member `ambit`"),
    responses(
        (status = 200, description = "The completion, or its chunks", content((ChatCompletion = "application/json"), (StreamEvent = "text/event-stream"))),
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
    let mut begun = begin::<Chat>(&api, arrival, &headers, body).await?;
    let id = begun.running.id;
    let mut response = if begun.ask.stream {
        let guard = begun.guard();
        let stream = api.orchestrator.follow(id, false).await.map_err(|failed| Problem::of_begun(&failed, id))?;
        let view = api.orchestrator.view(id, false).await.map_err(|failed| Problem::of_begun(&failed, id))?;
        let speech = Chunks::new(&view, begun.ask.include_usage);
        Events { stream, speech, session: id, due: begun.running.due, guard, _open: api.metrics.stream() }.into_response()
    } else {
        let view = begun.verdict(&api).await?;
        let mut response = Json(ChatCompletion::of(&view)).into_response();
        label(&mut response, &view);
        response
    };
    begun.name(&mut response);
    Ok(response)
}
