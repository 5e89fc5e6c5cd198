//! Limits: the last affordable call, what is lent, and what happens where nothing is left.

use super::{check, lent};
use crate::kit::play;

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
