//! Sessions over HTTP: start (waiting, in the background, as a stream), look, list, follow, cancel.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ambit_core::SessionId;
use ambit_core::session::Canceller;
use ambit_orchestrator::{Cursor, LookupError, SessionRequest, SessionView};
use ambit_store::{Order, Page};
use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tracing::error;

use crate::http::Api;
use crate::http::body::{self, SessionBody};
use crate::http::catalog::local;
use crate::http::deadline::{HeaderDeadline, of_headers};
use crate::http::described::{ListOrder, SessionRequestDoc, SessionStatus, StreamEvent};
use crate::http::front::{Arrival, body_time};
use crate::http::idempotency::{self, key_of};
use crate::http::json;
use crate::http::problem::{Code, FieldError, Problem, echo};
use crate::http::sse::{Events, Native};
use crate::http::types::{Include, SessionList, SessionObject};

/// Said of what is no event's id.
const NO_EVENT: &str = "expected the id of an event, like 12.0.3.340";
/// Largest body of a request, bytes.
pub(crate) const BODY_MAX: usize = 256 << 10;
/// Most bytes of a refused body that are read over.
const DISCARD_MAX: usize = 1 << 20;
/// Longest that reading over a refused body may take.
const DISCARD_TIME: Duration = Duration::from_secs(1);
/// Longest wait that `Prefer: wait` is granted.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// How long cancelling waits for the verdict that it causes.
pub(crate) const CANCEL_WAIT: Duration = Duration::from_secs(5);
/// Sessions on a page, if nobody says how many.
const PAGE_DEFAULT: u32 = 20;
/// Most sessions on a page.
const PAGE_MAX: u32 = 100;

/// What `Prefer` asks for (RFC 7240).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Preference {
    respond_async: bool,
    wait: Option<Duration>,
}

impl Preference {
    /// True if caller and session go separate ways once it is begun, however the answer is given.
    const fn parts(self, body: &SessionBody) -> bool {
        body.background || self.respond_async
    }

    /// Says which preferences were kept.
    fn name(self, response: &mut Response) {
        let applied = match (self.respond_async, self.wait.is_some()) {
            (true, true) => "respond-async, wait",
            (true, false) => "respond-async",
            (false, true) => "wait",
            (false, false) => return,
        };
        response.headers_mut().insert(HeaderName::from_static("preference-applied"), HeaderValue::from_static(applied));
    }
}

/// True if the session goes on without its caller.
fn outlives(body: &SessionBody, preference: Preference, has_key: bool) -> bool {
    // Whoever holds a key means to ask again: the answer has to be there then.
    body.continues.unwrap_or(preference.parts(body) || has_key)
}

