//! Runs prepared calls. Each ends in exactly one result, whatever happens on the way.

use std::sync::{Arc, Mutex, PoisonError};

use ambit_core::port::BeforeSend;
use ambit_core::session::{CallClass, Principal};
use ambit_core::signal::{Signal, SignalSink, Subject, Timer};
use ambit_core::trace::key_hash;
use ambit_core::{Allowance, AttemptRecord, Digest, Effect, ErrorKind, Money, ToolCode};
use ambit_resilience::{CallContext, Committed, Failure, Ledger, LegRecord, PolicyError, Reserve, Row, deadline};
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::error::ExecutorError;
use crate::fault::{Answer, Departure, Fault};
use crate::mcp::{Server, Standing};
use crate::options::ExecutorOptions;
use crate::output::cap::cap;
use crate::prepare::Offer;
use crate::prepare::arguments;
use crate::registry::{Entry, Registry, Transport};
use crate::result::{Words, refusal_text};

/// All tools of a process. Shared by all sessions.
pub struct Executor {
    registry: Registry,
    sink: Arc<dyn SignalSink>,
}

/// One call to run, as it was prepared.
pub struct ToolRun<'a> {
    /// The tool, by the name under which it was offered.
    pub tool: &'a str,
    /// Its arguments, as preparation left them.
    pub arguments: &'a str,
    /// The call's key, sent on every attempt where the other side honours one.
    pub key: Option<&'a str>,
    /// What the call may spend.
    pub allowance: Allowance,
    /// The moment after which nothing may begin, and a read is dropped. A call that is no read, once begun, has the
    /// tool's own `timeout`: nobody should wonder about an outcome that a moment's patience would have told.
    pub deadline: Instant,
    /// Most bytes that the model may read; the tool's own cap may be smaller.
    pub output_cap: usize,
    /// The id under which the model wants the result.
    pub call_id: Option<Arc<str>>,
    /// Whom its signals are about.
    pub subject: Subject,
    /// What other tracing systems pass along, `tracestate`.
    pub trace_state: Option<&'a str>,
    /// Asked once, directly before the first request of a call that is no read.
    pub before_send: &'a dyn BeforeSend,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// One record a request on the wire.
    pub attempts: Vec<AttemptRecord>,
    /// How.
    pub code: ToolCode,
    /// What the model reads: cleaned and capped, not fenced yet.
    pub text: String,
    /// True if the cap cut something out.
    pub truncated: bool,
}

/// What is known about one tool, for people.
#[derive(Debug, Clone)]
pub struct ToolView {
    /// Its name.
    pub name: Arc<str>,
    /// What it is for.
    pub description: Arc<str>,
    /// `http`, `mcp` or `builtin`.
    pub kind: &'static str,
    /// Digest of its schema as offered.
    pub schema: Digest,
    /// What the registry says about it.
    pub class: CallClass,
}

/// What is known about one MCP server, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerView {
    /// Its name.
    pub name: Arc<str>,
    /// How it stands.
    pub standing: Standing,
    /// How many of its tools are offered.
    pub tools: usize,
}

impl Executor {
    /// Checks all tools and makes ready what needs no asking; MCP servers are started when they are first needed.
    ///
    /// # Errors
    /// Every tool that cannot be used as configured, with its reason, all at once.
    pub fn new(options: ExecutorOptions, sink: Arc<dyn SignalSink>) -> Result<Self, ExecutorError> {
        Ok(Self { registry: Registry::new(options, None, Arc::clone(&sink))?, sink })
    }

    /// Builds the executor that takes this one's place. It goes on with the bulkheads of the same name, with every permit
    /// that is out, and with the MCP servers about which nothing has changed; the others are ended once no session can call
    /// them any more (see [`end_unused`](Self::end_unused)). This one goes on for sessions that began with it. Once the new
    /// one is in force, [`enforce`](Self::enforce) gives the bulkheads their new sizes.
    ///
    /// # Errors
    /// As for [`Executor::new`]; nothing has changed then.
    pub fn succeeded_by(&self, options: ExecutorOptions, sink: Arc<dyn SignalSink>) -> Result<Self, ExecutorError> {
        Ok(Self { registry: Registry::new(options, Some(&self.registry), Arc::clone(&sink))?, sink })
    }

    /// Gives every bulkhead the size that is configured; see [`succeeded_by`](Self::succeeded_by).
    pub fn enforce(&self) {
        self.registry.enforce();
    }

    /// Ends the MCP servers of former executors that nobody can call any more. Takes a few seconds at most.
    pub async fn end_unused(&self) {
        let unused = self.registry.take_unused();
        join_all(unused.iter().map(|server| server.close())).await;
    }

