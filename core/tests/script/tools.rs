//! Tools: side by side, in order, refused, looping, tainted, irreversible, asked about.

use ambit_core::Step;
use ambit_core::session::{Command, Decision, Event};

use super::check;
use crate::kit::play;

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
    let (_, commands) = { play.driver.machine.clone() }.handle(Event::ApprovalDecided { step: Step(2), decision: Decision::Approve }, 0);
    assert!(matches!(&commands[..], [Command::CallTool { arguments: ran, .. }] if ran == arguments));
}
