//! Promise 2: keeps its own list of turns, calls and results.

use std::collections::BTreeMap;

use ambit_core::session::{Command, Event, Heard, PreparedCall, Started};
use ambit_core::{Body, Step, ToolCode, ToolResult};

use super::{Reference, Seen, is_overdue};
use crate::kit::Driver;

/// Keeps its own list of turns, calls and results. Calls that are alike cannot be told apart, and need not be.
#[derive(Default)]
pub(super) struct Results {
    turns: Vec<Vec<Known>>,
    /// What runs, and whether it was asked again after a crash.
    running: BTreeMap<Step, (What, bool)>,
}

pub(super) type What = (String, Body);

#[derive(Debug)]
pub(super) struct Known {
    id: String,
    what: What,
    result: Option<ToolResult>,
}

impl Results {
    /// The calls of the last turn that are like `what` and have no result yet, by place.
    fn open(&self, what: &What) -> Vec<usize> {
        let Some(turn) = self.turns.last() else { return Vec::new() };
        (0..turn.len()).filter(|&index| turn[index].what == *what && turn[index].result.is_none()).collect()
    }
}

impl Reference for Results {
    fn begin(&mut self, _: &Started, _: &[Command]) {}

    fn see(&mut self, seen: &Seen<'_>) {
        let turns = seen.machine().transcript().turns();
        let overdue = is_overdue(seen);
        if let (Event::ModelReplied { reply, .. }, Heard::Applied, false) = (seen.event, seen.heard, overdue)
            && reply.calls.len() <= 64
        {
            let known =
                |call: &PreparedCall| Known { id: call.id.to_string(), what: (call.tool.to_string(), call.arguments), result: None };
            self.turns.push(reply.calls.iter().map(known).collect());
            self.running.clear();
        }
        if let (Event::ToolFinished { step, result, .. }, Heard::Applied, false) = (seen.event, seen.heard, overdue)
            && let Some((what, again)) = self.running.remove(step)
        {
            let open = self.open(&what);
            let brought =
                |got: Option<ToolResult>| got == Some(*result) || (again && got == Some(ToolResult::bare(ToolCode::OutcomeUnknown)));
            let found = open.iter().any(|&index| brought(turns.last().and_then(|turn| turn.calls[index].result)));
            assert!(open.is_empty() || found, "{what:?} has not the result that its call brought");
        }
        assert_eq!(turns.len(), self.turns.len(), "one turn for each reply");
        for (turn, known) in turns.iter().zip(&mut self.turns) {
            assert_eq!(turn.calls.len(), known.len(), "no call is lost or made up");
            for (call, known) in turn.calls.iter().zip(known) {
                assert_eq!(*call.id, *known.id, "in the order asked");
                assert!(known.result.is_none() || known.result == call.result, "{known:?} has another result than before");
                known.result = call.result;
            }
        }
        if seen.event == &Event::Resumed {
            self.running.clear();
        }
        for command in seen.commands {
            match command {
                Command::CallTool { step, tool, arguments, again, .. } => {
                    let what = (tool.to_string(), *arguments);
                    self.running.insert(*step, (what.clone(), *again));
                    let alike = self.running.values().filter(|(other, _)| *other == what).count();
                    assert!(alike <= self.open(&what).len(), "{what:?} was not asked for, or has its result");
                }
                Command::CallModel { .. } | Command::Finish(_) => {
                    let open = self.turns.iter().flatten().find(|known| known.result.is_none());
                    assert!(open.is_none(), "{open:?} has no result when the turn is over");
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, driver: &Driver) {
        let open = driver.machine.transcript().turns().iter().flat_map(|turn| &turn.calls).filter(|call| call.result.is_none()).count();
        assert_eq!(open, 0, "calls without a result at the end");
    }
}
