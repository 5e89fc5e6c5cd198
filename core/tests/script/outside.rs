//! From outside: cancellation by everyone, and limits that are tightened.

use super::check;

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
