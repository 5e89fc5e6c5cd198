//! What the fake remembers.

use std::time::Duration;

use ambit_tests::upstream::{Act, CHAT_PATH, Fate, Framing, Halt, Point, Seen, Shape, Upstream, check_history};
use ambit_tests::within;
use reqwest::Client;
use serde_json::{Value, json};

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test]
async fn arrivals_are_kept_with_head_body_and_order() {
    let fake = Upstream::builder().model("a", "ok").model("b", "503").route("lookup", "/tools/*", Act::json(json!(7))).start().await;
    let http = Client::new();
    http.post(fake.url(CHAT_PATH)).header("X-Key", "k").json(&chat("b")).send().await.unwrap();
    http.get(fake.url("/tools/lookup?id=3")).send().await.unwrap();
    http.post(fake.url(CHAT_PATH)).json(&chat("a")).send().await.unwrap();
    let seen: Vec<(String, usize, String)> =
        fake.arrivals().iter().map(|a| (a.route.to_string(), a.nth, format!("{} {}", a.method, a.target))).collect();
    let post = format!("POST {CHAT_PATH}");
    let get = "GET /tools/lookup?id=3".to_owned();
    assert_eq!(seen, [("b".to_owned(), 0, post.clone()), ("lookup".to_owned(), 0, get), ("a".to_owned(), 0, post)]);
    let first = &fake.arrivals()[0];
    assert_eq!(first.header("x-key"), Some("k"));
    assert_eq!(first.body.as_ref().unwrap()["model"], "b");
    assert_eq!(fake.arrivals_on("a").len(), 1);
    fake.wait_for("all to be finished", |seen| seen.finished == 3).await;
    assert!(fake.arrivals().iter().all(|a| a.fate == Fate::Finished));
    fake.assert_clean();
}

#[tokio::test]
async fn chunked_bodies_are_read_whole() {
    let fake = Upstream::start("ok").await;
    let pieces = futures_util::stream::iter(["{\"a\":", " [1,", "2]}"].map(Ok::<_, std::io::Error>));
    let body = reqwest::Body::wrap_stream(pieces);
    Client::new().post(fake.url(CHAT_PATH)).body(body).send().await.unwrap();
    assert_eq!(fake.arrivals()[0].body, Some(json!({"a": [1, 2]})));
}

#[tokio::test]
async fn a_peer_that_leaves_is_aborted_wherever_the_fake_waits() {
    let text = || Act::text("some words to say");
    let acts = [
        Act::silent(),
        Act::deaf(),
        Act::ok().after(Duration::from_secs(600)),
        Act::ok().held(),
        text().every(Duration::from_secs(600)),
        text().halting(Point::Head, Halt::Hang),
        text().halting(Point::Half, Halt::Hang),
        text().halting(Point::Sent, Halt::Hang).framing(Framing::Chunked),
        Act::endless("x"),
    ];
    for act in acts {
        let shown = format!("{act:?}");
        let fake = Upstream::start(act).await;
        let url = fake.url(CHAT_PATH);
        let request = tokio::spawn(async { Client::new().post(url).json(&chat("m")).send().await.unwrap().bytes().await });
        fake.wait_for("the arrival", |seen| seen.in_flight == 1).await;
        request.abort();
        let seen = fake.wait_for(&format!("the abort of {shown}"), |seen| seen.aborted == 1).await;
        assert_eq!((seen.in_flight, seen.finished, seen.halted), (0, 0, 0), "{shown}");
    }
}

#[tokio::test]
async fn accidents_of_the_script_are_no_aborts() {
    for script in ["rst0", "rst1", "sse(a)rst", "sse(a)cut"] {
        let fake = Upstream::start(script).await;
        let mut body = chat("m");
        body["stream"] = json!(true);
        if let Ok(response) = Client::new().post(fake.url(CHAT_PATH)).json(&body).send().await {
            let _ = response.bytes().await;
        }
        let seen = fake.wait_for("the end", |seen| seen.halted == 1).await;
        assert_eq!((seen.in_flight, seen.aborted), (0, 0), "{script}");
    }
}

#[tokio::test]
async fn held_answers_leave_together_and_are_counted_in_flight() {
    let fake = Upstream::start("held ok").await;
    let url = fake.url(CHAT_PATH);
    let ask = || {
        let url = url.clone();
        tokio::spawn(async move { Client::new().post(url).json(&chat("m")).send().await.unwrap().status().as_u16() })
    };
    let asked = [ask(), ask(), ask()];
    fake.wait_for("three in flight", |seen| seen.in_flight == 3).await;
    assert!(asked.iter().all(|task| !task.is_finished()));
    fake.release();
    for task in asked {
        assert_eq!(within("the answer", task).await.unwrap(), 200);
    }
    let seen = fake.wait_for("quiet", |seen| seen.in_flight == 0).await;
    assert_eq!(seen, Seen { calls: 3, in_flight: 0, max_in_flight: 3, finished: 3, halted: 0, aborted: 0 });
}

