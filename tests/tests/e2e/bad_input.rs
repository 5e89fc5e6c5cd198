//! What callers, operators and the machine get wrong: each is a named code with where and what to do; nothing is lost, nothing
//! is a 500, nothing panics.

use ambit_tests::process::Launch;
use reqwest::Method;
use serde_json::{Value, json};

use crate::house::{AGENT, House, Setup, assert_end};

/// Sessions after which 1 MiB of journal are full for certain.
const SESSIONS_UNTIL_FULL: usize = 1_000;

#[tokio::test]
async fn requests_that_cannot_be_understood() {
    let house = Setup::new("ok").serve().await;
    let fine = || House::request("hi");
    let with = |key: &str, value: Value| {
        let mut body = fine();
        body[key] = value;
        body
    };
    for (body, status, code, pointer) in [
        (json!({"agent": "nobody", "input": "hi"}), 404, "AGENT_NOT_FOUND", None),
        (json!({"input": "hi"}), 400, "INVALID_REQUEST", Some("/agent")),
        (json!({"agent": AGENT}), 400, "INVALID_REQUEST", Some("/input")),
        (json!([]), 400, "INVALID_REQUEST", Some("")),
        (with("agent", json!(7)), 400, "INVALID_REQUEST", Some("/agent")),
        (with("input", json!("")), 400, "INVALID_REQUEST", Some("/input")),
        (with("surprise", json!(1)), 400, "INVALID_REQUEST", Some("/surprise")),
        (with("limits", json!({"model_calls": "many"})), 400, "INVALID_REQUEST", Some("/limits/model_calls")),
        (with("limits", json!({"model_calls": -1})), 400, "INVALID_REQUEST", Some("/limits/model_calls")),
        (with("limits", json!({"model_calls": 99})), 400, "LIMITS_TOO_HIGH", Some("/limits/model_calls")),
        (with("limits", json!({"deadline_ms": 86_400_000})), 400, "LIMITS_TOO_HIGH", Some("/limits/deadline_ms")),
        (with("metadata", json!({"a": 1})), 400, "INVALID_REQUEST", Some("/metadata/a")),
        (with("previous_session_id", json!("ses_x")), 400, "INVALID_REQUEST", Some("/previous_session_id")),
        (with("input", json!("x".repeat(16_001))), 400, "PROMPT_TOO_LARGE", None),
    ] {
        let problem = house.api.run(&body).await.assert_problem(status, code);
        if let Some(pointer) = pointer {
            let errors = problem["errors"].as_array().cloned().unwrap_or_default();
            assert!(errors.iter().any(|error| error["pointer"] == pointer), "{pointer} is not named: {problem:#}");
        }
    }
    assert_eq!(house.provider.calls(), 0);
    house.close().await;
}

/// Limits that leave no room for a single call: the session ends with its first record, and is closed and told all the same.
#[tokio::test]
async fn limits_that_allow_nothing() {
    let house = Setup::new("ok").serve().await;
    for (limits, status) in [(json!({"total_tokens": 1}), 200), (json!({"deadline_ms": 1}), 504), (json!({"deadline_ms": 200}), 504)] {
        let mut body = House::request("hi");
        body["limits"] = limits.clone();
        let answer = house.api.run(&body).await;
        assert_eq!(answer.status, status, "{limits}: {}", answer.text());
        body["background"] = json!(true);
        let accepted = house.api.run(&body).await;
        if accepted.status == 202 {
            let id = accepted.json()["id"].as_str().unwrap().to_owned();
            let text = house.api.get(&format!("/v1/sessions/{id}/events?settlement=true")).await.text();
            assert!(text.contains("event: settlement.settled"), "{text}");
        }
    }
    let running = house.api.get("/v1/sessions?status=running").await;
    assert_eq!(running.json()["data"], json!([]), "{}", running.text());
    assert_eq!(house.provider.calls(), 0);
    house.close().await;
}

#[tokio::test]
async fn everything_wrong_is_said_at_once() {
    let house = Setup::new("ok").serve().await;
    let body = json!({"agent": 1, "input": 2, "limits": {"speed": 3}, "more": 4});
    let problem = house.api.run(&body).await.assert_problem(400, "INVALID_REQUEST");
    assert_eq!(problem["errors"].as_array().unwrap().len(), 4, "{problem:#}");
    house.close().await;
}

