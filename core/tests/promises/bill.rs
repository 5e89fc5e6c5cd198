//! Promise 1: adds up what every command was lent and what came back.

use std::collections::BTreeSet;

use ambit_core::limit::LAST_CALL_MARGIN_MS;
use ambit_core::session::{Command, Event, Heard, Started};
use ambit_core::{Allowance, AttemptRecord, Effect, Limits, Step};

use super::{Reference, Seen, is_overdue};
use crate::kit::{Driver, class};

/// Adds up what every command was lent, and what came back.
#[derive(Default)]
pub(super) struct Bill {
    entries: Vec<Entry>,
    pub(super) model_calls: u32,
    pub(super) tool_calls: u32,
    /// Calls of the current turn that run.
    running: BTreeSet<Step>,
}

pub(super) struct Entry {
    step: Step,
    model: bool,
    write: bool,
    sent: bool,
    lent: Allowance,
    state: Owed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owed {
    /// All of it: it is out, or nobody will ever say what was used.
    Whole { out: bool },
    /// What was reported.
    Used { attempts: u64, tokens: u64, cost: u64 },
    /// It never left.
    Nothing,
}

/// Attempts, tokens and money of model calls, attempts of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    pub(super) model_attempts: u64,
    pub(super) tool_attempts: u64,
    pub(super) tokens: u64,
    pub(super) cost: u64,
}

