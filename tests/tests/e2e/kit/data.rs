//! Scripts as data, and what is refused.

use ambit_tests::upstream::{Act, CHAT_PATH, Script, Upstream, notation};
use reqwest::Client;
use serde_json::{Value, json};

async fn body_of(act: Value, request: Value) -> (u16, Vec<u8>) {
    let script: Script = serde_json::from_value(json!([act])).unwrap();
    let fake = Upstream::start(script).await;
    let response = Client::new().post(fake.url(CHAT_PATH)).json(&request).send().await.unwrap();
    (response.status().as_u16(), response.bytes().await.unwrap().to_vec())
}

async fn check(act: Value, expected: &str) {
    let (_, body) = body_of(act.clone(), json!({"model": "m"})).await;
    assert_eq!(String::from_utf8_lossy(&body), expected, "{act}");
}

#[tokio::test]
async fn bodies_and_macros() {
    check(json!({"status": 200, "body": {"a": [1, null]}}), r#"{"a":[1,null]}"#).await;
    check(json!({"body": null}), "null").await;
    check(json!({"body": {"$raw": "{no"}}), "{no").await;
    check(json!({"body": {"$hex": "41 42"}}), "AB").await;
    check(json!({"body": {"$repeat": ["ab", 3]}}), "ababab").await;
    check(json!({"behaviour": "slow", "body": {"$repeat_timed": ["x", 1, 3]}}), "xxx").await;
    check(json!({"body": {"$concat": ["a", {"$repeat": ["b", 2]}, {"$hex": "63"}]}}), "abbc").await;
    check(json!({"body": {"$ref": "kept", "text": {"$repeat": ["z", 3]}}}), r##"{"$ref":"kept","text":"zzz"}"##).await;
    check(json!({"sse": ["data: a\r", {"$raw": "\n\r\n"}]}), "data: a\r\n\r\n").await;
    check(json!("body(x)"), "x").await;
    check(json!({"act": "503", "status": 529, "body": "s"}), "\"s\"").await;
}

#[tokio::test]
async fn macros_that_look_at_the_request() {
    let request = json!({"model": "m", "tools": [{"function": {"name": "first"}}, {"function": {"name": "second"}}]});
    let act = json!({"body": {"tool_calls": [{"$echo_tool_name": 1, "id": "c", "arguments": "{}"}]}});
    let (_, body) = body_of(act, request.clone()).await;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["tool_calls"][0], json!({"id": "c", "type": "function", "function": {"name": "second", "arguments": "{}"}}));
    let act = json!({"body": {"$template": "chat_tool_call", "id": "c", "name": "t", "arguments": "{}"}});
    let (_, body) = body_of(act, request).await;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "t");
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn completions_by_meaning() {
    let act = json!({"calls": [{"name": "t", "arguments": {"n": 1}, "id": "c1"}, {"name": "u", "arguments": "{br"}],
        "text": "wait", "finish": null, "usage": [3, 4]});
    let (_, body) = body_of(act, json!({})).await;
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], "wait");
    assert_eq!(body["choices"][0]["message"]["tool_calls"][0]["id"], "c1");
    assert_eq!(body["choices"][0]["message"]["tool_calls"][1]["function"]["arguments"], "{br");
    assert_eq!(body["choices"][0]["finish_reason"], Value::Null);
    assert_eq!(body["usage"]["total_tokens"], 7);
    let act = json!({"pieces": ["a", "b"], "line_end": "crlf", "done": false, "usage": null, "usage_chunk": "always", "shred": 5});
    let (_, body) = body_of(act, json!({"stream": true})).await;
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("\r\n\r\n") && !body.contains("[DONE]") && !body.contains("usage"), "{body}");
}

#[tokio::test]
async fn headers_with_times() {
    let act = json!({"status": 429, "headers": {"retry-after": "{{http_date:+3600s}}", "x-reset": "at {{epoch_ms:+7200s}}", "date": ""}, "body": 1});
    let script: Script = serde_json::from_value(json!({"acts": [act], "order": "turn", "strict": true})).unwrap();
    let fake = Upstream::start(script).await;
    let response = Client::new().post(fake.url(CHAT_PATH)).json(&json!({})).send().await.unwrap();
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let date = header("retry-after").unwrap();
    assert!(date.ends_with(" GMT") && date.contains(", ") && date.len() == 29, "{date}");
    assert!(header("x-reset").unwrap().trim_start_matches("at ").parse::<u64>().unwrap() > 1_700_000_000_000);
    assert_eq!(header("date"), None, "an empty value removes a default header");
}

