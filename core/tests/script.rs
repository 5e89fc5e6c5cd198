//! What a session does, told as scripts: what happens on the left, what the machine asks for on the right.
//!
//! The words are those of [`crate::kit`]. The right side is `commands | results | settlement`; the last two may be left out.

use ambit_core::session::{Command, EffectState, Event, Finding, Heard};
use ambit_core::{Settlement, Step};

use crate::kit::{Play, body, play};

#[track_caller]
fn check(script: &str, expected: &str) {
    let play = play(script);
    let mut parts = expected.split('|').map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(play.printed.join(" "), parts.next().unwrap(), "commands of `{script}`");
    if let Some(results) = parts.next() {
        assert_eq!(play.driver.results(), results, "results of `{script}`");
    }
    if let Some(settlement) = parts.next() {
        assert_eq!(play.driver.machine.settlement().as_str(), settlement, "settlement of `{script}`");
    }
}

/// What the last command lends: `attempts tokens cost deadline`, and the output asked for.
#[track_caller]
fn lent(script: &str, expected: &str) {
    let play = play(script);
    let last = play.driver.journal.last().map_or(&play.driver.first, |entry| &entry.commands).last().unwrap().to_string();
    let (from, to) = (last.find('[').unwrap(), last.find(']').unwrap());
    let output = last.split(' ').find(|word| word.starts_with("output=")).map(|word| format!(" {word}")).unwrap_or_default();
    assert_eq!(format!("{}{output}", &last[from + 1..to]), expected, "`{script}`");
}

fn states(play: &Play) -> Vec<EffectState> {
    play.driver.machine.effects().iter().map(|effect| effect.state).collect()
}

#[test]
fn a_session_goes_from_model_to_tools_and_back_until_the_model_answers() {
    check("", "CallModel");
    check("answer", "CallModel Finish(completed, answered) | | none");
    check("model:0", "CallModel Finish(completed, answered)");
    check("model:2 tool tool model:0", "CallModel CallTool CallTool CallModel Finish(completed, answered) | OK OK | none");
    check("model:1 tool model:1 tool answer", "CallModel CallTool CallModel CallTool CallModel Finish(completed, answered) | OK OK");
    check("no_tools answer", "CallModel Finish(completed, answered)");
    check("model:1 tool:tool_error answer", "CallModel CallTool CallModel Finish(completed, answered) | TOOL_ERROR | none");
    check("answer ~wake ~crash", "CallModel Finish(completed, answered)");
}

#[test]
fn passages_come_first_where_there_is_a_knowledge_base() {
    check("retrieval passages answer", "Retrieve CallModel Finish(completed, answered)");
    check("retrieval nothing answer", "Retrieve CallModel Finish(completed, answered)");
    let shown = |script| play(script).driver.machine.transcript().passages();
    assert_eq!((shown("retrieval passages"), shown("retrieval nothing")), (Some(body(2, 500)), None));
}

#[test]
fn calls_run_side_by_side_up_to_the_limit_and_their_results_keep_the_order_asked() {
    check("model:6", "CallModel CallTool CallTool CallTool CallTool");
    check("model:6 tool@2 tool", "CallModel CallTool CallTool CallTool CallTool CallTool CallTool | OK OK - - - -");
    check(
        "model:3 tool:tool_error@3 tool:upstream_timeout@2 tool answer",
        "CallModel CallTool CallTool CallTool CallModel Finish(completed, answered) | OK UPSTREAM_TIMEOUT TOOL_ERROR",
    );
    check("parallel_tools=1 model:3 tool tool", "CallModel CallTool CallTool CallTool | OK OK -");
    check("parallel_tools=1 model:r1,w,r2 tool sent tool tool", "CallModel CallTool CallTool(w) CallTool CallModel | OK OK OK | pending");
}

#[test]
fn what_preparation_refused_has_its_result_at_once_and_costs_nothing() {
    check("model:r!,r tool answer", "CallModel CallTool CallModel Finish(completed, answered) | INVALID_ARGUMENTS OK");
    check("model:r!,r! answer", "CallModel CallModel Finish(completed, answered) | INVALID_ARGUMENTS INVALID_ARGUMENTS");
    check(
        "tool_calls=1 model:r!,r!,r tool answer",
        "CallModel CallTool CallModel(last tool_calls) Finish(completed, tool_calls) | INVALID_ARGUMENTS INVALID_ARGUMENTS OK",
    );
    assert_eq!(play("model:r!,r tool answer").driver.machine.spent().tool_calls, 1);
}

#[test]
fn the_last_affordable_model_call_has_its_tools_switched_off_and_is_told_why() {
    check("model_calls=1 answer", "CallModel(last model_calls) Finish(completed, model_calls)");
    check("model_calls=2 model:1 tool answer", "CallModel CallTool CallModel(last model_calls) Finish(completed, model_calls)");
    check("tool_calls=2 model:2 tools answer", "CallModel CallTool CallTool CallModel(last tool_calls) Finish(completed, tool_calls)");
    check("tool_calls=0 answer", "CallModel(last tool_calls) Finish(completed, tool_calls)");
    check("tool_calls=0 tool_attempts=0 no_tools answer", "CallModel Finish(completed, answered)");
    check("model_attempts=1 answer", "CallModel(last model_attempts) Finish(completed, model_attempts)");
    check(
        "model_attempts=3 usage:30,10,2 model:1 tool answer",
        "CallModel CallTool CallModel(last model_attempts) Finish(completed, model_attempts)",
    );
    check("tool_attempts=1 model:1 tool answer", "CallModel CallTool CallModel(last tool_attempts) Finish(completed, tool_attempts)");
    check("wait:37 answer", "CallModel Abandon CallModel(last deadline) Finish(completed, deadline)");
    check("total_tokens=5500 answer", "CallModel(last total_tokens) Finish(completed, total_tokens)");
    check(
        "total_tokens=6000 usage:200,700,1 model:1 tool answer",
        "CallModel CallTool CallModel(last total_tokens) Finish(completed, total_tokens)",
    );
    check("price=10,20 cost_usd=60500 answer", "CallModel(last cost_usd) Finish(completed, cost_usd)");
    check("price=10,20 cost_usd=60700 answer", "CallModel Finish(completed, answered)");
    check("transcript=1000 size:5000 model:1 tool answer", "CallModel CallTool CallModel(last transcript) Finish(completed, transcript)");
    check("window=2302 answer", "CallModel(last context) Finish(completed, context)");
    check("window=2303 answer", "CallModel Finish(completed, answered)");
    check("events=6 answer", "CallModel(last events) Finish(completed, events)");
    check("events=1 answer", "CallModel(last events) Finish(completed, events)");
}

