//! From a request in an OpenAI form to a running session, and from a running session to its end.

use std::sync::Arc;
use std::time::Duration;

use ambit_core::SessionId;
use ambit_orchestrator::{CancelOnDrop, Running, Said, SessionRequest, SessionView};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use serde_json::Value;
use tokio::time::timeout;

use crate::http::Api;
use crate::http::catalog::local;
use crate::http::deadline::HeaderDeadline;
use crate::http::front::{Arrival, body_time};
use crate::http::idempotency;
use crate::http::openai::ask::{Ask, allowed};
use crate::http::openai::items::Items;
use crate::http::problem::{FieldError, Problem};
use crate::http::sessions::{at_the_door, discard, name_replay, name_session, name_source, read_body};

/// Longest that reading a finished session's texts may take; whoever waits for the answer gets it without them then.
const READ_MAX: Duration = Duration::from_secs(5);

/// A form of request.
pub(crate) trait Form {
    /// Reads a body.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn read(body: &Value) -> Result<Ask, Vec<FieldError>>;

    /// Where this form has its words.
    const WORDS: &'static str;
}

/// A session that was begun for a request.
pub(crate) struct Begun {
    pub(crate) running: Running,
    pub(crate) ask: Ask,
    /// True if the session goes on without its caller.
    continues: bool,
    header_deadline: Option<HeaderDeadline>,
}

/// Reads a request and starts its session.
///
/// # Errors
/// As natively: nothing was done then.
pub(crate) async fn begin<F: Form>(api: &Api, arrival: Arrival, headers: &HeaderMap, body: Body) -> Result<Begun, Problem> {
    let (header_deadline, key) = match at_the_door(api, headers, arrival) {
        Ok(read) => read,
        Err(problem) => {
            discard(body).await;
            return Err(problem);
        }
    };
    let value = read_body(headers, body, body_time(arrival, api.request(), header_deadline)).await?;
    let mut ask = F::read(&value).map_err(Problem::invalid)?;
    let key = key.map(|key| idempotency::named(key, &ask.model, &value, &local()));
    let mut limits = ask.own.limits;
    let mut tools_allow = None;
    if let Some(agent) = api.orchestrator.agents().get(&*ask.model) {
        // What the agent's definition names may be named, also while its server is not there.
        let offer = api.orchestrator.executor().offer(&agent.tools, local());
        let known: Vec<Arc<str>> = offer.declarations().map(|tool| tool.name).chain(agent.tools.iter().cloned()).collect();
        tools_allow = allowed(&ask, &known).map_err(Problem::invalid)?;
        // OpenAI's bound on tool calls is a wish at most: above the agent's it changes nothing.
        let clamped = ask.tool_calls.map(|wish| wish.min(agent.limits.tool_calls.into()));
        limits.tool_calls = [limits.tool_calls, clamped].into_iter().flatten().min();
    }
    limits.output_tokens_per_call = ask.output_tokens;
    let continues = ask.own.continues.unwrap_or(ask.background || key.is_some());
    let request = SessionRequest {
        agent: ask.model.clone(),
        input: std::mem::take(&mut ask.said.input),
        tainted: ask.said.tainted,
        previous: ask.goes_on_from(),
        idempotency: key,
        forget: ask.forget,
        continues,
        trace: Some(arrival.place.context(headers)),
        limits,
        tools_allow,
        tools_deny: std::mem::take(&mut ask.own.tools_deny),
        on_limit: ask.own.on_limit,
        metadata: std::mem::take(&mut ask.metadata),
        principal: local(),
        arrived: arrival.at,
        header_deadline_ms: header_deadline.map(|found| found.ms),
        heard: ask.stream || ask.background,
        durable: ask.background,
    };
    let running = api
        .orchestrator
        .start(request)
        .await
        .map_err(|failed| Problem::of_start(&failed).pointing(|pointer| ask.place(pointer, F::WORDS)))?;
    Ok(Begun { running, ask, continues, header_deadline })
}

impl Begun {
    /// Puts into the headers what every answer to this request says there.
    pub(crate) fn name(&self, response: &mut Response) {
        name_session(response, self.running.id);
        name_source(response, self.header_deadline);
        name_replay(response, self.running.replayed);
        if let Some(ignored) = self.ask.ignored().and_then(|names| HeaderValue::from_str(&names).ok()) {
            response.headers_mut().insert(HeaderName::from_static("ambit-ignored-params"), ignored);
        }
    }

    /// Cancels the session when dropped, unless it is to go on without its caller.
    pub(crate) fn guard(&self) -> Option<CancelOnDrop> {
        (!self.continues).then(|| self.running.cancel_on_drop())
    }

    /// Waits for the verdict. Dropped meanwhile, it cancels as [`Begun::guard`] does.
    ///
    /// # Errors
    /// If the verdict says that nothing was done, or the session has left this process and cannot be read.
    pub(crate) async fn verdict(&mut self, api: &Api) -> Result<Arc<SessionView>, Problem> {
        let guard = self.guard();
        let view = match self.running.verdict(None).await {
            Some(view) => view,
            // Another process has taken it over; its journal tells the end.
            None => ended(api, self.running.id).await?.0,
        };
        if let Some(guard) = guard {
            guard.disarm();
        }
        match Problem::of_verdict(&view) {
            Some(problem) => Err(problem),
            None => Ok(view),
        }
    }
}

/// Everything that a session that is over has said, as items.
pub(crate) async fn said(api: &Api, view: &SessionView) -> Items {
    if is_forgotten(view) {
        return Items::new(view.id);
    }
    match timeout(READ_MAX, ended(api, view.id)).await {
        // Texts that were forgotten meanwhile are still in the view.
        Ok(Ok((_, items))) if !items.is_blank() => items,
        Ok(Ok(_) | Err(_)) | Err(_) => Items::of_answer(view),
    }
}

/// True if it answered, and the text is gone: the others are gone as well, or about to.
fn is_forgotten(view: &SessionView) -> bool {
    let answered = view.verdict.and_then(|verdict| verdict.answer).is_some_and(|answer| answer.bytes > 0);
    answered && view.output_text.as_deref().is_none_or(str::is_empty)
}

/// Reads a session to its verdict.
async fn ended(api: &Api, id: SessionId) -> Result<(Arc<SessionView>, Items), Problem> {
    let mut stream = api.orchestrator.follow(id, false).await.map_err(|failed| Problem::of_begun(&failed, id))?;
    let mut items = Items::new(id);
    // Ends: a stream has one terminal event.
    while let Some(event) = stream.next().await.map_err(|failed| Problem::of_begun(&failed, id))? {
        items.hear(&event);
        if let (Said::Session(view), true) = (event.said, event.terminal) {
            return Ok((Arc::new(*view), items));
        }
    }
    Err(Problem::shutting_down().for_good().session(id))
}
