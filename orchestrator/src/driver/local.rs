//! One session's task: appends each event to the journal, then runs the commands that it caused, then waits.
//!
//! **Invariant:** it decides nothing. An event is in the journal before any command that it caused runs. Reads and
//! model calls are dropped with [`Command::Abandon`]; a write that was sent is waited for until the session is closed.
//! The loop ends: the machine hears a bounded number of events, and everything it waits for has a deadline.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ambit_core::limit::IDEMPOTENCY_KEPT_MS;
use ambit_core::session::{
    Canceller, Command, Decision, Event, Finding, FinishReason, Heard, ModelFault, PreparedCall, Reply, TurnCall, fingerprint,
};
use ambit_core::signal::{AxisUse, Signal, Subject};
use ambit_core::{Allowance, Axis, Gate, Reason, SessionId, Status, Step, ToolCode, ToolResult, Verdict};
use ambit_model_gateway::{Admission, ModelOutcome, Turn};
use ambit_store::{Append, Content, KeyFate, Lease, MessageId, Need, Record, RecordKind, RowUpdate, StoreError};
use ambit_tool_executor::ToolOutcome;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

use crate::clock::SessionClock;
use crate::content::{Texts, body_of, digest_of};
use crate::driver::live::Mail;
use crate::driver::steps::{Answer, Done, ModelStep, ToolStep};
use crate::driver::text::LiveText;
use crate::driver::{Equipment, Shared};
use crate::progress::Progress;
use crate::record::{self, Note};
use crate::rendered::{Fencing, Rendered};
use crate::view::{Around, CUT, LEFT_OUT, SessionView};

mod tighten;

/// Most characters of a failure's words that are kept.
const FAILURE_CHARS: usize = 500;

/// What a session's task begins with.
pub(crate) struct Beginning {
    pub(crate) shared: Arc<Shared>,
    pub(crate) equipment: Equipment,
    /// Its place among the sessions in flight, given back when the verdict falls.
    pub(crate) place: OwnedSemaphorePermit,
    pub(crate) lease: Lease,
    pub(crate) progress: Progress,
    pub(crate) texts: Texts,
    pub(crate) around: Around,
    pub(crate) clock: SessionClock,
    pub(crate) seq: u64,
    pub(crate) admission: Option<Admission>,
    /// Where text goes while it arrives, if somebody may read along.
    pub(crate) live: Option<Arc<LiveText>>,
    /// Drawn for this session; fences untrusted output.
    pub(crate) marker: u64,
    pub(crate) mailbox: (mpsc::Sender<Mail>, mpsc::Receiver<Mail>),
    pub(crate) verdict: watch::Sender<Option<Arc<SessionView>>>,
}

/// A step that runs, as far as it must be known if its task dies.
struct Underway {
    step: Step,
    is_model: bool,
    /// The target, or the tool.
    dependency: Arc<str>,
    allowance: Allowance,
}

/// A running session.
pub(crate) struct Session {
    shared: Arc<Shared>,
    equipment: Equipment,
    id: SessionId,
    place: Option<OwnedSemaphorePermit>,
    lease: Lease,
    progress: Progress,
    texts: Texts,
    around: Around,
    clock: SessionClock,
    seq: u64,
    admission: Option<Admission>,
    live: Option<Arc<LiveText>>,
    marker: u64,
    rendered: Option<Box<Rendered>>,
    steps: JoinSet<Done>,
    running: HashMap<Id, Underway>,
    handles: HashMap<Step, AbortHandle>,
    mail: mpsc::Sender<Mail>,
    mailbox: mpsc::Receiver<Mail>,
    verdict: watch::Sender<Option<Arc<SessionView>>>,
    waits: Vec<(Instant, Instant)>,
    began: Instant,
    /// Limits that were reached; each is told once.
    limits_hit: Vec<Axis>,
    /// Set once the journal cannot be written: nothing more is started.
    lost: bool,
}

