//! The six promises of the session machine, each over 2,000 random sessions, against reference models that are simple
//! enough to be obviously right.
//!
//! A case is a string of bytes. They deal the session's settings, then drive it: honest answers in any order, time, wake-ups,
//! crashes, cancellations, tightened limits, duplicates and garbage. Whatever they are, what follows is a plain driver that
//! answers all that is open until the session is closed. The seeds are fixed, so that every run is the same run.

mod aftermath;
mod bill;
mod ends;
mod last_call;
mod reach;
mod replay;
mod results;
mod simulation;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ambit_core::session::{Command, Event, Heard, Machine, Started};
use ambit_core::{Axis, Limits};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use crate::kit::Driver;
use simulation::{Trace, simulate};

const CASES: u32 = 2_000;
/// Longest case in bytes; a decision takes one or a few.
const BYTES: usize = 400;

/// 1. No more calls than the limits say, and what is lent never sums past them.
#[test]
fn calls_and_allowances_stay_within_the_limits() {
    every_session(1, bill::Bill::default);
}

/// 2. Every call has exactly one result, in the order asked.
#[test]
fn every_call_has_exactly_one_result_in_the_order_asked() {
    every_session(2, results::Results::default);
}

/// 3. After the verdict only the settlement goes on.
#[test]
fn after_the_verdict_only_effects_are_settled() {
    every_session(3, aftermath::Aftermath::default);
}

/// 4. It ends, within a number of events known beforehand.
#[test]
fn it_always_ends_within_the_events_that_the_limits_need() {
    every_session(4, ends::Ends::default);
}

/// 5. The last affordable call knows that it is the last.
#[test]
fn the_last_affordable_call_is_issued_without_tools_and_is_told_why() {
    every_session(5, last_call::LastCall::default);
}

/// 6. The same events give the same commands.
#[test]
fn the_same_events_give_the_same_commands() {
    every_session(6, replay::Replay::default);
}

/// The promises would be easy to keep if nothing ever happened: the dice reach every phase, command and kind of end.
#[test]
fn the_dice_reach_everything() {
    let reached = Rc::new(RefCell::new(BTreeMap::new()));
    every_session(7, || reach::Reach(reached.clone()));
    let reached = reached.borrow();
    let names = "Retrieve, CallModel, CallModel last, CallModel nudge, CallTool, CallTool again, AskApproval, Abandon, Reconcile, Compensate, \
        Finish, Retrieved, ModelReplied, ModelFailed, Dispatched, ToolFinished, ApprovalDecided, Reconciled, Compensated, Cancelled, \
        LimitsTightened, Woke, Resumed, heard late, heard invalid, overdue, resumed while settling, woke while settling, \
        completed answered, completed refused, completed loop, completed context, completed approval_denied, incomplete saturated, \
        incomplete content_filtered, incomplete empty_response, incomplete output_truncated, incomplete stream_interrupted, \
        failed model_unavailable, failed model_rejected, failed internal, failed saturated, cancelled cancelled, cancelled shutdown, \
        settlement none, settlement settled, settlement needs_attention";
    let axes = Axis::ALL.iter().flat_map(|axis| [format!("completed {axis}"), format!("incomplete {axis}")]);
    let wanted = names.split(", ").map(str::to_owned).chain(axes);
    let missed: Vec<String> = wanted.filter(|name| reached.get(name).is_none_or(|&times| times < REACHED)).collect();
    assert!(missed.is_empty(), "hardly ever or never: {missed:?} in {reached:#?}");
}

/// Times that each thing has to come about in all cases together.
const REACHED: u32 = 5;
/// What a reference model is shown: one event, what the machine made of it, and the machine afterwards.
struct Seen<'a> {
    at: u64,
    event: &'a Event,
    heard: Heard,
    commands: &'a [Command],
    driver: &'a Driver,
    /// As it was before: whether the verdict stood, and the limits in force.
    settling: bool,
    limits: Limits,
    /// True if an answer reported more than it was lent, or a measure that makes every later call dearer than was reckoned.
    dishonest: bool,
}

impl Seen<'_> {
    fn machine(&self) -> &Machine {
        &self.driver.machine
    }
}

/// A reference model: looks on and objects.
trait Reference {
    fn begin(&mut self, started: &Started, commands: &[Command]);
    fn see(&mut self, seen: &Seen<'_>);
    fn end(&mut self, driver: &Driver);
}

fn every_session<R: Reference>(seed: u8, reference: impl Fn() -> R) {
    let config = Config { cases: CASES, failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let outcome = runner.run(&prop::collection::vec(any::<u8>(), 0..BYTES), |bytes| {
        simulate(&bytes, reference(), Trace::Off);
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(_, bytes)) => {
            eprintln!("\nthe smallest case that fails, step by step: {bytes:?}");
            simulate(&bytes, reference(), Trace::On);
            panic!("it failed, and now it does not");
        }
        Err(error) => panic!("{error}"),
    }
}

/// True if this event found the deadline passed, so that the verdict came before it.
fn is_overdue(seen: &Seen<'_>) -> bool {
    let concluded = seen.commands.iter().any(|command| matches!(command, Command::Finish(_)));
    let waiting = seen.event_was_asked_of_a_person();
    concluded && !seen.settling && !waiting && seen.at >= seen.limits.deadline_ms
}

impl Seen<'_> {
    /// While a person is asked the clock stands.
    fn event_was_asked_of_a_person(&self) -> bool {
        matches!(self.event, Event::ApprovalDecided { .. })
    }
}