#[test]
fn a_limit_that_allows_no_call_at_all_ends_the_session_without_one() {
    check("model_calls=0", "Finish(incomplete, model_calls) | | none");
    check("model_attempts=0", "Finish(incomplete, model_attempts)");
    check("total_tokens=200", "Finish(incomplete, total_tokens)");
    check("price=10,20 cost_usd=2000", "Finish(incomplete, cost_usd)");
    check("events=0", "Finish(incomplete, events)");
    check("deadline_ms=0", "Finish(incomplete, deadline)");
    check("deadline_ms=250", "Finish(incomplete, deadline)");
    check("retrieval deadline_ms=0 wait:0", "Retrieve Abandon Finish(incomplete, deadline)");
}

#[test]
fn who_wants_no_last_answer_spends_everything_and_stops_where_it_ends() {
    check("stop model_calls=1 answer", "CallModel Finish(completed, answered)");
    check("stop model_calls=2 model:1 tool model:1 tool", "CallModel CallTool CallModel CallTool Finish(incomplete, model_calls)");
    check("stop tool_calls=1 model:2 tool", "CallModel CallTool Finish(incomplete, tool_calls) | OK BUDGET_EXHAUSTED");
    check("stop model_attempts=2 usage:30,10,2 model:1 tool", "CallModel CallTool Finish(incomplete, model_attempts)");
    check("stop tool_attempts=1 model:1 tool", "CallModel CallTool Finish(incomplete, tool_attempts)");
    check("stop wait:37", "CallModel Abandon Finish(incomplete, deadline)");
    check("stop total_tokens=5500 answer", "CallModel Finish(completed, answered)");
    check("stop total_tokens=1000 usage:700,100,1 model:1 tool", "CallModel CallTool Finish(incomplete, total_tokens)");
    check("stop price=1,1 cost_usd=1000 usage:700,100,1 model:1 tool", "CallModel CallTool Finish(incomplete, cost_usd)");
    check("stop transcript=1000 size:5000 model:1 tool", "CallModel CallTool Finish(incomplete, transcript)");
    check("stop window=2302", "Finish(incomplete, context)");
    check("stop events=2 model:1 answer", "CallModel CallModel Finish(completed, answered) | BUDGET_EXHAUSTED");
}

#[test]
fn calls_that_come_back_in_the_last_call_are_answered_and_not_run() {
    check(
        "model_calls=1 model:2",
        "CallModel(last model_calls) Finish(incomplete, model_calls) | BUDGET_EXHAUSTED BUDGET_EXHAUSTED | none",
    );
    check("wait:37 model:1", "CallModel Abandon CallModel(last deadline) Finish(incomplete, deadline) | BUDGET_EXHAUSTED");
    check(
        "tool_calls=1 model:1 tool model:w,i",
        "CallModel CallTool CallModel(last tool_calls) Finish(incomplete, tool_calls) | OK BUDGET_EXHAUSTED BUDGET_EXHAUSTED | none",
    );
}

#[test]
fn more_calls_than_are_left_run_as_far_as_they_go() {
    let ten = "CallTool ".repeat(10);
    let results = "OK ".repeat(10);
    check(
        "model:12 tools answer",
        &format!("CallModel {ten} CallModel(last tool_calls) Finish(completed, tool_calls) | {results} BUDGET_EXHAUSTED BUDGET_EXHAUSTED"),
    );
    check(
        "tool_attempts=1 model:2 tool answer",
        "CallModel CallTool CallModel(last tool_attempts) Finish(completed, tool_attempts) | OK BUDGET_EXHAUSTED",
    );
    check(
        "tool_attempts=1 model:2 tool:saturated tool answer",
        "CallModel CallTool CallTool CallModel(last tool_attempts) Finish(completed, tool_attempts) | SATURATED OK",
    );
    check(
        "tool_attempts=2 model:w1?,w2?,w3? yes sent tool yes sent tool yes answer",
        "CallModel AskApproval(w1) CallTool(w1) AskApproval(w2) CallTool(w2) AskApproval(w3) CallModel(last tool_attempts) Finish(completed, tool_attempts) | OK OK BUDGET_EXHAUSTED",
    );
    check("events=8 model:2 tool answer", "CallModel CallTool CallModel(last events) Finish(completed, events) | OK BUDGET_EXHAUSTED");
}

#[test]
fn a_turn_may_ask_for_64_calls_and_no_more() {
    let refused = "BUDGET_EXHAUSTED ".repeat(63);
    check(
        "tool_calls=1 model:64 tool answer",
        &format!("CallModel CallTool CallModel(last tool_calls) Finish(completed, tool_calls) | OK {refused}"),
    );
    check("model:65", "CallModel Finish(failed, model_unavailable, protocol) | | none");
    check("model:w sent tool model:65", "CallModel CallTool(w) CallModel Finish(failed, model_unavailable, protocol) | OK | settled");
    check("model_calls=1 model:65", "CallModel(last model_calls) Finish(failed, model_unavailable, protocol) | ");
}

#[test]
fn an_empty_answer_gets_one_nudge_if_affordable() {
    check("empty answer", "CallModel CallModel(nudge) Finish(completed, answered)");
    check("empty empty", "CallModel CallModel(nudge) Finish(incomplete, empty_response)");
    check("empty model:1 tool empty", "CallModel CallModel(nudge) CallTool CallModel Finish(incomplete, empty_response)");
    check("model_calls=2 empty answer", "CallModel CallModel(last model_calls, nudge) Finish(completed, model_calls)");
    check("model_calls=1 empty", "CallModel(last model_calls) Finish(incomplete, empty_response)");
    check("stop model_calls=1 empty", "CallModel Finish(incomplete, empty_response)");
    // A last call stays the last, even if its answer showed that the estimate was too high.
    check("window=2302 ratio:100 empty answer", "CallModel(last context) CallModel(last context, nudge) Finish(completed, context)");
    check("empty crash answer", "CallModel CallModel(nudge) CallModel(nudge) Finish(completed, answered)");
    check("empty wait:37 answer", "CallModel CallModel(nudge) Abandon CallModel(last deadline, nudge) Finish(completed, deadline)");
}

#[test]
fn an_answer_that_was_cut_withheld_or_declined_says_so() {
    check("cut", "CallModel Finish(incomplete, output_truncated)");
    check("model_calls=1 cut", "CallModel(last model_calls) Finish(incomplete, output_truncated)");
    check("cut:r,r! tool answer", "CallModel CallTool CallModel Finish(completed, answered) | OK INVALID_ARGUMENTS");
    check("filtered", "CallModel Finish(incomplete, content_filtered)");
    check("filtered:2", "CallModel Finish(incomplete, content_filtered) | NOT_ATTEMPTED NOT_ATTEMPTED");
    check("declined", "CallModel Finish(completed, refused)");
    check("model_calls=1 declined", "CallModel(last model_calls) Finish(completed, model_calls)");
    check("declined:1 tool answer", "CallModel CallTool CallModel Finish(completed, answered) | OK");
}

