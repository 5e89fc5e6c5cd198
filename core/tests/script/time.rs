//! Time: the answer reserve, the deadline, and the clock that stands while a person is asked.

use ambit_core::Step;
use ambit_core::session::{Event, Heard};

use super::check;
use crate::kit::play;

#[test]
fn the_clock_stands_while_a_person_is_asked() {
    let asked = play("model:w?");
    assert!(asked.driver.machine.is_awaiting_approval());
    assert_eq!(asked.driver.machine.wake_at(), None);
    check("model:w? ~wake late:60 ~wake tighten:tool_calls=1", "CallModel AskApproval(w)");
    // A driver whose clock ran on all the same: the yes comes too late to act on, and the session ends in order.
    check(
        "model:w? late:38 yes answer",
        "CallModel AskApproval(w) CallModel(last deadline) Finish(completed, deadline) | DEADLINE_EXCEEDED | none",
    );
    check("model:w? late:60 yes", "CallModel AskApproval(w) Finish(incomplete, deadline) | DEADLINE_EXCEEDED");
}

#[test]
fn the_answer_reserve_makes_room_for_the_last_call_in_every_phase() {
    check("retrieval wait:37 ~passages answer", "Retrieve Abandon CallModel(last deadline) Finish(completed, deadline)");
    check("wait:37 ~model:2 answer", "CallModel Abandon CallModel(last deadline) Finish(completed, deadline)");
    check(
        "model:2 tool wait:37 ~tool answer",
        "CallModel CallTool CallTool Abandon CallModel(last deadline) Finish(completed, deadline) | OK DEADLINE_EXCEEDED | none",
    );
    check(
        "model:w sent wait:37 answer",
        "CallModel CallTool(w) CallModel(last deadline) Finish(completed, deadline) | OUTCOME_UNKNOWN | pending",
    );
    check(
        "model:w sent wait:37 answer tool",
        "CallModel CallTool(w) CallModel(last deadline) Finish(completed, deadline) | OUTCOME_UNKNOWN | settled",
    );
    check(
        "model:w sent wait:37 tool answer",
        "CallModel CallTool(w) CallModel(last deadline) Finish(completed, deadline) | OUTCOME_UNKNOWN | settled",
    );
    check(
        "model:w wait:37 ~sent ~tool:not_attempted answer",
        "CallModel CallTool(w) CallModel(last deadline) Finish(completed, deadline) | NOT_ATTEMPTED | none",
    );
    check(
        "parallel_tools=1 model:r,r,w,i wait:37",
        "CallModel CallTool Abandon CallModel(last deadline) | DEADLINE_EXCEEDED DEADLINE_EXCEEDED DEADLINE_EXCEEDED DEADLINE_EXCEEDED",
    );
    check("model:1 wait:36 tool", "CallModel CallTool CallModel");
    check("~wake late:36 ~wake", "CallModel");
}

#[test]
fn inside_the_reserve_nothing_is_begun_but_the_last_call() {
    check("late:38 model:2 answer", "CallModel CallModel(last deadline) Finish(completed, deadline) | DEADLINE_EXCEEDED DEADLINE_EXCEEDED");
    check(
        "parallel_tools=1 model:2 late:38 tool answer",
        "CallModel CallTool CallModel(last deadline) Finish(completed, deadline) | OK DEADLINE_EXCEEDED",
    );
    check("model:r,w? late:38 tool", "CallModel CallTool CallModel(last deadline) | OK DEADLINE_EXCEEDED");
    check("model:w late:38 ~sent tool:not_attempted", "CallModel CallTool(w) CallModel(last deadline) | NOT_ATTEMPTED | none");
    check("wait:37 ~wake", "CallModel Abandon CallModel(last deadline)");
}

#[test]
fn the_deadline_brings_the_verdict_in_every_phase() {
    check("retrieval late:45 nothing", "Retrieve Abandon Finish(incomplete, deadline)");
    check("late:45 answer", "CallModel Abandon Finish(incomplete, deadline)");
    check("wait:45", "CallModel Abandon CallModel(last deadline) Abandon Finish(incomplete, deadline)");
    check("late:44 answer", "CallModel Finish(completed, answered)");
    check(
        "model:2 late:45 tool",
        "CallModel CallTool CallTool Abandon Abandon Finish(incomplete, deadline) | DEADLINE_EXCEEDED DEADLINE_EXCEEDED",
    );
    check("model:w sent late:45 tool", "CallModel CallTool(w) Finish(incomplete, deadline) | OUTCOME_UNKNOWN | settled");
    check("model:w sent late:45 wake", "CallModel CallTool(w) Finish(incomplete, deadline) | OUTCOME_UNKNOWN | pending");
    check("late:45 cancel:caller", "CallModel Abandon Finish(incomplete, deadline)");
    check("answer_reserve_ms=0 wait:45", "CallModel Abandon Finish(incomplete, deadline)");
    check("deadline_ms=10200 answer_reserve_ms=1000 model:1 late:10 tool", "CallModel CallTool Finish(incomplete, deadline) | OK");
}

#[test]
fn a_write_that_has_not_left_is_never_let_go_past_its_time() {
    // `Applied` would send it off: past the deadline the fact is late, and the wake-up brings the verdict.
    check("model:w late:50 ~sent wake", "CallModel CallTool(w) Finish(incomplete, deadline) | NOT_ATTEMPTED | none");
    check("model:w cancel:caller ~sent", "CallModel CallTool(w) Finish(cancelled, cancelled) | NOT_ATTEMPTED | none");
    check("model:w,r sent@1 ~wake", "CallModel CallTool(w) CallTool");
    let mut twice = play("model:w,r sent").driver;
    assert_eq!(twice.tell(Event::Dispatched { step: Step(2) }).0, Heard::Late, "a second time says nothing new");
    assert_eq!(twice.tell(Event::Dispatched { step: Step(3) }).0, Heard::Invalid, "a read is not dispatched");
    assert_eq!(twice.tell(Event::Dispatched { step: Step(9) }).0, Heard::Invalid, "nobody asked for it");
}

#[test]
fn a_session_says_when_it_wants_to_be_woken_and_why() {
    let wake = |script: &str| play(script).driver.machine.wake_at();
    assert_eq!(wake(""), Some((37_000, "answer reserve")));
    assert_eq!(wake("retrieval"), Some((37_000, "answer reserve")));
    assert_eq!(wake("model:1"), Some((37_000, "answer reserve")));
    assert_eq!(wake("model_calls=1"), Some((45_000, "deadline")));
    assert_eq!(wake("model:w sent late:1 cancel:caller"), Some((121_000, "end of settlement")));
    assert_eq!(wake("saga=cancelled model:c tools late:1 cancel:caller"), Some((11_000, "end of settlement")));
    assert_eq!(wake("tighten:deadline_ms=20000"), Some((12_000, "answer reserve")));
    assert_eq!((wake("model:w?"), wake("answer")), (None, None));
}
