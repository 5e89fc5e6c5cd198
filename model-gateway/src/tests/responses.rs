//! The dialect `openai_responses`: answers that are whole turns, and what is none.

use ambit_core::Cause::*;
use ambit_core::session::ModelFault::*;
use serde_json::Value;

use super::failures::check_of;
use super::upstream::{events, events_then, json as plain, *};
use super::*;

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn call(id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "look", "arguments": arguments, "status": "completed"})
}

fn reasoning(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "e"})
}

/// A response that ended so with these items.
fn response_of(status: &str, output: &[Value]) -> Value {
    json!({"id": "resp_1", "object": "response", "status": status, "error": null, "incomplete_details": null, "model": "m-1", "output": output,
        "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 3}, "output_tokens": 4, "total_tokens": 14}})
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "model": "m-1", "output": [], "usage": null}})
}

fn added(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn say(text: &str) -> Value {
    json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text})
}

fn completed(output: &[Value]) -> Value {
    json!({"type": "response.completed", "response": response_of("completed", output)})
}

/// A whole stream of these words, with everything around them that the API sends, but for its last event.
fn words(text: &[&str]) -> Vec<Value> {
    let part = json!({"type": "response.content_part.added", "output_index": 0, "part": {"type": "output_text", "text": ""}});
    let mut all = vec![created(), added(0, &json!({"type": "message", "content": []})), part];
    all.extend(text.iter().map(|text| say(text)));
    all.extend([json!({"type": "response.something_new", "delta": 7}), done(0, &message(&text.concat()))]);
    all
}

fn whole(output: &[Value]) -> Vec<Act> {
    plain(&response_of("completed", output).to_string())
}

#[tokio::test]
async fn an_answer_comes_with_its_usage_plain_and_streamed() {
    let streamed = [words(&["41 ", "units"]), vec![completed(&[message("41 units")])]].concat();
    for (heard, acts) in [(false, whole(&[message("41 units")])), (true, events(&streamed))] {
        let upstream = Upstream::answers(acts).await;
        let kit = Build::responses(vec![upstream.url()]).kit();
        let outcome = kit.run(if heard { kit.heard_call() } else { kit.call() }).await;
        let turn = outcome.result.as_ref().unwrap();
        assert_eq!((turn.text.as_deref(), turn.calls.len(), turn.finish), (Some("41 units"), 0, FinishReason::Stop));
        assert_eq!((&*turn.model, turn.input_tokens, turn.output_tokens), ("m-1", 10, 4));
        let record = &outcome.attempts[0];
        assert_eq!((&*record.code, record.cost, record.at_least), ("ok", Money(7 * 2 + 3 + 4 * 10), false));
        assert_eq!(kit.heard.text(), if heard { "41 units" } else { "" });

        let request = &upstream.requests()[0];
        for line in ["post /v1/responses ", "authorization: bearer sk-test", "x-extra: more"] {
            assert!(request.head.contains(line), "{}", request.head);
        }
        assert_eq!((&request.body["store"], &request.body["instructions"]), (&json!(false), &json!("be brief")));
        assert_eq!((&request.body["max_output_tokens"], request.body.get("stream").is_some()), (&json!(100), heard));
    }
}