#[test]
fn the_third_identical_result_is_had_the_fourth_call_is_refused_and_the_next_answer_is_the_last() {
    let same = "model:r=7 tool:=1 ".repeat(3);
    let runs = "CallModel CallTool ".repeat(3);
    check(
        &format!("{same} model:r=7 answer"),
        &format!("{runs} CallModel CallModel(last loop) Finish(completed, loop) | OK OK OK LOOP_DETECTED"),
    );
    check(
        &format!("{same} model:r=7,r=8 tool answer"),
        &format!("{runs} CallModel CallTool CallModel(last loop) Finish(completed, loop) | OK OK OK LOOP_DETECTED OK"),
    );
    check(&format!("stop {same} model:r=7"), &format!("{runs} CallModel Finish(incomplete, loop) | OK OK OK LOOP_DETECTED"));
    check(
        "model:r=7,r=7,r=7,r=7 tool:=1 tool:=1 tool:=1 answer",
        "CallModel CallTool CallTool CallTool CallModel(last loop) Finish(completed, loop) | OK OK OK LOOP_DETECTED",
    );
    let other = "model:r=7 tool:=1 model:r=7 tool:=1 model:r=7 tool:=2 ";
    check(&format!("{other} model:r=7 tool:=2 model:r=7"), &format!("{runs} CallModel CallTool CallModel CallTool"));
    check(&"model:p=7 tool:=1 ".repeat(4), &format!("{runs} CallModel CallTool CallModel"));
}

#[test]
fn untrusted_content_keeps_calls_from_acting_on_it() {
    check("model:u tool model:w answer", "CallModel CallTool CallModel CallModel Finish(completed, answered) | OK TAINTED | none");
    check(
        "model:u tool model:g,r tool answer",
        "CallModel CallTool CallModel CallTool CallModel Finish(completed, answered) | OK TAINTED OK",
    );
    check("tainted model:w,i,g,r tool", "CallModel CallTool CallModel | TAINTED TAINTED TAINTED OK");
    check("retrieval passages:tainting model:w", "Retrieve CallModel CallModel | TAINTED");
    check(
        "taint=approve model:u tool model:w yes sent tool answer",
        "CallModel CallTool CallModel AskApproval(w) CallTool(w) CallModel Finish(completed, answered) | OK OK",
    );
    check("taint=approve tainted model:g yes tool answer", "CallModel AskApproval(g) CallTool CallModel Finish(completed, answered) | OK");
    check(
        "taint=allow model:u tool model:w sent tool answer",
        "CallModel CallTool CallModel CallTool(w) CallModel Finish(completed, answered) | OK OK",
    );
    check("model:u,w tool sent tool answer", "CallModel CallTool CallTool(w) CallModel Finish(completed, answered) | OK OK");
    check("model:u tool:saturated model:w", "CallModel CallTool CallModel CallTool(w) | SATURATED -");
    check("model:u tool:tool_error model:w", "CallModel CallTool CallModel CallModel | TOOL_ERROR TAINTED");
    assert!(play("model:u tool").driver.machine.is_tainted());
    assert!(!play("model:r tool").driver.machine.is_tainted());
}

#[test]
fn the_uncompensable_goes_last_alone_and_only_if_every_other_write_succeeded() {
    check(
        "model:i,r,w tool sent tool sent tool answer",
        "CallModel CallTool CallTool(w) CallTool(i) CallModel Finish(completed, answered) | OK OK OK | settled",
    );
    check("model:i1,i2 sent tool sent tool answer", "CallModel CallTool(i1) CallTool(i2) CallModel Finish(completed, answered) | OK OK");
    check(
        "model:i,w sent tool:tool_error answer",
        "CallModel CallTool(w) CallModel Finish(completed, answered) | NOT_ATTEMPTED TOOL_ERROR",
    );
    check(
        "model:i,w sent tool:outcome_unknown answer",
        "CallModel CallTool(w) CallModel Finish(completed, answered) | NOT_ATTEMPTED OUTCOME_UNKNOWN | needs_attention",
    );
    check(
        "model:i1,i2 sent tool:tool_error answer",
        "CallModel CallTool(i1) CallModel Finish(completed, answered) | TOOL_ERROR NOT_ATTEMPTED",
    );
    check("model:i,w! answer", "CallModel CallModel Finish(completed, answered) | NOT_ATTEMPTED INVALID_ARGUMENTS");
    check(
        "model:i,r tool:tool_error sent tool answer",
        "CallModel CallTool CallTool(i) CallModel Finish(completed, answered) | OK TOOL_ERROR",
    );
    check("model:i?,w sent tool yes sent tool", "CallModel CallTool(w) AskApproval(i) CallTool(i) CallModel | OK OK");
    check("model:i?,w sent tool:tool_error", "CallModel CallTool(w) CallModel | NOT_ATTEMPTED TOOL_ERROR");
    check("model:i,w? no", "CallModel AskApproval(w) CallModel(last approval_denied) | NOT_ATTEMPTED APPROVAL_DENIED");
}

#[test]
fn a_person_is_asked_when_nothing_is_in_flight_and_the_very_call_runs_after_a_yes() {
    check("model:w?,r1,r2 tool tool", "CallModel CallTool CallTool AskApproval(w)");
    check(
        "model:w?,r tool yes sent tool answer",
        "CallModel CallTool AskApproval(w) CallTool(w) CallModel Finish(completed, answered) | OK OK",
    );
    check("model:w1?,w2? yes sent tool yes sent tool", "CallModel AskApproval(w1) CallTool(w1) AskApproval(w2) CallTool(w2) CallModel");
    check("model:r? yes tool", "CallModel AskApproval(r) CallTool CallModel | OK");
    check(
        "model:w? no answer",
        "CallModel AskApproval(w) CallModel(last approval_denied) Finish(completed, approval_denied) | APPROVAL_DENIED | none",
    );
    check(
        "model:w? expired answer",
        "CallModel AskApproval(w) CallModel(last approval_expired) Finish(completed, approval_expired) | APPROVAL_EXPIRED",
    );
    check("stop model:w? no", "CallModel AskApproval(w) Finish(incomplete, approval_denied) | APPROVAL_DENIED");
    let play = play("model:w=7?");
    let Some(Command::AskApproval { arguments, .. }) = play.driver.journal.last().unwrap().commands.last() else { panic!("not asked") };
    let (_, commands) = { play.driver.machine.clone() }
        .handle(Event::ApprovalDecided { step: Step(2), decision: ambit_core::session::Decision::Approve }, 0);
    assert!(matches!(&commands[..], [Command::CallTool { arguments: ran, .. }] if ran == arguments));
}

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
fn everyone_who_may_cancel_does_so_in_every_phase() {
    for (who, reason) in [("caller", "cancelled"), ("operator", "cancelled"), ("disconnect", "cancelled"), ("shutdown", "shutdown")] {
        let finish = format!("Finish(cancelled, {reason})");
        check(&format!("retrieval cancel:{who}"), &format!("Retrieve Abandon {finish} | | none"));
        check(&format!("cancel:{who}"), &format!("CallModel Abandon {finish} | | none"));
        check(&format!("model_calls=1 cancel:{who}"), &format!("CallModel(last model_calls) Abandon {finish}"));
        check(
            &format!("model:2 cancel:{who}"),
            &format!("CallModel CallTool CallTool Abandon Abandon {finish} | NOT_ATTEMPTED NOT_ATTEMPTED"),
        );
        check(&format!("model:w cancel:{who}"), &format!("CallModel CallTool(w) {finish} | NOT_ATTEMPTED | none"));
        check(&format!("model:w? cancel:{who} ~yes"), &format!("CallModel AskApproval(w) {finish} | NOT_ATTEMPTED | none"));
        check(
            &format!("model:w sent cancel:caller ~cancel:{who} tool"),
            "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | settled",
        );
        check(&format!("answer ~cancel:{who}"), "CallModel Finish(completed, answered)");
    }
}

