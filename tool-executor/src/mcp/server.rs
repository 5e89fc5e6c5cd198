//! A server as the executor knows it: started when needed, replaced when stuck, left alone for a while when it fails.
//!
//! States, by what the next call meets: *none* (it starts one), *live* (it uses it), *backing off* (it is refused
//! until the time has come). A live one becomes *retiring* when a call ran out of time and its cancellation changed
//! nothing for a second: new calls get a fresh one, and the old one dies with the last call that it still has.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ambit_core::signal::{Signal, SignalSink, Subject};
use ambit_resilience::{Failure, Leg, Outcome, deadline};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientRequest, JsonObject, PaginatedRequestParams,
    RequestId, RequestMetaObject, ServerResult, Tool,
};
use rmcp::service::PeerRequestOptions;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::fault::{Departure, Fault};
use crate::http::Http;
use crate::mcp::convert;
use crate::mcp::live::{Live, NotStarted, Use, first_line};
use crate::options::{McpOptions, TOOLS_MAX};

/// Most pages of a listing that are asked for; a server that always has one more must end too.
const PAGES_MAX: usize = 32;
/// How long a server may ignore that a call was cancelled.
const GRACE: Duration = Duration::from_secs(1);
/// Shortest and longest time for which a server that failed is left alone.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(30);
/// A server that lived so long starts again at the shortest.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// Most processes of one server that may be on their way out; a fresh one has to wait for one of them.
const RETIRING_MAX: usize = 4;
/// How long the tasks of a server may take to end.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// One MCP server.
pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) options: McpOptions,
    http: Arc<Http>,
    sink: Arc<dyn SignalSink>,
    /// Held while a connection is made, so that there is one at a time.
    state: tokio::sync::Mutex<State>,
    listed: Mutex<Option<Arc<[Listed]>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    this: Weak<Self>,
}

/// A tool as a server lists it.
#[derive(Debug, Clone)]
pub(crate) struct Listed(pub(crate) Tool);

/// How a server stands at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It runs, and its tools are offered.
    Up,
    /// Its tools are offered; it is started when one is called.
    Idle,
    /// It is being started at this moment.
    Starting,
    /// It failed and is left alone for a while.
    BackingOff,
    /// It was not there when it was asked: its tools are not offered.
    LeftOut,
}

impl Standing {
    /// Its name for people and machines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::BackingOff => "backing_off",
            Self::LeftOut => "left_out",
        }
    }
}

#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    retiring: Vec<Weak<Live>>,
    /// Failures in a row.
    failures: u32,
    not_before: Option<Instant>,
}

/// Why a call cannot reach the server now.
enum Down {
    Closed,
    Failed(NotStarted),
    BackingOff(Duration),
}