#[tokio::test]
async fn calls_and_reasoning_come_whole_and_go_back() {
    let output =
        [reasoning("rs_1"), message("So:"), call("c1", "{\"part\":7}"), json!({"type": "web_search_call", "id": "w"}), call("c2", "{}")];
    let arguments = |kind: &str, member: &str, text: &str| json!({"type": format!("response.function_call_arguments.{kind}"), "output_index": 2, member: text});
    let streamed = vec![
        created(),
        added(0, &json!({"type": "reasoning", "id": "rs_1", "summary": []})),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"}),
        done(0, &output[0]),
        added(1, &json!({"type": "message", "content": []})),
        say("So:"),
        done(1, &output[1]),
        added(2, &call("c1", "")),
        arguments("delta", "delta", "{\"part\""),
        arguments("delta", "delta", ":7}"),
        arguments("done", "arguments", "{\"part\":7}"),
        done(2, &output[2]),
        added(3, &output[3]),
        done(3, &output[3]),
        added(4, &call("c2", "")),
        done(4, &output[4]),
    ];
    let with_end = |last: &[Value]| [streamed.clone(), vec![completed(last)]].concat();
    // Some servers leave out at the end what they have streamed.
    for acts in [whole(&output), events(&with_end(&output)), events(&with_end(&[]))] {
        let upstream = Upstream::answers(acts).await;
        let mut kit = Build::responses(vec![upstream.url()]).kit().with_tools();
        let turn = kit.run(kit.heard_call()).await.result.unwrap();
        let calls: Vec<_> = turn.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!(calls, [("c1", "look", "{\"part\":7}"), ("c2", "look", "{}")]);
        assert_eq!(kit.heard.text(), "", "words before calls are no answer");

        kit.conversation.push_assistant(turn.text, turn.calls, turn.carry);
        kit.conversation.push_tool_result("c1", "look", "one");
        kit.conversation.push_tool_result("c2", "look", "two");
        kit.run(ModelCall { tool_choice: ToolChoice::None, notice: Some("hurry"), ..kit.call() }).await.result.unwrap();
        let sent = &upstream.requests()[1].body;
        let function_call =
            |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "look", "arguments": arguments});
        assert_eq!(
            sent["input"].as_array().unwrap()[1..],
            [
                reasoning("rs_1"),
                json!({"type": "message", "role": "assistant", "content": "So:"}),
                function_call("c1", "{\"part\":7}"),
                function_call("c2", "{}"),
                json!({"type": "function_call_output", "call_id": "c1", "output": "one"}),
                json!({"type": "function_call_output", "call_id": "c2", "output": "two\n\nhurry"}),
            ]
        );
        assert_eq!((&sent["tool_choice"], sent["tools"].as_array().unwrap().len()), (&json!("none"), 1));
    }
}

#[tokio::test]
async fn reasoning_that_means_nothing_elsewhere_stays_away() {
    let bare = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let upstream = Upstream::answers(whole(&[bare, call("c1", "{}")])).await;
    let kit = Build::responses(vec![upstream.url()]).kit().with_tools();
    assert_eq!(kit.run(kit.call()).await.result.unwrap().carry, None);
}

#[tokio::test]
async fn no_more_calls_are_kept_than_it_takes_to_see_that_there_are_too_many() {
    for (asked, kept) in [(64, 64), (65, 65), (70, 65)] {
        let calls: Vec<_> = (0..asked).map(|n| json!({"type": "function_call", "call_id": format!("c{n}"), "name": "look"})).collect();
        let upstream = Upstream::answers(whole(&calls)).await;
        let kit = Build::responses(vec![upstream.url()]).kit().with_tools();
        assert_eq!(kit.run(kit.call()).await.result.unwrap().calls.len(), kept, "{asked}");
    }
}