impl Session {
    pub(crate) fn new(beginning: Beginning) -> Self {
        let Beginning { shared, equipment, place, lease, progress, texts, around, clock, seq, admission, live, marker, mailbox, verdict } =
            beginning;
        let (mail, mailbox) = mailbox;
        Self {
            shared,
            equipment,
            id: lease.session,
            place: Some(place),
            lease,
            progress,
            texts,
            around,
            clock,
            seq,
            admission,
            live,
            marker,
            rendered: None,
            steps: JoinSet::new(),
            running: HashMap::new(),
            handles: HashMap::new(),
            mail,
            mailbox,
            verdict,
            waits: Vec::new(),
            began: clock.instant(0),
            limits_hit: Vec::new(),
            lost: false,
        }
    }

    /// By what right it writes.
    pub(crate) const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Its text while it arrives, if somebody may read along.
    pub(crate) fn live_text(&self) -> Option<Arc<LiveText>> {
        self.live.clone()
    }

    /// Runs until the session is closed, or belongs to somebody else.
    ///
    /// # Cancel safety
    /// Dropping the future drops every step with it, as a crash of the process would; the journal is consistent.
    pub(crate) async fn run(mut self, commands: Vec<Command>) {
        // Limits can be so tight that the first record holds the verdict already.
        if let Some(verdict) = self.progress.verdict().copied() {
            self.told_first(&verdict);
        } else if self.seq == 1 && self.progress.machine.started().continues.is_some_and(|continues| continues.left_out > 0) {
            self.shortened(LEFT_OUT);
        }
        self.execute(commands);
        // One timer for the whole session, moved only when the machine wants to be woken at another moment.
        let mut alarm = std::pin::pin!(sleep_until(self.began));
        let mut set_for = None;
        while !self.lost && !self.progress.machine.is_closed() {
            let wake = self.progress.machine.wake_at().map(|(at, _)| self.clock.instant(at));
            if let Some(wake) = wake
                && set_for != Some(wake)
            {
                alarm.as_mut().reset(wake);
                set_for = Some(wake);
            }
            tokio::select! {
                biased;
                Some(mail) = self.mailbox.recv() => self.told(mail).await,
                Some(done) = self.steps.join_next_with_id() => self.answered(done).await,
                () = &mut alarm, if wake.is_some() => {
                    set_for = None;
                    self.hear(Event::Woke, None).await;
                }
            }
        }
        // Nobody reads the mail any more: who writes is told, and turns to the store's inbox.
        self.mailbox.close();
        self.drop_reads();
        // A write that was sent runs to its own end, whoever owns the session by then.
        while self.steps.join_next().await.is_some() {}
    }

    /// Drops every step but writes that were sent.
    fn drop_reads(&mut self) {
        let effects = self.progress.machine.effects();
        self.handles.retain(|step, handle| {
            let sent = effects.iter().any(|effect| effect.step == *step);
            if !sent {
                handle.abort();
            }
            sent
        });
    }

    /// First event after a takeover.
    pub(crate) async fn resume(mut self, event: Event) {
        self.emit(&Signal::SessionResumed { agent: self.equipment.agent.name.clone() });
        if self.progress.verdict().is_some() {
            // It is told already; only effects are left to be settled.
            self.publish();
        }
        if self.progress.machine.is_closed() {
            // The crash came between the last record and the row.
            let verdict = self.progress.verdict().copied();
            let row = self.row(verdict.as_ref(), self.progress.tally.last_at);
            if !self.write(Append { row, ..Append::default() }, Need::Applied).await && !self.lost {
                self.shared.timeline.live.lose(self.lease);
            }
            return;
        }
        self.hear(event, None).await;
        self.run(Vec::new()).await;
    }

    /// The verdict that came with the first record: it is in the journal and in the row.
    fn told_first(&mut self, verdict: &Verdict) {
        if self.verdict.borrow().is_none() {
            self.ended(verdict);
            self.publish();
            self.shown(&[], Vec::new(), None);
        }
    }

