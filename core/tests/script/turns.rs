//! Turns: what the model says, and what a session begins with.

use ambit_core::Settlement;

use super::check;
use crate::kit::{body, play};

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
fn a_session_is_closed_once_its_effects_are_settled() {
    let closed = |script: &str| (play(script).driver.machine.is_closed(), play(script).driver.machine.settlement());
    assert_eq!(closed("answer"), (true, Settlement::None));
    assert_eq!(closed("model:w sent"), (false, Settlement::Pending));
    assert_eq!(closed("model:w sent cancel:caller"), (false, Settlement::Pending));
    assert_eq!(closed("model:w sent cancel:caller tool"), (true, Settlement::Settled));
    assert_eq!(closed("model:w sent crash answer"), (true, Settlement::NeedsAttention));
}