/// Starts a session.
///
/// Answers with the finished session; `Accept: text/event-stream` (or `"stream": true`) streams its events; `Prefer:
/// respond-async` (or `"background": true`) answers 202 at once, `Prefer: wait=N` after N seconds. With `Idempotency-Key`
/// the same request is answered by the same session for a day, and a caller who goes away does not cancel it.
#[utoipa::path(
    post, path = "/v1/sessions", tag = "sessions",
    params(("idempotency-key" = Option<String>, Header, description = "1 to 255 printable characters, bare or quoted", nullable = false, min_length = 1, max_length = 255, pattern = r#"^([!#-~]([ -~]*[!-~])?|"([ !#-\[\]-~]|\\["\\])+")$"#)),
    request_body = SessionRequestDoc,
    responses(
        (status = 200, description = "The session with its verdict, or its events", content((SessionObject = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = 202, description = "The session goes on; see Location", body = SessionObject),
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
    // Before the body is looked at: a full or leaving process costs next to nothing.
    let (header_deadline, key) = match at_the_door(&api, &headers, arrival) {
        Ok(read) => read,
        Err(problem) => {
            discard(body).await;
            return Err(problem);
        }
    };
    let preference = prefer(&headers);
    let value = read_body(&headers, body, body_time(arrival, api.request(), header_deadline)).await?;
    let body = body::read(&value).map_err(Problem::invalid)?;
    let key = key.map(|key| idempotency::named(key, &body.agent, &value, &local()));
    let streams = body.stream || accepts_stream(&headers);
    let background = !streams && preference.parts(&body);
    // Whoever may be answered 202 may follow later, and relies on it.
    let leaves = preference.parts(&body) || (!streams && preference.wait.is_some());
    let continues = outlives(&body, preference, key.is_some());
    let after =
        if streams && key.is_some() { last_event_id(&headers).map_err(|wrong| Problem::invalid(vec![wrong]))? } else { Cursor::default() };
    let request = request(body, arrival, header_deadline, streams || leaves, leaves);
    let request = SessionRequest { continues, idempotency: key, trace: Some(arrival.place.context(&headers)), ..request };
    let mut running = api.orchestrator.start(request).await.map_err(|failed| Problem::of_start(&failed))?;
    let guard = (!continues).then(|| running.cancel_on_drop());
    let replayed = running.replayed;

    if streams {
        let stream = api.orchestrator.follow(running.id, false).await.map_err(|failed| Problem::of_begun(&failed, running.id))?;
        let events = Events {
            stream: stream.behind(after),
            speech: Native::new(running.id),
            session: running.id,
            due: running.due,
            guard,
            _open: api.metrics.stream(),
        };
        let mut response = events.into_response();
        name_source(&mut response, header_deadline);
        name_replay(&mut response, replayed);
        return Ok(response);
    }
    let until = match (background, preference.wait) {
        (true, None) => Some(Instant::now()),
        (_, Some(wait)) => Some(Instant::now() + wait.min(WAIT_MAX)),
        (false, None) => None,
    };
    let view = if background && preference.wait.is_none() { None } else { running.verdict(until).await };
    let mut response = match view {
        Some(view) => {
            let answer = Problem::of_verdict(&view).map_or_else(|| finished(&view), IntoResponse::into_response);
            if let Some(guard) = guard {
                guard.disarm();
            }
            answer
        }
        // Whoever asked not to wait is not expected to stay; without a wait, another process has taken the session over.
        None => {
            if let Some(guard) = guard {
                guard.disarm();
            }
            accepted(&api, running.id).await?
        }
    };
    preference.name(&mut response);
    name_source(&mut response, header_deadline);
    name_replay(&mut response, replayed);
    Ok(response)
}

/// What can be refused without a look at the body. Gives the deadline and the idempotency key of the headers.
pub(crate) fn at_the_door(api: &Api, headers: &HeaderMap, arrival: Arrival) -> Result<(Option<HeaderDeadline>, Option<Arc<str>>), Problem> {
    if !api.orchestrator.is_ready() {
        api.metrics.shed("shutting_down");
        return Err(Problem::shutting_down());
    }
    // Who asks again needs no place.
    if !api.orchestrator.has_place() && !headers.contains_key("idempotency-key") {
        api.metrics.shed("overloaded");
        return Err(Problem::overloaded(api.max_in_flight));
    }
    let key = key_of(headers)?;
    Ok((of_headers(headers, arrival.wall_ms)?, key))
}

/// One session as it stands. `Prefer: wait=N` waits for its verdict.
#[utoipa::path(
    get, path = "/v1/sessions/{id}", tag = "sessions",
    params(
        ("id" = String, Path, description = "`ses_<ULID>`, or `resp_<ULID>`", pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$"),
        ("include" = Option<String>, Query, description = "`steps`, `transcript`, or both with a comma", nullable = false, pattern = "^(steps|transcript)(,(steps|transcript))*$"),
    ),
    responses(
        (status = 200, description = "The session", body = SessionObject),
        (status = 400, description = "INVALID_REQUEST", body = Problem),
        (status = 404, description = "SESSION_NOT_FOUND", body = Problem),
        (status = 503, description = "STORE_UNAVAILABLE", body = Problem),
    ),
)]
pub(crate) async fn get(
    State(api): State<Api>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = session_id(id)?;
    let include = include(query.as_deref())?;
    // There is nothing to respond to later: only waiting means something here.
    let preference = Preference { respond_async: false, ..prefer(&headers) };
    if let Some(wait) = preference.wait {
        api.orchestrator.wait(id, Instant::now() + wait.min(WAIT_MAX)).await;
    }
    let view = api.orchestrator.view(id, include.transcript).await.map_err(|failed| Problem::of_lookup(&failed))?;
    let mut response = shown(StatusCode::OK, &view, include);
    preference.name(&mut response);
    Ok(response)
}

/// A page of sessions, the youngest first.
#[utoipa::path(
    get, path = "/v1/sessions", tag = "sessions",
    params(
        ("after" = Option<String>, Query, description = "Begin behind this session", nullable = false, pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$"),
        ("limit" = Option<u32>, Query, description = "20 if absent", nullable = false, minimum = 1, maximum = 100),
        ("order" = inline(Option<ListOrder>), Query, description = "`desc` if absent", nullable = false),
        ("status" = Option<SessionStatus>, Query, description = "Only of this status", nullable = false),
        ("agent" = Option<String>, Query, description = "Only of this agent", nullable = false),
    ),
    responses(
        (status = 200, description = "The page", body = SessionList),
        (status = 400, description = "INVALID_REQUEST", body = Problem),
        (status = 503, description = "STORE_UNAVAILABLE", body = Problem),
    ),
)]
pub(crate) async fn list(State(api): State<Api>, RawQuery(query): RawQuery) -> Result<Json<SessionList>, Problem> {
    let page = page(query.as_deref().unwrap_or_default()).map_err(Problem::invalid)?;
    let found = api.orchestrator.list(page).await.map_err(|failed| Problem::of_lookup(&failed))?;
    let mut data = Vec::with_capacity(found.rows.len());
    let (first, last) = (found.rows.first().map(|row| row.id.to_string()), found.rows.last().map(|row| row.id.to_string()));
    for row in &found.rows {
        match api.orchestrator.view(row.id, false).await {
            Ok(view) => data.push(SessionObject::of(&view, Include::default())),
            // One damaged journal must not hide the others; asking for that session alone says what is wrong.
            Err(LookupError::Unreadable(wrong)) => error!(session = %row.id, error = %wrong, "left out of a list"),
            Err(failed) => return Err(Problem::of_lookup(&failed)),
        }
    }
    Ok(Json(SessionList { object: "list", data, first_id: first, last_id: last, has_more: found.has_more }))
}

/// A session's events: those that were, from `Last-Event-ID` on, then those that come, until the terminal one.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/events", tag = "sessions",
    params(
        ("id" = String, Path, description = "`ses_<ULID>`, or `resp_<ULID>`", pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$"),
        ("starting_after" = Option<String>, Query, description = "Id of the last event that is known; goes before `Last-Event-ID`", nullable = false, pattern = "^[0-9]{1,18}(\\.[0-9]{1,9}(\\.[0-9]{1,9}\\.[0-9]{1,18})?)?$"),
        ("settlement" = Option<bool>, Query, description = "Also what comes after the verdict", nullable = false),
    ),
    responses(
        (status = 200, description = "Events, the last of them terminal", body = StreamEvent, content_type = "text/event-stream"),
        (status = 400, description = "INVALID_REQUEST", body = Problem),
        (status = 404, description = "SESSION_NOT_FOUND", body = Problem),
        (status = 503, description = "STORE_UNAVAILABLE", body = Problem),
    ),
)]
pub(crate) async fn events(
    State(api): State<Api>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = session_id(id)?;
    let mut settlement = false;
    let mut after = None;
    let mut errors = Vec::new();
    for (key, value) in pairs(query.as_deref().unwrap_or_default()) {
        match key.as_str() {
            "starting_after" => after = Some(cursor(&value, "starting_after")),
            "settlement" if value == "true" || value == "false" => settlement = value == "true",
            "settlement" => errors.push(FieldError { detail: "expected true or false".into(), pointer: key }),
            _ => errors.push(FieldError { detail: "unknown parameter; there are starting_after and settlement".into(), pointer: key }),
        }
    }
    let after = after.unwrap_or_else(|| last_event_id(&headers)).unwrap_or_else(|wrong| {
        errors.push(wrong);
        Cursor::default()
    });
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let stream = api.orchestrator.follow(id, settlement).await.map_err(|failed| Problem::of_lookup(&failed))?.behind(after);
    let view = api.orchestrator.view(id, false).await.map_err(|failed| Problem::of_lookup(&failed))?;
    let left = Duration::from_millis(view.deadline_ms.saturating_sub(ambit_orchestrator::wall_ms()));
    // What is over already is read to its end in any case.
    let due = (!settlement && view.verdict.is_none()).then(|| Instant::now() + left);
    let speech = if settlement { Native::settling(id, view.verdict.is_some()) } else { Native::new(id) };
    Ok(Events { stream, speech, session: id, due, guard: None, _open: api.metrics.stream() }.into_response())
}

/// Asks a session to stop. Asking again, or after its end, changes nothing.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/cancel", tag = "sessions",
    params(("id" = String, Path, description = "`ses_<ULID>`, or `resp_<ULID>`", pattern = "^(ses|resp)_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}$")),
    responses(
        (status = 200, description = "The session", body = SessionObject),
        (status = 404, description = "SESSION_NOT_FOUND", body = Problem),
        (status = 503, description = "STORE_UNAVAILABLE", body = Problem),
    ),
)]
pub(crate) async fn cancel(State(api): State<Api>, id: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let id = session_id(id)?;
    api.orchestrator.cancel(id, Canceller::Caller).await.map_err(|failed| Problem::of_lookup(&failed))?;
    api.orchestrator.wait(id, Instant::now() + CANCEL_WAIT).await;
    let view = api.orchestrator.view(id, false).await.map_err(|failed| Problem::of_lookup(&failed))?;
    Ok(shown(StatusCode::OK, &view, Include::default()))
}

