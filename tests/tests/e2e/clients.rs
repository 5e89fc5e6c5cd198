//! The official OpenAI clients for Python and Node, unmodified, against the real server. What one of them sees, the
//! other sees as well: both are given the same jobs, and must tell the same.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ambit_tests::upstream::{Act, Call, Reply, Script};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::house::{AGENT, House, Setup};

/// Longest that a client may take for its jobs: only a test that fails uses it up.
const CLIENT_MAX: Duration = Duration::from_secs(150);

/// A client that the tests drive.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Client {
    Python,
    Node,
}

impl Client {
    const ALL: [Self; 2] = [Self::Python, Self::Node];

    /// Does the jobs, and gives what came of each.
    async fn run(self, house: &House, jobs: &Value) -> Vec<Value> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let (program, script) = match self {
            Self::Python => (folder.join("python/.venv/bin/python"), folder.join("python/client.py")),
            Self::Node => (PathBuf::from("node"), folder.join("node/client.mjs")),
        };
        let installed = match self {
            Self::Python => program.clone(),
            Self::Node => folder.join("node/node_modules/openai/package.json"),
        };
        assert!(installed.exists(), "the client is not installed; hint: run `{}`", folder.join("install.sh").display());
        let mut child = Command::new(program)
            .arg(script)
            .arg(house.ambit.url())
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(jobs.to_string().as_bytes()).await.unwrap();
        drop(stdin);
        let output = timeout(CLIENT_MAX, child.wait_with_output()).await.unwrap().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{self:?} gave up:\n{stdout}\n{stderr}");
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn asks(input: &str) -> Value {
    json!({"model": AGENT, "input": input})
}

fn chats(text: &str) -> Value {
    json!({"model": AGENT, "messages": [{"role": "user", "content": text}]})
}

fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn two_turns() -> Script {
    let looks = Act::reply(Reply::calls([Call::new("look", &json!({"id": "1"}))]).saying("Let me look."));
    Script::new([looks, Act::text("All is well.")]).by_turn()
}

async fn answers(house: &House) -> Answers {
    Answers { calls: house.api.metrics().await.sum("ambit_http_requests_total", &[("route", "/v1/responses")]).unwrap_or_default() }
}

/// Requests that the server answered on `/v1/responses`.
struct Answers {
    calls: f64,
}

#[tokio::test]
async fn responses_are_created_streamed_polled_and_resumed() {
    let house = Setup::new(two_turns()).read("look", Act::json(json!(1))).serve().await;
    let first = house.api.send(house.api.request(Method::POST, "/v1/responses").json(&asks("hi"))).await.assert_status(200).json();
    let ours = json!({"metadata": {"a": "b"}, "ambit": {"limits": {"model_calls": 3}, "metadata": {"c": "d"}}});
    let jobs = json!([
        {"do": "create", "body": with(asks("hi"), &ours)},
        {"do": "headers", "body": with(asks("hi"), &json!({"temperature": 0.5}))},
        {"do": "stream", "body": asks("hi")},
        {"do": "helper", "body": asks("hi")},
        {"do": "background", "body": asks("hi")},
        {"do": "resume", "id": first["id"], "after": 3},
        {"do": "resume", "id": first["id"], "after": 10},
        {"do": "input_items", "id": first["id"]},
        {"do": "models"},
        {"do": "create", "body": with(asks("and"), &json!({"previous_response_id": first["id"]}))},
    ]);
    for client in Client::ALL {
        let [create, headers, stream, helper, background, resume, inside, items, models, next] =
            client.run(&house, &jobs).await.try_into().unwrap();
        let whole = "Let me look.All is well.";
        let turns = json!([["completed", "commentary"], ["completed", "final_answer"]]);
        for (job, told) in [("create", &create), ("helper", &helper), ("background", &background), ("stream", &stream["last"])] {
            assert_eq!((&told["status"], &told["text"], &told["items"]), (&json!("completed"), &json!(whole), &turns), "{client:?} {job}");
            assert_eq!(
                (&told["reason"], &told["cut"], &told["failure"]),
                (&json!("answered"), &Value::Null, &Value::Null),
                "{client:?} {job}"
            );
            assert!(told["tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{client:?} {job}");
        }
        // The fake counts turns by what it is told of them: here one has been before.
        assert_eq!((&next["status"], &next["text"]), (&json!("completed"), &json!("All is well.")), "{client:?}");
        assert_eq!(create["metadata"], json!({"a": "b", "c": "d"}), "{client:?}");
        assert!(create["request_id"].as_str().is_some_and(|id| id.starts_with("req_")), "{client:?} {create}");
        assert_eq!(headers["ambit-ignored-params"], "temperature", "{client:?}");
        assert_eq!((&stream["text"], &helper["streamed"]), (&json!(whole), &json!(whole)), "{client:?}");
        assert_eq!(stream["events"][0], json!(["response.created", 0]), "{client:?}");
        assert_eq!(background["first"], "in_progress", "{client:?}");
        assert_eq!((&resume["text"], &inside["text"]), (&json!(whole), &json!("look.All is well.")), "{client:?}");
        assert_eq!(items, json!([["user", "hi"]]), "{client:?}");
        assert_eq!(models, json!([[AGENT, "ambit"], ["ops", "ambit"]]), "{client:?}");
    }
    house.close().await;
}

#[tokio::test]
async fn chat_completions_are_created_and_streamed() {
    let house = Setup::new("ok(hello)").serve().await;
    let jobs = json!([
        {"do": "chat", "body": with(chats("hi"), &json!({"ambit": {"limits": {"model_calls": 2}}}))},
        {"do": "chat_stream", "body": with(chats("hi"), &json!({"stream_options": {"include_usage": true}}))},
        {"do": "chat_stream", "body": chats("hi")},
        {"do": "chat_helper", "body": chats("hi")},
    ]);
    for client in Client::ALL {
        let told = client.run(&house, &jobs).await;
        assert_eq!(told.len(), 4);
        for (at, told) in told.iter().enumerate() {
            assert_eq!((&told["text"], &told["finish"]), (&json!("hello"), &json!("stop")), "{client:?} {at}");
            assert_eq!(told["tokens"].is_u64(), at < 2, "{client:?} {at}");
            assert!(at == 3 || told["reason"] == "answered", "{client:?} {at}");
        }
    }
    house.close().await;
}

#[tokio::test]
async fn what_is_cancelled_or_cut_is_seen() {
    let house = Setup::new("held ok").serve().await;
    for client in Client::ALL {
        assert_eq!(
            client.run(&house, &json!([{"do": "cancel", "body": asks("hi")}])).await,
            [json!(["cancelled", "cancelled"])],
            "{client:?}"
        );
    }
    house.provider.release();
    house.close().await;
    let house = Setup::new(Act::text("half").finish(Some("length"))).serve().await;
    for client in Client::ALL {
        let jobs =
            json!([{"do": "stream", "body": asks("hi")}, {"do": "create", "body": asks("hi")}, {"do": "chat_stream", "body": chats("hi")}]);
        let told = client.run(&house, &jobs).await;
        for told in [&told[0]["last"], &told[1]] {
            let seen = (&told["status"], &told["text"], &told["cut"], &told["reason"]);
            assert_eq!(seen, (&json!("incomplete"), &json!("half"), &json!("max_output_tokens"), &json!("output_truncated")), "{client:?}");
        }
        assert_eq!((&told[2]["text"], &told[2]["finish"]), (&json!("half"), &json!("length")), "{client:?}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_deleted_response_is_gone() {
    let house = Setup::new("ok").serve().await;
    for client in Client::ALL {
        let made = house.api.send(house.api.request(Method::POST, "/v1/responses").json(&asks("hi"))).await.json();
        let told = client.run(&house, &json!([{"do": "delete", "id": made["id"]}])).await;
        assert_eq!((&told[0]["error"], &told[0]["code"]), (&json!("NotFoundError"), &json!("session_not_found")), "{client:?} {told:?}");
    }
    house.close().await;
}

/// Both clients retry twice where `x-should-retry` says so, and not once where it does not, whatever the status.
#[tokio::test]
async fn each_client_retries_exactly_as_it_is_told() {
    for (script, body, status, class, code, requests) in [
        ("ok", json!({"model": AGENT}), 400, "BadRequestError", "invalid_request", 1.0),
        ("ok", json!({"model": "nobody", "input": "hi"}), 404, "NotFoundError", "model_not_found", 1.0),
        ("ok", asks(&"x".repeat(256 << 10)), 413, "APIStatusError", "payload_too_large", 1.0),
        ("400", asks("hi"), 400, "BadRequestError", "model_rejected", 1.0),
        ("401", asks("hi"), 503, "InternalServerError", "model_unavailable", 1.0),
        ("503(ra-ms=20)", asks("hi"), 503, "InternalServerError", "model_unavailable", 3.0),
    ] {
        let house = Setup::new(script).serve().await;
        for client in Client::ALL {
            let before = answers(&house).await.calls;
            let told = client.run(&house, &json!([{"do": "create", "body": body}])).await.remove(0);
            // Node has no class of its own for 413.
            let class = if class == "APIStatusError" && client == Client::Node { "APIError" } else { class };
            let seen = (&told["status_code"], &told["error"], &told["code"]);
            assert_eq!(seen, (&json!(status), &json!(class), &json!(code)), "{client:?} {told}");
            assert!(told["request_id"].as_str().is_some_and(|id| id.starts_with("req_")), "{client:?} {told}");
            assert!(told["message"].as_str().is_some_and(|message| message.len() > 20), "{client:?} {told}");
            assert_eq!(answers(&house).await.calls - before, requests, "{client:?} {status} {code}");
        }
        house.close().await;
    }
}

#[tokio::test]
async fn what_is_saturated_is_asked_again_and_what_is_late_is_not() {
    let house = Setup::new("held ok").set("models.primary.bulkhead.permits", "1").serve().await;
    let started = house.api.send(house.api.session(&House::request("hi")).header("prefer", "respond-async")).await.json();
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    for client in Client::ALL {
        let before = answers(&house).await.calls;
        let told = client.run(&house, &json!([{"do": "create", "body": asks("hi")}])).await.remove(0);
        assert_eq!((&told["status_code"], &told["code"]), (&json!(503), &json!("server_overloaded")), "{client:?} {told}");
        assert_eq!(answers(&house).await.calls - before, 3.0, "{client:?}");
    }
    house.provider.release();
    house.verdict(started["id"].as_str().unwrap()).await;
    house.close().await;
    let house = Setup::new("sil").serve().await;
    for client in Client::ALL {
        let before = answers(&house).await.calls;
        let body = with(asks("hi"), &json!({"ambit": {"limits": {"deadline_ms": 3_500}}}));
        let told = client.run(&house, &json!([{"do": "create", "body": body}])).await.remove(0);
        assert_eq!((&told["status_code"], &told["code"]), (&json!(504), &json!("deadline_exceeded")), "{client:?} {told}");
        assert_eq!(answers(&house).await.calls - before, 1.0, "{client:?}");
    }
    house.provider.wait_for("every call to be left", |seen| seen.in_flight == 0).await;
    house.close().await;
}

#[tokio::test]
async fn an_error_within_a_stream_is_an_error() {
    let house = Setup::new("401").serve().await;
    for client in Client::ALL {
        let jobs = json!([{"do": "stream", "body": asks("hi")}, {"do": "chat_stream", "body": chats("hi")}]);
        let told = client.run(&house, &jobs).await;
        assert_eq!(
            (&told[0]["last"]["status"], &told[0]["last"]["failure"]),
            (&json!("failed"), &json!("server_error")),
            "{client:?} {told:?}"
        );
        assert_eq!((&told[1]["error"], &told[1]["code"]), (&json!("APIError"), &json!("model_unavailable")), "{client:?} {told:?}");
    }
    house.close().await;
}

/// Tools that take their time, of which a client of this form hears nothing: only signs of life, which it must survive.
#[tokio::test]
async fn twenty_seconds_of_silence_are_survived() {
    let looks = (0..4).map(|n| Act::call("look", &json!({"id": n.to_string()})));
    let script = Script::new(looks.chain([Act::text("All is well.")])).by_turn();
    let slow = Act::json(json!(1)).after(Duration::from_millis(5_200));
    let house = Setup::new(script).read("look", slow).set("limits.deadline", "60s").serve().await;
    let (streams, chunks) = (json!([{"do": "stream", "body": asks("hi")}]), json!([{"do": "chat_stream", "body": chats("hi")}]));
    let raw = async {
        let request = house.api.request(Method::POST, "/v1/responses").json(&with(asks("hi"), &json!({"stream": true})));
        let mut stream = house.api.stream(request).await.events().await;
        stream.until("response.completed").await;
        assert!(stream.comments() >= 3, "one when it opens, then one each ten seconds: {}", stream.comments());
    };
    let (python, node, chat, ()) =
        tokio::join!(Client::Python.run(&house, &streams), Client::Node.run(&house, &streams), Client::Python.run(&house, &chunks), raw);
    for told in [&python[0], &node[0], &chat[0]] {
        assert_eq!(told["text"], "All is well.", "{told}");
    }
    house.close().await;
}