impl Server {
    pub(crate) fn new(name: Arc<str>, options: McpOptions, http: Arc<Http>, sink: Arc<dyn SignalSink>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            name,
            options,
            http,
            sink,
            state: tokio::sync::Mutex::default(),
            listed: Mutex::new(None),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            this: this.clone(),
        })
    }

    /// True if its requests go out by this.
    pub(crate) fn goes_out_by(&self, http: &Arc<Http>) -> bool {
        Arc::ptr_eq(&self.http, http)
    }

    /// How it stands, without waiting for anything.
    pub(crate) fn standing(&self) -> Standing {
        // Held while a connection is made.
        let Ok(state) = self.state.try_lock() else { return Standing::Starting };
        let is_listed = self.listed().is_some();
        match &state.live {
            Some(live) if live.is_usable() => Standing::Up,
            Some(_) | None if state.not_before.is_some_and(|until| !deadline::left(until).is_zero()) => Standing::BackingOff,
            Some(_) | None if is_listed => Standing::Idle,
            Some(_) | None => Standing::LeftOut,
        }
    }

    /// Its tools, once they are known.
    pub(crate) fn listed(&self) -> Option<Arc<[Listed]>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes its tools known, if they are not. Bounded by `start_timeout`.
    ///
    /// # Errors
    /// Why it could not be asked.
    pub(crate) async fn list(&self) -> Result<Arc<[Listed]>, String> {
        if let Some(listed) = self.listed() {
            return Ok(listed);
        }
        match self.live().await {
            Ok(_) => self.listed().ok_or_else(|| "it lists no tools".to_owned()),
            Err(down) => Err(down.reason()),
        }
    }

    /// Makes one call.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        trace_state: Option<&str>,
        leg: Leg<'_>,
        departure: &Departure<'_>,
    ) -> Result<CallToolResult, Fault> {
        let used = self.live().await.map_err(Down::into_fault)?;
        departure.leave().await?;
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut options = PeerRequestOptions::no_options();
        options.meta = meta(&leg, trace_state);
        let sent = used.0.peer.send_request_with_option(request, options).await;
        let Ok(mut handle) = sent else {
            // The connection was gone before the request was.
            departure.settle();
            return Err(Fault::new(Failure::new(Outcome::NeverArrived).with_code("mcp_down")));
        };
        // Dropped by a timeout or by whoever lost interest: the server is told.
        let mut pending = Pending { server: self.this.clone(), used: Some(used), id: handle.id.clone(), due: leg.head_by };
        let result = (&mut handle.rx).await;
        let used = pending.used.take();
        let result = match result {
            Ok(Ok(ServerResult::CallToolResult(result))) => Ok(result),
            Ok(Ok(ServerResult::EmptyResult(_))) => Ok(CallToolResult::success(Vec::new())),
            Ok(Ok(_)) => convert::failed(rmcp::ServiceError::UnexpectedResponse),
            Ok(Err(error)) => convert::failed(error),
            Err(_) => convert::failed(rmcp::ServiceError::TransportClosed),
        };
        match result {
            Ok(result) => {
                departure.settle();
                Ok(result)
            }
            Err(fault) => {
                if !fault.failure.is_fate_unknown() {
                    departure.settle();
                }
                if let (Some(used), Outcome::SessionExpired) = (&used, outcome_of(&fault)) {
                    self.replace(&used.0, "session_expired").await;
                }
                Err(fault)
            }
        }
    }

    /// The running connection, made if there is none.
    async fn live(&self) -> Result<Use, Down> {
        let mut state = self.state.lock().await;
        if self.stop.is_cancelled() {
            return Err(Down::Closed);
        }
        if let Some(live) = &state.live {
            if live.is_usable() {
                return Ok(Use::of(live));
            }
            if live.is_dead() {
                let lived = live.started.elapsed();
                self.degraded("unavailable", "died");
                let before = if lived >= STABLE_AFTER { 0 } else { state.failures };
                state.failed(before);
            }
            state.live = None;
        }
        if let Some(wait) = state.not_before.map(deadline::left).filter(|wait| !wait.is_zero()) {
            return Err(Down::BackingOff(wait));
        }
        state.retiring.retain(|live| live.strong_count() > 0);
        if state.retiring.len() >= RETIRING_MAX {
            return Err(Down::Failed(NotStarted(format!("{RETIRING_MAX} of its processes are still on their way out"))));
        }
        let started = tokio::select! {
            () = self.stop.cancelled() => return Err(Down::Closed),
            started = timeout(self.options.start_timeout, self.start()) => started,
        };
        match started.unwrap_or_else(|_| Err(NotStarted(format!("not ready within {} ms", self.options.start_timeout.as_millis())))) {
            Ok(live) => {
                let used = Use::of(&live);
                state.live = Some(live);
                state.not_before = None;
                Ok(used)
            }
            Err(error) => {
                tracing::warn!(server = %self.name, reason = %error.0, "an MCP server cannot be used");
                self.degraded("unavailable", "start_failed");
                let failures = state.failures;
                state.failed(failures);
                Err(Down::Failed(error))
            }
        }
    }

    /// Starts one, lists its tools if nobody has yet, and gives it a keeper.
    async fn start(&self) -> Result<Arc<Live>, NotStarted> {
        let drain = |stderr| {
            self.tasks.spawn(drain(Arc::clone(&self.name), self.stop.clone(), stderr));
        };
        let live = Live::start(&self.options, &self.http, drain).await?;
        if self.listed().is_none() {
            let listed = list(&live).await?;
            *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(listed);
        }
        let live = Arc::new(live);
        self.tasks.spawn(keep(self.this.clone(), Arc::downgrade(&live), live.gone(), self.stop.clone()));
        Ok(live)
    }

    /// Takes a connection out of use: it ends with the calls that it still has.
    async fn replace(&self, live: &Arc<Live>, reason: &'static str) {
        let mut state = self.state.lock().await;
        live.retire();
        if state.live.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            state.live = None;
            if live.has_process() {
                state.retiring.push(Arc::downgrade(live));
            }
            self.degraded("replaced", reason);
        }
    }

    /// Tells the server that a call is not wanted any more, and watches whether it minds.
    async fn cancel(&self, used: Use, id: RequestId, timed_out: bool) {
        let live = &used.0;
        if !live.has_process() {
            let _ = timeout(GRACE, notify_cancelled(live, id)).await;
            return;
        }
        let until = Instant::now() + GRACE;
        let reacted = if timed_out {
            // Silence is what the protocol asks of a server that stopped, and what one shows that goes on for ever. It
            // had its time, so it is replaced unless it says something.
            let heard = live.late.watch(&id);
            timeout_at(until, async {
                notify_cancelled(live, id).await;
                heard.await.is_ok()
            })
            .await
        } else {
            // We lost interest; all it has to do is go on working.
            timeout_at(until, async {
                notify_cancelled(live, id).await;
                live.peer.send_request(ClientRequest::PingRequest(Default::default())).await.is_ok()
            })
            .await
        };
        if !reacted.unwrap_or(false) && !live.is_dead() {
            self.replace(live, "ignored_cancellation").await;
        }
    }

    /// Ends it if nobody used it for its idle time; else says when to look again.
    async fn end_if_idle(&self, live: &Arc<Live>) -> Option<Instant> {
        let mut state = self.state.lock().await;
        let Some(since) = live.unused_since() else { return Some(Instant::now() + self.options.idle) };
        let idle_at = since + self.options.idle;
        if idle_at > Instant::now() {
            return Some(idle_at);
        }
        // Under the lock that new users take: nobody can begin to use it now.
        live.retire();
        if state.live.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            state.live = None;
        }
        drop(state);
        live.end().await;
        None
    }

    /// Ends it for good: its process, the group, and all tasks.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        let live = self.state.lock().await.live.take();
        if let Some(live) = live {
            live.end().await;
        }
        self.tasks.close();
        let _ = timeout(CLOSE_PATIENCE, self.tasks.wait()).await;
    }

    /// Tasks that have not ended: readers of stderr, keepers, and watched cancellations.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    fn degraded(&self, mode: &'static str, reason: &'static str) {
        self.sink.emit(Subject::default(), &Signal::Degraded { capability: format!("mcp:{}", self.name).into(), mode, reason });
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("name", &self.name).finish_non_exhaustive()
    }
}