    /// Every configured MCP server: how it stands, and how many of its tools are offered.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerView> {
        let view = |server: &Arc<Server>| ServerView {
            name: Arc::clone(&server.name),
            standing: server.standing(),
            tools: self.registry.offered_of(&server.name),
        };
        self.registry.servers().map(view).collect()
    }

    /// Sees to it that the tools of these names are known: asks MCP servers that have not been asked, all at once, each
    /// for at most its `start_timeout`. Returns the servers that are not there, with the reason; they are asked again
    /// next time.
    ///
    /// # Cancel safety
    /// Dropping the future stops what was being started.
    pub async fn ready(&self, names: &[Arc<str>]) -> Vec<(Arc<str>, String)> {
        let asked = self.registry.unlisted(names).into_iter().map(|server| async move {
            match server.list().await {
                Ok(listed) => {
                    self.registry.take(&server, &listed);
                    None
                }
                Err(reason) => Some((Arc::clone(&server.name), reason)),
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// The tools of these names for one session: a tool's name stands for itself, a server's for all of its tools.
    /// What is not known (see [`Executor::ready`]) is not offered.
    #[must_use]
    pub fn offer(&self, names: &[Arc<str>], principal: Principal) -> Offer {
        let mut entries: Vec<Arc<Entry>> = Vec::new();
        for entry in names.iter().flat_map(|name| self.registry.named(name)) {
            if !entries.iter().any(|known| known.declaration.name == entry.declaration.name) {
                entries.push(entry);
            }
        }
        Offer::new(entries, principal)
    }

    /// Every tool known by now.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolView> {
        self.registry.all().iter().map(|entry| view(entry)).collect()
    }

    /// Runs one prepared call.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and its permit returns. That is right for a read; whoever drops a call
    /// that is no read after it was sent loses the only one who would have heard how it ended.
    pub async fn run(&self, run: ToolRun<'_>) -> ToolOutcome {
        let mut finish = Finish { sink: &*self.sink, run: &run, started: Instant::now(), entry: None, code: None };
        let (ended, own_cap) = match self.known(run.tool).await {
            Ok(entry) => {
                let entry = &*finish.entry.insert(entry);
                (Box::pin(self.guarded(entry, &run)).await, entry.options.output_cap.get())
            }
            Err(code) => (Ended::bare(code, run.tool), usize::MAX),
        };
        let capped = cap(&ended.text, own_cap.min(run.output_cap));
        if let (1.., Some(entry)) = (capped.gone, &finish.entry) {
            self.sink.emit(run.subject, &Signal::Truncated { tool: Arc::clone(&entry.declaration.name), bytes: capped.gone });
        }
        finish.code = Some(ended.code);
        drop(finish);
        ToolOutcome { attempts: ended.attempts, code: ended.code, text: capped.text, truncated: capped.gone > 0 }
    }

    /// Every bulkhead, as it is now.
    #[must_use]
    pub fn bulkheads(&self) -> Vec<ambit_resilience::Bulkhead> {
        self.registry.bulkheads()
    }

    /// Permits in use.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.registry.bulkheads().iter().map(ambit_resilience::Bulkhead::in_use).sum()
    }

    /// Calls that wait for a permit.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.registry.bulkheads().iter().map(ambit_resilience::Bulkhead::queued).sum()
    }

    /// True if no call runs, waits or sleeps.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        self.registry.bulkheads().iter().all(ambit_resilience::Bulkhead::is_quiescent)
    }

    /// Tasks of MCP servers that run: one or two for each connection, and one for each call whose cancellation is
    /// watched, for a second.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.registry.servers().map(|server| server.tasks()).sum()
    }

    /// Ends every MCP server with all its processes. Takes a few seconds at most; what is called afterwards finds no
    /// server.
    pub async fn close(&self) {
        let retired = self.registry.take_retired();
        join_all(self.registry.servers().chain(&retired).map(|server| server.close())).await;
    }

    /// The tool, asking its server if need be: a call that is taken up after a crash may come before any offer.
    async fn known(&self, name: &str) -> Result<Arc<Entry>, ToolCode> {
        if let Some(entry) = self.registry.find(name) {
            return Ok(entry);
        }
        let failed = self.ready(&[name.into()]).await;
        let code = if failed.is_empty() { ToolCode::UnknownTool } else { ToolCode::UpstreamUnavailable };
        self.registry.find(name).ok_or(code)
    }

    async fn guarded(&self, entry: &Entry, run: &ToolRun<'_>) -> Ended {
        let name = &*entry.declaration.name;
        let Ok(members) = arguments::read(run.arguments) else { return Ended::bare(ToolCode::InvalidArguments, name) };
        let is_write = entry.options.effect.is_write();
        if deadline::left(run.deadline) < entry.options.min_useful {
            self.sink.emit(
                run.subject,
                &Signal::TimedOut {
                    dependency: Arc::clone(&entry.declaration.name),
                    target: Arc::clone(&entry.declaration.name),
                    timer: Timer::Deadline,
                },
            );
            return Ended::bare(ToolCode::DeadlineExceeded, name);
        }
        let end = if is_write { deadline::after(entry.options.timeout) } else { run.deadline };
        let ledger = Ledger::new(&run.allowance, end);
        let committed = Committed::new();
        let departure = if is_write { Departure::of_write(run.before_send) } else { Departure::of_read() };
        let last: Mutex<Option<Fault>> = Mutex::new(None);
        let context = CallContext {
            deadline: end,
            subject: run.subject,
            ledger: &ledger,
            reserve: Reserve { tokens: 0, cost: Money::ZERO },
            repeatable: !is_write || (entry.declaration.class.keyed && run.key.is_some()),
            admission: None,
            fresh: false,
            committed: &committed,
        };
        let (http, members, departure, last) = (self.registry.http(), &members, &departure, &last);
        let called = entry
            .policy
            .call(context, |leg| async move {
                let answer = match &entry.transport {
                    Transport::Http(tool) => http.send(tool, members, run.key, run.trace_state, leg, departure).await,
                    Transport::Mcp(tool) => tool.call(members, run.trace_state, leg, departure).await,
                    Transport::Builtin(builtin) => builtin.run(members).await,
                };
                answer.map_err(|fault| {
                    let failure = fault.failure.clone();
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
                    failure
                })
            })
            .await;
        let attempts = called.legs.into_iter().filter(|leg| leg.sent || !is_write || !departure.is_refused()).map(record).collect();
        let (code, text) = match called.result {
            Ok((answer, _permit)) => answered(name, answer),
            Err(error) => {
                let fault = last.lock().unwrap_or_else(PoisonError::into_inner).take();
                failed(entry, &error, fault, departure)
            }
        };
        Ended { attempts, code, text }
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").finish_non_exhaustive()
    }
}

