//! The dialect `anthropic`: answers that are whole turns, and what is none.

use ambit_core::Cause::*;
use ambit_core::session::ModelFault::*;
use serde_json::Value;

use super::failures::check_of;
use super::upstream::{events, events_then, json as plain, *};
use super::*;

/// A stream's beginning: what it read is known, what it writes is not.
fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m-1",
        "stop_reason": null, "usage": {"input_tokens": 6, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 1, "output_tokens": 1}}})
}

fn open(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn add(index: u64, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn close(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn stop(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 4}})
}

fn end() -> Value {
    json!({"type": "message_stop"})
}

fn say(text: &str) -> Value {
    add(0, &json!({"type": "text_delta", "text": text}))
}

/// A whole stream of these words, with everything around them that the API sends.
fn words(text: &[&str]) -> Vec<Value> {
    let mut all = vec![start(), open(0, &json!({"type": "text", "text": ""})), json!({"type": "ping"})];
    all.extend(text.iter().map(|text| say(text)));
    all.extend([close(0), json!({"type": "something_new", "delta": {"x": [1]}}), stop("end_turn"), end()]);
    all
}

fn message(content: &Value, reason: &str) -> Vec<Act> {
    plain(
        &json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": content, "stop_reason": reason,
            "usage": {"input_tokens": 6, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 1, "output_tokens": 4}})
        .to_string(),
    )
}

#[tokio::test]
async fn an_answer_comes_with_its_usage_plain_and_streamed() {
    for (heard, acts) in
        [(false, message(&json!([{"type": "text", "text": "41 units"}]), "end_turn")), (true, events(&words(&["41 ", "units"])))]
    {
        let upstream = Upstream::answers(acts).await;
        let kit = Build::anthropic(vec![upstream.url()]).kit();
        let outcome = kit.run(if heard { kit.heard_call() } else { kit.call() }).await;
        let turn = outcome.result.as_ref().unwrap();
        assert_eq!((turn.text.as_deref(), turn.calls.len(), turn.finish), (Some("41 units"), 0, FinishReason::Stop));
        assert_eq!((&*turn.model, turn.input_tokens, turn.output_tokens), ("m-1", 10, 4));
        let record = &outcome.attempts[0];
        assert_eq!((&*record.code, record.cost, record.at_least), ("ok", Money(7 * 2 + 3 + 4 * 10), false));
        assert_eq!(kit.heard.text(), if heard { "41 units" } else { "" });

        let request = &upstream.requests()[0];
        for line in ["post /v1/messages ", "x-api-key: sk-test", "anthropic-version: 2023-06-01", "x-extra: more"] {
            assert!(request.head.contains(line), "{}", request.head);
        }
        assert!(!request.head.contains("authorization"), "{}", request.head);
        assert_eq!(request.body["system"], "be brief");
        assert_eq!((&request.body["max_tokens"], request.body.get("stream").is_some()), (&json!(100), heard));
    }
}