#[test]
fn a_client_that_goes_away_after_a_write_does_not_stop_the_session() {
    check("model:w sent cancel:disconnect tool answer", "CallModel CallTool(w) CallModel Finish(completed, answered) | OK | settled");
    check("model:w sent tool cancel:disconnect ~cancel:disconnect answer", "CallModel CallTool(w) CallModel Finish(completed, answered)");
    check("model:w sent tool:tool_error cancel:disconnect", "CallModel CallTool(w) CallModel");
    check(
        "model:w sent cancel:disconnect cancel:operator tool",
        "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | settled",
    );
    check("model:w cancel:disconnect", "CallModel CallTool(w) Finish(cancelled, cancelled) | NOT_ATTEMPTED | none");
}

#[test]
fn limits_can_be_tightened_while_a_session_runs_and_never_loosened() {
    check("tighten:model_calls=2 model:1 tool answer", "CallModel CallTool CallModel(last model_calls) Finish(completed, model_calls)");
    check("tighten:model_calls=1 model:1 tool", "CallModel CallTool Finish(incomplete, model_calls)");
    check("model_calls=2 tighten:model_calls=9 model:1 tool", "CallModel CallTool CallModel(last model_calls)");
    check("tighten:tool_calls=1 model:3 tool", "CallModel CallTool CallModel(last tool_calls) | OK BUDGET_EXHAUSTED BUDGET_EXHAUSTED");
    check(
        "parallel_tools=1 model:3 tighten:tool_calls=2 tool tool",
        "CallModel CallTool CallTool CallModel(last tool_calls) | OK OK BUDGET_EXHAUSTED",
    );
    check("parallel_tools=2 model:3 tighten:parallel_tools=1 tool tool", "CallModel CallTool CallTool CallTool");
    check("tighten:deadline_ms=10000 wait:2 answer", "CallModel Abandon CallModel(last deadline) Finish(completed, deadline)");
    check("late:20 tighten:deadline_ms=10000", "CallModel Abandon Finish(incomplete, deadline)");
    check("tighten:total_tokens=100 model:1", "CallModel CallTool");
    check("usage:100,50,1 tighten:total_tokens=100 model:1", "CallModel Finish(incomplete, total_tokens) | BUDGET_EXHAUSTED");
    check("model:w? tighten:tool_calls=0 yes", "CallModel AskApproval(w) CallModel(last tool_calls) | BUDGET_EXHAUSTED");
    check("retrieval tighten:model_calls=1 nothing", "Retrieve CallModel(last model_calls)");
    check("answer ~tighten:model_calls=1", "CallModel Finish(completed, answered)");
    check("model:w sent cancel:caller ~tighten:model_calls=1", "CallModel CallTool(w) Finish(cancelled, cancelled)");
    check(&format!("{} !tighten:model_calls=2", "tighten:model_calls=3 ".repeat(16)), "CallModel");
}

#[test]
fn after_a_crash_reads_run_again_and_calls_that_had_not_left_run_for_the_first_time() {
    check("retrieval crash passages answer", "Retrieve Retrieve CallModel Finish(completed, answered)");
    check("crash answer", "CallModel CallModel Finish(completed, answered)");
    check("model:2 tool crash tool answer", "CallModel CallTool CallTool CallTool CallModel Finish(completed, answered) | OK OK");
    check("model:w crash sent tool answer", "CallModel CallTool(w) CallTool(w) CallModel Finish(completed, answered) | OK | settled");
    check(
        "model:w? crash yes sent tool answer",
        "CallModel AskApproval(w) AskApproval(w) CallTool(w) CallModel Finish(completed, answered) | OK",
    );
    check("model:w? yes crash sent tool", "CallModel AskApproval(w) CallTool(w) CallTool(w) CallModel | OK");
    check("parallel_tools=1 model:2 crash tool tool", "CallModel CallTool CallTool CallTool CallModel | OK OK");
    check("answer ~crash", "CallModel Finish(completed, answered)");
}

#[test]
fn after_a_crash_a_dispatched_write_is_asked_again_under_its_step_or_its_outcome_is_unknown() {
    check(
        "model:k sent crash tool answer",
        "CallModel CallTool(k) CallTool(k, again) CallModel Finish(completed, answered) | OK | settled",
    );
    check("model:w sent crash answer", "CallModel CallTool(w) CallModel Finish(completed, answered) | OUTCOME_UNKNOWN | needs_attention");
    check(
        "model:k,w,r sent sent crash tool tool answer",
        "CallModel CallTool(k) CallTool(w) CallTool CallTool(k, again) CallTool CallModel Finish(completed, answered) | OK OUTCOME_UNKNOWN OK | needs_attention",
    );
    check(
        "tool_calls=1 model:k sent crash answer",
        "CallModel CallTool(k) CallModel(last tool_calls) Finish(completed, tool_calls) | OUTCOME_UNKNOWN | needs_attention",
    );
    check("model:k sent crash crash tool", "CallModel CallTool(k) CallTool(k, again) CallTool(k, again) CallModel | OK");
    let steps: Vec<Step> = play("model:k sent crash")
        .driver
        .journal
        .iter()
        .flat_map(|entry| &entry.commands)
        .filter_map(|command| if let Command::CallTool { step, .. } = command { Some(*step) } else { None })
        .collect();
    assert_eq!(steps, [Step(2), Step(2)], "the same key goes out");
}

#[test]
fn what_is_refused_on_this_side_when_asked_again_says_nothing_about_the_first_time() {
    for local in ["saturated", "deadline_exceeded", "upstream_unavailable", "in_flight", "audit_unavailable"] {
        check(
            &format!("model:k sent crash tool:{local} answer"),
            "CallModel CallTool(k) CallTool(k, again) CallModel Finish(completed, answered) | OUTCOME_UNKNOWN | needs_attention",
        );
    }
    check(
        "model:k sent crash tool:upstream_rejected answer",
        "CallModel CallTool(k) CallTool(k, again) CallModel Finish(completed, answered) | UPSTREAM_REJECTED | settled",
    );
    check(
        "model:m sent crash tool:saturated answer found",
        "CallModel CallTool(m) CallTool(m, again) CallModel Finish(completed, answered) Reconcile(m) | OUTCOME_UNKNOWN | settled",
    );
}