#[tokio::test]
async fn a_new_script_starts_at_its_first_act() {
    let fake = Upstream::start("500").await;
    let ask = async || Client::new().post(fake.url(CHAT_PATH)).json(&chat("m")).send().await.unwrap().status().as_u16();
    assert_eq!(ask().await, 500);
    fake.play("chat", "429, ok");
    assert_eq!((ask().await, ask().await, ask().await), (429, 200, 200));
}

#[tokio::test]
#[should_panic(expected = "no route takes GET /other")]
async fn strays_fail_the_clean_check() {
    let fake = Upstream::start("ok").await;
    assert_eq!(Client::new().get(fake.url("/other")).send().await.unwrap().status(), 404);
    fake.assert_clean();
}

#[tokio::test]
#[should_panic(expected = "the script of route `chat` is exhausted")]
async fn a_strict_script_that_runs_out_fails_the_clean_check() {
    let fake = Upstream::start(ambit_tests::upstream::Script::new([Act::ok()]).strict()).await;
    for expected in [200, 500] {
        let response = Client::new().post(fake.url(CHAT_PATH)).json(&chat("m")).send().await.unwrap();
        assert_eq!(response.status(), expected);
    }
    fake.assert_clean();
}

#[test]
fn histories() {
    let user = || json!({"role": "user", "content": "u"});
    let turn = |ids: &[&str]| {
        let calls: Vec<Value> = ids.iter().map(|id| json!({"id": id, "function": {"name": "t"}})).collect();
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    };
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
    let check = |messages: Vec<Value>, expected: Result<(), &str>| {
        let found = check_history(Shape::Chat, &json!({"messages": messages}));
        match expected {
            Ok(()) => assert_eq!(found, Ok(())),
            Err(part) => assert!(found.as_ref().is_err_and(|fault| fault.contains(part)), "{found:?} should say {part}"),
        }
    };
    check(vec![user()], Ok(()));
    check(vec![user(), turn(&["a", "b"]), result("a"), result("b")], Ok(()));
    check(vec![user(), turn(&["a"]), result("a"), turn(&["b"]), result("b"), user()], Ok(()));
    check(vec![user(), turn(&["a", "b"]), result("b"), result("a")], Err("turn of `a`"));
    check(vec![user(), turn(&["a"])], Err("ends without the result of `a`"));
    check(vec![user(), turn(&["a"]), user()], Err("comes before the result of `a`"));
    check(vec![user(), result("a")], Err("no call awaits a result"));
    check(vec![user(), turn(&["a"]), result("a"), result("a")], Err("no call awaits a result"));
    check(vec![user(), turn(&["a"]), result("a"), turn(&["a"]), result("a")], Err("uses the call id `a` again"));
    check(vec![user(), turn(&[""])], Err("without an id"));
}

#[test]
fn histories_of_the_other_forms() {
    let check = |shape: Shape, entries: Value, expected: Result<(), &str>| {
        let member = if shape == Shape::Responses { "input" } else { "messages" };
        let found = check_history(shape, &json!({member: entries}));
        match expected {
            Ok(()) => assert_eq!(found, Ok(())),
            Err(part) => assert!(found.as_ref().is_err_and(|fault| fault.contains(part)), "{found:?} should say {part}"),
        }
    };
    let text = json!({"type": "text", "text": "u"});
    let (user, model) =
        (|content: Value| json!({"role": "user", "content": content}), |content: Value| json!({"role": "assistant", "content": content}));
    let tool_use = |id: &str| json!({"type": "tool_use", "id": id, "name": "t", "input": {}});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "r"});
    let of = Shape::Messages;
    check(
        of,
        json!([user(json!([text])), model(json!([text, tool_use("a"), tool_use("b")])), user(json!([result("a"), result("b"), text]))]),
        Ok(()),
    );
    check(
        of,
        json!([user(json!([text])), model(json!([tool_use("a")])), user(json!([text, result("a")]))]),
        Err("words before its results"),
    );
    check(of, json!([user(json!([text])), user(json!([text]))]), Err("not of the role `assistant`"));
    check(of, json!([user(json!([text])), model(json!([tool_use("a")]))]), Err("ends without the result of `a`"));
    check(of, json!([user(json!([{"type": "text", "text": " "}]))]), Err("blank text"));
    check(of, json!([user(json!([]))]), Err("no content"));

    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "t", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "r"});
    let (user, model) = (json!({"role": "user", "content": "u"}), json!({"type": "message", "role": "assistant", "content": "m"}));
    let of = Shape::Responses;
    check(of, json!([user, {"type": "reasoning"}, model, call("a"), call("b"), output("a"), output("b"), user]), Ok(()));
    check(of, json!([user, call("a"), user]), Err("comes before the result of `a`"));
    check(of, json!([user, call("a"), call("b"), output("b"), output("a")]), Err("turn of `a`"));
    check(of, json!([user, call("a"), output("a"), output("a")]), Err("no call awaits a result"));
}