/// Reads and reads over: at most [`BODY_MAX`] bytes are kept.
pub(crate) async fn read_body(headers: &HeaderMap, body: Body, until: Instant) -> Result<Value, Problem> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        discard(body).await;
        return Err(Problem::at(Code::UnsupportedMediaType, "content-type", "send Content-Type: application/json"));
    }
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    loop {
        match timeout_at(until, chunks.next()).await {
            Err(_) => return Err(Problem::new(Code::DeadlineExceeded, "the body did not arrive in time")),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(Problem::new(Code::InvalidRequest, "the body broke off")),
            Ok(Some(Ok(chunk))) if bytes.len() + chunk.len() > BODY_MAX => {
                discard(Body::from_stream(chunks)).await;
                return Err(Problem::new(Code::PayloadTooLarge, format!("the body is larger than {BODY_MAX} bytes")));
            }
            Ok(Some(Ok(chunk))) => bytes.extend_from_slice(&chunk),
        }
    }
    json::read(&bytes).map_err(Problem::invalid)
}

/// Reads what a refused caller is still sending, within bounds: a connection that is closed with bytes unread is reset,
/// and the caller never sees why.
pub(crate) async fn discard(body: Body) {
    let mut chunks = body.into_data_stream();
    let mut bytes = 0;
    let read = async {
        while let Some(Ok(chunk)) = chunks.next().await {
            bytes += chunk.len();
            if bytes > DISCARD_MAX {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD_TIME, read).await;
}

fn request(body: SessionBody, arrival: Arrival, header_deadline: Option<HeaderDeadline>, heard: bool, durable: bool) -> SessionRequest {
    SessionRequest {
        agent: body.agent,
        input: body.input,
        tainted: false,
        previous: body.previous,
        idempotency: None,
        continues: false,
        forget: false,
        trace: None,
        limits: body.limits,
        tools_allow: body.tools_allow,
        tools_deny: body.tools_deny,
        on_limit: body.on_limit,
        metadata: body.metadata,
        principal: local(),
        arrived: arrival.at,
        header_deadline_ms: header_deadline.map(|found| found.ms),
        heard,
        durable,
    }
}

fn finished(view: &SessionView) -> Response {
    let mut response = shown(StatusCode::OK, view, Include::default());
    label(&mut response, view);
    response
}

/// What the headers tell of a session that is over.
pub(crate) fn label(response: &mut Response, view: &SessionView) {
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("ambit-attempts"), HeaderValue::from(view.spent.model_attempts));
    let timing =
        format!("queue;dur={}, model;dur={}, tool;dur={}, overhead;dur={}", view.idle_ms, view.model_ms, view.tool_ms, view.overhead_ms);
    if let Ok(timing) = HeaderValue::from_str(&timing) {
        headers.insert(HeaderName::from_static("server-timing"), timing);
    }
    let degraded: Vec<&str> = view.degraded.iter().map(|found| &*found.capability).collect();
    if !degraded.is_empty()
        && let Ok(degraded) = HeaderValue::from_str(&degraded.join(", "))
    {
        headers.insert(HeaderName::from_static("ambit-degraded"), degraded);
    }
}

async fn accepted(api: &Api, id: SessionId) -> Result<Response, Problem> {
    let view = api.orchestrator.view(id, false).await.map_err(|failed| Problem::of_begun(&failed, id))?;
    let mut response = shown(StatusCode::ACCEPTED, &view, Include::default());
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/sessions/{id}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

pub(crate) fn shown(status: StatusCode, view: &SessionView, include: Include) -> Response {
    let mut response = (status, Json(SessionObject::of(view, include))).into_response();
    name_session(&mut response, view.id);
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/sessions/{}", view.id)) {
        response.headers_mut().insert(header::CONTENT_LOCATION, place);
    }
    response
}

pub(crate) fn name_session(response: &mut Response, id: SessionId) {
    if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(HeaderName::from_static("ambit-session-id"), id);
    }
}