#[test]
fn a_crash_charges_the_whole_allowance_of_what_was_unanswered() {
    check("model_calls=2 crash answer", "CallModel CallModel(last model_calls) Finish(completed, model_calls)");
    check("model_calls=1 crash", "CallModel(last model_calls) Finish(incomplete, model_calls)");
    check("model_attempts=3 crash answer", "CallModel CallModel(last model_attempts) Finish(completed, model_attempts)");
    check(
        "tool_calls=2 model:2 crash answer",
        "CallModel CallTool CallTool CallModel(last tool_calls) Finish(completed, tool_calls) | BUDGET_EXHAUSTED BUDGET_EXHAUSTED",
    );
    check(
        "tool_attempts=2 model:1 crash answer",
        "CallModel CallTool CallModel(last tool_attempts) Finish(completed, tool_attempts) | BUDGET_EXHAUSTED",
    );
    check("total_tokens=8000 crash crash answer", "CallModel CallModel CallModel(last total_tokens) Finish(completed, total_tokens)");
    let spent = *play("price=10,20 crash").driver.machine.spent();
    assert_eq!((spent.model_calls, spent.model_attempts, spent.charged_tokens, spent.cost.0, spent.at_least), (2, 2, 4_606, 87_020, true));
}

#[test]
fn a_session_that_kills_its_process_does_not_do_so_for_ever() {
    let eight = "crash ".repeat(8);
    let calls = "CallModel ".repeat(9);
    let limits = "model_calls=30 model_attempts=60";
    check(&format!("{limits} {eight}"), &calls);
    check(&format!("{limits} {eight} crash"), &format!("{calls} Abandon Finish(failed, internal) | | none"));
    check(
        &format!("model:w? {eight} crash"),
        &format!("CallModel {}Finish(failed, internal) | NOT_ATTEMPTED | none", "AskApproval(w) ".repeat(9)),
    );
    // The settlement is begun once more, and what kills it again is a person's.
    let reconciled = format!("CallModel CallTool(q) Finish(cancelled, cancelled) {}", "Reconcile(q) ".repeat(8));
    check(&format!("model:q sent cancel:caller {eight}"), &format!("{reconciled} | OUTCOME_UNKNOWN | pending"));
    check(&format!("model:q sent cancel:caller {eight} crash"), &format!("{reconciled} | OUTCOME_UNKNOWN | needs_attention"));
    let script = format!("saga=failed tool_calls=30 tool_attempts=60 model:c1 sent tool model:c2 sent tool model:k sent {eight} crash");
    let again = "CallTool(k, again) ".repeat(8);
    let ended =
        format!("CallModel CallTool(c1) CallModel CallTool(c2) CallModel CallTool(k) {again} Finish(failed, internal) Compensate(c2)");
    check(&script, &format!("{ended} | OK OK OUTCOME_UNKNOWN | pending"));
    check(&format!("{script} undone undone"), &format!("{ended} Compensate(c1) | OK OK OUTCOME_UNKNOWN | needs_attention"));
    let resumed = |entry: &&crate::kit::Entry| entry.event == Event::Resumed;
    assert_eq!(
        play(&format!("{script} crash ~crash")).driver.journal.iter().filter(resumed).count(),
        10,
        "as the formula of `events` says"
    );
    check(&format!("{script} crash ~crash"), &format!("{ended} | OK OK OUTCOME_UNKNOWN | needs_attention"));
}

#[test]
fn a_crash_found_past_the_deadline_brings_the_verdict_and_asks_each_question_once() {
    check("late:50 crash", "CallModel Abandon Finish(incomplete, deadline)");
    check(
        "model:q sent late:50 crash found",
        "CallModel CallTool(q) Finish(incomplete, deadline) Reconcile(q) | OUTCOME_UNKNOWN | settled",
    );
    check("model:w sent late:50 crash", "CallModel CallTool(w) Finish(incomplete, deadline) | OUTCOME_UNKNOWN | needs_attention");
    check(
        "model:q sent wait:37 crash answer absent",
        "CallModel CallTool(q) CallModel(last deadline) CallModel(last deadline) Finish(completed, deadline) Reconcile(q) | OUTCOME_UNKNOWN | settled",
    );
}

#[test]
fn a_full_bulkhead_is_asked_once_more_if_the_session_has_begun() {
    check("fail:saturated", "CallModel Finish(failed, saturated)");
    check("retrieval nothing fail:saturated", "Retrieve CallModel Finish(failed, saturated)");
    check("model:1 tool fail:saturated answer", "CallModel CallTool CallModel CallModel Finish(completed, answered)");
    check("model:1 tool fail:saturated fail:saturated", "CallModel CallTool CallModel CallModel Finish(incomplete, saturated)");
    check("model_calls=2 model:1 tool fail:saturated", "CallModel CallTool CallModel(last model_calls) Finish(incomplete, model_calls)");
}

#[test]
fn a_model_that_fails_in_the_first_turn_fails_the_session() {
    for cause in ["unreachable", "overloaded", "rate_limited", "quota", "auth", "not_found", "protocol", "stream_broken"] {
        check(&format!("fail:{cause}"), &format!("CallModel Finish(failed, model_unavailable, {cause}) | | none"));
    }
    check("fail:rejected", "CallModel Finish(failed, model_rejected)");
    check("fail:context", "CallModel Finish(failed, context)");
    check("fail:filtered", "CallModel Finish(incomplete, content_filtered)");
    check("fail:abandoned", "CallModel Finish(failed, internal)");
    check("fail:internal", "CallModel Finish(failed, internal)");
    check("fail:mistake answer", "CallModel CallModel Finish(completed, answered)");
    check("fail:deadline answer", "CallModel CallModel(last deadline) Finish(completed, deadline)");
    check("fail:allowance answer", "CallModel CallModel(last model_attempts) Finish(completed, model_attempts)");
    check("model_calls=1 fail:mistake", "CallModel(last model_calls) Finish(incomplete, model_calls)");
    check("model_calls=1 fail:allowance", "CallModel(last model_calls) Finish(incomplete, model_calls)");
    check("model_calls=1 fail:deadline", "CallModel(last model_calls) Finish(incomplete, deadline)");
}

#[test]
fn text_that_was_passed_on_is_kept_when_the_model_breaks_off() {
    for fault in ["unreachable", "overloaded", "stream_broken"] {
        check(&format!("fail:{fault}+partial"), "CallModel Finish(incomplete, stream_interrupted, stream_broken)");
    }
    check("fail:deadline+partial", "CallModel Finish(incomplete, stream_interrupted)");
    check("fail:allowance+partial", "CallModel Finish(incomplete, stream_interrupted)");
    check("fail:filtered+partial", "CallModel Finish(incomplete, content_filtered)");
    check("model:1 tool fail:unreachable+partial", "CallModel CallTool CallModel Finish(incomplete, stream_interrupted, stream_broken)");
    for script in ["fail:unreachable+partial", "fail:deadline+partial", "fail:filtered+partial", "model:1 tool fail:stream_broken+partial"]
    {
        assert_eq!(play(script).driver.machine.verdict().unwrap().answer, Some(body(3, 40)), "{script}");
    }
}