    async fn told(&mut self, mail: Mail) {
        match mail {
            Mail::Cancel { by, heard } => self.hear(Event::Cancelled { by }, heard).await,
            Mail::Tighten { wish, heard, told } => self.tighten(&wish, heard, told).await,
            Mail::Dispatch { step, go } => {
                let may = self.heard(Event::Dispatched { step }, None).await == Heard::Applied && !self.lost;
                // The step may have been dropped meanwhile; then nobody listens and nothing leaves.
                let _ = go.send(may);
            }
            Mail::Text => self.text_arrived(),
            Mail::Note(note) => self.note(&note, Vec::new()),
        }
    }

    /// Puts text that has arrived into the journal. A piece goes with its note and may be lost with it; what the turn says
    /// in the end is kept by itself.
    fn text_arrived(&mut self) {
        let Some((step, offset, text)) = self.live.as_ref().and_then(|live| live.take()) else { return };
        let piece = body_of(&text);
        let note = Note::Text { step, offset, bytes: piece.bytes.into(), digest: piece.digest };
        self.note(&note, vec![Content { digest: piece.digest, text: text.into() }]);
    }

    async fn answered(&mut self, done: Result<(Id, Done), JoinError>) {
        match done {
            Ok((id, Done { answer, waited })) => {
                self.running.remove(&id);
                self.waits.push(waited);
                match answer {
                    Answer::Model { step, outcome, rendered } => {
                        self.handles.remove(&step);
                        self.rendered = Some(rendered);
                        let event = self.model_event(step, *outcome);
                        self.hear(event, None).await;
                    }
                    Answer::Tool { step, outcome } => {
                        self.handles.remove(&step);
                        let event = self.tool_event(step, outcome);
                        self.hear(event, None).await;
                    }
                    Answer::Ready(event) => self.hear(event, None).await,
                }
            }
            Err(failed) => {
                let Some(lost) = self.running.remove(&failed.id()) else { return };
                self.handles.remove(&lost.step);
                if failed.is_panic() {
                    error!(session = %self.id, step = %lost.step, "a step panicked");
                    let event = self.panic_event(&lost);
                    self.hear(event, None).await;
                }
            }
        }
    }

    /// Hears an event and does what it causes.
    async fn hear(&mut self, event: Event, heard: Option<MessageId>) {
        self.heard(event, heard).await;
    }

    /// Applies an event: machine, journal, then the commands. Nothing runs unless the event is in the journal.
    async fn heard(&mut self, event: Event, message: Option<MessageId>) -> Heard {
        // What readers were shown before a fact stands before it in the journal, also of a turn that it ends.
        self.text_arrived();
        let at = self.clock.now().max(self.progress.tally.last_at);
        let body = record::write(&event);
        let name = event.name();
        let need = self.need(&event);
        let had_verdict = self.progress.verdict().is_some();
        let turns = self.progress.machine.transcript().turns().len();
        let tightened = matches!(event, Event::LimitsTightened { .. });
        let (heard, commands) = self.progress.hear(event, at);
        if heard == Heard::Invalid {
            error!(session = %self.id, phase = self.progress.machine.phase(), event = name, "an event that nobody asked for");
        }
        if heard != Heard::Applied {
            if let Some(message) = message {
                self.write(Append { heard: vec![message], ..Append::default() }, Need::Applied).await;
            }
            return heard;
        }
        if self.progress.machine.is_closed() {
            self.around.closed_ms = Some(self.progress.machine.started().wall_ms.saturating_add(at));
        }
        self.seq += 1;
        let record = Record { seq: self.seq, kind: RecordKind::Event, at_ms: at, body, fingerprint: fingerprint(&commands) };
        let fell = self.progress.verdict().copied().filter(|_| !had_verdict);
        let mut row = self.row(fell.as_ref(), at);
        if tightened {
            row.get_or_insert_default().deadline_ms = Some(self.deadline_ms());
        }
        let append = Append {
            records: vec![record],
            contents: self.texts.take_fresh().into_iter().map(|(digest, text)| Content { digest, text }).collect(),
            row,
            heard: message.into_iter().collect(),
        };
        let looping = self.looping(turns);
        if self.write(append, need).await {
            self.shown(&commands, looping, fell.as_ref());
            self.execute(commands);
        } else {
            self.journal_lost(had_verdict);
        }
        heard
    }

