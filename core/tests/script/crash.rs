//! Crashes: what runs again, what is asked again, what is charged, and when it is enough.

use ambit_core::Step;
use ambit_core::session::{Command, Event};

use super::check;
use crate::kit::{Entry, play};

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
    let resumed = |entry: &&Entry| entry.event == Event::Resumed;
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
