//! Promise 3: knows the writes that were sent, and lets nothing else happen once the verdict stands.

use std::collections::BTreeMap;

use ambit_core::session::{Command, Event, Finding, Heard, Saga, Started};
use ambit_core::{Effect, Settlement, Step, ToolCode, Verdict};

use super::{Reference, Seen, is_overdue};
use crate::kit::{Driver, class};

/// Knows the writes that were sent, and lets nothing else happen once the verdict stands.
#[derive(Default)]
pub(super) struct Aftermath {
    saga: Option<Saga>,
    verdict: Option<Verdict>,
    writes: BTreeMap<Step, Write>,
    tools: BTreeMap<Step, String>,
    /// Questions and undoings that are out: their own step, and the write's.
    reconciling: BTreeMap<Step, Step>,
    compensating: BTreeMap<Step, Step>,
}

#[derive(Default)]
pub(super) struct Write {
    answered: Option<ToolCode>,
    given_up: bool,
    reconciled_as: Option<Step>,
    found: Option<Finding>,
    compensated_as: Option<Step>,
    again: bool,
}

impl Write {
    /// True if it certainly did nothing.
    fn is_absent(&self) -> bool {
        let refused = self.answered.is_some_and(|code| {
            code.is_without_effect() && (!self.again || matches!(code, ToolCode::ToolError | ToolCode::UpstreamRejected))
        });
        refused || self.found == Some(Finding::Absent)
    }
}

impl Aftermath {
    fn hear(&mut self, seen: &Seen<'_>) {
        if is_overdue(seen) && !matches!(seen.event, Event::ToolFinished { .. } | Event::Resumed) {
            // The event only told the time.
            return;
        }
        let after = seen.settling;
        match seen.event {
            Event::Dispatched { step } => {
                assert!(!after, "a write leaves after the verdict");
                self.writes.insert(*step, Write::default());
            }
            Event::ToolFinished { step, result, .. } => match self.writes.get_mut(step) {
                Some(write) if write.answered.is_none() => write.answered = Some(result.code),
                Some(_) | None => assert!(!after, "a result that nobody awaits was heard"),
            },
            Event::Reconciled { step, finding } => {
                let of = self.reconciling.remove(step).expect("a finding that nobody asked for was heard");
                self.writes.get_mut(&of).unwrap().found = Some(*finding);
            }
            Event::Compensated { step, .. } => {
                self.compensating.remove(step).expect("an undoing that nobody asked for was heard");
            }
            Event::Resumed => {
                for write in self.writes.values_mut().filter(|write| write.answered.is_none()) {
                    write.given_up = true;
                }
            }
            Event::Woke if after => {
                self.writes.values_mut().for_each(|write| write.given_up = true);
                self.reconciling.clear();
                self.compensating.clear();
            }
            Event::Woke => {}
            _ => assert!(!after, "{} was heard after the verdict", seen.event.name()),
        }
    }

    fn command(&mut self, command: &Command, resumed: bool) {
        match command {
            Command::Finish(verdict) => {
                assert_eq!(self.verdict.replace(*verdict), None, "a second verdict");
            }
            Command::Reconcile { step, of, .. } => {
                let write = self.writes.get_mut(of).expect("a write that was sent");
                assert!(self.verdict.is_some() && class(&self.tools[of]).reconcilable);
                assert!(write.answered.is_none_or(|code| code == ToolCode::OutcomeUnknown || write.again), "its outcome is known");
                let first = *write.reconciled_as.get_or_insert(*step);
                assert_eq!(first, *step, "asked twice");
                assert!(self.reconciling.insert(*step, *of).is_none() || resumed, "asked twice");
            }
            Command::Compensate { step, of, .. } => {
                let verdict = self.verdict.expect("undone before the verdict");
                let saga = self.saga.as_ref().expect("undone without a saga");
                let class = class(&self.tools[of]);
                assert!(saga.on.contains(&verdict.status) && class.compensable && class.effect != Effect::Irreversible);
                assert!(
                    self.reconciling.is_empty() && self.writes.values().all(|write| write.answered.is_some() || write.given_up),
                    "not all is known"
                );
                let sealed = self
                    .writes
                    .iter()
                    .any(|(step, write)| step > of && class_of(&self.tools, *step) == Effect::Irreversible && !write.is_absent());
                assert!(!sealed, "an irreversible effect came after it");
                let write = self.writes.get_mut(of).expect("a write that was sent");
                assert!(!write.is_absent(), "there is nothing to undo");
                let known = write.answered.is_some_and(|code| !code.is_without_effect() && code != ToolCode::OutcomeUnknown)
                    || write.found == Some(Finding::Found);
                assert!(known || class.compensable_blind, "undone without its result");
                let first = *write.compensated_as.get_or_insert(*step);
                assert_eq!(first, *step, "undone twice");
                assert!(self.compensating.insert(*step, *of).is_none() || (resumed && class.compensation_keyed), "undone twice");
            }
            Command::CallTool { step, tool, again, .. } => {
                assert!(self.verdict.is_none(), "a call after the verdict");
                self.tools.insert(*step, tool.to_string());
                if *again {
                    let write = self.writes.get_mut(step).expect("only what was sent is asked again");
                    (write.again, write.given_up) = (true, false);
                }
            }
            Command::Retrieve { .. } | Command::CallModel { .. } | Command::AskApproval { .. } | Command::Abandon { .. } => {
                assert!(self.verdict.is_none(), "{} after the verdict", command.name());
            }
        }
    }
}

pub(super) fn class_of(tools: &BTreeMap<Step, String>, step: Step) -> Effect {
    class(&tools[&step]).effect
}

impl Reference for Aftermath {
    fn begin(&mut self, started: &Started, commands: &[Command]) {
        self.saga = started.saga.clone();
        commands.iter().for_each(|command| self.command(command, false));
    }

    fn see(&mut self, seen: &Seen<'_>) {
        if seen.heard == Heard::Applied {
            self.hear(seen);
        } else {
            assert!(seen.commands.is_empty(), "commands from an event that was not applied");
        }
        let resumed = seen.event == &Event::Resumed;
        if resumed && seen.heard == Heard::Applied {
            // Undoings without a key are not repeated: nobody will answer them.
            self.compensating.retain(|step, _| {
                seen.commands.iter().any(|command| matches!(command, Command::Compensate { step: again, .. } if again == step))
            });
        }
        seen.commands.iter().for_each(|command| self.command(command, resumed));
        assert_eq!(seen.machine().verdict(), self.verdict.as_ref(), "the verdict changed");
        let sent: Vec<Step> = seen.machine().effects().iter().map(|effect| effect.step).collect();
        assert_eq!(sent, self.writes.keys().copied().collect::<Vec<_>>(), "the books hold the writes that were sent, in order");
    }

    fn end(&mut self, driver: &Driver) {
        assert!(self.verdict.is_some() && driver.machine.is_closed());
        let expected = if self.writes.is_empty() { vec![Settlement::None] } else { vec![Settlement::Settled, Settlement::NeedsAttention] };
        assert!(expected.contains(&driver.machine.settlement()));
        // What nobody knows is never called settled.
        let unknown = self.writes.values().any(|write| {
            let silent = write.answered.is_none() || (write.answered == Some(ToolCode::OutcomeUnknown));
            silent && !matches!(write.found, Some(Finding::Found | Finding::Absent)) && write.compensated_as.is_none()
        });
        assert!(!unknown || driver.machine.settlement() == Settlement::NeedsAttention, "an unknown outcome is called settled");
    }
}