    /// Writes to the journal. False if it could not be written.
    async fn write(&mut self, append: Append, need: Need) -> bool {
        match self.shared.store.append(&self.lease, append, need).await {
            Ok(()) => true,
            Err(StoreError::NotOwner { .. }) => {
                warn!(session = %self.id, "another process has taken the session over");
                self.lost = true;
                false
            }
            Err(failed) => {
                error!(session = %self.id, error = %chain(&failed), "the journal cannot be written");
                false
            }
        }
    }

    /// The journal is gone: nothing new is started, and whoever waits is told. The session itself is taken up again by
    /// replay, from the last record that was written, as soon as there is a journal again.
    fn journal_lost(&mut self, had_verdict: bool) {
        let taken_over = std::mem::replace(&mut self.lost, true);
        if !taken_over {
            self.shared.timeline.live.lose(self.lease.clone());
        }
        self.drop_reads();
        // What was not written did not happen: a verdict that came with this event will be another one after the replay.
        // Whoever has taken the session over tells how it ends, and a verdict told before stands.
        if taken_over || had_verdict {
            return;
        }
        let _ = self.progress.hear(Event::Cancelled { by: Canceller::StoreLost }, self.clock.now());
        let lost = Verdict { status: Status::Failed, reason: Reason::StoreLost, answer: None, cause: None, untouched: false };
        self.ended(&lost);
        let mut view = SessionView::of(&self.progress, &self.texts, &self.around, self.clock.now());
        (view.status, view.verdict, view.output_text) = (lost.status.as_str(), Some(lost), None);
        self.place = None;
        self.verdict.send_replace(Some(Arc::new(view)));
    }

    /// What changes in the session's row with this event.
    fn row(&self, fell: Option<&Verdict>, at: u64) -> Option<RowUpdate> {
        let closed = self.progress.machine.is_closed();
        if fell.is_none() && !closed {
            return None;
        }
        let wall = self.progress.machine.started().wall_ms.saturating_add(at);
        Some(RowUpdate {
            status: fell.map(|verdict| verdict.status.as_str()),
            reason: fell.map(|verdict| verdict.reason.as_str()),
            settlement: Some(self.progress.machine.settlement().as_str()),
            verdict_ms: fell.map(|_| wall),
            closed_ms: closed.then_some(wall),
            release: closed,
            key: Some(key_fate(self.progress.verdict(), closed.then_some(wall))),
            ..RowUpdate::default()
        })
    }

    /// What must survive a loss of power: that a write is about to leave, and what came of it.
    fn need(&self, event: &Event) -> Need {
        let of_write = |step: &Step| self.progress.machine.effects().iter().any(|effect| effect.step == *step);
        match event {
            Event::Dispatched { .. } | Event::Reconciled { .. } | Event::Compensated { .. } => Need::Durable,
            // An operator was told that they are in force.
            Event::LimitsTightened { .. } => Need::Durable,
            Event::ToolFinished { step, .. } if of_write(step) => Need::Durable,
            Event::ToolFinished { .. }
            | Event::Retrieved { .. }
            | Event::ModelReplied { .. }
            | Event::ModelFailed { .. }
            | Event::ApprovalDecided { .. }
            | Event::Cancelled { .. }
            | Event::Woke
            | Event::Resumed => Need::Applied,
        }
    }

    /// Tells callers and signals what the journal now holds.
    fn shown(&mut self, commands: &[Command], looping: Vec<Arc<str>>, fell: Option<&Verdict>) {
        for command in commands {
            if let Command::CallModel { last: Some(Reason::Limit(axis)), .. } = command {
                self.limit_hit(*axis);
            }
        }
        for tool in looping {
            self.emit(&Signal::LoopDetected { tool });
        }
        if let Some(verdict) = fell {
            self.ended(verdict);
            self.publish();
        }
        if self.progress.machine.is_closed() {
            let settlement = self.progress.machine.settlement();
            self.emit(&Signal::SessionSettled { agent: self.equipment.agent.name.clone(), settlement });
        }
    }