pub(crate) fn name_source(response: &mut Response, deadline: Option<HeaderDeadline>) {
    if let Some(deadline) = deadline {
        response.headers_mut().insert(HeaderName::from_static("ambit-deadline-source"), HeaderValue::from_static(deadline.source));
    }
}

pub(crate) fn name_replay(response: &mut Response, replayed: bool) {
    if replayed {
        response.headers_mut().insert(HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
    }
}

/// Behind which event a reader wants a stream to begin.
fn last_event_id(headers: &HeaderMap) -> Result<Cursor, FieldError> {
    let name = "last-event-id";
    // Bytes that are no text are no id either.
    headers.get(name).map_or_else(|| Ok(Cursor::default()), |value| cursor(value.to_str().unwrap_or_default(), name))
}

/// The event that a caller names in the header or parameter `at`.
fn cursor(text: &str, at: &str) -> Result<Cursor, FieldError> {
    text.parse().map_err(|_| FieldError { detail: NO_EVENT.into(), pointer: at.into() })
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok())
        .flat_map(|accept| accept.split(','))
        .any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream")))
}

fn prefer(headers: &HeaderMap) -> Preference {
    let mut preference = Preference::default();
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    for wish in values.flat_map(|value| value.split([',', ';'])) {
        let wish = wish.trim();
        if wish.eq_ignore_ascii_case("respond-async") {
            preference.respond_async = true;
        } else if let Some(seconds) = wish.strip_prefix("wait=").and_then(|seconds| seconds.trim_matches('"').parse::<u32>().ok()) {
            preference.wait = Some(Duration::from_secs(seconds.into()));
        }
    }
    preference
}

