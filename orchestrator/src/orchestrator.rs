//! The door to all sessions: start, look, follow, cancel, drain.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ambit_core::limit::{LAST_CALL_MARGIN_MS, MESSAGE_CHARS};
use ambit_core::session::{
    CallCeiling, Canceller, Event, InputItem, MACHINE_VERSION, NamedTarget, OfferedTool, Speaker, Started, fingerprint,
};
use ambit_core::signal::{IdempotencyOutcome, Signal, SignalSink, Subject};
use ambit_core::trace::{Trace, TraceContext, TraceId};
use ambit_core::{Digest, Limits, SessionId};
use ambit_model_gateway::Gateway;
use ambit_store::{
    Append, Content, Lease, Message, Need, NewKey, NewSession, Page, Record, RecordKind, RowUpdate, SessionRow, Store, StoreError,
};
use ambit_tool_executor::Executor;
use arc_swap::ArcSwap;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::agent::Agent;
use crate::clock::{SessionClock, wall_ms};
use crate::content::Texts;
use crate::continued::{Room, earlier};
use crate::desk;
use crate::driver::live::{Handle, MAILBOX, Mail, Timeline};
use crate::driver::local::{Beginning, Session, chain as causes, key_fate};
use crate::driver::recovery::{Rebuilt, rebuild, texts};
use crate::driver::text::LiveText;
use crate::driver::{Equipment, Shared};
use crate::error::{LookupError, StartError};
use crate::follow::{Said, SessionStream};
use crate::housekeeping::keep_house;
use crate::ids::Ids;
use crate::keyed::{self, Turns};
use crate::progress::Progress;
use crate::record;
use crate::request::{IdempotencyKey, SessionRequest};
use crate::setup::{Agents, Setup};
use crate::tighten::TIGHTEN;
use crate::view::{Around, FailureView, SessionView};

/// How often sessions are looked for whose owner is gone.
const TAKE_OVER_EVERY: Duration = Duration::from_secs(2);
/// How often MCP servers that were not there are asked again; each backs off by itself.
const TOOLS_EVERY: Duration = Duration::from_secs(5);
/// Most sessions taken over at once; the rest follows at the next look.
const TAKE_OVER_MAX: NonZeroU32 = NonZeroU32::MIN.saturating_add(31);
/// Longest that ending the background tasks may take: each looks at the stop sign between two waits.
const BACKGROUND_PATIENCE: Duration = Duration::from_secs(10);
/// Wait after the inbox could not be read.
const INBOX_BACK_OFF: Duration = Duration::from_secs(1);

/// What an orchestrator is built from.
pub struct OrchestratorOptions {
    /// Most sessions that run at once in this process.
    pub max_in_flight: usize,
    /// Seed of ids and fences.
    pub seed: u64,
    /// True if sessions of other processes that are gone are taken over, and what is over is swept. Off for a process that runs
    /// one session.
    pub take_over: bool,
}

/// Runs sessions. Cheap to clone.
#[derive(Clone)]
pub struct Orchestrator {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    in_flight: Arc<Semaphore>,
    max_in_flight: usize,
    rng: Mutex<StdRng>,
    ids: Ids,
    turns: Arc<Turns>,
    tasks: TaskTracker,
    background: TaskTracker,
    stop: CancellationToken,
    draining: AtomicBool,
}

/// A session that was started here, or that the idempotency key of a request stands for. Dropping it changes nothing; see
/// [`Running::cancel_on_drop`].
pub struct Running {
    /// Which.
    pub id: SessionId,
    /// Its limits.
    pub limits: Limits,
    /// True if it was there before the request: somebody asked again.
    pub replayed: bool,
    /// When its verdict is due; `None` if it has one.
    pub due: Option<Instant>,
    verdict: Source,
    /// Where to cancel it, for whoever started it.
    mail: Option<mpsc::Sender<Mail>>,
}

/// Where a verdict comes from.
enum Source {
    /// The session's task, in this process.
    Here(watch::Receiver<Option<Arc<SessionView>>>),
    /// The journal, for a session that runs elsewhere or waits for a new owner.
    Journal(Orchestrator),
    /// It is there.
    Told(Arc<SessionView>),
}

/// Cancels its session when dropped, as a caller who went away.
pub struct CancelOnDrop(Option<mpsc::Sender<Mail>>);

