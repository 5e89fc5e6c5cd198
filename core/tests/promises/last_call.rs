//! Promise 5: reckons beside the machine what is left, and so which call has to be the last.

use std::collections::BTreeSet;

use ambit_core::session::{Command, Decision, Event, Heard, ModelFault, OnLimit, Started};
use ambit_core::{Axis, Limits, Reason, Status, Verdict};

use super::bill::Bill;
use super::{Reference, Seen, is_overdue};
use crate::kit::Driver;

/// Reckons beside the machine what is left, and so which call has to be the last.
pub(super) struct LastCall {
    bill: Bill,
    answers: bool,
    tools: bool,
    issued: bool,
    /// Set once a last call is out.
    last: Option<Reason>,
    /// What the model's own failures and a person's no have said.
    told: BTreeSet<Reason>,
    /// True once something happened that no reckoning can foresee.
    disturbed: bool,
}

impl Default for LastCall {
    fn default() -> Self {
        let bill = Bill::default();
        Self { bill, answers: true, tools: true, issued: false, last: None, told: BTreeSet::new(), disturbed: false }
    }
}

impl LastCall {
    fn command(&mut self, command: &Command, at: u64, limits: &Limits) {
        match command {
            Command::CallModel { last, .. } => {
                self.bill.turn_over();
                let sum = self.bill.sum();
                let no_tools =
                    self.tools && (self.bill.tool_calls >= limits.tool_calls || sum.tool_attempts >= limits.tool_attempts.into());
                let near: Vec<Axis> = [
                    (at >= limits.reserve_at(), Axis::Deadline),
                    (self.bill.model_calls + 1 >= limits.model_calls, Axis::ModelCalls),
                    (sum.model_attempts + 1 >= limits.model_attempts.into(), Axis::ModelAttempts),
                    (no_tools, if self.bill.tool_calls >= limits.tool_calls { Axis::ToolCalls } else { Axis::ToolAttempts }),
                ]
                .into_iter()
                .filter_map(|(near, axis)| near.then_some(axis))
                .collect();
                if self.answers {
                    assert!(near.is_empty() || last.is_some(), "{near:?} is near, and nobody said so");
                    assert!(self.last.is_none() || last.is_some(), "tools are back after the last call");
                } else {
                    assert_eq!(*last, None, "who wants no last answer is given none");
                }
                match last {
                    Some(Reason::Limit(
                        axis @ (Axis::Deadline | Axis::ModelCalls | Axis::ModelAttempts | Axis::ToolCalls | Axis::ToolAttempts),
                    )) => {
                        assert!(near.contains(axis) || self.told.contains(&Reason::Limit(*axis)), "{axis} is not near");
                    }
                    Some(Reason::Limit(_) | Reason::Context | Reason::Loop) | None => {}
                    Some(reason) => assert!(self.told.contains(reason), "nobody said {reason}"),
                }
                self.last = last.or(self.last);
                self.issued = true;
            }
            Command::CallTool { .. } | Command::AskApproval { .. } => assert_eq!(self.last, None, "a call after the last call"),
            Command::Finish(verdict) => self.verdict(verdict),
            Command::Retrieve { .. } | Command::Abandon { .. } | Command::Reconcile { .. } | Command::Compensate { .. } => {}
        }
        self.bill.issue(command, at, limits);
    }

    /// A session ends with an answer, not with a limit, unless the last call itself failed or none could ever be made.
    fn verdict(&self, verdict: &Verdict) {
        let Reason::Limit(axis) = verdict.reason else { return };
        if verdict.status == Status::Completed {
            assert_eq!(self.last, Some(verdict.reason), "the reason is the one that the model was told");
        } else if self.answers && !self.disturbed && axis != Axis::Deadline {
            assert!(self.last.is_some() || !self.issued, "{axis} ended the session without a last call");
        }
    }
}

impl Reference for LastCall {
    fn begin(&mut self, started: &Started, commands: &[Command]) {
        self.answers = started.on_limit == OnLimit::Answer;
        self.tools = !started.tools.is_empty();
        commands.iter().for_each(|command| self.command(command, 0, &started.limits));
    }

    fn see(&mut self, seen: &Seen<'_>) {
        if seen.heard == Heard::Applied {
            self.bill.hear(seen, is_overdue(seen));
            self.disturbed |= seen.dishonest || matches!(seen.event, Event::Resumed | Event::LimitsTightened { .. });
            match seen.event {
                Event::ModelFailed { fault: ModelFault::Deadline, .. } => drop(self.told.insert(Reason::Limit(Axis::Deadline))),
                Event::ModelFailed { fault: ModelFault::Allowance, .. } => drop(self.told.insert(Reason::Limit(Axis::ModelAttempts))),
                Event::ApprovalDecided { decision: Decision::Deny, .. } => drop(self.told.insert(Reason::ApprovalDenied)),
                Event::ApprovalDecided { decision: Decision::Expired, .. } => drop(self.told.insert(Reason::ApprovalExpired)),
                Event::Resumed => drop(self.told.insert(Reason::Limit(Axis::ToolAttempts))),
                _ => {}
            }
        }
        seen.commands.iter().for_each(|command| self.command(command, seen.at, seen.machine().limits()));
    }

    fn end(&mut self, _: &Driver) {}
}