#[tokio::test]
async fn calls_and_thoughts_come_whole_and_go_back() {
    let thought = json!({"type": "thinking", "thinking": "hm, 41", "signature": "c2ln"});
    let hidden = json!({"type": "redacted_thinking", "data": "eA=="});
    let whole = json!([thought, hidden, {"type": "text", "text": "So:"}, {"type": "server_tool_use", "id": "s", "name": "search", "input": {}},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"part": 7}}, {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}}]);
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {}});
    let json_delta = |part: &str| json!({"type": "input_json_delta", "partial_json": part});
    let streamed = [
        start(),
        open(0, &json!({"type": "thinking", "thinking": "", "signature": ""})),
        add(0, &json!({"type": "thinking_delta", "thinking": "hm, "})),
        add(0, &json!({"type": "thinking_delta", "thinking": "41"})),
        add(0, &json!({"type": "signature_delta", "signature": "c2ln"})),
        close(0),
        open(1, &hidden),
        close(1),
        open(2, &json!({"type": "text", "text": ""})),
        add(2, &json!({"type": "text_delta", "text": "So:"})),
        close(2),
        open(3, &json!({"type": "server_tool_use", "id": "s", "name": "search", "input": {}})),
        add(3, &json_delta("{\"query\":1}")),
        close(3),
        open(4, &call("toolu_1")),
        add(4, &json_delta("")),
        add(4, &json_delta("{\"part\"")),
        add(4, &json_delta(":7}")),
        close(4),
        open(5, &call("toolu_2")),
        add(5, &json_delta("")),
        close(5),
        stop("tool_use"),
        end(),
    ];
    for (heard, acts) in [(false, message(&whole, "tool_use")), (true, events(&streamed))] {
        let upstream = Upstream::answers(acts).await;
        let mut kit = Build::anthropic(vec![upstream.url()]).kit().with_tools();
        let turn = kit.run(if heard { kit.heard_call() } else { kit.call() }).await.result.unwrap();
        let calls: Vec<_> = turn.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!(calls, [("toolu_1", "look", "{\"part\":7}"), ("toolu_2", "look", "{}")]);
        assert_eq!(kit.heard.text(), "", "words before calls are no answer");

        kit.conversation.push_assistant(turn.text, turn.calls, turn.carry);
        kit.conversation.push_tool_result("toolu_1", "look", "one");
        kit.conversation.push_tool_result("toolu_2", "look", "two");
        kit.run(ModelCall { tool_choice: ToolChoice::None, notice: Some("hurry"), ..kit.call() }).await.result.unwrap();
        let sent = &upstream.requests()[1].body;
        let tool_use = |id: &str, input: Value| json!({"type": "tool_use", "id": id, "name": "look", "input": input});
        assert_eq!(
            sent["messages"][1]["content"],
            json!([thought, hidden, {"type": "text", "text": "So:"}, tool_use("toolu_1", json!({"part": 7})), tool_use("toolu_2", json!({}))])
        );
        assert_eq!(sent["messages"][2]["content"][1]["content"], "two\n\nhurry");
        assert_eq!((&sent["tool_choice"], sent["tools"].as_array().unwrap().len()), (&json!({"type": "none"}), 1));
    }
}

#[tokio::test]
async fn no_more_calls_are_kept_than_it_takes_to_see_that_there_are_too_many() {
    for (asked, kept) in [(64, 64), (65, 65), (70, 65)] {
        let calls: Vec<_> = (0..asked).map(|n| json!({"type": "tool_use", "id": format!("c{n}"), "name": "look", "input": {}})).collect();
        let upstream = Upstream::answers(message(&json!(calls), "tool_use")).await;
        let kit = Build::anthropic(vec![upstream.url()]).kit().with_tools();
        assert_eq!(kit.run(kit.call()).await.result.unwrap().calls.len(), kept, "{asked}");
    }
}

#[tokio::test]
async fn reasons_to_stop_are_read_and_unknown_ones_are_borne() {
    for (reason, expected) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("tool_use", FinishReason::Stop),
        ("whatever_comes", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("pause_turn", FinishReason::Length),
        ("refusal", FinishReason::Refusal),
    ] {
        let mut streamed = words(&["a"]);
        let at = streamed.len() - 2;
        streamed[at] = stop(reason);
        for acts in [message(&json!([{"type": "text", "text": "a"}]), reason), events(&streamed)] {
            let upstream = Upstream::answers(acts).await;
            let kit = Build::anthropic(vec![upstream.url()]).kit();
            let turn = kit.run(kit.heard_call()).await.result.unwrap();
            assert_eq!((turn.finish, turn.text.as_deref()), (expected, Some("a")), "{reason}");
        }
    }
}

#[tokio::test]
async fn every_sufficient_end_of_a_stream_is_one() {
    let all = words(&["41"]);
    let (unmarked, without_reason) = (&all[..all.len() - 1], [&all[..all.len() - 2], &[end()]].concat());
    for acts in [
        events(unmarked),
        events(&without_reason),
        events_then(unmarked, Act::Reset),
        events_then(unmarked, Act::Close),
        events_then(&all, Act::Hang),
    ] {
        let upstream = Upstream::answers(acts.clone()).await;
        let kit = Build::anthropic(vec![upstream.url()]).kit();
        let outcome = kit.run(kit.heard_call()).await;
        assert_eq!(outcome.result.unwrap_or_else(|failure| panic!("{acts:?}: {failure:?}")).text.as_deref(), Some("41"));
    }
}