    /// The tools of the turn just heard, if it is one more than `before`, whose calls the loop guard refused.
    fn looping(&self, before: usize) -> Vec<Arc<str>> {
        let calls = self.progress.machine.transcript().turns().get(before).map_or(&[][..], |turn| &turn.calls);
        let refused = |call: &&TurnCall| call.result.is_some_and(|result| result.code == ToolCode::LoopDetected);
        calls.iter().filter(refused).map(|call| call.tool.clone()).collect()
    }

    /// Lets whoever waits have the verdict. The place is free by then: who answers an answer with a request finds it.
    fn publish(&mut self) {
        self.place = None;
        let view = SessionView::of(&self.progress, &self.texts, &self.around, self.clock.now());
        self.verdict.send_replace(Some(Arc::new(view)));
    }

    fn limit_hit(&mut self, axis: Axis) {
        if !self.limits_hit.contains(&axis) {
            self.limits_hit.push(axis);
            self.emit(&Signal::LimitHit { agent: self.equipment.agent.name.clone(), axis });
        }
    }

    fn ended(&mut self, verdict: &Verdict) {
        if let Reason::Limit(axis) = verdict.reason {
            self.limit_hit(axis);
        }
        let (machine, now) = (&self.progress.machine, Instant::now());
        let (limits, spent) = (machine.limits(), machine.spent());
        let duration = now.saturating_duration_since(self.began);
        let elapsed = self.clock.now();
        let of = |axis, used, limit| AxisUse { axis, used, limit };
        self.emit(&Signal::SessionEnded {
            agent: self.equipment.agent.name.clone(),
            status: verdict.status,
            reason: verdict.reason,
            duration,
            overhead: duration.saturating_sub(union(&self.waits)),
            overrun: Duration::from_millis(elapsed.saturating_sub(limits.deadline_ms)),
            model_calls: spent.model_calls,
            tool_calls: spent.tool_calls,
            began_ms: machine.started().wall_ms,
            input_tokens: spent.input_tokens,
            output_tokens: spent.output_tokens,
            axes: vec![
                of(Axis::Deadline, elapsed, limits.deadline_ms),
                of(Axis::ModelCalls, spent.model_calls.into(), limits.model_calls.into()),
                of(Axis::ToolCalls, spent.tool_calls.into(), limits.tool_calls.into()),
                of(Axis::ModelAttempts, spent.model_attempts.into(), limits.model_attempts.into()),
                of(Axis::ToolAttempts, spent.tool_attempts.into(), limits.tool_attempts.into()),
                of(Axis::TotalTokens, spent.tokens(), limits.total_tokens),
                of(Axis::CostUsd, spent.cost.0, limits.cost_usd.0),
                of(Axis::Transcript, machine.transcript().bytes(), limits.transcript),
                of(Axis::Events, machine.events().into(), limits.events.into()),
            ],
        });
    }

    fn emit(&self, signal: &Signal) {
        self.shared.timeline.sink().emit(self.subject(None), signal);
    }

    fn subject(&self, step: Option<Step>) -> Subject {
        let trace = self.progress.machine.started().trace.as_ref().map(|context| context.trace);
        Subject { session: Some(self.id), step, trace }
    }

    fn trace_state(&self) -> Option<Arc<str>> {
        self.progress.machine.started().trace.as_ref().and_then(|context| context.state.clone())
    }

    /// Appends a note and the texts that only it refers to; nobody waits for it.
    fn note(&mut self, note: &Note, contents: Vec<Content>) {
        let at = self.clock.now().max(self.progress.tally.last_at);
        self.seq += 1;
        let record = Record { seq: self.seq, kind: RecordKind::Note, at_ms: at, body: record::write(note), fingerprint: 0 };
        let _ = self.shared.store.note(&self.lease, record, contents);
    }