/// One page of sessions.
#[derive(Debug)]
pub struct Sessions {
    /// Rows, in the order asked for.
    pub rows: Vec<SessionRow>,
    /// True if there are more behind them.
    pub has_more: bool,
}

/// What must be zero once nothing is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quiescence {
    /// Sessions with a task.
    pub sessions: usize,
    /// Requests that the store has not answered.
    pub store_queue: usize,
}

impl Running {
    /// Waits for the verdict, at most until `until`.
    ///
    /// # Cancel safety
    /// Waiting again loses nothing.
    pub async fn verdict(&mut self, until: Option<Instant>) -> Option<Arc<SessionView>> {
        match &mut self.verdict {
            Source::Here(verdict) => wait(verdict, until).await,
            Source::Journal(orchestrator) => {
                let told = orchestrator.verdict_in_journal(self.id);
                match until {
                    Some(until) => tokio::time::timeout_at(until, told).await.ok().flatten(),
                    None => told.await,
                }
            }
            Source::Told(view) => Some(view.clone()),
        }
    }

    /// A guard that cancels the session if its caller goes away. Who asked again cancels nothing.
    #[must_use]
    pub fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.mail.clone())
    }
}

impl CancelOnDrop {
    /// The caller was answered: nothing is cancelled any more.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(mail) = self.0.take() {
            // A full mailbox means 64 messages for one session: it ends at its deadline then.
            let _ = mail.try_send(Mail::Cancel { by: Canceller::Disconnect, heard: None });
        }
    }
}

impl Orchestrator {
    /// Opens the doors, and begins to look for sessions whose owner is gone.
    #[must_use]
    pub fn open(options: OrchestratorOptions, setup: Setup, store: Store, timeline: Arc<Timeline>) -> Self {
        let OrchestratorOptions { max_in_flight, seed, take_over } = options;
        let inner = Arc::new(Inner {
            shared: Arc::new(Shared { store, timeline, setup: ArcSwap::from_pointee(setup) }),
            in_flight: Arc::new(Semaphore::new(max_in_flight)),
            max_in_flight,
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            ids: Ids::seeded(seed),
            turns: Arc::default(),
            tasks: TaskTracker::new(),
            background: TaskTracker::new(),
            stop: CancellationToken::new(),
            draining: AtomicBool::new(false),
        });
        let this = Self { inner };
        if take_over {
            this.inner.background.spawn(this.clone().watch_for_orphans());
            this.inner.background.spawn(keep_house(this.store().clone(), this.inner.stop.clone()));
        }
        this.inner.background.spawn(this.clone().watch_for_tools());
        this.inner.background.spawn(this.clone().watch_the_inbox());
        this
    }

    /// What sessions begin with at this moment.
    #[must_use]
    pub fn setup(&self) -> Arc<Setup> {
        self.inner.shared.setup.load_full()
    }

    /// Lets sessions begin with another setup from now on; those that run keep theirs. Its gateway and executor have to be
    /// successors of the present ones, so that bulkheads and servers go on.
    pub fn adopt(&self, setup: Setup) {
        let setup = Arc::new(setup);
        self.inner.shared.setup.store(setup.clone());
        setup.gateway().enforce();
        setup.executor().enforce();
    }

    /// The agents, by name.
    #[must_use]
    pub fn agents(&self) -> Arc<Agents> {
        self.setup().agents().clone()
    }

    /// What runs the tools.
    #[must_use]
    pub fn executor(&self) -> Arc<Executor> {
        self.setup().executor().clone()
    }

    /// What calls the models.
    #[must_use]
    pub fn gateway(&self) -> Arc<Gateway> {
        self.setup().gateway().clone()
    }