#[test]
fn a_model_that_fails_in_a_later_turn_ends_the_session_with_what_there_is() {
    check("model:1 tool fail:unreachable", "CallModel CallTool CallModel Finish(failed, model_unavailable, unreachable) | OK");
    check("model:1 tool fail:rejected", "CallModel CallTool CallModel Finish(failed, model_rejected)");
    check("model:1 tool fail:context", "CallModel CallTool CallModel Finish(incomplete, context)");
    check("model:1 tool fail:filtered", "CallModel CallTool CallModel Finish(incomplete, content_filtered)");
    check("model:1 tool fail:mistake answer", "CallModel CallTool CallModel CallModel Finish(completed, answered)");
    check(
        "model:w sent tool fail:unreachable",
        "CallModel CallTool(w) CallModel Finish(failed, model_unavailable, unreachable) | OK | settled",
    );
    check("wait:37 fail:deadline", "CallModel Abandon CallModel(last deadline) Finish(incomplete, deadline)");
}

#[test]
fn history_is_shortened_oldest_tool_output_first_before_anything_else_gives_way() {
    let shortened = |script: &str| -> Vec<bool> {
        play(script).driver.machine.transcript().turns().iter().flat_map(|turn| &turn.calls).map(|call| call.shortened).collect()
    };
    check("transcript=3000 size:2000 model:1 tool model:1 tool", "CallModel CallTool CallModel CallTool CallModel");
    assert_eq!(shortened("transcript=3000 size:2000 model:1 tool model:1 tool"), [true, true]);
    assert_eq!(shortened("transcript=4000 size:2000 model:1 tool model:1 tool"), [true, false]);
    assert_eq!(shortened("transcript=9000 size:2000 model:1 tool model:1 tool"), [false, false]);
    check("window=4000 size:9000 model:1 tool answer", "CallModel CallTool CallModel Finish(completed, answered)");
    assert_eq!(shortened("window=4000 size:9000 model:1 tool"), [true]);
    assert_eq!(shortened("window=4000 size:1024 model:1 tool"), [false], "what is short enough stays whole");
    check("size:9000 model:1 tool fail:context answer", "CallModel CallTool CallModel CallModel Finish(completed, answered)");
    check("size:9000 model:1 tool fail:context fail:context", "CallModel CallTool CallModel CallModel Finish(incomplete, context)");
    assert_eq!(shortened("size:9000 model:1 tool fail:context"), [true]);
    // Rather a shortened history than no answer.
    check("total_tokens=6000 usage:300,400,1 size:20000 model:1 tool", "CallModel CallTool CallModel(last total_tokens)");
    assert_eq!(shortened("total_tokens=6000 usage:300,400,1 size:20000 model:1 tool"), [true]);
}

#[test]
fn a_command_is_lent_what_it_may_need_and_the_last_call_is_kept_back() {
    // 764 characters of instructions, input, tools and framing: 255 tokens; 2,048 of output; twice, since two may be sent.
    lent("", "a=2 t=4606 c=0 d=37000 output=2048");
    lent("attempts=1", "a=1 t=2303 c=0 d=37000 output=2048");
    lent("model_attempts=2", "a=1 t=2303 c=0 d=37000 output=2048");
    lent("stop model_attempts=2", "a=2 t=4606 c=0 d=37000 output=2048");
    lent("model_calls=1", "a=2 t=4606 c=0 d=44750 output=2048");
    lent("price=10,20", "a=2 t=4606 c=87020 d=37000 output=2048");
    // 6,000 less 255 in, 255 + 4,270 for ten shortened results + 256 out for the last: 964 are shared between this call's
    // output and its reading.
    lent("total_tokens=6000", "a=2 t=737 c=0 d=37000 output=482");
    lent("total_tokens=5500", "a=2 t=4606 c=0 d=44750 output=2048");
    lent("total_tokens=1000", "a=2 t=1000 c=0 d=44750 output=745");
    lent("no_tools total_tokens=6000", "a=2 t=3441 c=0 d=37000 output=2048");
    lent("model:1", "a=2 t=0 c=0 d=37000");
    lent("model:w", "a=1 t=0 c=0 d=37000");
    lent("tool_attempts=1 model:1", "a=1 t=0 c=0 d=37000");
    lent("tool_attempts=3 parallel_tools=1 model:3", "a=1 t=0 c=0 d=37000");
    lent("model:w sent tool:outcome_unknown model:q sent tool:outcome_unknown late:1 cancel:caller", "a=1 t=0 c=0 d=121000");
    lent("saga=cancelled model:d sent tool late:1 cancel:caller", "a=1 t=0 c=0 d=11000");
    lent("saga=cancelled model:c sent tool late:1 cancel:caller", "a=5 t=0 c=0 d=11000");
}

#[test]
fn tokens_are_estimated_at_a_third_of_the_characters_until_the_target_has_reported() {
    // 1,026 characters after one turn: a third is 342; at 250 for a thousand and a tenth more 283.
    lent("model:1 tool", "a=2 t=4780 c=0 d=37000 output=2048");
    lent("ratio:250 model:1 tool", "a=2 t=4662 c=0 d=37000 output=2048");
    lent("price=10,20 ratio:250 model:1 tool", "a=2 t=4662 c=87580 d=37000 output=2048");
}

#[test]
fn usage_above_its_estimate_is_metered_and_ends_the_session_at_the_next_step() {
    check(
        "total_tokens=6000 usage:5000,2000,1 model:w,r",
        "CallModel Finish(incomplete, total_tokens) | BUDGET_EXHAUSTED BUDGET_EXHAUSTED | none",
    );
    check(
        "price=1,1 cost_usd=6000 usage:5000,2000,1 model:2",
        "CallModel Finish(incomplete, cost_usd) | BUDGET_EXHAUSTED BUDGET_EXHAUSTED",
    );
    check("total_tokens=6000 usage:5000,2000,1 answer", "CallModel Finish(completed, answered)");
    let spent = *play("price=10,20 usage:500,200,2 answer").driver.machine.spent();
    assert_eq!((spent.tokens(), spent.cost.0, spent.model_attempts, spent.at_least), (700, 9_000, 2, false));
}

#[test]
fn the_verdict_comes_at_once_and_writes_that_were_sent_are_awaited_after_it() {
    check("model:w sent cancel:caller", "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | pending");
    check("model:w sent cancel:caller tool", "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | settled");
    check("model:w sent cancel:caller tool:tool_error", "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | settled");
    check(
        "model:w sent cancel:caller tool:outcome_unknown",
        "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | needs_attention",
    );
    check(
        "model:w1,w2 sent sent cancel:caller tool ~cancel:caller tool",
        "CallModel CallTool(w1) CallTool(w2) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN OUTCOME_UNKNOWN | settled",
    );
    assert_eq!(states(&play("model:w1,w2 sent sent tool cancel:caller tool:saturated")), [EffectState::Done, EffectState::Absent]);
}

