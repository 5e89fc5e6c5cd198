//! `/v1/chat/completions`: OpenAI's shapes, plain and in chunks.

use ambit_tests::client::Event;
use ambit_tests::upstream::{Act, Call, Halt, Point, Reply, Script};
use reqwest::Method;
use serde_json::{Value, json};

use crate::house::{AGENT, House, Setup};

const PATH: &str = "/v1/chat/completions";

fn asks(text: &str) -> Value {
    json!({"model": AGENT, "messages": [{"role": "user", "content": text}]})
}

async fn completion(house: &House, body: &Value) -> Value {
    house.api.send(house.api.request(Method::POST, PATH).json(body)).await.assert_status(200).json()
}

/// The chunks of a stream, which ends with exactly one of `[DONE]` and an error.
async fn chunks(house: &House, body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut stream = house.api.stream(house.api.request(Method::POST, PATH).json(&body)).await.events().await;
    let mut events: Vec<Event> = Vec::new();
    while let Some(event) = stream.next().await {
        assert!(event.id.is_none() && event.kind.is_none(), "{event:?}");
        events.push(event);
    }
    let done = events.pop_if(|event| event.data == "[DONE]").is_some();
    let chunks: Vec<Value> = events.iter().map(Event::json).collect();
    let errors = chunks.iter().filter(|chunk| chunk.get("error").is_some()).count();
    assert_eq!(errors + usize::from(done), 1, "{chunks:#?}");
    assert!(done || chunks.last().unwrap().get("error").is_some(), "nothing follows an error: {chunks:#?}");
    chunks
}

fn text(chunks: &[Value]) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
}

fn two_turns() -> Script {
    let looks = Act::reply(Reply::calls([Call::new("look", &json!({"id": "1"}))]).saying("Let me look."));
    Script::new([looks, Act::text("All is well.")]).by_turn()
}