#[tokio::test]
async fn bodies_that_are_no_json_or_too_large() {
    let house = Setup::new("ok").serve().await;
    let post = |kind: &str, body: Vec<u8>| house.api.request(Method::POST, "/v1/sessions").header("content-type", kind).body(body);
    let padded = |bytes: usize| {
        let mut text = House::request("hi").to_string();
        text.push_str(&" ".repeat(bytes - text.len()));
        text.into_bytes()
    };
    for (kind, body, status, code) in [
        ("application/json", b"{\"agent\": ".to_vec(), 400, "INVALID_REQUEST"),
        ("application/json", b"\xff\xfe".to_vec(), 400, "INVALID_REQUEST"),
        ("application/json", Vec::new(), 400, "INVALID_REQUEST"),
        ("text/plain", House::request("hi").to_string().into_bytes(), 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("application/json", padded(300 * 1024), 413, "PAYLOAD_TOO_LARGE"),
        ("application/json", padded(256 * 1024 + 1), 413, "PAYLOAD_TOO_LARGE"),
    ] {
        house.api.send(post(kind, body)).await.assert_problem(status, code);
    }
    // At the limit, and the same without an announced length.
    house.api.send(post("application/json; charset=utf-8", padded(256 * 1024))).await.assert_status(200);
    let pieces = padded(300 * 1024).chunks(4096).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect::<Vec<_>>();
    let streamed = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let request = house.api.request(Method::POST, "/v1/sessions").header("content-type", "application/json").body(streamed);
    house.api.send(request).await.assert_problem(413, "PAYLOAD_TOO_LARGE");
    assert_eq!(house.provider.calls(), 1);
    house.close().await;
}

#[tokio::test]
async fn sessions_and_paths_that_are_not_there() {
    let house = Setup::new("ok").serve().await;
    for path in
        ["/v1/sessions/ses_01ARZ3NDEKTSV4RRFFQ69G5FAV", "/v1/sessions/nonsense", "/v1/sessions/ses_01ARZ3NDEKTSV4RRFFQ69G5FAV/events"]
    {
        house.api.get(path).await.assert_problem(404, "SESSION_NOT_FOUND");
    }
    let cancel = house.api.request(Method::POST, "/v1/sessions/ses_01ARZ3NDEKTSV4RRFFQ69G5FAV/cancel");
    house.api.send(cancel).await.assert_problem(404, "SESSION_NOT_FOUND");
    house.api.get("/v2/everything").await.assert_problem(404, "NOT_FOUND");
    house.api.send(house.api.request(Method::DELETE, "/v1/sessions")).await.assert_problem(405, "METHOD_NOT_ALLOWED");
    house.close().await;
}

#[tokio::test]
async fn what_is_not_built_is_absent_and_says_so() {
    let house = Setup::new("ok").serve().await;
    for path in ["/v1/sessions/ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T/receipt", "/mcp", "/v1/attention", "/v1/audit"] {
        let problem = house.api.send(house.api.request(Method::POST, path).json(&json!({}))).await.assert_problem(404, "NOT_FOUND");
        assert!(problem["detail"].as_str().unwrap().contains("not built yet"), "{path}: {problem:#}");
    }
    house.close().await;
}

#[tokio::test]
async fn two_processes_share_one_database() {
    let house = Setup::new("ok").serve().await;
    let second = house.launch.serve().await;
    let api = ambit_tests::client::Api::of(&second);
    let here = house.session("hi").await;
    let there = api.run(&House::request("hi")).await.assert_status(200).json();
    for id in [&here["id"], &there["id"]] {
        let path = format!("/v1/sessions/{}", id.as_str().unwrap());
        assert_end(&house.api.get(&path).await.assert_status(200).json(), "completed", "answered");
        assert_end(&api.get(&path).await.assert_status(200).json(), "completed", "answered");
    }
    ambit_tests::quiet::assert_quiet(&api).await;
    second.terminate().await.assert_code(0);
    house.close().await;
}

/// Files may not grow any more: new sessions are refused by name, those that run end in order, and the process lives.
#[tokio::test]
async fn a_full_disk() {
    let (launch, provider, _tools) = Setup::new("ok").furnish().await;
    // The database exists before the disk is full.
    launch.serve().await.terminate().await.assert_code(0);
    let used = std::fs::metadata(launch.folder().join("ambit.db")).unwrap().len().div_ceil(1024);
    let ambit = launch.clone().file_size_max(used + 1024).serve().await;
    let api = ambit_tests::client::Api::of(&ambit);
    let mut refused = false;
    for _ in 0..SESSIONS_UNTIL_FULL {
        let answer = api.run(&House::request("hi")).await;
        if answer.status != 200 {
            answer.assert_problem(503, "STORE_UNAVAILABLE");
            refused = true;
            break;
        }
        let session = answer.json();
        assert!(session["status"] == "completed" || session["reason"] == "store_lost", "{session:#}");
    }
    assert!(refused, "the disk was full, and nobody noticed");
    assert_eq!(api.get("/livez").await.status, 200);
    ambit_tests::quiet::assert_quiet(&api).await;
    provider.assert_clean();
    drop(ambit);
    let ambit = launch.serve().await;
    let api = ambit_tests::client::Api::of(&ambit);
    assert_end(&api.run(&House::request("hi")).await.assert_status(200).json(), "completed", "answered");
    ambit_tests::quiet::assert_quiet(&api).await;
}

/// Each mistake ends the start with exit code 78 and says what, where, and what is allowed.
#[tokio::test]
async fn configurations_that_do_not_start() {
    for (config, said) in [
        ("[default.limits]\nmodel_calls = 0\n", "model_calls"),
        ("[default.limits]\nmodel_cals = 3\n", "model_cals"),
        ("[default.limits\n", "ambit.toml"),
        ("[default.limits]\ndeadline = \"soon\"\n", "deadline"),
        ("[default.limits]\ndeadline = \"unlimited\"\n", "deadline"),
        ("[default.models.primary]\nrequest = \"90s\"\n", "request"),
        ("[default.agents.a]\ninstructions = \"x\"\nchain = \"nowhere\"\n", "nowhere"),
        ("[default.agents.a]\ninstructions = \"x\"\ntools = [\"nothing\"]\n", "nothing"),
        ("[default.models.primary]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\napi_key = \"sk-literal\"\n", "api_key"),
        ("[default.server]\nlisten = \"0.0.0.0:8080\"\n", "listen"),
        ("[default.hedge]\ndelay = \"1s\"\n", "hedge"),
    ] {
        let end = Launch::with(config).without_env("AMBIT_SERVER__LISTEN").run(&["serve"]).await;
        end.assert_code(78).assert_stderr(said);
        assert!(!end.stderr.contains("panicked") && !end.stderr.contains("sk-literal"), "{}", end.stderr);
    }
}

#[tokio::test]
async fn a_profile_that_does_not_exist_names_those_that_do() {
    let end = Launch::bare().run(&["serve", "--profile", "prdo"]).await;
    end.assert_code(78).assert_stderr("prdo").assert_stderr("default").assert_stderr("dev");
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read() {
    let launch = Launch::bare();
    let end = launch.run(&["serve", "--config", "nowhere.toml"]).await;
    end.assert_code(78).assert_stderr("nowhere.toml");
    launch.write("folder.toml/x", "");
    launch.run(&["serve", "--config", "folder.toml"]).await.assert_code(78).assert_stderr("folder.toml");
}

#[tokio::test]
async fn a_database_that_cannot_be_opened() {
    let launch = Launch::bare().env("AMBIT_STORE__URL", "sqlite:/nowhere/at/all/ambit.db");
    let end = launch.run(&["serve"]).await;
    assert!(matches!(end.code(), Some(69 | 78)), "{end:?}");
    end.assert_stderr("/nowhere/at/all/ambit.db");
    let launch = Launch::bare();
    launch.write("ambit.db", "this is no database, but some text that is long enough to be looked at as one");
    let end = launch.run(&["serve"]).await;
    assert!(matches!(end.code(), Some(69 | 78)) && end.stderr.contains("ambit.db"), "{end:?}");
}

#[tokio::test]
async fn a_port_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let end = Launch::bare().env("AMBIT_SERVER__LISTEN", &address).run(&["serve"]).await;
    end.assert_code(69).assert_stderr(&address);
}