#[tokio::test]
async fn what_is_no_turn_is_told_apart() {
    let check = async |acts, fault, codes: &[&str], words| check_of(Build::anthropic, acts, fault, codes, words).await;
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "no luck"}});
    let said = || vec![start(), open(0, &json!({"type": "text", "text": ""})), say("41 ")];
    let twice = |code: &'static str| [code, code];

    // An error in a stream, before its first token and after.
    check(events(&[start(), error("overloaded_error")]), Unavailable(Overloaded), &twice("http_503"), "no luck").await;
    check(events(&[error("rate_limit_error")]), Unavailable(RateLimited), &twice("http_429"), "no luck").await;
    check(events(&[error("api_error")]), Unavailable(Unreachable), &twice("http_500"), "no luck").await;
    check(events(&[error("authentication_error")]), Unavailable(Auth), &["http_401"], "no luck").await;
    check(events(&[error("billing_error")]), Unavailable(Quota), &["out_of_quota"], "no luck").await;
    check(events(&[error("invented_error")]), Unavailable(Protocol), &twice("error_in_success"), "no luck").await;
    check(events(&[said(), vec![error("overloaded_error")]].concat()), Unavailable(StreamBroken), &twice("http_503"), "no luck").await;

    // Refusals by status.
    let refused = |status, kind: &str| response(status, "content-type: application/json", &error(kind).to_string());
    check(refused(529, "overloaded_error"), Unavailable(Overloaded), &twice("http_529"), "no luck").await;
    check(refused(400, "invalid_request_error"), Rejected, &["http_400"], "no luck").await;
    check(refused(413, "request_too_large"), Context, &["context_length"], "no luck").await;
    check(refused(404, "not_found_error"), Unavailable(NotFound), &["http_404"], "/messages").await;

    // Breaks, silence and nonsense.
    check(events(&said()), Unavailable(StreamBroken), &twice("stream_broken"), "end mark").await;
    check(events_then(&said(), Act::Close), Unavailable(StreamBroken), &twice("reset"), "in the middle of the answer").await;
    check(events(&[]), Unavailable(StreamBroken), &twice("stream_broken"), "end mark").await;
    check(events(&[json!({"type": "ping"})]), Unavailable(Protocol), &twice("malformed"), "no message").await;
    check(plain("{}"), Unavailable(Protocol), &twice("malformed"), "no message").await;
    check(plain(r#"{"content":7}"#), Unavailable(Protocol), &twice("malformed"), "no message").await;
    check(plain("null"), Unavailable(Protocol), &twice("malformed"), "null").await;
    check(plain("{\"content\":"), Unavailable(Protocol), &twice("malformed"), "no JSON").await;
    check(plain(&completion("{\"content\":\"hi\"}", "stop")), Unavailable(Protocol), &twice("malformed"), "no message").await;
}

#[tokio::test]
async fn pings_keep_no_dead_stream_alive() {
    let mut acts =
        events_then(&[start(), open(0, &json!({"type": "text", "text": ""})), say("41 ")], Act::Wait(Duration::from_millis(100)));
    let ping = event(&json!({"type": "ping"}));
    for _ in 0..3 {
        acts.push(Act::Send(format!("{:x}\r\n{ping}\r\n", ping.len()).into_bytes()));
        acts.push(Act::Wait(Duration::from_millis(100)));
    }
    acts.push(Act::Hang);
    let upstream = Upstream::answers(acts).await;
    let mut build = Build::anthropic(vec![upstream.url()]);
    build.target.chunk = Duration::from_millis(200);
    build.target.retry.attempts = NonZeroU32::MIN;
    let kit = build.kit();
    let outcome = kit.run(kit.heard_call()).await;
    assert_eq!((codes(&outcome), outcome.result.unwrap_err().fault), ("timeout_chunk".to_owned(), Unavailable(StreamBroken)));
    assert!(outcome.attempts[0].ms < 350, "{:?}", outcome.attempts);
    assert!(outcome.attempts[0].at_least, "what the beginning says of the output is not all of it");
}