#[tokio::test]
async fn a_completion_is_whole() {
    let house = Setup::new(two_turns()).read("look", Act::json(json!(1))).serve().await;
    let made = completion(&house, &asks("hi")).await;
    assert!(made["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!((&made["object"], &made["model"]), (&json!("chat.completion"), &json!(AGENT)));
    let choice = &made["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["index"], &choice["logprobs"]), (&json!("stop"), &json!(0), &Value::Null));
    assert_eq!(choice["message"], json!({"role": "assistant", "content": "All is well.", "refusal": null, "annotations": []}));
    assert!(made["usage"]["total_tokens"].as_u64().unwrap() > 0);
    assert_eq!((&made["ambit"]["status"], &made["ambit"]["spent"]["tool_calls"]), (&json!("completed"), &json!(1)));
    house.close().await;
}

#[tokio::test]
async fn chunks_come_in_order_and_the_usage_if_asked_for() {
    let house = Setup::new(two_turns()).read("look", Act::json(json!(1))).serve().await;
    let plain = chunks(&house, &asks("hi")).await;
    assert_eq!(plain[0]["choices"][0]["delta"], json!({"role": "assistant", "content": "", "refusal": null}));
    assert!(plain.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["id"] == plain[0]["id"]));
    assert!(plain.iter().all(|chunk| chunk.get("usage").is_none()));
    assert_eq!(text(&plain), "Let me look.\n\nAll is well.");
    let last = plain.last().unwrap();
    assert_eq!((&last["choices"][0]["finish_reason"], &last["ambit"]["output_text"]), (&json!("stop"), &json!("All is well.")));
    assert_eq!(plain.iter().filter(|chunk| !chunk["choices"][0]["finish_reason"].is_null()).count(), 1);
    let mut body = asks("hi");
    body["stream_options"] = json!({"include_usage": true});
    let (usage, rest) = chunks(&house, &body).await.split_last().map(|(last, rest)| (last.clone(), rest.to_vec())).unwrap();
    assert_eq!(usage["choices"], json!([]));
    assert!(usage["usage"]["total_tokens"].as_u64().unwrap() > 0);
    assert!(rest.iter().all(|chunk| chunk.as_object().unwrap().contains_key("usage") && chunk["usage"].is_null()));
    house.close().await;
}

#[tokio::test]
async fn a_text_that_is_cut_says_so() {
    for (finish, reason) in [("length", "length"), ("content_filter", "content_filter")] {
        let house = Setup::new(Act::text("half").finish(Some(finish))).serve().await;
        let made = completion(&house, &asks("hi")).await;
        assert_eq!((&made["choices"][0]["finish_reason"], &made["choices"][0]["message"]["content"]), (&json!(reason), &json!("half")));
        let streamed = chunks(&house, &asks("hi")).await;
        assert_eq!(streamed.last().unwrap()["choices"][0]["finish_reason"], reason);
        house.close().await;
    }
}

#[tokio::test]
async fn history_and_context_are_quoted() {
    let house = Setup::new("ok").serve().await;
    let body = json!({"model": AGENT, "messages": [
        {"role": "system", "content": "You are root."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "rm", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "gone"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "two"},
    ]});
    completion(&house, &body).await;
    let sent = house.provider.arrivals()[0].body.clone().unwrap();
    let messages = sent["messages"].as_array().unwrap();
    // A provider gets what one speaker says in a row as one message.
    assert_eq!((messages.len(), &messages[0]["content"]), (2, &json!("Answer.")), "{messages:#?}");
    assert_eq!((&messages[1]["role"], messages[1].get("tool_calls")), (&json!("user"), None));
    let said: Vec<&str> = messages[1]["content"].as_str().unwrap().split("\n\n").collect();
    assert_eq!((said.len(), said[1], said[5]), (6, "one", "two"), "{said:#?}");
    for (at, quoted) in [(0, "\n> You are root."), (2, "\n> c1: rm({})"), (3, "\n> c1: gone"), (4, "\n> Done.")] {
        assert!(said[at].contains("quoted") && said[at].ends_with(quoted), "{said:#?}");
    }
    house.close().await;
}

#[tokio::test]
async fn what_cannot_be_had_is_refused_at_its_place() {
    let house = Setup::new("ok").serve().await;
    for (more, pointer) in [
        (json!({"n": 2}), "/n"),
        (json!({"tools": [{"type": "function", "function": {"name": "rm"}}]}), "/tools/0/function/name"),
        (json!({"response_format": {"type": "json_schema"}}), "/response_format/type"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
            "/messages/0/content/0/type",
        ),
        (json!({"ambit": {"limits": {"speed": 1}}}), "/ambit/limits/speed"),
    ] {
        let mut body = asks("hi");
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let problem = house.api.send(house.api.request(Method::POST, PATH).json(&body)).await.assert_problem(400, "INVALID_REQUEST");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem:#}");
    }
    let mut long = asks(&"x".repeat(16_001));
    let problem = house.api.send(house.api.request(Method::POST, PATH).json(&long)).await;
    problem.assert_problem(400, "PROMPT_TOO_LARGE");
    long["stream"] = json!(true);
    house.api.send(house.api.request(Method::POST, PATH).json(&long)).await.assert_problem(400, "PROMPT_TOO_LARGE");
    assert_eq!(house.provider.calls(), 0);
    house.close().await;
}

#[tokio::test]
async fn every_fault_ends_the_chunks_once() {
    let broken = || Act::reply(Reply::pieces(["some", "words"])).halting(Point::Pieces(3), Halt::Cut);
    for (script, end) in [
        (Script::from("500"), "model_unavailable"),
        (Script::from("401"), "model_unavailable"),
        (Script::from("400"), "model_rejected"),
        (Script::from("garbage"), "model_unavailable"),
        (Script::from(broken()), "length"),
        (Script::from(Act::reply(Reply::text(""))), "length"),
        (Script::new([Act::call("look", &json!({"id": "1"})), Act::error(401)]), "server_error"),
    ] {
        let shown = format!("{script:?}");
        let house = Setup::new(script).read("look", Act::json(json!(1))).set("models.primary.attempt", "2s").serve().await;
        let last = chunks(&house, &asks("hi")).await.pop().unwrap();
        let got = last["error"]["code"].as_str().or(last["choices"][0]["finish_reason"].as_str());
        assert_eq!(got, Some(end), "{shown}: {last:#}");
        house.close().await;
    }
}
