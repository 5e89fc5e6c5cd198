//! Answers of every form that is a whole turn.

use super::upstream::*;
use super::*;

fn strs(pieces: &[String]) -> Vec<&str> {
    pieces.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn a_plain_answer_comes_with_its_usage_and_a_request_with_its_deadline() {
    let upstream = Upstream::answers(json(&completion("{\"role\":\"assistant\",\"content\":\"41 units\"}", "stop"))).await;
    let kit = Build::chat(vec![upstream.url()]).kit();
    let outcome = kit.run(kit.call()).await;

    let turn = outcome.result.as_ref().unwrap();
    assert_eq!((turn.text.as_deref(), turn.calls.len(), turn.finish), (Some("41 units"), 0, FinishReason::Stop));
    assert_eq!((&*turn.served_by, &*turn.model), ("primary", "m-1"));
    // "be brief" and "hello", each with what the machine adds for framing.
    assert_eq!((turn.input_tokens, turn.output_tokens, turn.tokens_per_kchar), (10, 4, Some(10_000 / (8 + 32 + 5 + 32))));
    let record = &outcome.attempts[0];
    assert_eq!((&*record.code, record.input_tokens, record.output_tokens, record.at_least), ("ok", 10, 4, false));
    assert_eq!(record.cost, Money(4 * 2 + 6 + 4 * 10));

    let request = &upstream.requests()[0];
    assert!(request.head.starts_with("post /v1/chat/completions http/1.1"), "{}", request.head);
    let header = |name: &str| request.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap();
    assert_eq!((header("authorization"), header("x-extra"), header("content-type")), ("bearer sk-test", "more", "application/json"));
    // The call may take `request` 30 s, less the margin of 150 ms.
    let left: u64 = header("x-request-timeout-ms").parse().unwrap();
    assert!((28_000..=29_850).contains(&left), "{left}");
    assert!(header("x-request-deadline").starts_with("2027-01-15t08:00:2"), "{}", header("x-request-deadline"));
    assert_eq!(request.body["messages"], json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]));
    assert_eq!((&request.body["max_tokens"], request.body.get("stream")), (&json!(100), None));
}

#[tokio::test]
async fn a_stream_is_passed_on_as_it_comes_and_its_connection_serves_the_next_call() {
    let mut acts = sse_open(&strs(&words(&["41 ", "units"])));
    // The end of the body is a little behind the end of the answer, as it often is.
    acts.extend([Act::Wait(Duration::from_millis(5)), Act::Send(b"0\r\n\r\n".to_vec())]);
    let upstream = Upstream::answers(acts).await;
    let kit = Build::chat(vec![upstream.url()]).kit();
    for _ in 0..2 {
        let outcome = kit.run(kit.heard_call()).await;
        let turn = outcome.result.unwrap();
        assert_eq!((turn.text.as_deref(), turn.input_tokens, turn.output_tokens), (Some("41 units"), 10, 4));
    }
    assert_eq!(kit.heard.0.lock().unwrap().iter().map(|(piece, _)| piece.as_str()).collect::<Vec<_>>(), ["41 ", "units", "41 ", "units"]);
    let requests = upstream.requests();
    assert_eq!(requests[0].body["stream_options"], json!({"include_usage": true}));
    assert_eq!(requests.iter().map(|request| request.connection).collect::<Vec<_>>(), [0, 0]);
}

#[tokio::test]
async fn an_answer_is_streamed_where_somebody_reads_along_or_always() {
    for (streaming, heard, streams) in [
        (Streaming::Always, false, true),
        (Streaming::Always, true, true),
        (Streaming::WhenHeard, true, true),
        (Streaming::WhenHeard, false, false),
    ] {
        let upstream =
            Upstream::answers(json(&completion("{\"content\":\"a\"}", "stop").replace("{\"model\"", "{\"error\":{},\"model\""))).await;
        let mut build = Build::chat(vec![upstream.url()]);
        if let DialectOptions::OpenAiChat(chat) = &mut build.target.dialect {
            chat.streaming = streaming;
        }
        let kit = build.kit();
        kit.run(if heard { kit.heard_call() } else { kit.call() }).await.result.unwrap();
        assert_eq!(upstream.requests()[0].body.get("stream").is_some(), streams, "{streaming:?} {heard}");
    }
}