    /// Where everything is kept.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.shared.store
    }

    pub(crate) fn sink(&self) -> &Arc<dyn SignalSink> {
        self.inner.shared.timeline.sink()
    }

    /// False once the process is going down.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.inner.draining.load(Ordering::Acquire)
    }

    /// True if another session would find a place at this moment.
    #[must_use]
    pub fn has_place(&self) -> bool {
        self.inner.in_flight.available_permits() > 0
    }

    /// Sessions without a verdict, by agent.
    #[must_use]
    pub fn in_flight(&self) -> std::collections::HashMap<Arc<str>, usize> {
        self.inner.shared.timeline.live.in_flight()
    }

    /// What is going on at the moment.
    #[must_use]
    pub fn quiescence(&self) -> Quiescence {
        Quiescence { sessions: self.inner.shared.timeline.live.count(), store_queue: self.inner.shared.store.gauges().queued }
    }

    /// Starts a session: checks everything cheap first, then takes a place and the model's first permit, then journals.
    /// With an idempotency key that is taken it gives the session that the key stands for.
    ///
    /// # Errors
    /// See [`StartError`]; nothing was journalled or sent then.
    ///
    /// # Cancel safety
    /// Dropped before the journal answered, the session is cancelled as by a caller who went away, unless it continues.
    pub async fn start(&self, request: SessionRequest) -> Result<Running, StartError> {
        let (this, gone) = (self.clone(), CancellationToken::new());
        let waits = gone.clone().drop_guard();
        let starting = self.inner.tasks.spawn(async move { Box::pin(this.let_in(request, gone)).await });
        let started = starting.await;
        waits.disarm();
        started.unwrap_or(Err(StartError::Interrupted))
    }

    /// Once a record is in the journal its session has a task, also if whoever asked for it has gone meanwhile.
    async fn let_in(self, mut request: SessionRequest, gone: CancellationToken) -> Result<Running, StartError> {
        let shared = &self.inner.shared;
        if !self.is_ready() {
            return Err(StartError::ShuttingDown);
        }
        let clock = SessionClock::starting(request.arrived);
        // A key that is taken is answered before anything else is looked at: nothing that changed since may refuse it.
        let _turn = match &request.idempotency {
            None => None,
            Some(key) => {
                let turn = self.inner.turns.wait(keyed::name(key, &request.principal), keyed::patience(&request)).await;
                let turn = turn.ok_or(keyed::NOT_YET)?;
                if let Some(running) = self.known(&request, key).await? {
                    return Ok(running);
                }
                Some(turn)
            }
        };
        // One setup for all that follows, also if another is adopted meanwhile.
        let setup = self.setup();
        let agent = setup.agents().get(&*request.agent).cloned().ok_or_else(|| StartError::AgentNotFound {
            name: request.agent.chars().take(128).collect(),
            known: setup.agents().keys().map(ToString::to_string).collect(),
        })?;
        let limits = request.limits(&agent).map_err(StartError::LimitsTooHigh)?;
        if clock.now() >= limits.deadline_ms {
            return Err(StartError::DeadlineExceeded);
        }
        let chars = count(&agent.instructions) + request.input.iter().map(|text| count(text)).sum::<u64>();
        if chars > u64::from(limits.prompt_chars) {
            return Err(StartError::PromptTooLarge { chars, limit: limits.prompt_chars });
        }
        let equipment = setup.equip(&agent, &request)?;
        let ceiling = ceiling(&equipment);
        let sent = chars + MESSAGE_CHARS * (request.input.len() as u64 + 1) + u64::from(ceiling.tools_chars);
        if let Some(window) = ceiling.context_window {
            let tokens = sent.div_ceil(3);
            if tokens >= window {
                return Err(StartError::ContextTooLong { tokens, window });
            }
        }
        let needed_ms = u64::try_from(equipment.chain.min_useful().as_millis()).unwrap_or(u64::MAX).saturating_add(LAST_CALL_MARGIN_MS);
        let left_ms = limits.deadline_ms.saturating_sub(clock.now());
        if left_ms < needed_ms {
            return Err(StartError::DeadlineTooShort { left_ms, needed_ms });
        }
        let earlier = match request.previous {
            None => None,
            Some(previous) => {
                let room = room(&ceiling, &limits, &agent, &request, sent);
                Some(earlier(&shared.store, previous, &request.principal, room).await?)
            }
        };
        let place =
            self.inner.in_flight.clone().try_acquire_owned().map_err(|_| StartError::Overloaded { max: self.inner.max_in_flight })?;
        let id = self.inner.ids.next();
        let trace = request.trace.take().unwrap_or_else(|| self.own_trace());
        let subject = Subject { session: Some(id), step: None, trace: Some(trace.trace) };
        let admission = equipment.chain.admit(subject, clock.instant(limits.reserve_at())).await.map_err(StartError::Saturated)?;
        // The wait for the permit may have been longer than its caller's.
        let left = || gone.is_cancelled() && !request.continues;
        if left() {
            return Err(StartError::Interrupted);
        }

        let mut known = Texts::default();
        let said_before = earlier.iter().flat_map(|earlier| &earlier.words).map(|(speaker, text)| (*speaker, text));
        let said_now = request.input.iter().map(|text| (Speaker::User, text));
        let input = said_before.chain(said_now).map(|(speaker, text)| InputItem { speaker, body: known.add(text) }).collect();
        let continues = earlier.as_ref().map(|earlier| earlier.continues);
        let targets = equipment.chain.targets().map(|(name, model)| NamedTarget { name: name.clone(), model: model.clone() }).collect();
        let tools =
            equipment.offer.declarations().map(|tool| OfferedTool { name: tool.name, schema: tool.digest, effect: tool.class.effect });
        let at = clock.now();
        let started = Arc::new(Started {
            machine: MACHINE_VERSION,
            session: id,
            agent: agent.name.clone(),
            agent_version: agent.version(),
            principal: request.principal.clone(),
            limits,
            on_limit: request.on_limit,
            taint: agent.taint,
            tainted: request.tainted || earlier.is_some_and(|earlier| earlier.tainted),
            saga: None,
            retrieval: false,
            instructions: known.add(&agent.instructions),
            input,
            continues,
            targets,
            tools: tools.collect(),
            ceiling,
            wall_ms: wall_ms().saturating_sub(at),
            config_revision: setup.revision().clone(),
            trace: Some(trace),
        });
        let (progress, commands) = Progress::start(started.clone(), at);
        let record =
            Record { seq: 1, kind: RecordKind::Event, at_ms: at, body: record::write(&*started), fingerprint: fingerprint(&commands) };
        if !self.is_ready() {
            return Err(StartError::ShuttingDown);
        }
        let need = if request.durable || request.idempotency.is_some() { Need::Durable } else { Need::Applied };
        let new_key = |key: &IdempotencyKey| NewKey { name: keyed::name(key, &started.principal), hash: key.hash };
        let verdict_now = progress.verdict().copied();
        let created = shared
            .store
            .create(
                NewSession {
                    id,
                    agent: agent.name.clone(),
                    tenant: started.principal.tenant.clone(),
                    principal: started.principal.id.clone(),
                    previous: request.previous,
                    status: verdict_now.map_or("running", |verdict| verdict.status.as_str()),
                    created_ms: started.wall_ms,
                    deadline_ms: started.wall_ms.saturating_add(limits.deadline_ms),
                    metadata: record::write(&request.metadata),
                    started: record,
                    contents: known.take_fresh().into_iter().map(|(digest, text)| Content { digest, text }).collect(),
                    forget: request.forget,
                    key: request.idempotency.as_ref().map(new_key),
                },
                need,
            )
            .await;
        let lease = match (created, &request.idempotency) {
            (Ok(lease), _) => lease,
            // Another process was first. If its session has gone meanwhile, asking again will tell.
            (Err(StoreError::KeyTaken), Some(key)) => {
                return self.known(&request, key).await?.ok_or(keyed::NOT_YET);
            }
            (Err(failed), _) => return Err(StartError::Store(failed)),
        };
        if request.idempotency.is_some() {
            self.sink().emit(subject, &Signal::Idempotency { outcome: IdempotencyOutcome::Acquired });
        }
        shared.timeline.sink().emit(subject, &Signal::SessionStarted { agent: agent.name.clone() });
        if let Some(verdict) = verdict_now {
            // Nothing can be afforded at all: the row is closed before anybody is told.
            let row = RowUpdate {
                reason: Some(verdict.reason.as_str()),
                settlement: Some(progress.machine.settlement().as_str()),
                verdict_ms: Some(started.wall_ms.saturating_add(at)),
                closed_ms: Some(started.wall_ms.saturating_add(at)),
                release: true,
                key: Some(key_fate(Some(&verdict), Some(started.wall_ms.saturating_add(at)))),
                ..RowUpdate::default()
            };
            if let Err(failed) = shared.store.append(&lease, Append { row: Some(row), ..Append::default() }, need).await {
                // It is in the journal all the same: whoever takes up lost sessions closes it.
                shared.timeline.live.lose(lease);
                return Err(StartError::Store(failed));
            }
        }
        let left = left();
        let around = Around { metadata: request.metadata, closed_ms: None, failure: None };
        let (verdict, mail) = self.launch(move |shared, marker, mailbox, verdict| {
            let beginning = Beginning {
                shared,
                equipment,
                place,
                lease,
                progress,
                texts: known,
                around,
                clock,
                seq: 1,
                live: request.heard.then(|| Arc::new(LiveText::new())),
                admission: Some(admission),
                marker,
                mailbox,
                verdict,
            };
            (id, agent.name.clone(), Session::new(beginning), First::Commands(commands))
        });
        if left {
            // The mailbox is new: there is room.
            let _ = mail.try_send(Mail::Cancel { by: Canceller::Disconnect, heard: None });
        }
        let due = Some(clock.instant(limits.deadline_ms));
        Ok(Running { id, limits, replayed: false, due, verdict: Source::Here(verdict), mail: Some(mail) })
    }

    /// A session that is there already, as whoever started it has it.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub(crate) async fn replay(&self, id: SessionId) -> Result<Running, LookupError> {
        let live = self.inner.shared.timeline.live.find(id);
        let view = self.view(id, false).await?;
        let limits = view.limits;
        let left = Duration::from_millis(view.deadline_ms.saturating_sub(wall_ms()));
        let due = view.verdict.is_none().then(|| Instant::now() + left);
        let verdict = match live {
            _ if view.verdict.is_some() => Source::Told(Arc::new(view)),
            Some(handle) => Source::Here(handle.verdict),
            None => Source::Journal(self.clone()),
        };
        Ok(Running { id, limits, replayed: true, due, verdict, mail: None })
    }

    /// Follows a session's journal to its verdict; `None` if it cannot be read to there.
    async fn verdict_in_journal(&self, id: SessionId) -> Option<Arc<SessionView>> {
        let mut stream = self.follow(id, false).await.ok()?;
        // Ends: a stream has one terminal event, and whoever waits has a deadline.
        while let Some(event) = stream.next().await.ok()? {
            match event.said {
                Said::Session(view) if event.terminal => return Some(Arc::new(*view)),
                Said::Session(_) | Said::Value(_) => {}
            }
        }
        None
    }

    /// A session as it stands, from its journal; with everything said, if asked for.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub async fn view(&self, id: SessionId, transcript: bool) -> Result<SessionView, LookupError> {
        desk::view(&self.inner.shared.store, id, transcript).await
    }

    /// Waits for a session's verdict, wherever it runs, at most until `until`; `None` if it has none by then.
    pub async fn wait(&self, id: SessionId, until: Instant) -> Option<Arc<SessionView>> {
        match self.inner.shared.timeline.live.find(id) {
            Some(mut handle) => wait(&mut handle.verdict, Some(until)).await,
            None => tokio::time::timeout_at(until, self.verdict_in_journal(id)).await.ok().flatten(),
        }
    }

    /// One page of sessions.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(&self, page: Page) -> Result<Sessions, LookupError> {
        let listing = self.inner.shared.store.sessions(page).await.map_err(LookupError::Store)?;
        Ok(Sessions { rows: listing.rows, has_more: listing.has_more })
    }

    /// Follows a session's events from the first, live after that.
    ///
    /// # Errors
    /// If there is none, or the store cannot be read.
    pub async fn follow(&self, id: SessionId, settlement: bool) -> Result<SessionStream, LookupError> {
        let store = &self.inner.shared.store;
        self.visible(id).await?;
        let text = self.inner.shared.timeline.live.find(id).and_then(|handle| handle.text);
        Ok(SessionStream::new(store.clone(), id, settlement, text))
    }

    /// Asks a session to stop, wherever it runs. Asking again changes nothing.
    ///
    /// # Errors
    /// If there is none, or the store cannot be reached.
    pub async fn cancel(&self, id: SessionId, by: Canceller) -> Result<(), LookupError> {
        self.visible(id).await?;
        self.ask_to_stop(id, by).await
    }

    /// Deletes a session: no id finds it any more, no list shows it, its idempotency key is free. One that runs is
    /// cancelled. Its texts go at once, or when it is closed; its journal stays, and so do the copies of sessions that
    /// continued it.
    ///
    /// # Errors
    /// If there is none, or the store cannot be written.
    pub async fn delete(&self, id: SessionId) -> Result<(), LookupError> {
        let closed = match self.inner.shared.store.delete(id).await {
            Ok(closed) => closed,
            Err(StoreError::NotFound { .. }) => return Err(LookupError::NotFound(id)),
            Err(failed) => return Err(LookupError::Store(failed)),
        };
        if !closed && let Err(failed) = self.ask_to_stop(id, Canceller::Caller).await {
            // It is deleted all the same, and ends at its deadline.
            warn!(session = %id, error = %causes(&failed), "a deleted session could not be cancelled");
        }
        Ok(())
    }

    /// The row of a session that may be seen.
    pub(crate) async fn visible(&self, id: SessionId) -> Result<SessionRow, LookupError> {
        desk::visible(&self.inner.shared.store, id).await
    }

    async fn ask_to_stop(&self, id: SessionId, by: Canceller) -> Result<(), LookupError> {
        let shared = &self.inner.shared;
        if let Some(handle) = shared.timeline.live.find(id)
            && handle.mail.send(Mail::Cancel { by, heard: None }).await.is_ok()
        {
            return Ok(());
        }
        match shared.store.inbox_put(id, "cancel", record::write(&Event::Cancelled { by }), Need::Applied).await {
            Ok(()) | Err(StoreError::SessionClosed { .. } | StoreError::InboxFull { .. }) => Ok(()),
            Err(StoreError::NotFound { .. }) => Err(LookupError::NotFound(id)),
            Err(failed) => Err(LookupError::Store(failed)),
        }
    }

    /// Where to write to a session that runs here.
    pub(crate) fn mail_of(&self, id: SessionId) -> Option<mpsc::Sender<Mail>> {
        Some(self.inner.shared.timeline.live.find(id)?.mail)
    }

    /// Takes no more sessions from now on; nothing is waited for. [`drain`](Self::drain) has to follow.
    pub fn shut_the_door(&self) {
        self.inner.draining.store(true, Ordering::Release);
    }

    /// Takes no more sessions, waits for those that run at most `patience`, then cancels them and waits once more.
    ///
    /// What is not settled by then is left to whoever takes its lease.
    pub async fn drain(&self, patience: Duration, hurry: &CancellationToken) {
        self.shut_the_door();
        self.inner.stop.cancel();
        self.inner.tasks.close();
        tokio::select! {
            () = self.inner.tasks.wait() => {}
            () = sleep(patience) => {}
            () = hurry.cancelled() => {}
        }
        for handle in self.inner.shared.timeline.live.all() {
            let _ = handle.mail.try_send(Mail::Cancel { by: Canceller::Shutdown, heard: None });
        }
        let _ = tokio::time::timeout(patience.min(Duration::from_secs(5)), self.inner.tasks.wait()).await;
        self.inner.background.close();
        let _ = tokio::time::timeout(BACKGROUND_PATIENCE, self.inner.background.wait()).await;
    }

    /// The trace of a session that hangs in nobody's: its id ties logs and requests together.
    fn own_trace(&self) -> TraceContext {
        let drawn: [u8; 16] = self.inner.rng.lock().unwrap_or_else(PoisonError::into_inner).random();
        let id = TraceId::from_bytes(drawn).unwrap_or(TraceId::LAST);
        TraceContext { trace: Trace { id, parent: None, sampled: false, recorded: false }, state: None }
    }

    /// Starts a session's task; gives its verdict and its mailbox.
    fn launch(
        &self,
        make: impl FnOnce(
            Arc<Shared>,
            u64,
            (mpsc::Sender<Mail>, mpsc::Receiver<Mail>),
            watch::Sender<Option<Arc<SessionView>>>,
        ) -> (SessionId, Arc<str>, Session, First),
    ) -> (watch::Receiver<Option<Arc<SessionView>>>, mpsc::Sender<Mail>) {
        let shared = self.inner.shared.clone();
        let marker = self.inner.rng.lock().unwrap_or_else(PoisonError::into_inner).random();
        let (mail, mailbox) = mpsc::channel(MAILBOX);
        let (tell, verdict) = watch::channel(None);
        let (id, agent, session, first) = make(shared.clone(), marker, (mail.clone(), mailbox), tell);
        let text = session.live_text();
        shared.timeline.live.insert(id, Handle { agent, mail: mail.clone(), verdict: verdict.clone(), text });
        let gone = Gone { shared, id, mail: mail.clone(), lease: session.lease().clone() };
        self.inner.tasks.spawn(async move {
            let _gone = gone;
            match first {
                First::Commands(commands) => Box::pin(session.run(commands)).await,
                First::Event(event) => Box::pin(session.resume(event)).await,
            }
        });
        (verdict, mail)
    }

    /// Asks MCP servers again that were not there: their tools are offered as soon as they are. Ends those that a former
    /// setup left behind once no session can call them.
    async fn watch_for_tools(self) {
        while !self.inner.stop.is_cancelled() {
            tokio::select! {
                () = sleep(TOOLS_EVERY) => {}
                () = self.inner.stop.cancelled() => return,
            }
            let setup = self.setup();
            let names = setup.tools();
            tokio::select! {
                _ = setup.executor().ready(&names) => {}
                () = self.inner.stop.cancelled() => return,
            }
            // Bounded by the time that a server is given to end.
            setup.executor().end_unused().await;
        }
    }

    async fn watch_for_orphans(self) {
        while !self.inner.stop.is_cancelled() {
            match self.inner.shared.store.take_over(TAKE_OVER_MAX).await {
                Ok(leases) => {
                    let lost = self.inner.shared.timeline.live.take_lost();
                    for lease in leases.into_iter().chain(lost) {
                        if self.inner.stop.is_cancelled() {
                            // It is somebody else's as soon as this process has signed off.
                            return;
                        }
                        self.take_up(lease).await;
                    }
                }
                Err(failed) => error!(error = %causes(&failed), "sessions without an owner cannot be looked for"),
            }
            tokio::select! {
                () = sleep(TAKE_OVER_EVERY) => {}
                () = self.inner.stop.cancelled() => {}
            }
        }
    }

    /// Goes on with a session whose owner is gone.
    async fn take_up(&self, lease: Lease) {
        let store = &self.inner.shared.store;
        let id = lease.session;
        // Waits for a place like everybody; the lease is renewed meanwhile.
        let place = tokio::select! {
            place = self.inner.in_flight.clone().acquire_owned() => place,
            () = self.inner.stop.cancelled() => return,
        };
        let Ok(place) = place else { return };
        let rebuilt = match rebuild(store, id).await {
            Ok(rebuilt) => rebuilt,
            Err(failed) => {
                error!(session = %id, error = %causes(&failed), "a session without an owner cannot be rebuilt");
                if matches!(failed, LookupError::Store(_)) {
                    self.inner.shared.timeline.live.lose(lease);
                }
                return;
            }
        };
        let texts = match texts(store, id).await {
            Ok(texts) => texts,
            Err(failed) => {
                error!(session = %id, error = %causes(&failed), "a session without an owner cannot be rebuilt now");
                self.inner.shared.timeline.live.lose(lease);
                return;
            }
        };
        let Rebuilt { row, progress, around, seq, agrees } = rebuilt;
        let started = progress.machine.started().clone();
        let setup = self.setup();
        let agent = setup.agents().get(&started.agent);
        let same = agent.filter(|agent| agent.version() == started.agent_version);
        let goes_on = agrees && same.is_some();
        // A session that cannot go on is ended and settled from what its journal records; any agent's name will do.
        let agent = same.cloned().unwrap_or_else(|| Arc::new(Agent::departed(&started, setup.any_chain())));
        let names: Vec<Arc<str>> = started.tools.iter().map(|tool| tool.name.clone()).collect();
        let offer = setup.offer(&agent, started.principal.clone()).only(|name| names.iter().any(|own| **own == *name));
        let Ok(equipment) = setup.equipment(&agent, offer) else {
            error!(session = %id, "a session without an owner has no chain to go on with");
            return;
        };
        let clock = SessionClock::resuming(started.wall_ms, progress.tally.last_at);
        let event = if goes_on { Event::Resumed } else { Event::Cancelled { by: Canceller::Recovery } };
        info!(session = %id, goes_on, "taking up a session");
        let (_, mail) = self.launch(move |shared, marker, mailbox, verdict| {
            let beginning = Beginning {
                shared,
                equipment,
                place,
                lease,
                progress,
                texts,
                around,
                clock,
                seq,
                live: Some(Arc::new(LiveText::new())),
                admission: None,
                marker,
                mailbox,
                verdict,
            };
            (id, started.agent.clone(), Session::new(beginning), First::Event(event))
        });
        if row.deleted_ms.is_some() {
            // Whoever deleted it may not have come to cancelling it. The mailbox is new: there is room.
            let _ = mail.try_send(Mail::Cancel { by: Canceller::Caller, heard: None });
        }
    }

    async fn watch_the_inbox(self) {
        while !self.inner.stop.is_cancelled() {
            let messages = tokio::select! {
                messages = self.inner.shared.store.inbox_next() => messages,
                () = self.inner.stop.cancelled() => return,
            };
            match messages {
                Ok(messages) => {
                    let mut all_told = true;
                    for message in messages {
                        let Some(mail) = mail(&message) else { continue };
                        let told = self.mail_of(message.session).is_some_and(|to| to.try_send(mail).is_ok());
                        if !told {
                            // Its session is not up yet, or has its hands full: the next look brings it again.
                            self.inner.shared.store.inbox_return(&message);
                            all_told = false;
                        }
                    }
                    if !all_told {
                        sleep(INBOX_BACK_OFF).await;
                    }
                }
                Err(failed) => {
                    error!(error = %causes(&failed), "the inbox cannot be read");
                    sleep(INBOX_BACK_OFF).await;
                }
            }
        }
    }
}

