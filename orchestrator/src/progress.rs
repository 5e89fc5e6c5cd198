//! A session as its journal tells it: the machine, and a tally of what the machine does not need to know.
//!
//! The driver that runs a session and every reader of its journal go through here, so that they cannot disagree.

use std::collections::BTreeMap;
use std::sync::Arc;

use ambit_core::session::{Command, Event, Heard, Machine, Started};
use ambit_core::{Cause, Step, ToolCode, Verdict};

/// The machine with its tally.
#[derive(Debug, Clone)]
pub struct Progress {
    /// What decides.
    pub machine: Machine,
    /// What is counted beside it.
    pub tally: Tally,
}

/// Durations and names for people, from the records alone.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Milliseconds spent in model calls.
    pub model_ms: u64,
    /// Milliseconds spent in tool calls, overlaps counted once each.
    pub tool_ms: u64,
    /// Milliseconds in which at least one step was out.
    pub waited_ms: u64,
    /// Milliseconds on the wire, of model calls and of tool calls; the rest of their time went into queue and back-off.
    pub wire_ms: u64,
    /// Who answered last.
    pub served_by: Option<Arc<str>>,
    /// The last failure of a model call.
    pub cause: Option<Cause>,
    /// When the verdict stood.
    pub verdict_at: Option<u64>,
    /// The last moment heard of.
    pub last_at: u64,
    /// Every step in the order issued.
    pub steps: Vec<StepTally>,
    out: BTreeMap<Step, usize>,
    busy_since: Option<u64>,
}

/// One step for people.
#[derive(Debug, Clone)]
pub struct StepTally {
    /// Its number.
    pub step: Step,
    /// `retrieve`, `model`, `tool`, `approval` or `compensate`.
    pub kind: &'static str,
    /// The tool, where there is one.
    pub tool: Option<Arc<str>>,
    /// When it was issued.
    pub started_at: u64,
    /// When its answer came.
    pub ended_at: Option<u64>,
    /// How it ended: `ok` or a code.
    pub outcome: Option<Arc<str>>,
    /// Requests on the wire.
    pub attempts: usize,
}

impl Progress {
    /// Begins.
    #[must_use]
    pub fn start(started: Arc<Started>, at: u64) -> (Self, Vec<Command>) {
        let (machine, commands) = Machine::start(started, at);
        let mut progress = Self { machine, tally: Tally::default() };
        progress.tally.issued(&commands, at);
        (progress, commands)
    }

    /// Hears one event.
    pub fn hear(&mut self, event: Event, at: u64) -> (Heard, Vec<Command>) {
        let (heard, commands) = self.machine.handle(event.clone(), at);
        // Only what is journalled is counted, so that a replay counts the same.
        if heard == Heard::Applied {
            self.tally.heard(&event, at);
            self.tally.issued(&commands, at);
        }
        (heard, commands)
    }

    /// The verdict, once it stands.
    #[must_use]
    pub fn verdict(&self) -> Option<&Verdict> {
        self.machine.verdict()
    }
}

impl Tally {
    fn issued(&mut self, commands: &[Command], at: u64) {
        self.last_at = self.last_at.max(at);
        for command in commands {
            let (kind, step, tool) = match command {
                Command::Retrieve { step, .. } => ("retrieve", *step, None),
                Command::CallModel { step, .. } => ("model", *step, None),
                Command::CallTool { step, tool, .. } => ("tool", *step, Some(tool.clone())),
                Command::AskApproval { step, tool, .. } => ("approval", *step, Some(tool.clone())),
                Command::Reconcile { step, .. } => ("reconcile", *step, None),
                Command::Compensate { step, .. } => ("compensate", *step, None),
                Command::Abandon { step } => {
                    self.ended(*step, "abandoned", 0, at);
                    continue;
                }
                Command::Finish(_) => {
                    self.verdict_at = Some(at);
                    continue;
                }
            };
            if self.out.is_empty() {
                self.busy_since = Some(at);
            }
            self.out.insert(step, self.steps.len());
            self.steps.push(StepTally { step, kind, tool, started_at: at, ended_at: None, outcome: None, attempts: 0 });
        }
    }

    fn heard(&mut self, event: &Event, at: u64) {
        match event {
            Event::ModelReplied { step, attempts, .. } => {
                self.served_by =
                    attempts.iter().rev().find(|leg| &*leg.code == "ok").map(|leg| leg.target.clone()).or(self.served_by.take());
                self.wire_ms += attempts.iter().map(|leg| leg.ms).sum::<u64>();
                self.model_ms += self.ended(*step, "ok", attempts.len(), at);
            }
            Event::ModelFailed { step, attempts, .. } => {
                let code = attempts.last().map_or("not_sent", |leg| &leg.code);
                self.wire_ms += attempts.iter().map(|leg| leg.ms).sum::<u64>();
                self.model_ms += self.ended(*step, code, attempts.len(), at);
            }
            Event::ToolFinished { step, attempts, result } => {
                let code = if result.code == ToolCode::Ok { "ok" } else { result.code.as_str() };
                self.wire_ms += attempts.iter().map(|leg| leg.ms).sum::<u64>();
                self.tool_ms += self.ended(*step, code, attempts.len(), at);
            }
            Event::Retrieved { step, .. } => {
                self.ended(*step, "ok", 0, at);
            }
            Event::ApprovalDecided { step, .. } | Event::Reconciled { step, .. } | Event::Compensated { step, .. } => {
                self.ended(*step, "decided", 0, at);
            }
            Event::Resumed => {
                // Whatever was out died with its process.
                for step in self.out.keys().copied().collect::<Vec<_>>() {
                    self.ended(step, "lost", 0, at);
                }
            }
            Event::Dispatched { .. } | Event::Cancelled { .. } | Event::LimitsTightened { .. } | Event::Woke => {}
        }
    }

    /// Books the end of a step; gives its duration.
    fn ended(&mut self, step: Step, outcome: &str, attempts: usize, at: u64) -> u64 {
        let Some(index) = self.out.remove(&step) else { return 0 };
        let tally = &mut self.steps[index];
        tally.ended_at = Some(at);
        tally.outcome = Some(outcome.into());
        tally.attempts = attempts;
        let duration = at.saturating_sub(tally.started_at);
        if self.out.is_empty()
            && let Some(since) = self.busy_since.take()
        {
            self.waited_ms += at.saturating_sub(since);
        }
        duration
    }
}