#[tokio::test]
async fn what_came_decides_and_not_what_was_asked_for() {
    let plain = json(&completion("{\"content\":\"41 units\"}", "stop"));
    let unlabelled = words(&["41 units"]).concat();
    for (heard, acts) in [
        (true, plain.clone()),
        (false, sse(&strs(&words(&["41 units"])))),
        (true, response(200, "x: y", &unlabelled)),
        (true, response(200, "content-type: text/event-stream", &completion("{\"content\":\"41 units\"}", "stop"))),
        (false, response(200, "x: y", &format!("\r\n  {}", completion("{\"content\":\"41 units\"}", "stop")))),
    ] {
        let upstream = Upstream::answers(acts).await;
        let kit = Build::chat(vec![upstream.url()]).kit();
        let call = if heard { kit.heard_call() } else { kit.call() };
        let outcome = kit.run(call).await;
        assert_eq!(outcome.result.unwrap().text.as_deref(), Some("41 units"));
        assert_eq!(kit.heard.text(), if heard { "41 units" } else { "" });
    }
}

/// Calls as the streams of many servers bring them, against what is meant.
#[tokio::test]
async fn calls_are_put_together_from_every_kind_of_piece() {
    let part = |delta: &str| chunk(&format!("{{\"tool_calls\":[{delta}]}}"), None);
    let check = async |pieces: Vec<String>, expected: &[(&str, &str, &str)]| {
        let mut pieces = pieces;
        pieces.push(chunk("{}", Some("tool_calls")));
        pieces.push("data: [DONE]\n\n".into());
        let upstream = Upstream::answers(sse(&strs(&pieces))).await;
        let kit = Build::chat(vec![upstream.url()]).kit().with_tools();
        let turn = kit.run(kit.heard_call()).await.result.unwrap();
        let calls: Vec<_> = turn.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!(calls, expected, "{pieces:#?}");
        assert_eq!(kit.heard.text(), "", "text before calls is no answer");
    };
    let one = [("a", "look", "{\"part\":7}")];
    // In pieces, by index.
    check(
        vec![
            chunk("{\"role\":\"assistant\",\"content\":\"Let me see.\"}", None),
            part(r#"{"index":0,"id":"a","type":"function","function":{"name":"look","arguments":""}}"#),
            part(r#"{"index":0,"function":{"arguments":"{\"part\""}}"#),
            part(r#"{"index":0,"function":{"arguments":":7}"}}"#),
        ],
        &one,
    )
    .await;
    // Two at once, interleaved.
    check(
        vec![
            part(r#"{"index":0,"id":"a","function":{"name":"look","arguments":"{\"part\""}},{"index":1,"id":"b","function":{"name":"open"}}"#),
            part(r#"{"index":1,"function":{"arguments":"{}"}},{"index":0,"function":{"arguments":":7}"}}"#),
        ],
        &[one[0], ("b", "open", "{}")],
    )
    .await;
    // Without an index, told apart by id.
    check(
        vec![
            part(r#"{"id":"a","function":{"name":"look","arguments":"{\"part\""}}"#),
            part(r#"{"function":{"arguments":":7}"}}"#),
            part(r#"{"id":"b","function":{"name":"open","arguments":"{}"}}"#),
        ],
        &[one[0], ("b", "open", "{}")],
    )
    .await;
    // One index for all.
    check(
        vec![
            part(r#"{"index":0,"id":"a","function":{"name":"look","arguments":"{\"part\":7}"}}"#),
            part(r#"{"index":0,"id":"b","function":{"name":"open","arguments":"{}"}}"#),
        ],
        &[one[0], ("b", "open", "{}")],
    )
    .await;
    // Name and id in every piece; the name in pieces; arguments first and the id last; everything once more at the end.
    check(
        vec![
            part(r#"{"index":0,"id":"a","function":{"name":"look","arguments":"{\"pa"}}"#),
            part(r#"{"index":0,"id":"a","function":{"name":"look","arguments":"rt\":7}"}}"#),
        ],
        &one,
    )
    .await;
    check(
        vec![
            part(r#"{"index":0,"id":"a","function":{"name":"lo"}}"#),
            part(r#"{"index":0,"function":{"name":"ok"}}"#),
            part(r#"{"index":0,"function":{"arguments":"{\"part\":7}"}}"#),
        ],
        &one,
    )
    .await;
    check(
        vec![
            part(r#"{"index":0,"function":{"arguments":"{\"part\":"}}"#),
            part(r#"{"index":0,"function":{"name":"look","arguments":"7}"}}"#),
            part(r#"{"index":0,"id":"a","type":"function","function":{}}"#),
        ],
        &one,
    )
    .await;
    check(
        vec![
            part(r#"{"index":0,"id":"a","function":{"name":"look","arguments":"{\"part\""}}"#),
            part(r#"{"index":0,"function":{"arguments":":7}"}}"#),
            part(r#"{"index":0,"id":"a","function":{"name":"look","arguments":"{\"part\":7}"}}"#),
        ],
        &one,
    )
    .await;
    // No id at all, arguments as an object, the old member.
    check(vec![part(r#"{"index":0,"function":{"name":"look","arguments":{"part":7}}}"#)], &[("call_1", "look", "{\"part\":7}")]).await;
    check(vec![chunk(r#"{"function_call":{"name":"look","arguments":"{\"part\":7}"}}"#, None)], &[("call_1", "look", "{\"part\":7}")])
        .await;
}

#[tokio::test]
async fn calls_of_a_plain_answer_keep_apart_whatever_their_ids() {
    let call = r#"{"id":"x","type":"function","function":{"name":"look","arguments":"{}"}}"#;
    let body = completion(&format!("{{\"content\":null,\"tool_calls\":[{call},{call}]}}"), "stop");
    let upstream = Upstream::answers(json(&body)).await;
    let mut kit = Build::chat(vec![upstream.url()]).kit().with_tools();
    let turn = kit.run(kit.call()).await.result.unwrap();
    assert_eq!(turn.calls.iter().map(|call| &*call.id).collect::<Vec<_>>(), ["x", "call_2"]);
    kit.conversation.push_assistant(turn.text, turn.calls, turn.carry);
    kit.conversation.push_tool_result("x", "look", "one");
    kit.conversation.push_tool_result("call_2", "look", "two");
    let turn = kit.run(kit.call()).await.result.unwrap();
    assert_eq!(turn.calls.iter().map(|call| &*call.id).collect::<Vec<_>>(), ["call_3", "call_4"], "used ids are not used again");
    assert_eq!(upstream.requests()[1].body["messages"][2]["tool_calls"][1]["id"], "call_2");
}

#[tokio::test]
async fn no_more_calls_are_kept_than_it_takes_to_see_that_there_are_too_many() {
    let calls = |n: usize| vec![r#"{"id":"","function":{"name":"look","arguments":"{}"}}"#; n].join(",");
    for (asked, kept) in [(64, 64), (65, 65), (90, 65)] {
        let body = completion(&format!("{{\"tool_calls\":[{}]}}", calls(asked)), "tool_calls");
        let upstream = Upstream::answers(json(&body)).await;
        let kit = Build::chat(vec![upstream.url()]).kit().with_tools();
        assert_eq!(kit.run(kit.call()).await.result.unwrap().calls.len(), kept, "{asked}");
    }
}

#[tokio::test]
async fn what_a_provider_wants_back_comes_back() {
    let message = r#"{"content":null,"reasoning_content":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"look","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2ln"}}}]}"#;
    let upstream = Upstream::answers(json(&completion(message, "tool_calls"))).await;
    let mut kit = Build::chat(vec![upstream.url()]).kit().with_tools();
    let turn = kit.run(kit.call()).await.result.unwrap();
    kit.conversation.push_assistant(turn.text, turn.calls, turn.carry);
    kit.conversation.push_tool_result("a", "look", "41");
    kit.run(kit.call()).await.result.unwrap();
    let sent = &upstream.requests()[1].body["messages"][2];
    assert_eq!(sent["reasoning_content"], "hm");
    assert_eq!(sent["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "c2ln");
}

#[tokio::test]
async fn reasons_to_stop_are_read_and_unknown_ones_are_borne() {
    for (message, finish, expected, text) in [
        ("{\"content\":\"a\"}", "stop", FinishReason::Stop, "a"),
        ("{\"content\":\"a\"}", "whatever_comes", FinishReason::Stop, "a"),
        ("{\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}", "eos", FinishReason::Stop, "a"),
        ("{\"content\":\"a\"}", "length", FinishReason::Length, "a"),
        ("{\"content\":\"a\"}", "content_filter", FinishReason::ContentFilter, "a"),
        ("{\"content\":null,\"refusal\":\"I won't\"}", "stop", FinishReason::Refusal, "I won't"),
    ] {
        let upstream = Upstream::answers(json(&completion(message, finish))).await;
        let kit = Build::chat(vec![upstream.url()]).kit();
        let turn = kit.run(kit.call()).await.result.unwrap();
        assert_eq!((turn.finish, turn.text.as_deref()), (expected, Some(text)), "{finish}");
    }
}

#[tokio::test]
async fn every_sufficient_end_of_a_stream_is_one() {
    let said = chunk("{\"content\":\"41\"}", None);
    let stop = chunk("{}", Some("stop"));
    let unterminated = chunk("{\"content\":\"\"}", Some("stop"));
    let with = |mut acts: Vec<Act>, last: Act| {
        acts.push(last);
        acts
    };
    for acts in [
        sse(&[&said, &stop]),
        sse(&[&said, "data:[DONE]\n\n"]),
        sse(&[&said, unterminated.trim_end()]),
        with(sse_open(&[&said, &stop]), Act::Reset),
        with(sse_open(&[&said, &stop]), Act::Close),
        with(sse_open(&[&said, &stop, "data: [DONE]\n\n"]), Act::Hang),
        sse(&["event: message\r\n", &said.replace('\n', "\r"), "\n: ping\n\n", &stop]),
    ] {
        let upstream = Upstream::answers(acts.clone()).await;
        let kit = Build::chat(vec![upstream.url()]).kit();
        let started = Instant::now();
        let outcome = kit.run(kit.heard_call()).await;
        assert_eq!(outcome.result.unwrap_or_else(|failure| panic!("{acts:?}: {failure:?}")).text.as_deref(), Some("41"));
        assert_eq!(outcome.attempts.len(), 1);
        assert!(started.elapsed() < Duration::from_millis(1_500), "{acts:?}: {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn an_empty_answer_is_a_turn_without_words_and_a_failure_for_the_records() {
    let upstream = Upstream::answers(json(&completion("{\"content\":\" \"}", "stop"))).await;
    let kit = Build::chat(vec![upstream.url()]).kit();
    let outcome = kit.run(kit.call()).await;
    assert_eq!(codes(&outcome), "empty", "asked once: the machine nudges");
    let turn = outcome.result.unwrap();
    assert_eq!((turn.calls.len(), turn.input_tokens), (0, 10));
    let mut call = kit.call();
    call.nudge = true;
    call.notice = Some("last call");
    kit.run(call).await.result.unwrap();
    assert_eq!(upstream.requests()[1].body["messages"][1]["content"], format!("hello\n\n{NUDGE}\n\nlast call"));
}

#[tokio::test]
async fn several_addresses_take_turns() {
    let answer = || json(&completion("{\"content\":\"a\"}", "stop"));
    let (one, two) = (Upstream::answers(answer()).await, Upstream::answers(answer()).await);
    let kit = Build::chat(vec![one.url(), two.url()]).kit();
    for _ in 0..4 {
        kit.run(kit.call()).await.result.unwrap();
    }
    assert_eq!((one.requests().len(), two.requests().len()), (2, 2));
}

#[tokio::test]
async fn usage_that_nobody_reported_is_charged_whole() {
    let upstream = Upstream::answers(json(r#"{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}"#)).await;
    let kit = Build::chat(vec![upstream.url()]).kit();
    let outcome = kit.run(kit.call()).await;
    let record = &outcome.attempts[0];
    assert_eq!((record.input_tokens, record.output_tokens, record.at_least), (77_u64.div_ceil(3), 100, true));
    assert_eq!((outcome.result.unwrap().tokens_per_kchar, record.cost), (None, Money(26 * 2 + 1_000)));
}