/// What a message in the store says to its session; `None` where nothing can be made of it.
fn mail(message: &Message) -> Option<Mail> {
    let heard = Some(message.id);
    if message.kind == TIGHTEN {
        return Some(Mail::Tighten { wish: serde_json::from_str(&message.body).ok()?, heard, told: None });
    }
    match record::read_event(0, &message.body) {
        Ok(Event::Cancelled { by }) => Some(Mail::Cancel { by, heard }),
        Ok(_) | Err(_) => None,
    }
}

/// What a session's task does first.
enum First {
    Commands(Vec<ambit_core::session::Command>),
    Event(Event),
}

/// Takes a session off the list when its task ends, however it ends.
struct Gone {
    shared: Arc<Shared>,
    id: SessionId,
    mail: mpsc::Sender<Mail>,
    lease: Lease,
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.shared.timeline.live.remove(self.id, &self.mail);
        if std::thread::panicking() {
            // The session is still this process's: it is taken up again from its journal.
            self.shared.timeline.live.lose(self.lease.clone());
        }
    }
}

async fn wait(verdict: &mut watch::Receiver<Option<Arc<SessionView>>>, until: Option<Instant>) -> Option<Arc<SessionView>> {
    let fell = verdict.wait_for(Option::is_some);
    match until {
        Some(until) => tokio::time::timeout_at(until, fell).await.ok()?.ok().and_then(|view| view.clone()),
        None => fell.await.ok().and_then(|view| view.clone()),
    }
}