impl Bill {
    pub(super) fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        for entry in &self.entries {
            let (attempts, tokens, cost) = match entry.state {
                Owed::Whole { .. } => (entry.lent.attempts.into(), entry.lent.tokens, entry.lent.cost.0),
                Owed::Used { attempts, tokens, cost } => (attempts, tokens, cost),
                Owed::Nothing => (0, 0, 0),
            };
            if entry.model {
                sum.model_attempts += attempts
            } else {
                sum.tool_attempts += attempts
            }
            sum.tokens += tokens;
            sum.cost += cost;
        }
        sum
    }

    fn out(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().filter(|entry| entry.state == Owed::Whole { out: true })
    }

    pub(super) fn hear(&mut self, seen: &Seen<'_>, overdue: bool) {
        match seen.event {
            Event::Dispatched { step } => self.out().filter(|entry| entry.step == *step).for_each(|entry| entry.sent = true),
            Event::Resumed => {
                self.running.clear();
                for entry in self.out() {
                    entry.state = if entry.write && !entry.sent { Owed::Nothing } else { Owed::Whole { out: false } };
                }
            }
            event => {
                let Some((step, attempts)) = answered(event) else { return };
                self.running.remove(&step);
                for entry in self.out().filter(|entry| entry.step == step) {
                    // Past the deadline the verdict came first: only what was sent and is no read is still heard.
                    if overdue && !(entry.write && entry.sent) {
                        continue;
                    }
                    let tokens = attempts.iter().map(AttemptRecord::tokens).sum();
                    entry.state =
                        Owed::Used { attempts: attempts.len() as u64, tokens, cost: attempts.iter().map(|attempt| attempt.cost.0).sum() };
                }
            }
        }
    }

    /// The turn is over, or the session: what had not left never will.
    pub(super) fn turn_over(&mut self) {
        self.running.clear();
        self.out().filter(|entry| entry.write && !entry.sent).for_each(|entry| entry.state = Owed::Nothing);
    }

    pub(super) fn issue(&mut self, command: &Command, at: u64, limits: &Limits) {
        let left = |limit: u64, used: u64| limit.saturating_sub(used);
        match command {
            Command::CallModel { step, allowance, last, max_output, .. } => {
                self.turn_over();
                let sum = self.sum();
                assert!(self.out().all(|entry| !entry.model), "model calls never overlap");
                self.model_calls += 1;
                assert!(self.model_calls <= limits.model_calls, "model calls");
                assert!(allowance.attempts >= 1 && *max_output >= 1, "a call that could not be made");
                assert!(u64::from(allowance.attempts) <= left(limits.model_attempts.into(), sum.model_attempts), "model attempts");
                assert!(allowance.tokens <= left(limits.total_tokens, sum.tokens), "tokens");
                assert!(allowance.cost.0 <= left(limits.cost_usd.0, sum.cost), "money");
                assert!(*max_output <= limits.output_tokens_per_call && u64::from(*max_output) <= allowance.tokens, "output");
                let kept = if last.is_some() { LAST_CALL_MARGIN_MS } else { limits.answer_reserve_ms };
                assert_eq!(allowance.deadline, limits.deadline_ms.saturating_sub(kept), "deadline");
                assert!(at < limits.deadline_ms.saturating_sub(LAST_CALL_MARGIN_MS), "no time for a call");
                self.lend(*step, *allowance, true, false, false);
            }
            Command::CallTool { step, allowance, tool, again, .. } => {
                let sum = self.sum();
                self.tool_calls += 1;
                assert!(self.tool_calls <= limits.tool_calls, "tool calls");
                assert!(allowance.attempts >= 1 && allowance.attempts <= class(tool).attempts, "attempts of one call");
                assert!(u64::from(allowance.attempts) <= left(limits.tool_attempts.into(), sum.tool_attempts), "tool attempts");
                assert_eq!(allowance.deadline, limits.reserve_at(), "deadline");
                assert!(*again || at < limits.reserve_at(), "begun inside the reserve");
                let class = class(tool);
                assert!(class.effect != Effect::Irreversible || self.running.is_empty(), "the irreversible run alone");
                self.running.insert(*step);
                assert!(*again || self.running.len() <= limits.parallel_tools.max(1) as usize, "calls at the same time");
                let earlier = self.entries.iter().filter(|entry| entry.step == *step).count();
                assert_eq!(*again, earlier > 0, "a step is issued once, or again after a crash");
                assert!(!again || class.keyed, "only keyed calls are asked again");
                self.lend(*step, *allowance, false, class.effect.is_write(), *again);
            }
            Command::Abandon { step } => {
                self.running.remove(step);
                for entry in self.out().filter(|entry| entry.step == *step) {
                    assert!(!entry.write, "a write is never dropped");
                    entry.state = Owed::Whole { out: false };
                }
            }
            Command::Finish(_) => self.turn_over(),
            Command::AskApproval { .. } => assert!(self.out().next().is_none(), "a person is asked while something runs"),
            Command::Retrieve { .. } | Command::Reconcile { .. } | Command::Compensate { .. } => {}
        }
    }

    fn lend(&mut self, step: Step, lent: Allowance, model: bool, write: bool, sent: bool) {
        self.entries.push(Entry { step, model, write, sent, lent, state: Owed::Whole { out: true } });
    }

    fn look_on(&mut self, seen: &Seen<'_>) {
        if seen.heard == Heard::Applied {
            self.hear(seen, is_overdue(seen));
        }
        for command in seen.commands {
            self.issue(command, seen.at, seen.machine().limits());
        }
    }
}

impl Reference for Bill {
    fn begin(&mut self, started: &Started, commands: &[Command]) {
        commands.iter().for_each(|command| self.issue(command, 0, &started.limits));
    }

    fn see(&mut self, seen: &Seen<'_>) {
        self.look_on(seen);
    }

    fn end(&mut self, driver: &Driver) {
        let (sum, spent) = (self.sum(), driver.machine.spent());
        let machine = Sum {
            model_attempts: spent.model_attempts.into(),
            tool_attempts: spent.tool_attempts.into(),
            tokens: spent.tokens(),
            cost: spent.cost.0,
        };
        assert_eq!(machine, sum, "the machine's bill is the sum of all");
        assert_eq!((spent.model_calls, spent.tool_calls), (self.model_calls, self.tool_calls));
    }
}

/// The step that an event answers, if it answers one.
pub(super) fn answered(event: &Event) -> Option<(Step, &[AttemptRecord])> {
    match event {
        Event::ModelReplied { step, attempts, .. }
        | Event::ModelFailed { step, attempts, .. }
        | Event::ToolFinished { step, attempts, .. } => Some((*step, attempts)),
        _ => None,
    }
}