impl State {
    /// Counts one more failure after `before` others, and leaves the server alone for a while.
    fn failed(&mut self, before: u32) {
        self.failures = before.saturating_add(1);
        self.not_before = Some(Instant::now() + back_off(self.failures));
    }
}

impl Down {
    fn reason(self) -> String {
        match self {
            Self::Closed => "it is closed".into(),
            Self::Failed(NotStarted(reason)) => reason,
            Self::BackingOff(wait) => format!("it failed and is left alone for {} ms", wait.as_millis()),
        }
    }

    fn into_fault(self) -> Fault {
        let wait = match &self {
            Self::BackingOff(wait) => Some(*wait),
            Self::Closed | Self::Failed(_) => None,
        };
        let failure = Failure::new(Outcome::NeverArrived).with_code("mcp_down").with_retry_after(wait);
        Fault::new(failure).with_detail("the server of this tool is not running")
    }
}

/// Doubles from the shortest to the longest.
fn back_off(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    BACK_OFF_MIN.saturating_mul(doubled).min(BACK_OFF_MAX)
}

/// Says where the call stands in a distributed trace: in `_meta`, the same over every transport. Baggage goes to nobody.
fn meta(leg: &Leg<'_>, trace_state: Option<&str>) -> Option<RequestMetaObject> {
    let mut meta = RequestMetaObject::new();
    meta.insert("traceparent".to_owned(), leg.trace?.to_string().into());
    if let Some(state) = trace_state {
        meta.insert("tracestate".to_owned(), state.into());
    }
    Some(meta)
}