#[test]
fn what_nobody_knows_is_asked_of_the_downstream_and_else_left_to_a_person() {
    let until = "CallModel CallTool(q) CallModel Finish(completed, answered) Reconcile(q) | OUTCOME_UNKNOWN";
    check("model:q sent tool:outcome_unknown answer found", &format!("{until} | settled"));
    check("model:q sent tool:outcome_unknown answer absent", &format!("{until} | settled"));
    check("model:q sent tool:outcome_unknown answer unknown", &format!("{until} | needs_attention"));
    check("model:q sent tool:outcome_unknown answer", &format!("{until} | pending"));
    check(
        "model:q1,q2 sent sent tool:outcome_unknown cancel:caller found tool:outcome_unknown absent",
        "CallModel CallTool(q1) CallTool(q2) Finish(cancelled, cancelled) Reconcile(q1) Reconcile(q2) | OUTCOME_UNKNOWN OUTCOME_UNKNOWN | settled",
    );
    assert_eq!(states(&play("model:w sent tool:outcome_unknown answer")), [EffectState::Attention]);
}

#[test]
fn a_saga_undoes_the_latest_turn_first_and_the_writes_of_one_turn_together() {
    let forward = "CallModel CallTool(c1) CallModel CallTool(c2) CallTool(c3) CallModel Abandon Finish(cancelled, cancelled)";
    let script = "saga=failed,cancelled model:c1 sent tool model:c2,c3 sent sent tool tool cancel:caller";
    check(script, &format!("{forward} Compensate(c3) Compensate(c2) | OK OK OK | pending"));
    check(&format!("{script} undone"), &format!("{forward} Compensate(c3) Compensate(c2)"));
    check(&format!("{script} undone undone"), &format!("{forward} Compensate(c3) Compensate(c2) Compensate(c1)"));
    check(
        &format!("{script} undone undone undone"),
        &format!("{forward} Compensate(c3) Compensate(c2) Compensate(c1) | OK OK OK | settled"),
    );
    check(
        &format!("{script} stuck undone undone"),
        &format!("{forward} Compensate(c3) Compensate(c2) Compensate(c1) | OK OK OK | needs_attention"),
    );
    check("saga=cancelled model:c sent tool answer", "CallModel CallTool(c) CallModel Finish(completed, answered) | OK | settled");
    check("model:c sent tool cancel:caller", "CallModel CallTool(c) CallModel Abandon Finish(cancelled, cancelled) | OK | settled");
    check(
        "saga=failed model:c sent tool fail:rejected undone",
        "CallModel CallTool(c) CallModel Finish(failed, model_rejected) Compensate(c) | OK | settled",
    );
    check(
        "saga=incomplete model:c sent tool cut undone",
        "CallModel CallTool(c) CallModel Finish(incomplete, output_truncated) Compensate(c) | OK | settled",
    );
}

#[test]
fn nothing_is_undone_before_every_outcome_is_known() {
    let forward = "CallModel CallTool(c1) CallTool(c2) Finish(cancelled, cancelled)";
    check("saga=cancelled model:c1,c2 sent sent tool cancel:caller", &format!("{forward} | OK OUTCOME_UNKNOWN | pending"));
    check("saga=cancelled model:c1,c2 sent sent tool cancel:caller tool", &format!("{forward} Compensate(c2) Compensate(c1)"));
    check(
        "saga=cancelled model:c1,c2 sent sent tool cancel:caller tool:saturated undone",
        &format!("{forward} Compensate(c1) | OK OUTCOME_UNKNOWN | settled"),
    );
    let unknown = "CallModel CallTool(m) CallModel Abandon Finish(cancelled, cancelled) Reconcile(m)";
    check(
        "saga=cancelled model:m sent tool:outcome_unknown cancel:caller found undone",
        &format!("{unknown} Compensate(m) | OUTCOME_UNKNOWN | settled"),
    );
    check("saga=cancelled model:m sent tool:outcome_unknown cancel:caller absent", &format!("{unknown} | OUTCOME_UNKNOWN | settled"));
    check(
        "saga=cancelled model:m sent tool:outcome_unknown cancel:caller unknown",
        &format!("{unknown} | OUTCOME_UNKNOWN | needs_attention"),
    );
    check(
        "saga=cancelled model:b sent tool:outcome_unknown cancel:caller undone",
        "CallModel CallTool(b) CallModel Abandon Finish(cancelled, cancelled) Compensate(b) | OUTCOME_UNKNOWN | settled",
    );
    check(
        "model:b sent tool:outcome_unknown cancel:caller",
        "CallModel CallTool(b) CallModel Abandon Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | needs_attention",
    );
}

#[test]
fn a_group_that_is_complete_is_left_alone() {
    check(
        "saga=cancelled group=c1,c2 model:c1,c2 tools cancel:caller",
        "CallModel CallTool(c1) CallTool(c2) CallModel Abandon Finish(cancelled, cancelled) | OK OK | settled",
    );
    check(
        "saga=cancelled group=c1,c2 model:c1 tools cancel:caller undone",
        "CallModel CallTool(c1) CallModel Abandon Finish(cancelled, cancelled) Compensate(c1) | OK | settled",
    );
    check(
        "saga=cancelled group=c1,c2 model:c1,c2,c3 tools cancel:caller undone",
        "CallModel CallTool(c1) CallTool(c2) CallTool(c3) CallModel Abandon Finish(cancelled, cancelled) Compensate(c3) | OK OK OK | settled",
    );
    // Decided once: undoing the one half does not make the other half look complete.
    check(
        "saga=cancelled group=c1,b1 model:c1 tools model:b1 sent tool:outcome_unknown cancel:caller undone undone",
        "CallModel CallTool(c1) CallModel CallTool(b1) CallModel Abandon Finish(cancelled, cancelled) Compensate(b1) Compensate(c1) | OK OUTCOME_UNKNOWN | settled",
    );
}

