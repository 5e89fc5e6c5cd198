//! A session retold: each event of its journal, what the machine decided on it and why, what was spent and left by then.
//!
//! A projection of the machine itself, fed with the journal's own events: nothing is guessed, and a machine of today that
//! decides otherwise than the journal records says so at the event where it begins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ambit_core::session::{Command, Event, Heard, Spent, Started, fingerprint};
use ambit_core::{Allowance, AttemptRecord, Limits, Money, Reason, Settlement, Step, ToolCode, Verdict};

use crate::content::Texts;
use crate::progress::Progress;
use crate::reasons;
use crate::record::{self, Unreadable};

/// Most characters of a refusal's own words that are told.
const WORDS_CHARS: usize = 300;

/// A session retold.
#[derive(Debug, Clone)]
pub struct Replay {
    /// What it began with.
    pub started: Arc<Started>,
    /// One an event, in order; the first is its beginning.
    pub decisions: Vec<Decision>,
    /// Its verdict, once it stands.
    pub verdict: Option<Verdict>,
    /// What became of its effects.
    pub settlement: Settlement,
    /// The limits in force at the end.
    pub limits: Limits,
    /// The first record on which the machine of today decides otherwise than the journal records.
    pub disagrees_at: Option<u64>,
}

/// One event and what it led to.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Place of its record.
    pub seq: u64,
    /// When, milliseconds on the session's clock.
    pub at_ms: u64,
    /// Name of the event; `Started` for the first.
    pub event: &'static str,
    /// The step that it answers, where it answers one.
    pub step: Option<Step>,
    /// What was heard, in words.
    pub said: String,
    /// Requests on the wire that it brought.
    pub attempts: Vec<AttemptRecord>,
    /// Calls that got a result without running, or without being waited for.
    pub refused: Vec<RefusedCall>,
    /// Old tool outputs that were cut to make room.
    pub shortened: usize,
    /// What was decided.
    pub commands: Vec<Decided>,
    /// What was spent by then.
    pub spent: Spent,
    /// What was left by then.
    pub left: Left,
    /// What the session waits for now.
    pub phase: &'static str,
    /// False if the machine of today decides otherwise than the journal records.
    pub agrees: bool,
}

/// One command and why it was given.
#[derive(Debug, Clone)]
pub struct Decided {
    /// Its name.
    pub command: &'static str,
    /// Its step, where it has one.
    pub step: Option<Step>,
    /// The tool, where there is one.
    pub tool: Option<Arc<str>>,
    /// The step that it reconciles or undoes.
    pub of: Option<Step>,
    /// Set on a model call that is the last.
    pub last: Option<Reason>,
    /// What it was lent.
    pub allowance: Option<Allowance>,
    /// Why.
    pub why: String,
}

/// A call that was answered without its own result.
#[derive(Debug, Clone)]
pub struct RefusedCall {
    /// Which tool.
    pub tool: Arc<str>,
    /// Under which id the model asked for it.
    pub call_id: Arc<str>,
    /// What it was answered.
    pub code: ToolCode,
    /// Why.
    pub why: String,
}

/// What is left of each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// Milliseconds to the deadline.
    pub ms: u64,
    /// Model calls.
    pub model_calls: u32,
    /// Tool calls.
    pub tool_calls: u32,
    /// Requests to models.
    pub model_attempts: u32,
    /// Requests to tools.
    pub tool_attempts: u32,
    /// Tokens.
    pub total_tokens: u64,
    /// Money.
    pub cost: Money,
    /// Journal events.
    pub events: u32,
}

impl Left {
    fn of(progress: &Progress, at: u64) -> Self {
        let (machine, spent, limits) = (&progress.machine, progress.machine.spent(), progress.machine.limits());
        Self {
            ms: limits.deadline_ms.saturating_sub(at),
            model_calls: limits.model_calls.saturating_sub(spent.model_calls),
            tool_calls: limits.tool_calls.saturating_sub(spent.tool_calls),
            model_attempts: limits.model_attempts.saturating_sub(spent.model_attempts),
            tool_attempts: limits.tool_attempts.saturating_sub(spent.tool_attempts),
            total_tokens: limits.total_tokens.saturating_sub(spent.tokens()),
            cost: limits.cost_usd.saturating_sub(spent.cost),
            events: limits.events.saturating_sub(machine.events()),
        }
    }
}

/// Retells a journal, fed event by event from the first.
#[derive(Debug, Default)]
pub(crate) struct Retelling {
    progress: Option<Progress>,
    decisions: Vec<Decision>,
    /// Calls that are out: turn and place in it.
    out: BTreeMap<Step, (usize, usize)>,
    /// Calls that have their result.
    answered: BTreeSet<(usize, usize)>,
    shortened: usize,
    disagrees_at: Option<u64>,
}