/// Whether a failure says that the session is gone.
fn outcome_of(fault: &Fault) -> Outcome {
    if fault.failure.class.row == ambit_resilience::Row::SessionExpired { Outcome::SessionExpired } else { Outcome::Broken }
}

async fn notify_cancelled(live: &Live, id: RequestId) {
    // A server that cannot be told has other troubles.
    let _ = live.peer.notify_cancelled(CancelledNotificationParam::new(Some(id), Some("no longer needed".into()))).await;
}

/// Asks for all tools, page by page, as far as both bounds allow.
async fn list(live: &Live) -> Result<Arc<[Listed]>, NotStarted> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        let page = live
            .peer
            .list_tools(Some(params))
            .await
            .map_err(|error| NotStarted(format!("no listing: {}", first_line(&error.to_string()))))?;
        tools.extend(page.tools.into_iter().take(TOOLS_MAX - tools.len()).map(Listed));
        cursor = page.next_cursor;
        if cursor.is_none() || tools.len() >= TOOLS_MAX {
            break;
        }
    }
    Ok(tools.into())
}

/// A call that waits for its answer. Dropped without one, it sees to it that the server is told.
struct Pending {
    server: Weak<Server>,
    used: Option<Use>,
    id: RequestId,
    due: Instant,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let (Some(used), Some(server)) = (self.used.take(), self.server.upgrade()) else { return };
        let (id, timed_out) = (self.id.clone(), Instant::now() >= self.due);
        // Without a runtime nothing of this can be running any more.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let tasks = server.tasks.clone();
            tasks.spawn_on(async move { server.cancel(used, id, timed_out).await }, &runtime);
        }
    }
}

/// Reads what a server complains about until nobody can complain any more, and keeps none of it.
async fn drain(server: Arc<str>, stop: CancellationToken, mut stderr: ChildStderr) {
    let mut scrap = [0_u8; 4_096];
    loop {
        let read = tokio::select! {
            // A process that left its group may keep the pipe open.
            () = stop.cancelled() => return,
            read = stderr.read(&mut scrap) => read,
        };
        match read {
            Ok(bytes) if bytes > 0 => {
                tracing::debug!(%server, bytes, text = %first_line(&String::from_utf8_lossy(&scrap[..bytes])), "an MCP server wrote to stderr");
            }
            Ok(_) | Err(_) => return,
        }
    }
}

/// Looks after one connection until it is gone, and ends it when it is idle. Holds it weakly, so that it is no user.
async fn keep(server: Weak<Server>, live: Weak<Live>, gone: CancellationToken, stop: CancellationToken) {
    let mut look_at = match server.upgrade() {
        Some(server) => Instant::now() + server.options.idle,
        None => return,
    };
    loop {
        tokio::select! {
            () = gone.cancelled() => return,
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(look_at) => {
                let (Some(server), Some(live)) = (server.upgrade(), live.upgrade()) else { return };
                match server.end_if_idle(&live).await {
                    Some(again) => look_at = again,
                    None => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_fails_is_left_alone_from_one_second_to_thirty() {
        let seconds: Vec<u64> = [1, 2, 3, 5, 6, 40, u32::MAX].into_iter().map(|n| back_off(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 16, 30, 30, 30]);
    }
}
