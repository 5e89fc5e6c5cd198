//! Journals that must replay for ever: the same events give the same commands, on any machine and in any later version.
//!
//! `golden/*.jsonl` hold one session each: what it began with, then each event with the commands it caused, then its end.
//! The test reads nothing but these files. A change that would replay differently needs a new `MACHINE_VERSION`; a change of
//! the written form shows here first. `UPDATE=1` writes them anew from the scripts below, for a person to review.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use ambit_core::session::{Command, Event, Heard, Machine, Started, fingerprint};
use ambit_core::{Settlement, Verdict};
use serde::{Deserialize, Serialize};

use crate::kit::{Driver, play};

/// The sessions that are kept, by file name. Never drop one: old journals are older than any change.
const SESSIONS: [(&str, &str); 14] = [
    ("answer", "answer"),
    ("reads_in_parallel", "model:6 tool@2 tool:tool_error@3 tools model:1 tool cut"),
    ("retrieval_and_cancel", "retrieval passages:tainting model:w,r tool late:3 cancel:operator"),
    ("last_model_call", "model_calls=3 model:1 tool empty model:2"),
    ("measured_and_priced", "price=150,600 cost_usd=40000000 ratio:250 usage:400,120,2 size:3000 model:2 tools model:1 tool answer"),
    ("budget_shared", "total_tokens=9000 usage:900,500,1 size:6000 model:2 tools model:2"),
    ("context_shortened", "window=8000 size:9000 model:1 tool model:1 tool fail:context answer"),
    ("loop", "model:r=7 tool:=1 model:r=7 tool:=1 model:r=7 tool:=1 model:r=7,p=8 tool answer"),
    ("approvals", "taint=approve model:u,w1? tool yes sent tool model:w2 no model:w3"),
    ("irreversible_last", "model:i1,w,r,i2? sent tool tool sent tool yes sent tool:tool_error answer"),
    ("crash_everywhere", "retrieval crash nothing crash model:r,k,q sent@2 sent@1 crash tool:saturated tool crash answer crash absent"),
    ("reserve_and_settlement", "model:w,q,r sent sent wait:37 tool:outcome_unknown@2 wait:8 tool found"),
    (
        "saga",
        "saga=failed,cancelled group=c1,c2 model:c1,c3 tools model:d1 tools model:w tools late:2 cancel:caller late:1 undone crash stuck undone",
    ),
    ("tightened", "parallel_tools=2 model:4 tighten:tool_calls=3,deadline_ms=20000 tool late:2 tool wait:10 fail:overloaded+partial"),
];

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Started { at: u64, started: Box<Started>, commands: Vec<String>, fingerprint: String },
    Event { at: u64, event: Box<Event>, commands: Vec<String>, fingerprint: String },
    End { verdict: Option<Verdict>, settlement: Settlement, events: u32, results: String },
}

#[test]
#[expect(clippy::disallowed_methods, reason = "golden files are files, and one variable says to write them")]
fn committed_journals_replay_to_the_same_commands() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let update = std::env::var("UPDATE").is_ok_and(|value| value == "1");
    for (name, script) in SESSIONS {
        let path = folder.join(format!("{name}.jsonl"));
        if update {
            fs::write(&path, record(script)).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}; hint: UPDATE=1", path.display()));
        replay(name, &text);
    }
    let mut kept: Vec<String> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut known: Vec<String> = SESSIONS.iter().map(|(name, _)| format!("{name}.jsonl")).collect();
    kept.sort();
    known.sort();
    assert_eq!(kept, known, "a journal without a session, or the other way round");
}

#[test]
fn a_journal_that_was_tampered_with_does_not_replay() {
    let text = record("model:2 tools answer");
    replay("whole", &text);
    for (from, to) in
        [("\"attempts\":[{", "\"attempts\":[{\"new_field\":1,"), ("a=2 t=0", "a=3 t=0"), ("\"at\":0,\"event\"", "\"at\":40000,\"event\"")]
    {
        let other = text.replacen(from, to, 1);
        assert_ne!(other, text, "{from} is in the journal");
        assert!(std::panic::catch_unwind(|| replay("changed", &other)).is_err(), "{from} -> {to} went unnoticed");
    }
}

/// The journal of a script, as it is kept.
fn record(script: &str) -> String {
    let driver = play(script).driver;
    let mut lines = vec![Line::Started {
        at: 0,
        started: Box::new(Started::clone(driver.machine.started())),
        commands: printed(&driver.first),
        fingerprint: hex(&driver.first),
    }];
    lines.extend(driver.journal.iter().map(|entry| Line::Event {
        at: entry.at,
        event: Box::new(entry.event.clone()),
        commands: printed(&entry.commands),
        fingerprint: hex(&entry.commands),
    }));
    lines.push(end(&driver));
    lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect()
}

/// Plays a kept journal against the machine of today.
#[track_caller]
fn replay(name: &str, text: &str) {
    let mut driver: Option<Driver> = None;
    for (number, written) in text.lines().enumerate() {
        let place = format!("{name}.jsonl:{}", number + 1);
        let line: Line = serde_json::from_str(written).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(serde_json::to_string(&line).unwrap(), written, "{place}: the written form has changed");
        match (line, &mut driver) {
            (Line::Started { at, started, commands, fingerprint }, None) => {
                assert_eq!(at, 0);
                let begun = Driver::start(*started);
                let again = Machine::start(Arc::new(Started::clone(begun.machine.started())), at).1;
                assert_eq!((printed(&again), hex(&again)), (commands, fingerprint), "{place}");
                driver = Some(begun);
            }
            (Line::Event { at, event, commands, fingerprint }, Some(driver)) => {
                driver.at = at;
                let (heard, got) = driver.tell(*event);
                assert_eq!(heard, Heard::Applied, "{place}");
                assert_eq!((printed(&got), hex(&got)), (commands, fingerprint), "{place}");
            }
            (line @ Line::End { .. }, Some(driver)) => {
                assert_eq!(serde_json::to_string(&end(driver)).unwrap(), serde_json::to_string(&line).unwrap(), "{place}");
            }
            (line, _) => panic!("{place}: out of place: {line:?}"),
        }
    }
    assert!(driver.is_some(), "{name} is empty");
}

fn end(driver: &Driver) -> Line {
    let machine = &driver.machine;
    Line::End { verdict: machine.verdict().copied(), settlement: machine.settlement(), events: machine.events(), results: driver.results() }
}

fn printed(commands: &[Command]) -> Vec<String> {
    commands.iter().map(Command::to_string).collect()
}

fn hex(commands: &[Command]) -> String {
    format!("{:016x}", fingerprint(commands))
}