/// Says at the end of a call what came of it, also if its future is dropped.
struct Finish<'a> {
    sink: &'a dyn SignalSink,
    run: &'a ToolRun<'a>,
    started: Instant,
    /// The tool with what is known of it; `None` until it is found.
    entry: Option<Arc<Entry>>,
    code: Option<ToolCode>,
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let known = self.entry.as_ref();
        let key = self.run.key.filter(|_| known.is_some_and(|entry| entry.declaration.class.keyed));
        self.sink.emit(
            self.run.subject,
            &Signal::ToolCallFinished {
                tool: known.map_or_else(|| self.run.tool.into(), |entry| Arc::clone(&entry.declaration.name)),
                // The worst, where it is not known.
                effect: known.map_or(Effect::Write, |entry| entry.options.effect),
                code: self.code,
                duration: self.started.elapsed(),
                call_id: self.run.call_id.clone(),
                key: key.map(key_hash),
                peer: known.map_or_else(Arc::default, |entry| Arc::clone(&entry.policy.options().peer)),
            },
        );
    }
}

/// How a call ended, before cleaning and capping.
struct Ended {
    attempts: Vec<AttemptRecord>,
    code: ToolCode,
    text: String,
}

impl Ended {
    fn bare(code: ToolCode, tool: &str) -> Self {
        Self { attempts: Vec::new(), code, text: refusal_text(code, tool) }
    }
}

fn view(entry: &Entry) -> ToolView {
    let kind = match &entry.transport {
        Transport::Http(_) => "http",
        Transport::Mcp(_) => "mcp",
        Transport::Builtin(_) => "builtin",
    };
    let declaration = &entry.declaration;
    ToolView {
        name: Arc::clone(&declaration.name),
        description: Arc::clone(&declaration.description),
        kind,
        schema: declaration.digest,
        class: declaration.class,
    }
}

fn record(leg: LegRecord) -> AttemptRecord {
    AttemptRecord {
        kind: leg.kind,
        target: leg.target,
        code: leg.code,
        input_tokens: 0,
        output_tokens: 0,
        cost: Money::ZERO,
        at_least: false,
        ms: leg.ms,
    }
}

fn answered(tool: &str, answer: Answer) -> (ToolCode, String) {
    if answer.is_error {
        // The tool's own words, as data: they may be anything.
        return (ToolCode::ToolError, Words::of(ToolCode::ToolError, answer.text).tool(tool).text());
    }
    (ToolCode::Ok, answer.text)
}