impl Retelling {
    /// Takes the next event.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub(crate) fn feed(&mut self, record: &ambit_store::Record, texts: &Texts) -> Result<(), Unreadable> {
        let (seq, at) = (record.seq, record.at_ms);
        match self.progress.take() {
            None => {
                let started = Arc::new(record::read_started(seq, &record.body)?);
                let said = reasons::begun(&started);
                let (progress, commands) = Progress::start(started, at);
                self.decided(record, &progress, None, said, &commands, texts);
                self.progress = Some(progress);
            }
            Some(mut progress) => {
                let event = record::read_event(seq, &record.body)?;
                let said = reasons::heard(&event, progress.machine.wake_at());
                let (heard, commands) = progress.hear(event.clone(), at);
                let said = match heard {
                    Heard::Applied => said,
                    Heard::Late => format!("{said} (too late to matter)"),
                    Heard::Invalid => format!("{said} (nobody asked for it)"),
                };
                self.decided(record, &progress, Some(&event), said, &commands, texts);
                self.progress = Some(progress);
            }
        }
        Ok(())
    }

    /// All of it; `None` if not even the beginning was there.
    pub(crate) fn finish(self) -> Option<Replay> {
        let Self { progress, decisions, disagrees_at, .. } = self;
        let machine = progress?.machine;
        Some(Replay {
            started: machine.started().clone(),
            decisions,
            verdict: machine.verdict().copied(),
            settlement: machine.settlement(),
            limits: *machine.limits(),
            disagrees_at,
        })
    }

    fn decided(
        &mut self,
        record: &ambit_store::Record,
        progress: &Progress,
        event: Option<&Event>,
        said: String,
        commands: &[Command],
        texts: &Texts,
    ) {
        let agrees = fingerprint(commands) == record.fingerprint;
        if !agrees {
            self.disagrees_at = self.disagrees_at.or(Some(record.seq));
        }
        let step = event.and_then(reasons::step_of);
        if let (Some(Event::ToolFinished { .. }), Some(step)) = (event, step)
            && let Some(own) = self.out.remove(&step)
        {
            self.answered.insert(own);
        }
        let refused = self.refused(progress, texts);
        self.sent(progress, commands);
        let shortened = progress.machine.transcript().turns().iter().flat_map(|turn| &turn.calls).filter(|call| call.shortened).count();
        let cut = shortened.saturating_sub(std::mem::replace(&mut self.shortened, shortened));
        self.decisions.push(Decision {
            seq: record.seq,
            at_ms: record.at_ms,
            event: event.map_or("Started", Event::name),
            step,
            said,
            attempts: event.map(reasons::attempts_of).unwrap_or_default().to_vec(),
            refused,
            shortened: cut,
            commands: commands.iter().map(|command| decided(command, event, progress)).collect(),
            spent: *progress.machine.spent(),
            left: Left::of(progress, record.at_ms),
            phase: progress.machine.phase(),
            agrees,
        });
    }

    /// Calls that have a result now and had none before, other than by their own answer.
    fn refused(&mut self, progress: &Progress, texts: &Texts) -> Vec<RefusedCall> {
        let mut refused = Vec::new();
        for (turn, calls) in progress.machine.transcript().turns().iter().map(|turn| &turn.calls).enumerate() {
            for (place, call) in calls.iter().enumerate() {
                let Some(result) = call.result else { continue };
                if !self.answered.insert((turn, place)) {
                    continue;
                }
                self.out.retain(|_, own| *own != (turn, place));
                let words = result.body.map(|body| texts.get(body)).filter(|words| !words.is_empty());
                let why = match words {
                    Some(words) => words.chars().take(WORDS_CHARS).collect(),
                    None => reasons::refused(result.code, &progress.machine),
                };
                refused.push(RefusedCall { tool: call.tool.clone(), call_id: call.id.clone(), code: result.code, why });
            }
        }
        refused
    }

    /// Remembers which call each step carries out: the first one of the turn that looks like it and is not out yet.
    fn sent(&mut self, progress: &Progress, commands: &[Command]) {
        let turns = progress.machine.transcript().turns();
        let Some(turn) = turns.len().checked_sub(1) else { return };
        for command in commands {
            let Command::CallTool { step, tool, arguments, .. } = command else { continue };
            let is_it = |place: usize| {
                let call = &turns[turn].calls[place];
                call.tool == *tool
                    && call.arguments == *arguments
                    && call.result.is_none()
                    && !self.out.values().any(|own| *own == (turn, place))
            };
            if let Some(place) = (0..turns[turn].calls.len()).find(|&place| is_it(place)) {
                self.out.insert(*step, (turn, place));
            }
        }
    }
}

fn decided(command: &Command, event: Option<&Event>, progress: &Progress) -> Decided {
    let why = reasons::why(command, event, &progress.machine);
    let bare = Decided { command: command.name(), step: None, tool: None, of: None, last: None, allowance: None, why };
    match command {
        Command::Retrieve { step, allowance } => Decided { step: Some(*step), allowance: Some(*allowance), ..bare },
        Command::CallModel { step, allowance, last, .. } => Decided { step: Some(*step), allowance: Some(*allowance), last: *last, ..bare },
        Command::CallTool { step, allowance, tool, .. } => {
            Decided { step: Some(*step), allowance: Some(*allowance), tool: Some(tool.clone()), ..bare }
        }
        Command::AskApproval { step, tool, .. } => Decided { step: Some(*step), tool: Some(tool.clone()), ..bare },
        Command::Abandon { step } => Decided { step: Some(*step), ..bare },
        Command::Reconcile { step, of, allowance } | Command::Compensate { step, of, allowance } => {
            Decided { step: Some(*step), of: Some(*of), allowance: Some(*allowance), ..bare }
        }
        Command::Finish(_) => bare,
    }
}