pub(crate) fn session_id(path: Result<Path<String>, PathRejection>) -> Result<SessionId, Problem> {
    // Bytes that are no text are no id either.
    let text = path.map(|Path(text)| text).unwrap_or_default();
    text.parse()
        .map_err(|_| Problem::new(Code::SessionNotFound, format!("`{}` is no session: ids look like ses_ and 26 characters", echo(&text))))
}

fn include(query: Option<&str>) -> Result<Include, Problem> {
    let mut include = Include::default();
    let mut errors = Vec::new();
    for (key, value) in pairs(query.unwrap_or_default()) {
        if key != "include" {
            errors.push(FieldError { detail: "unknown parameter; there is include".into(), pointer: key });
            continue;
        }
        for part in value.split(',') {
            match part {
                "steps" => include.steps = true,
                "transcript" => include.transcript = true,
                _ => {
                    errors.push(FieldError { detail: "expected steps, transcript, or both with a comma".into(), pointer: "include".into() })
                }
            }
        }
    }
    if errors.is_empty() { Ok(include) } else { Err(Problem::invalid(errors)) }
}

fn page(query: &str) -> Result<Page, Vec<FieldError>> {
    let mut page = Page {
        after: None,
        limit: NonZeroU32::new(PAGE_DEFAULT).unwrap_or(NonZeroU32::MIN),
        order: Order::NewestFirst,
        status: None,
        agent: None,
        tenant: None,
    };
    let mut errors = Vec::new();
    for (key, value) in pairs(query) {
        let mut wrong = |detail: &str| errors.push(FieldError { detail: detail.into(), pointer: key.clone() });
        match key.as_str() {
            "after" => match value.parse() {
                Ok(id) => page.after = Some(id),
                Err(_) => wrong("expected the id of a session"),
            },
            "limit" => match value.parse::<u32>().ok().filter(|limit| *limit <= PAGE_MAX).and_then(NonZeroU32::new) {
                Some(limit) => page.limit = limit,
                None => wrong("expected a number from 1 to 100"),
            },
            "order" => match value.as_str() {
                "desc" => page.order = Order::NewestFirst,
                "asc" => page.order = Order::OldestFirst,
                _ => wrong("expected desc or asc"),
            },
            "status" if ["running", "awaiting_approval", "completed", "incomplete", "failed", "cancelled"].contains(&value.as_str()) => {
                page.status = Some(value);
            }
            "status" => wrong("expected running, awaiting_approval, completed, incomplete, failed or cancelled"),
            "agent" => page.agent = Some(value),
            _ => wrong("unknown parameter; there are after, limit, order, status, agent"),
        }
    }
    if errors.is_empty() { Ok(page) } else { Err(errors) }
}