#[test]
fn what_an_irreversible_effect_seals_is_not_undone() {
    let forward = "CallModel CallTool(c) CallModel CallTool(i) CallModel Abandon Finish(cancelled, cancelled)";
    check("saga=cancelled model:c tools model:i tools cancel:caller", &format!("{forward} | OK OK | settled"));
    check(
        "saga=cancelled model:c tools model:i sent tool:outcome_unknown cancel:caller",
        &format!("{forward} | OK OUTCOME_UNKNOWN | needs_attention"),
    );
    check(
        "saga=cancelled model:c tools model:i sent tool:tool_error cancel:caller undone",
        &format!("{forward} Compensate(c) | OK TOOL_ERROR | settled"),
    );
    check(
        "saga=cancelled model:i tools model:c tools cancel:caller undone",
        "CallModel CallTool(i) CallModel CallTool(c) CallModel Abandon Finish(cancelled, cancelled) Compensate(c) | OK OK | settled",
    );
    // Also where its answer never came.
    check(
        "saga=cancelled model:c tools model:i sent cancel:caller crash",
        "CallModel CallTool(c) CallModel CallTool(i) Finish(cancelled, cancelled) | OK OUTCOME_UNKNOWN | needs_attention",
    );
    check(
        "saga=cancelled model:c tools model:i sent cancel:caller wait:120",
        "CallModel CallTool(c) CallModel CallTool(i) Finish(cancelled, cancelled) | OK OUTCOME_UNKNOWN | needs_attention",
    );
}

#[test]
fn what_cannot_be_undone_is_a_persons_and_never_a_success() {
    check(
        "saga=cancelled model:w tools cancel:caller",
        "CallModel CallTool(w) CallModel Abandon Finish(cancelled, cancelled) | OK | needs_attention",
    );
    check(
        "saga=cancelled model:c,w tools cancel:caller undone",
        "CallModel CallTool(c) CallTool(w) CallModel Abandon Finish(cancelled, cancelled) Compensate(c) | OK OK | needs_attention",
    );
    check(
        "saga=cancelled model:c1 tools model:c2 tools cancel:caller stuck undone",
        "CallModel CallTool(c1) CallModel CallTool(c2) CallModel Abandon Finish(cancelled, cancelled) Compensate(c2) Compensate(c1) | OK OK | needs_attention",
    );
}

#[test]
fn a_settlement_has_deadlines_of_its_own() {
    check("model:w sent cancel:caller wait:119", "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | pending");
    check(
        "model:w sent cancel:caller wait:120 ~tool",
        "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | needs_attention",
    );
    check(
        "model:q sent tool:outcome_unknown answer wait:120 ~found",
        "CallModel CallTool(q) CallModel Finish(completed, answered) Reconcile(q) | OUTCOME_UNKNOWN | needs_attention",
    );
    let forward = "CallModel CallTool(c) CallModel Abandon Finish(cancelled, cancelled) Compensate(c)";
    check("saga=cancelled model:c tools cancel:caller wait:9", &format!("{forward} | OK | pending"));
    check("saga=cancelled model:c tools cancel:caller wait:10 ~undone", &format!("{forward} | OK | needs_attention"));
    // Time for two: the second is begun with what the first has left, and none is begun after it.
    let two = "CallModel CallTool(c1) CallModel CallTool(c2) CallModel Abandon Finish(cancelled, cancelled) Compensate(c2)";
    check(
        "saga=cancelled model:c1 tools model:c2 tools cancel:caller late:19 undone undone",
        &format!("{two} Compensate(c1) | OK OK | settled"),
    );
    check("saga=cancelled model:c1 tools model:c2 tools cancel:caller wait:20", &format!("{two} | OK OK | needs_attention"));
    lent("saga=cancelled model:c1 tools model:c2 tools cancel:caller late:19 undone", "a=5 t=0 c=0 d=20000");
    // What answered in time is undone also where something else never answered.
    check(
        "saga=cancelled model:c1,c2 sent sent tool cancel:caller wait:120 undone",
        "CallModel CallTool(c1) CallTool(c2) Finish(cancelled, cancelled) Compensate(c1) | OK OUTCOME_UNKNOWN | needs_attention",
    );
}

#[test]
fn a_settlement_goes_on_after_a_crash() {
    check(
        "model:q sent cancel:caller crash found",
        "CallModel CallTool(q) Finish(cancelled, cancelled) Reconcile(q) | OUTCOME_UNKNOWN | settled",
    );
    check("model:w sent cancel:caller crash", "CallModel CallTool(w) Finish(cancelled, cancelled) | OUTCOME_UNKNOWN | needs_attention");
    check(
        "model:q sent tool:outcome_unknown answer crash found",
        "CallModel CallTool(q) CallModel Finish(completed, answered) Reconcile(q) Reconcile(q) | OUTCOME_UNKNOWN | settled",
    );
    check(
        "saga=cancelled model:c tools cancel:caller crash undone",
        "CallModel CallTool(c) CallModel Abandon Finish(cancelled, cancelled) Compensate(c) Compensate(c) | OK | settled",
    );
    check(
        "saga=cancelled model:d tools cancel:caller crash",
        "CallModel CallTool(d) CallModel Abandon Finish(cancelled, cancelled) Compensate(d) | OK | needs_attention",
    );
}

#[test]
fn an_answer_to_another_question_settles_nothing() {
    let reconciling = play("model:q sent tool:outcome_unknown answer").driver;
    let step = Step(4);
    assert_eq!({ reconciling.machine.clone() }.handle(Event::Compensated { step, undone: true }, 0).0, Heard::Late);
    assert_eq!({ reconciling.machine.clone() }.handle(Event::Reconciled { step, finding: Finding::Found }, 0).0, Heard::Applied);
    let compensating = play("saga=cancelled model:c tools cancel:caller").driver;
    assert_eq!({ compensating.machine.clone() }.handle(Event::Reconciled { step, finding: Finding::Found }, 0).0, Heard::Late);
    assert_eq!({ compensating.machine.clone() }.handle(Event::Compensated { step: Step(9), undone: true }, 0).0, Heard::Invalid);
}

#[test]
fn the_verdict_keeps_the_last_words_and_says_whether_a_repetition_is_free() {
    let verdict = |script: &str| *play(script).driver.machine.verdict().unwrap();
    for script in [
        "fail:unreachable",
        "fail:saturated",
        "cancel:caller",
        "model:65",
        "retrieval cancel:caller",
        "late:45 wake",
        "fail:unreachable+partial",
    ] {
        assert!(verdict(script).untouched, "{script}");
    }
    for script in ["answer", "empty empty", "model:r! fail:unreachable", "model:1 cancel:caller", "filtered"] {
        assert!(!verdict(script).untouched, "{script}");
    }
    assert_eq!(verdict("cut").answer, Some(body(101, 30)));
    assert_eq!(verdict("answer").answer, Some(body(101, 30)));
    assert_eq!(verdict("fail:rejected").answer, None);
    assert_eq!(verdict("model:1 tool cancel:caller").answer, None);
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

#[test]
fn a_session_is_closed_once_its_effects_are_settled() {
    let closed = |script: &str| (play(script).driver.machine.is_closed(), play(script).driver.machine.settlement());
    assert_eq!(closed("answer"), (true, Settlement::None));
    assert_eq!(closed("model:w sent"), (false, Settlement::Pending));
    assert_eq!(closed("model:w sent cancel:caller"), (false, Settlement::Pending));
    assert_eq!(closed("model:w sent cancel:caller tool"), (true, Settlement::Settled));
    assert_eq!(closed("model:w sent crash answer"), (true, Settlement::NeedsAttention));
}