fn failed(entry: &Entry, error: &PolicyError, fault: Option<Fault>, departure: &Departure<'_>) -> (ToolCode, String) {
    let name = &*entry.declaration.name;
    let bare = |code: ToolCode| (code, refusal_text(code, name));
    let failure = match error {
        PolicyError::DeadlineExceeded => return bare(ToolCode::DeadlineExceeded),
        PolicyError::AllowanceSpent => return bare(ToolCode::BudgetExhausted),
        PolicyError::Saturated(saturated) => {
            let words = Words::of(ToolCode::Saturated, "too many calls of this tool are running; nothing was sent").tool(name);
            return (ToolCode::Saturated, words.retry_after(Some(saturated.retry_after)).text());
        }
        PolicyError::Failed(failure) => failure,
    };
    // What a transport noted belongs to this failure only if it is the same one: a later attempt may have been cut by
    // its timer, of which the transport knows nothing.
    let fault = fault.filter(|fault| fault.failure == *failure);
    let is_write = entry.options.effect.is_write();
    let code = if is_write && departure.is_unsettled() {
        ToolCode::OutcomeUnknown
    } else if is_write && departure.is_refused() {
        ToolCode::NotAttempted
    } else {
        fault.as_ref().and_then(|fault| fault.code).unwrap_or_else(|| meaning(failure, is_write))
    };
    let detail = match fault.and_then(|fault| fault.detail) {
        Some(detail) if code != ToolCode::OutcomeUnknown => detail,
        Some(_) | None => return (code, with_wait(Words::of(code, plain(code)), failure, code).tool(name).text()),
    };
    (code, with_wait(Words::of(code, detail), failure, code).tool(name).text())
}

fn with_wait(words: Words, failure: &Failure, code: ToolCode) -> Words {
    let words = words.retry_after(failure.retry_after);
    if code == ToolCode::UpstreamRejected {
        words.retryable(failure.kind() != ErrorKind::Forbidden && failure.kind() != ErrorKind::Conflict)
    } else {
        words
    }
}

/// The words of a failure about which nothing more is known.
const fn plain(code: ToolCode) -> &'static str {
    match code {
        ToolCode::UpstreamTimeout => "the tool did not answer in time",
        ToolCode::UpstreamRejected => "the tool refused the request",
        ToolCode::OutcomeUnknown => "the call was sent and nobody can say whether it took effect; do not repeat it",
        ToolCode::DeadlineExceeded => "the time for this call ran out before the tool answered",
        ToolCode::OutputInvalid => "the tool's answer cannot be used",
        ToolCode::NotAttempted => "the session does not allow this call any more; nothing was sent",
        ToolCode::Blocked => "the host or address is not allowed",
        ToolCode::Ok
        | ToolCode::UnknownTool
        | ToolCode::NotPermitted
        | ToolCode::InvalidArguments
        | ToolCode::ToolError
        | ToolCode::UpstreamUnavailable
        | ToolCode::DependencyUnavailable
        | ToolCode::Saturated
        | ToolCode::BudgetExhausted
        | ToolCode::LoopDetected
        | ToolCode::ApprovalDenied
        | ToolCode::ApprovalExpired
        | ToolCode::Tainted
        | ToolCode::IdempotencyConflict
        | ToolCode::InFlight
        | ToolCode::CallTruncated
        | ToolCode::AuditUnavailable
        | ToolCode::Deferred => "the tool could not be reached",
    }
}

/// The code of a result whose fate is known (or does not matter, since it only reads).
fn meaning(failure: &Failure, is_write: bool) -> ToolCode {
    match failure.class.row {
        Row::TimedOut => ToolCode::UpstreamTimeout,
        Row::DeadlineCut | Row::DeadlineSpent => match failure.timer {
            // The tool's own time, not the session's.
            Some(Timer::Request) => ToolCode::UpstreamTimeout,
            Some(Timer::Deadline | Timer::Connect | Timer::Attempt | Timer::Chunk) | None => ToolCode::DeadlineExceeded,
        },
        Row::Mistake
        | Row::Rejected
        | Row::ContentFiltered
        | Row::Incapable
        | Row::ContextLength
        | Row::Unauthorised
        | Row::OutOfQuota
        | Row::Conflict
        | Row::RateLimited => ToolCode::UpstreamRejected,
        // It answered, and did not act: a write that was turned away is not one that never arrived.
        Row::NotReady | Row::Overloaded | Row::Shedding if is_write => ToolCode::UpstreamRejected,
        Row::OutputInvalid => ToolCode::OutputInvalid,
        Row::RefusedByUs | Row::RefusedByTarget => ToolCode::NotAttempted,
        Row::Answered
        | Row::Malformed
        | Row::Empty
        | Row::NotReady
        | Row::ServerError
        | Row::Overloaded
        | Row::Shedding
        | Row::NeverArrived
        | Row::Broken
        | Row::SessionExpired
        | Row::Cancelled
        | Row::HedgeLost => ToolCode::UpstreamUnavailable,
    }
}