    fn execute(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::CallModel { step, allowance, max_output, last, nudge } => {
                    let mut rendered = self.rendered.take().unwrap_or_else(|| Box::new(Rendered::new(&self.progress.machine, &self.texts)));
                    let fencing = Fencing { trusted: &self.equipment.trusted, marker: self.marker };
                    if rendered.catch_up(&self.progress.machine, &self.texts, &fencing) {
                        self.shortened(CUT);
                    }
                    let model = ModelStep {
                        step,
                        chain: self.equipment.chain.clone(),
                        rendered,
                        tools: self.equipment.tools.clone(),
                        last,
                        nudge,
                        max_output,
                        allowance,
                        deadline: self.clock.instant(allowance.deadline),
                        subject: self.subject(Some(step)),
                        trace_state: self.trace_state(),
                        admission: self.admission.take(),
                        live: self.live.clone(),
                        mail: self.mail.clone(),
                    };
                    let handle = self.steps.spawn(model.run());
                    let dependency = self.equipment.agent.chain.clone();
                    self.running.insert(handle.id(), Underway { step, is_model: true, dependency, allowance });
                    self.handles.insert(step, handle);
                }
                Command::CallTool { step, allowance, tool, arguments, again } => {
                    let dependency = tool.clone();
                    let tool = ToolStep {
                        step,
                        executor: self.equipment.executor.clone(),
                        tool,
                        arguments: self.texts.get(arguments),
                        key: format!("{}.{step}", self.id),
                        allowance,
                        deadline: self.clock.instant(allowance.deadline),
                        output_cap: self.progress.machine.limits().tool_output as usize,
                        call_id: self.progress.machine.call_id(step).cloned(),
                        subject: self.subject(Some(step)),
                        trace_state: self.trace_state(),
                        mail: self.mail.clone(),
                        again,
                    };
                    let handle = self.steps.spawn(tool.run());
                    self.running.insert(handle.id(), Underway { step, is_model: false, dependency, allowance });
                    self.handles.insert(step, handle);
                }
                Command::Abandon { step } => {
                    if let Some(handle) = self.handles.remove(&step) {
                        handle.abort();
                    }
                }
                // No configuration of this version leads to these: retrieval, approvals and what settles effects are
                // refused where they are asked for. Each has its one honest answer all the same.
                Command::Retrieve { step, .. } => self.ready(Event::Retrieved { step, passages: None, tainting: false }),
                Command::AskApproval { step, .. } => self.ready(Event::ApprovalDecided { step, decision: Decision::Deny }),
                Command::Reconcile { step, .. } => self.ready(Event::Reconciled { step, finding: Finding::Unknown }),
                Command::Compensate { step, .. } => self.ready(Event::Compensated { step, undone: false }),
                // The verdict is in the journal and was published with it; what is held for a call is given back.
                Command::Finish(_) => self.admission = None,
            }
        }
    }

    /// Something older was cut to make room: labelled in the answer, seen in the stream, counted.
    fn shortened(&mut self, reason: &'static str) {
        let (agent, capability) = (self.equipment.agent.name.clone(), Arc::<str>::from("context"));
        let mode = "shortened";
        self.emit(&Signal::SessionDegraded { agent, capability: capability.clone(), mode, reason });
        self.note(&Note::Degraded { capability, mode: mode.into(), reason: reason.into() }, Vec::new());
    }

    fn ready(&mut self, event: Event) {
        let now = Instant::now();
        self.steps.spawn(async move { Done { answer: Answer::Ready(event), waited: (now, now) } });
    }

    fn model_event(&mut self, step: Step, outcome: ModelOutcome) -> Event {
        let ModelOutcome { attempts, result } = outcome;
        match result {
            Ok(turn) => Event::ModelReplied { step, attempts, reply: self.reply(turn) },
            Err(failure) => {
                warn!(session = %self.id, %step, code = &*failure.code, status = failure.status, "a model call brought no turn");
                let words: String = failure.detail.chars().take(FAILURE_CHARS).collect();
                let digest = digest_of(&words);
                self.note(&Note::Failure { step, digest }, vec![Content { digest, text: words.into() }]);
                self.around.failure = Some(Arc::new(crate::view::FailureView {
                    code: failure.code,
                    detail: failure.detail,
                    retry_after: failure.retry_after,
                }));
                let partial = failure.partial.map(|text| self.texts.add(&text));
                Event::ModelFailed { step, attempts, fault: failure.fault, partial }
            }
        }
    }

    /// A turn with its calls prepared. The calls of a turn that was cut off are refused whole: nobody knows what the
    /// missing end would have said.
    fn reply(&mut self, turn: Turn) -> Reply {
        let cut = turn.finish == FinishReason::Length;
        let calls = turn
            .calls
            .iter()
            .map(|call| {
                let prepared = self.equipment.offer.prepare(&call.name, &call.arguments);
                let (gate, refusal) = if cut { (Gate::Refuse(ToolCode::CallTruncated), None) } else { (prepared.gate, prepared.refusal) };
                PreparedCall {
                    id: call.id.clone(),
                    tool: prepared.tool,
                    arguments: self.texts.add(&prepared.arguments),
                    canonical: prepared.canonical,
                    gate,
                    refusal: refusal.map(|text| self.texts.add(&text)),
                    class: prepared.class,
                }
            })
            .collect();
        Reply {
            text: turn.text.map(|text| self.texts.add(&text)),
            calls,
            carry: turn.carry.map(|carry| self.texts.add(&carry)),
            finish: turn.finish,
            tokens_per_kchar: turn.tokens_per_kchar,
        }
    }

    fn tool_event(&mut self, step: Step, outcome: ToolOutcome) -> Event {
        let ToolOutcome { attempts, code, text, truncated } = outcome;
        Event::ToolFinished { step, attempts, result: ToolResult { code, body: Some(self.texts.add(&text)), truncated } }
    }

    /// A step that died has told nobody what it sent: all that it was lent counts as spent.
    fn panic_event(&self, lost: &Underway) -> Event {
        let step = lost.step;
        let attempts = lost.allowance.charged(&lost.dependency, &Arc::from("panic"));
        if lost.is_model {
            return Event::ModelFailed { step, attempts, fault: ModelFault::Internal, partial: None };
        }
        let sent = self.progress.machine.effects().iter().any(|effect| effect.step == step);
        let code = if sent { ToolCode::OutcomeUnknown } else { ToolCode::ToolError };
        Event::ToolFinished { step, attempts, result: ToolResult::bare(code) }
    }
}

