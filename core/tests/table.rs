//! Every phase meets every event, driven for real; what comes of it is one table (`snapshots/`), reviewed when it changes.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ambit_core::session::{Canceller, Decision, Event, Finding, FinishReason, ModelFault, Reply};
use ambit_core::{Cause, Limits, Step, ToolCode, ToolResult};

use crate::kit::{Asked, Driver, attempts, body, play, prepared};

/// Each phase, and its variants where they differ, with the script that leads there.
const PHASES: [(&str, &str); 12] = [
    ("Retrieving", "retrieval"),
    ("AwaitingModel", ""),
    ("AwaitingModel, the last call", "model_calls=1"),
    ("AwaitingModel, the last call, a write is out", "model:w sent wait:37"),
    ("Running, a read", "model:r"),
    ("Running, a write that has not left", "model:w"),
    ("Running, a write that was sent", "model:w sent"),
    ("AwaitingApproval", "model:w?"),
    ("Settling, a write is awaited", "model:w sent cancel:caller"),
    ("Settling, reconciling", "model:q sent tool:outcome_unknown answer"),
    ("Settling, compensating", "saga=cancelled model:c tools cancel:caller"),
    ("Closed", "answer"),
];

/// A step that every session has issued, and answered or not.
const FIRST: Step = Step(1);
/// A step that none of these sessions has issued.
const NEVER: Step = Step(99);

#[test]
fn every_event_in_every_phase() {
    let mut table = String::new();
    for (phase, script) in PHASES {
        let driver = play(script).driver;
        assert!(phase.starts_with(driver.machine.phase()), "`{script}` leads to {}", driver.machine.phase());
        writeln!(table, "{phase}").unwrap();
        let mut covered = BTreeSet::new();
        for (about, event, at) in events(&driver) {
            covered.insert(event.name());
            let mut driver = driver.clone();
            driver.at = at;
            let label = format!("{}{}{}", event.name(), if about.is_empty() { "" } else { " " }, about);
            let (heard, commands) = driver.tell(event);
            let commands: Vec<String> = commands.iter().map(|command| driver.print(command)).collect();
            let after = driver.machine.phase();
            let moved = if phase.starts_with(after) { String::new() } else { format!(" -> {after}") };
            writeln!(table, "    {label:<36} {:<8} {}{moved}", format!("{heard:?}"), commands.join(" ")).unwrap();
        }
        assert_eq!(covered.len(), NAMES, "{phase}: {covered:?}");
    }
    let table: Vec<&str> = table.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(table.join("\n"));
}

/// Kinds of events that there are; `kind` below does not compile when one is added.
const NAMES: usize = 12;

/// All events for a session: each with the step that is awaited, if one is, with the first step, and with one that never was.
fn events(driver: &Driver) -> Vec<(String, Event, u64)> {
    let now = driver.at;
    let open = |wanted: fn(Asked) -> bool| driver.open.iter().find(|open| wanted(open.asked)).map(|open| open.step);
    let mut all = Vec::new();
    let mut answers = |awaited: Option<Step>, make: &dyn Fn(Step) -> Event| {
        for (about, step) in [("awaited", awaited), ("first", Some(FIRST).filter(|_| awaited != Some(FIRST))), ("never asked", Some(NEVER))]
        {
            if let Some(step) = step {
                all.push((about.to_owned(), make(step), now));
            }
        }
    };
    let model = open(|asked| asked == Asked::Model);
    let tool = open(|asked| matches!(asked, Asked::Tool { .. }));
    answers(open(|asked| asked == Asked::Retrieval), &|step| Event::Retrieved { step, passages: None, tainting: false });
    answers(model, &|step| Event::ModelReplied { step, attempts: sent(), reply: reply() });
    answers(model, &|step| Event::ModelFailed { step, attempts: sent(), fault: ModelFault::Unavailable(Cause::Overloaded), partial: None });
    answers(tool, &|step| Event::Dispatched { step });
    answers(tool, &|step| Event::ToolFinished { step, attempts: sent(), result: ToolResult::bare(ToolCode::Ok) });
    answers(open(|asked| asked == Asked::Approval), &|step| Event::ApprovalDecided { step, decision: Decision::Approve });
    answers(open(|asked| asked == Asked::Reconciliation), &|step| Event::Reconciled { step, finding: Finding::Found });
    answers(open(|asked| asked == Asked::Compensation), &|step| Event::Compensated { step, undone: true });
    for by in [Canceller::Caller, Canceller::Operator, Canceller::Disconnect, Canceller::Shutdown] {
        all.push((format!("{by:?}").to_lowercase(), Event::Cancelled { by }, now));
    }
    let limits = Limits { model_calls: 1, ..Limits::DEFAULT };
    all.push((String::new(), Event::LimitsTightened { limits }, now));
    all.push(("too early".into(), Event::Woke, now));
    if let Some((at, why)) = driver.machine.wake_at() {
        all.push((format!("at the {why}"), Event::Woke, at));
    }
    all.push((String::new(), Event::Resumed, now));
    all
}

fn sent() -> Vec<ambit_core::AttemptRecord> {
    attempts(1, 30, 10, ambit_core::money::Price::default())
}

fn reply() -> Reply {
    let calls = vec![prepared("r", 50, ambit_core::Gate::Go, 50)];
    Reply { text: Some(body(51, 30)), calls, carry: None, finish: FinishReason::Stop, tokens_per_kchar: None }
}

/// Numbers the kinds of events, so that a new one is noticed here.
const fn kind(event: &Event) -> usize {
    match event {
        Event::Retrieved { .. } => 0,
        Event::ModelReplied { .. } => 1,
        Event::ModelFailed { .. } => 2,
        Event::Dispatched { .. } => 3,
        Event::ToolFinished { .. } => 4,
        Event::ApprovalDecided { .. } => 5,
        Event::Reconciled { .. } => 6,
        Event::Compensated { .. } => 7,
        Event::Cancelled { .. } => 8,
        Event::LimitsTightened { .. } => 9,
        Event::Woke => 10,
        Event::Resumed => NAMES - 1,
    }
}

#[test]
fn the_table_knows_every_kind_of_event() {
    let kinds: BTreeSet<usize> = events(&play("").driver).iter().map(|(_, event, _)| kind(event)).collect();
    assert_eq!(kinds, (0..NAMES).collect());
}
