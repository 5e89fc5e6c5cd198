//! A model that fails: saturated, in the first turn, in a later one, in mid-sentence.

use super::check;
use crate::kit::{body, play};

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
    check("fail:deadline+partial", "CallModel Finish(incomplete, deadline)");
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