#[tokio::test]
async fn how_a_response_ended_is_read() {
    let incomplete = |reason: &str| {
        let mut response = response_of("incomplete", &[message("a")]);
        response["incomplete_details"] = json!({"reason": reason});
        response
    };
    let refusal = json!({"type": "message", "content": [{"type": "refusal", "refusal": "I won't"}]});
    for (response, expected, text) in [
        (response_of("completed", &[message("a")]), FinishReason::Stop, "a"),
        (response_of("whatever_comes", &[message("a")]), FinishReason::Stop, "a"),
        (incomplete("max_output_tokens"), FinishReason::Length, "a"),
        (incomplete("content_filter"), FinishReason::ContentFilter, "a"),
        (incomplete("whatever_comes"), FinishReason::Length, "a"),
        (response_of("completed", &[refusal]), FinishReason::Refusal, "I won't"),
    ] {
        let kind = if response["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        let last = json!({"type": kind, "response": response});
        for acts in [plain(&response.to_string()), events(&[created(), last])] {
            let upstream = Upstream::answers(acts).await;
            let kit = Build::responses(vec![upstream.url()]).kit();
            let turn = kit.run(kit.heard_call()).await.result.unwrap();
            assert_eq!((turn.finish, turn.text.as_deref()), (expected, Some(text)), "{response}");
            assert_eq!(kit.heard.text(), text, "words that only the end has are passed on as well");
        }
    }
}

#[tokio::test]
async fn every_sufficient_end_of_a_stream_is_one() {
    let all = words(&["41"]);
    let marked = |last: Value| [all.clone(), vec![last]].concat();
    let unmarked = events(&all);
    let mut by_proxy: Vec<_> = all.iter().map(event).collect();
    by_proxy.push("data: [DONE]\n\n".to_owned());
    for acts in [
        events(&marked(completed(&[message("41")]))),
        events(&marked(completed(&[]))),
        events(&marked(completed(&[message("41 units")]))),
        events_then(&marked(completed(&[message("41")])), Act::Hang),
        sse(&by_proxy.iter().map(String::as_str).collect::<Vec<_>>()),
        // The end never comes, and yet every item is whole and the stream ended in good order.
        unmarked,
    ] {
        let upstream = Upstream::answers(acts.clone()).await;
        let kit = Build::responses(vec![upstream.url()]).kit();
        let outcome = kit.run(kit.heard_call()).await;
        let text = outcome.result.unwrap_or_else(|failure| panic!("{acts:?}: {failure:?}")).text;
        assert_eq!(text.as_deref(), Some(&*kit.heard.text()), "what is kept is what was read");
        assert!(text.is_some_and(|text| text.starts_with("41")));
    }
}

#[tokio::test]
async fn what_is_no_turn_is_told_apart() {
    let check = async |acts, fault, codes: &[&str], words| check_of(Build::responses, acts, fault, codes, words).await;
    let error = |code: &str| json!({"type": "error", "code": code, "message": "no luck", "param": null, "sequence_number": 1});
    let failed = |code: &str| {
        let mut response = response_of("failed", &[]);
        response["error"] = json!({"code": code, "message": "no luck"});
        json!({"type": "response.failed", "response": response})
    };
    let said = || vec![created(), added(0, &json!({"type": "message", "content": []})), say("41 ")];
    let twice = |code: &'static str| [code, code];

    // An error in a stream, before its first token and after, and a response that failed.
    check(events(&[created(), error("server_error")]), Unavailable(Unreachable), &twice("http_500"), "no luck").await;
    check(events(&[error("rate_limit_exceeded")]), Unavailable(RateLimited), &twice("http_429"), "no luck").await;
    check(events(&[error("context_length_exceeded")]), Context, &["context_length"], "no luck").await;
    check(
        events(&[json!({"type": "error", "error": {"code": "insufficient_quota", "message": "no luck"}})]),
        Unavailable(Quota),
        &["out_of_quota"],
        "no luck",
    )
    .await;
    check(events(&[created(), failed("server_error")]), Unavailable(Unreachable), &twice("http_500"), "no luck").await;
    check(events(&[created(), failed("invalid_prompt")]), Rejected, &["http_400"], "no luck").await;
    check(plain(&failed("server_error")["response"].to_string()), Unavailable(Unreachable), &twice("http_500"), "no luck").await;
    check(events(&[said(), vec![error("server_error")]].concat()), Unavailable(StreamBroken), &twice("http_500"), "no luck").await;
    check(plain(&response_of("cancelled", &[]).to_string()), Unavailable(Protocol), &twice("error_in_success"), "`cancelled`").await;

    // Breaks, silence and nonsense.
    check(events(&said()), Unavailable(StreamBroken), &twice("stream_broken"), "end mark").await;
    check(events_then(&said(), Act::Close), Unavailable(StreamBroken), &twice("reset"), "in the middle of the answer").await;
    // Words may do without an end mark, calls may not.
    check(
        events(&[created(), added(0, &call("c1", "")), done(0, &call("c1", "{}"))]),
        Unavailable(StreamBroken),
        &twice("stream_broken"),
        "end mark",
    )
    .await;
    check(plain(&response_of("in_progress", &[]).to_string()), Unavailable(StreamBroken), &twice("stream_broken"), "end mark").await;
    check(events(&[]), Unavailable(StreamBroken), &twice("stream_broken"), "end mark").await;
    check(events(&[created()]), Unavailable(Protocol), &twice("malformed"), "no output").await;
    check(plain("{}"), Unavailable(Protocol), &twice("malformed"), "no output").await;
    check(plain(r#"{"output":7}"#), Unavailable(Protocol), &twice("malformed"), "no response").await;
    check(plain("null"), Unavailable(Protocol), &twice("malformed"), "null").await;
    check(plain(&completion("{\"content\":\"hi\"}", "stop")), Unavailable(Protocol), &twice("malformed"), "no output").await;
}

#[tokio::test]
async fn an_empty_response_is_a_turn_without_words() {
    let upstream = Upstream::answers(whole(&[])).await;
    let kit = Build::responses(vec![upstream.url()]).kit();
    let outcome = kit.run(kit.call()).await;
    assert_eq!((codes(&outcome), outcome.result.unwrap().input_tokens), ("empty".to_owned(), 10));
}
