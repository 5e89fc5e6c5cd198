//! What a client sees of each act, over a real socket.

use ambit_tests::upstream::{Act, CHAT_PATH, Call, Framing, Halt, LineEnd, Point, Reply, Script, Upstream, UsageChunk};
use ambit_tests::within;
use reqwest::Client;
use serde_json::{Value, json};

/// Sends one chat request to each new script and describes what comes back in one line.
async fn outcome(script: impl Into<Script>, stream: bool) -> String {
    let fake = Upstream::start(script).await;
    let outcome = ask(&Client::new(), &fake, stream).await;
    fake.assert_clean();
    outcome
}

async fn ask(http: &Client, fake: &Upstream, stream: bool) -> String {
    let body = json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hi"}]});
    let answer = within("the fake's head", http.post(fake.url(CHAT_PATH)).json(&body).send()).await;
    let Ok(mut response) = answer else { return "no answer".to_owned() };
    let mut line = response.status().as_u16().to_string();
    for name in ["content-type", "retry-after", "retry-after-ms"] {
        if let Some(value) = response.headers().get(name) {
            line += &format!(" {}", value.to_str().unwrap().split(';').next().unwrap());
        }
    }
    let mut bytes = Vec::new();
    loop {
        match within("the fake's body", response.chunk()).await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(_) => {
                line += " BROKEN";
                break;
            }
        }
    }
    format!("{line} | {}", summary(&bytes))
}

/// A completion by its meaning, anything else as text.
fn summary(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body).into_owned();
    if let Ok(whole) = serde_json::from_slice::<Value>(body) {
        let Some(choice) = whole["choices"].get(0) else { return whole.to_string() };
        let names = choice["message"]["tool_calls"].as_array().into_iter().flatten();
        let calls: String = names.map(|call| format!("[{} {}]", call["function"]["name"], call["function"]["arguments"])).collect();
        return format!("{}{calls} {}", choice["message"]["content"], choice["finish_reason"]);
    }
    if !text.starts_with("data:") {
        return text;
    }
    let lines = text.split(['\r', '\n']).filter_map(|line| line.strip_prefix("data: "));
    let mut said = Vec::new();
    for data in lines {
        let Ok(chunk) = serde_json::from_str::<Value>(data) else {
            said.push(data.to_owned());
            continue;
        };
        let choice = &chunk["choices"][0];
        let text = choice["delta"]["content"].as_str().filter(|text| !text.is_empty());
        said.extend(text.map(str::to_owned));
        said.extend(choice["delta"]["tool_calls"][0]["function"]["arguments"].as_str().map(|piece| format!("+{piece}")));
        said.extend(choice["finish_reason"].as_str().map(|reason| format!("!{reason}")));
        said.extend(chunk["usage"]["total_tokens"].as_u64().map(|n| format!("#{n}")));
    }
    said.join("/")
}

async fn check(script: impl Into<Script>, stream: bool, expected: &str) {
    let script = script.into();
    let shown = format!("{script:?}");
    assert_eq!(outcome(script, stream).await, expected, "script {shown}");
}