#[test]
fn accidents_as_data() {
    let check = |act: Value, expected: &str| {
        let act: Act = serde_json::from_value(act).unwrap();
        assert!(format!("{act:?}").contains(expected), "{act:?} should have {expected}");
    };
    check(json!({"behaviour": "hang"}), "halt: Some((Read, Hang))");
    check(json!({"behaviour": "hang", "after": "accept"}), "halt: Some((Unread, Hang))");
    check(json!({"status": 200, "behaviour": "cut"}), "halt: Some((Head, Cut))");
    check(json!({"sse": ["data: x\n\n"], "behaviour": "hang"}), "halt: Some((Sent, Hang))");
    check(json!({"behaviour": "reset", "after": "request_read"}), "halt: Some((Read, Reset))");
    check(json!({"text": "a b c", "behaviour": "reset", "after": 2}), "halt: Some((Pieces(2), Reset))");
    check(json!({"text": "a", "hold": "head"}), "hold: Some(Head)");
    check(json!({"status": 200, "behaviour": "endless_fast"}), "payload: Endless");
    check(json!({"act": "slow(7)ok", "every_ms": 9, "framing": "close"}), "latency: 7ms");
}

#[test]
fn what_is_wrong_is_refused_with_a_reason() {
    let check = |act: Value, expected: &str| {
        let error = serde_json::from_value::<Act>(act).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} should say {expected}");
    };
    check(json!("okay"), "unknown act `okay`");
    check(json!("slow(x)ok"), "needs milliseconds, not `x`");
    check(json!("ok(x"), "lacks a `)`");
    check(json!("okrst"), "unknown act `okrst`");
    check(json!("ok maybe"), "unknown end `maybe`");
    check(json!("429(ra)"), "not NAME=VALUE");
    check(json!("call(t)"), "needs arguments as JSON");
    check(json!("199"), "unknown act `199`");
    check(json!({"stauts": 200}), "unknown field `stauts`");
    check(json!({"behaviour": "melt"}), "unknown `behaviour` `melt`");
    check(json!({"behaviour": "hang", "after": "lunch"}), "unknown point");
    check(json!({"body": {"$hex": "4"}}), "no text and no macro");
    check(json!({"body": "x", "done": false}), "only a completion has");
    check(json!({"headers": {"a": 1}}), "header `a` is no text");
    assert!(notation::script("ok x0").unwrap_err().to_string().contains("repeats not 1 to"));
    assert!(notation::script("ok x10000, ok").unwrap_err().to_string().contains("more than 10000 acts"));
    assert!(notation::script("ok x10000").is_ok(), "the limit itself is allowed");
}

/// The model scripts of the quirk corpus use these forms; each must be readable.
#[test]
fn the_forms_of_the_quirk_corpus() {
    let acts = json!([
        {"status": 200, "headers": {"content-type": "application/json"}, "body": {"choices": []}},
        {"status": 200, "headers": {"content-type": "text/event-stream"}, "sse": [{"$repeat_timed": [": ping\n\n", 1000, 60]}]},
        {"status": 200, "headers": {"content-type": "text/plain", "content-encoding": "gzip"}, "body": {"$gzip_repeat": ["0", 2000]}},
        {"status": 200, "headers": {"content-type": "text/plain"}, "behaviour": "endless_fast"},
        {"status": 429, "headers": {"retry-after": "{{http_date:+3600s}}"}, "delay_ms": 5, "body": {"$raw": "no"}},
    ]);
    assert!(serde_json::from_value::<Script>(acts).is_ok());
}

/// gzip of the system reads what ours wrote.
#[tokio::test]
async fn gzip_repeat_unpacks() {
    for (text, n) in [("0", 100_000), ("abc", 1_000), ("é-", 7), ("x", 1), ("0123456789", 30_000)] {
        let (_, packed) = body_of(json!({"body": {"$gzip_repeat": [text, n]}}), json!({})).await;
        assert!(packed.len() < 64 + text.len() * 2 + 600 + text.len() * n / 100, "{} bytes", packed.len());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.gz");
        std::fs::write(&file, &packed).unwrap();
        let unpacked = std::process::Command::new("gzip").arg("-dc").arg(&file).output().unwrap();
        assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
        assert!(unpacked.stdout == text.repeat(n).into_bytes(), "{text} x {n}");
    }
}