/// The pairs of a query, decoded.
pub(crate) fn pairs(query: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_read_in_every_form() {
        let read = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", HeaderValue::from_static(value));
            prefer(&headers)
        };
        assert_eq!(read("respond-async"), Preference { respond_async: true, wait: None });
        assert_eq!(read("respond-async, wait=5"), Preference { respond_async: true, wait: Some(Duration::from_secs(5)) });
        assert_eq!(read("wait=\"7\"; x"), Preference { respond_async: false, wait: Some(Duration::from_secs(7)) });
        assert_eq!(read("wait=-1"), Preference::default());
    }

    #[test]
    fn what_was_asked_to_run_in_the_background_outlives_its_reader_however_the_answer_is_given() {
        let asked = |background: bool, continues: Option<bool>| SessionBody { background, continues, ..SessionBody::default() };
        let later = Preference { respond_async: true, wait: None };
        assert!(outlives(&asked(true, None), Preference::default(), false));
        assert!(outlives(&asked(false, None), later, false));
        assert!(outlives(&asked(false, None), Preference::default(), true));
        assert!(!outlives(&asked(false, None), Preference::default(), false));
        assert!(!outlives(&asked(true, Some(false)), later, true) && outlives(&asked(false, Some(true)), Preference::default(), false));
    }

    #[test]
    fn every_preference_that_was_kept_is_named() {
        let named = |respond_async: bool, wait: Option<Duration>| {
            let mut response = Response::default();
            Preference { respond_async, wait }.name(&mut response);
            response.headers().get("preference-applied").map(|value| value.to_str().unwrap().to_owned())
        };
        let wait = Some(Duration::ZERO);
        assert_eq!(named(true, wait).as_deref(), Some("respond-async, wait"));
        assert_eq!(named(true, None).as_deref(), Some("respond-async"));
        assert_eq!(named(false, wait).as_deref(), Some("wait"));
        assert_eq!(named(false, None), None);
    }

    #[test]
    fn an_event_that_is_none_is_refused_where_it_stands() {
        let mut headers = HeaderMap::new();
        assert_eq!(last_event_id(&headers).unwrap(), Cursor::default());
        headers.insert("last-event-id", HeaderValue::from_static("x"));
        assert_eq!(last_event_id(&headers).unwrap_err().pointer, "last-event-id");
        headers.insert("last-event-id", HeaderValue::from_bytes(b"\xff").unwrap());
        assert!(last_event_id(&headers).is_err());
        assert_eq!(cursor("x", "starting_after").unwrap_err().pointer, "starting_after");
    }

    #[test]
    fn a_page_is_had_at_its_bounds_and_refused_past_them() {
        assert_eq!(page("limit=100").unwrap().limit.get(), 100);
        for query in ["limit=101", "limit=0", "limit=x", "order=up", "status=done", "after=1", "nope=1"] {
            assert_eq!(page(query).unwrap_err().len(), 1, "{query}");
        }
    }
}