#[tokio::test]
async fn plain_answers() {
    const JSON: &str = "application/json";
    check("ok", false, &format!(r#"200 {JSON} | "ok" "stop""#)).await;
    check("slow(5)ok(hello there)", false, &format!(r#"200 {JSON} | "hello there" "stop""#)).await;
    check(r#"call(a {"x": 1} + b {})"#, false, &format!(r#"200 {JSON} | null["a" "{{\"x\":1}}"]["b" "{{}}"] "tool_calls""#)).await;
    check("null", false, &format!("200 {JSON} | null")).await;
    check("error", false, &format!("200 {JSON} | {}", error_body(500))).await;
    check("429(ra=2)", false, &format!("429 {JSON} 2 | {}", error_body(429))).await;
    check("503(ra-ms=1500)", false, &format!("503 {JSON} 1500 | {}", error_body(503))).await;
    check("html", false, "200 text/html | <!doctype html><html><head><title>Sign in</title></head><body><form></form></body></html>").await;
    check("body(x, y)", false, "200 | x, y").await;
    check("huge(3)", false, "200 text/plain | xxx").await;
    check(Act::text("a").finish(Some("surprise")), false, &format!(r#"200 {JSON} | "a" "surprise""#)).await;
    check(Act::text("a").shredded(1), false, &format!(r#"200 {JSON} | "a" "stop""#)).await;
    check(Act::text("a").framing(Framing::Close), false, &format!(r#"200 {JSON} | "a" "stop""#)).await;
}

fn error_body(status: u16) -> String {
    let kind = if status == 429 { "rate_limit_exceeded" } else { "server_error" };
    let message = if status == 500 { "the fake answers 500".to_owned() } else { format!("the fake answers {status}") };
    json!({"error": {"message": message, "type": kind, "param": null, "code": kind}}).to_string()
}

#[tokio::test]
async fn streams() {
    const SSE: &str = "200 text/event-stream";
    check("ok(hello there)", true, &format!("{SSE} | hello /there/!stop/[DONE]")).await;
    check("sse(a,b,END)", true, &format!("{SSE} | a/b/!stop/[DONE]")).await;
    check("sse(a,b)", true, &format!("{SSE} | a/b")).await;
    check(r#"call(a {"x": 1})"#, true, &format!(r#"{SSE} | +{{"x/+":1}}/!tool_calls/[DONE]"#)).await;
    check(Act::ok().without_done(), true, &format!("{SSE} | ok/!stop")).await;
    check(Act::ok().finish(None), true, &format!("{SSE} | ok/[DONE]")).await;
    check(Act::ok().usage_chunk(UsageChunk::Always), true, &format!("{SSE} | ok/!stop/#15/[DONE]")).await;
    check(Act::ok().usage_chunk(UsageChunk::Always).usage(None), true, &format!("{SSE} | ok/!stop/[DONE]")).await;
    check(Act::ok().line_end(LineEnd::CrLf), true, &format!("{SSE} | ok/!stop/[DONE]")).await;
    check(Act::ok().line_end(LineEnd::Cr).shredded(1), true, &format!("{SSE} | ok/!stop/[DONE]")).await;
    check(Act::text("zwölf").shredded(3), true, &format!("{SSE} | zwölf/!stop/[DONE]")).await;
    check(Act::sse(["data: x\n", "\n"]), false, &format!("{SSE} | x")).await;
}

#[tokio::test]
async fn accidents() {
    const SSE: &str = "200 text/event-stream";
    check("rst0", false, "no answer").await;
    check("rst1", false, "no answer").await;
    check("sse(a,b)rst", true, &format!("{SSE} BROKEN | a/b")).await;
    check("sse(a,b)cut", true, &format!("{SSE} | a/b")).await;
    check("sse(a,b,END)cut", true, &format!("{SSE} | a/b/!stop/[DONE]")).await;
    // Head, role and two of six words: a stream that ends like a normal one, without its terminal marker.
    check("cut", true, &format!("{SSE} | this /answer /has ")).await;
    assert!(outcome("cut", false).await.starts_with("200 application/json BROKEN | "));
    check(Act::ok().halting(Point::Head, Halt::Cut), false, "200 application/json BROKEN | ").await;
    check(Act::ok().halting(Point::Head, Halt::Reset).framing(Framing::Chunked), false, "200 application/json BROKEN | ").await;
    check(Act::reply(Reply::pieces(["a", "b"])).halting(Point::Pieces(2), Halt::Reset), true, &format!("{SSE} BROKEN | a")).await;
    assert!(outcome("garbage", false).await.starts_with("200 application/json | \0"));
}

#[tokio::test]
async fn a_refused_port_refuses() {
    let refused = Upstream::refused();
    for _ in 0..2 {
        let error = Client::new().get(refused.url("/")).send().await.unwrap_err();
        assert!(error.is_connect(), "{error:?}");
    }
}

#[tokio::test]
async fn the_last_act_repeats_and_connections_are_reused_after_whole_answers() {
    let fake = Upstream::start("500, ok").await;
    let http = Client::new();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(ask(&http, &fake, false).await.split(' ').next().unwrap().to_owned());
    }
    assert_eq!(seen, ["500", "200", "200"]);
}

#[tokio::test]
async fn an_unread_act_waits_for_its_turn() {
    let fake = Upstream::start("ok, rst0, ok").await;
    let http = Client::new();
    assert!(ask(&http, &fake, false).await.starts_with("200"));
    assert_eq!(ask(&http, &fake, false).await, "no answer");
    assert!(ask(&http, &fake, false).await.starts_with("200"));
    assert_eq!(fake.calls(), 3);
}

#[tokio::test]
async fn scripts_by_turn_serve_many_sessions_at_once() {
    let fake = Upstream::start(Script::new([Act::call("t", &json!({})), Act::text("end")]).by_turn()).await;
    let ask = async |history: Value| {
        let body = json!({"model": "m", "messages": history});
        let response = Client::new().post(fake.url(CHAT_PATH)).json(&body).send().await.unwrap();
        response.json::<Value>().await.unwrap()["choices"][0]["message"].clone()
    };
    let user = json!({"role": "user", "content": "hi"});
    for n in 0..2 {
        let first = ask(json!([user])).await;
        assert_eq!(first["tool_calls"][0]["id"], format!("call_{}_0", 2 * n), "ids are unique over all arrivals");
        let result = json!({"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "1"});
        assert_eq!(ask(json!([user, first, result])).await["content"], "end");
    }
    fake.assert_clean();
}

#[tokio::test]
async fn endless_calls_have_new_arguments_each_time() {
    let fake = Upstream::start("endless(look)").await;
    let http = Client::new();
    assert!(ask(&http, &fake, false).await.contains(r#"["look" "{\"n\":0}"]"#));
    assert!(ask(&http, &fake, false).await.contains(r#"["look" "{\"n\":1}"]"#));
}

#[tokio::test]
async fn a_call_may_carry_broken_arguments_and_a_chosen_id() {
    let call = Call::raw("t", "{\"a\": ").id("same");
    let seen = outcome(Act::calls([call]), false).await;
    assert!(seen.contains(r#"["t" "{\"a\": "]"#), "{seen}");
}

#[tokio::test]
async fn a_call_may_take_its_name_from_what_is_offered() {
    let fake = Upstream::start(Act::call("*__read", &json!({}))).await;
    let tools = json!([{"function": {"name": "files__list"}}, {"function": {"name": "files__read"}}]);
    for (offered, expected) in [(tools, "files__read"), (json!([]), "*__read")] {
        let body = json!({"model": "m", "messages": [], "tools": offered});
        let response = Client::new().post(fake.url(CHAT_PATH)).json(&body).send().await.unwrap();
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], expected);
    }
}

#[tokio::test]
async fn a_model_may_do_as_it_is_told_when_tools_are_off() {
    let script: Script = serde_json::from_value(json!({"acts": ["endless(t)"], "tools_off": "ok(stopped)"})).unwrap();
    let fake = Upstream::start(script).await;
    let tools = json!([{"function": {"name": "t"}}]);
    for (body, calls) in [
        (json!({"tools": tools}), true),
        (json!({"tools": tools, "tool_choice": "auto"}), true),
        (json!({"tools": tools, "tool_choice": "none"}), false),
        (json!({}), false),
    ] {
        let response = Client::new().post(fake.url(CHAT_PATH)).json(&body).send().await.unwrap();
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["choices"][0]["message"]["tool_calls"].is_array(), calls, "{body}");
    }
}

#[tokio::test]
async fn an_answer_has_the_form_of_its_request() {
    let script = || Act::reply(Reply::calls([Call::new("t", &json!({"n": 1})).id("c1")]).saying("hi"));
    let ask = async |act: Act, path: &str, body: Value| {
        let fake = Upstream::start(act).await;
        let response = Client::new().post(fake.url(path)).json(&body).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let messages = json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "u"}]}]});
    let (_, text) = ask(script(), "/v1/messages", messages.clone()).await;
    let message: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        message["content"],
        json!([{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "c1", "name": "t", "input": {"n": 1}}])
    );
    assert_eq!((&message["stop_reason"], &message["usage"]), (&json!("tool_use"), &json!({"input_tokens": 10, "output_tokens": 5})));
    let (status, text) = ask(Act::error(529), "/v1/messages", messages).await;
    assert!(status == 529 && text.contains(r#""type":"overloaded_error""#), "{text}");

    let (_, text) = ask(script(), "/v1/responses", json!({"model": "m", "input": [], "stream": true})).await;
    let kinds: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: response.")).collect();
    let item = |middle: &[&'static str]| [&["output_item.added"], middle, &["output_item.done"]].concat();
    let arguments = "function_call_arguments.delta";
    assert_eq!(kinds, [vec!["created"], item(&["output_text.delta"]), item(&[arguments, arguments]), vec!["completed"]].concat());
}