/// What becomes of the key under which a session was begun: where nothing was done, whoever asks again is to be served
/// anew; else the answer is kept for a day from the close.
pub(crate) fn key_fate(verdict: Option<&Verdict>, closed_ms: Option<u64>) -> KeyFate {
    if verdict.is_some_and(|verdict| verdict.untouched && verdict.answer.is_none()) {
        return KeyFate::Released;
    }
    KeyFate::Done { until_ms: closed_ms.map(|closed| closed.saturating_add(IDEMPOTENCY_KEPT_MS)) }
}

/// Time in which at least one step was waited for.
fn union(waits: &[(Instant, Instant)]) -> Duration {
    let mut sorted = waits.to_vec();
    sorted.sort_unstable();
    let mut total = Duration::ZERO;
    let mut covered: Option<Instant> = None;
    for (from, to) in sorted {
        let from = covered.map_or(from, |covered| covered.max(from));
        total += to.saturating_duration_since(from);
        covered = Some(covered.map_or(to, |covered| covered.max(to)));
    }
    total
}

/// An error and all that is behind it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn overlapping_waits_are_counted_once() {
        let now = Instant::now();
        let at = |ms: u64| now + Duration::from_millis(ms);
        assert_eq!(union(&[(at(10), at(30)), (at(0), at(20)), (at(50), at(60)), (at(52), at(55))]), Duration::from_millis(40));
        assert_eq!(union(&[]), Duration::ZERO);
    }
}