/// The text of the answer, so that a view without a transcript reads one text only.
pub(crate) async fn answer_text(store: &Store, id: SessionId, progress: &Progress) -> Result<Texts, LookupError> {
    let machine = &progress.machine;
    let answer = machine.verdict().map_or_else(|| machine.transcript().last_text(), |verdict| verdict.answer);
    let Some(answer) = answer else { return Ok(Texts::default()) };
    let text = store.content(id, answer.digest).await.map_err(LookupError::Store)?;
    Ok(Texts::stored(text.map(|text| (answer.digest, text))))
}

/// The words of a session's last failure.
pub(crate) async fn failure_words(store: &Store, id: SessionId, digest: Option<Digest>) -> Result<Option<Arc<FailureView>>, LookupError> {
    let Some(digest) = digest else { return Ok(None) };
    let text = store.content(id, digest).await.map_err(LookupError::Store)?;
    Ok(text.map(|text| Arc::new(FailureView { code: "failed".into(), detail: text.to_string(), retry_after: None })))
}

fn ceiling(equipment: &Equipment) -> CallCeiling {
    let ceiling = equipment.chain.ceiling();
    CallCeiling {
        attempts: ceiling.attempts,
        context_window: ceiling.context_window,
        price: ceiling.price,
        tools_chars: u32::try_from(equipment.tools.chars()).unwrap_or(u32::MAX),
    }
}

/// What earlier words may take: what the window leaves beside the prompt and one answer of full length, and half of the
/// transcript with the prompt, so that there is something left to work with.
fn room(ceiling: &CallCeiling, limits: &Limits, agent: &Agent, request: &SessionRequest, sent: u64) -> Room {
    let own = agent.instructions.len() + request.input.iter().map(|text| text.len()).sum::<usize>();
    let readable = ceiling.context_window.map(|window| window.saturating_sub(limits.output_tokens_per_call.into()).saturating_mul(3));
    Room { chars: readable.map_or(u64::MAX, |chars| chars.saturating_sub(sent)), bytes: (limits.transcript / 2).saturating_sub(own as u64) }
}

fn count(text: &str) -> u64 {
    text.chars().count() as u64
}
