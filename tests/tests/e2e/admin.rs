//! The process as its operator sees it: what is in force, how it stands, draining, starting; and tightening what runs.

use ambit_tests::client::{Answer, Api};
use ambit_tests::quiet::assert_quiet;
use ambit_tests::upstream::{Act, Call, Script};
use ambit_tests::within;
use reqwest::Method;
use serde_json::{Value, json};

use crate::house::{AGENT, House, Setup, assert_end, assert_unhurt};

impl House {
    async fn in_background(&self) -> String {
        let request = self.api.session(&House::request("hi")).header("prefer", "respond-async");
        self.api.send(request).await.assert_status(202).json()["id"].as_str().unwrap().to_owned()
    }
}

async fn tighten(api: &Api, id: &str, limits: &Value) -> Answer {
    api.send(api.request(Method::PATCH, &format!("/v1/sessions/{id}/limits")).json(limits)).await
}

fn pointers(problem: &Value) -> Vec<&str> {
    problem["errors"].as_array().unwrap().iter().map(|error| error["pointer"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_configuration_in_force_is_shown_with_sources_and_without_secrets() {
    let house = Setup::new("ok").serve().await;
    let answer = house.api.get_admin("/admin/config").await;
    let shown = answer.assert_status(200).json();
    assert_eq!(shown["revision"], house.api.get("/version").await.json()["config_revision"]);
    assert_eq!(
        (&shown["settings"]["limits"]["deadline"], &shown["settings"]["models"]["primary"]["api_key"]),
        (&json!("30s"), &json!("***"))
    );
    assert!(shown["sources"]["limits.deadline"].as_str().unwrap().contains("ambit.toml:"), "{shown:#}");
    assert_eq!(shown["sources"]["models.primary.api_key"], "AMBIT_MODELS__PRIMARY__API_KEY");
    assert!(!answer.text().contains("key-of-the-provider"));
    house.close().await;
}

#[tokio::test]
async fn health_shows_capabilities_bulkheads_and_sessions() {
    let config = "[default.mcp.depot]\ncommand = \"/nowhere/at/all\"\nallow = [\"*\"]\n";
    let house = Setup::new("held ok").read("look", Act::json(json!(1))).offer("depot", config).serve().await;
    let of = |health: &Value, name: &str| {
        let all = health["capabilities"].as_array().unwrap();
        all.iter().find(|one| one["capability"] == name).unwrap_or_else(|| panic!("no {name} in {health:#}")).clone()
    };
    let health = house.api.get("/v1/health").await.assert_status(200).json();
    assert_eq!((&health["object"], &health["status"], &health["draining"]), (&json!("health"), &json!("degraded"), &json!(false)));
    for (name, status) in [("store", "healthy"), ("model:primary", "healthy"), ("tool:look", "healthy"), ("mcp:depot", "unavailable")] {
        assert_eq!(of(&health, name)["status"], status, "{health:#}");
    }
    assert!(["left_out", "backing_off", "starting"].contains(&of(&health, "mcp:depot")["mode"].as_str().unwrap()));
    assert_eq!(health["targets"][0], json!({"target": "primary", "model": "m", "chains": ["default"]}));
    let id = house.in_background().await;
    house.provider.wait_for("the call", |seen| seen.in_flight == 1).await;
    let health = house.api.get("/v1/health").await.json();
    assert_eq!(health["sessions"], json!({"in_flight": {AGENT: 1, "ops": 0}, "open": 1, "places": 64, "free_places": 63}));
    assert_eq!(health["bulkheads"][0], json!({"pool": "primary", "kind": "model", "limit": 8, "in_use": 1, "sleeping": 0, "queued": 0}));
    assert!(!health.to_string().contains("key-of-the-provider"));
    house.provider.release();
    house.verdict(&id).await;
    house.close().await;
}

#[tokio::test]
async fn a_process_that_is_asked_to_drain_finishes_and_ends() {
    let house = Setup::new("held ok(finished)").serve().await;
    // A web page must not be able to.
    for (name, value) in [("host", "evil.example"), ("origin", "https://evil.example")] {
        let request = house.api.request_admin(Method::POST, "/admin/drain").header(name, value);
        house.api.send(request).await.assert_problem(403, "FORBIDDEN");
    }
    assert_eq!(house.api.get("/readyz").await.status, 200);
    let id = house.in_background().await;
    house.provider.wait_for("the call", |seen| seen.in_flight == 1).await;
    for _ in 0..2 {
        let drain = house.api.post_admin("/admin/drain").await.assert_status(202).json();
        assert_eq!((&drain["in_flight"], &drain["open"], &drain["deadline_ms"]), (&json!(1), &json!(1), &json!(30_000)));
    }
    assert_eq!((house.api.get("/readyz").await.status, house.api.get("/livez").await.status), (503, 200));
    house.answer("late").await.assert_problem(503, "SHUTTING_DOWN");
    house.api.post_admin("/admin/reload").await.assert_problem(503, "SHUTTING_DOWN");
    assert_eq!(house.api.get("/v1/health").await.json()["status"], "unavailable");
    let path = format!("/v1/sessions/{id}/events");
    let stream = house.api.stream(house.api.request(Method::GET, &path)).await.events().await;
    house.provider.release();
    let events = { stream }.to_verdict().await;
    assert_eq!(events.last().unwrap().kind(), "session.completed");
    let end = house.ambit.end().await;
    end.assert_code(0);
    assert_unhurt(&end.stderr);
}

#[tokio::test]
async fn a_process_that_starts_lives_and_says_what_it_waits_for() {
    let config = "[default.mcp.depot]\ncommand = \"COMMAND\"\nargs = [\"play.json\"]\nallow = [\"*\"]\nstart = \"3s\"\n";
    let config = config.replace("COMMAND", env!("CARGO_BIN_EXE_ambit-fake-mcp"));
    let (launch, provider, tools) = Setup::new("ok").offer("depot", &config).furnish().await;
    let play = json!({"server": "depot", "tools": [], "script": [{"on": "initialize", "behaviour": "hang"}]});
    launch.write("play.json", &play.to_string());
    let mut ambit = launch.serve_starting().await;
    let api = Api::of(&ambit);
    assert_eq!((api.get("/livez").await.status, api.get_admin("/livez").await.status), (200, 200));
    within("it to wait for the server", async {
        loop {
            let ready = api.get_admin("/readyz").await;
            if ready.assert_status(503).json()["waits_for"] == "MCP servers: depot" {
                assert_eq!(ready.json()["status"], "starting");
                return;
            }
        }
    })
    .await;
    let problem = api.run(&House::request("hi")).await.assert_problem(503, "OVERLOADED");
    assert!(problem["detail"].as_str().unwrap().contains("MCP servers: depot"), "{problem:#}");
    assert_eq!(api.get_admin("/metrics").await.status, 503);
    ambit.process().stderr_says("that it is ready", |text| text.contains("listening on http://")).await;
    assert_eq!(api.get("/readyz").await.status, 200);
    let house = House { launch, provider, tools, ambit, api };
    assert_end(&house.session("hi").await, "completed", "answered");
    house.close().await;
}

#[tokio::test]
async fn a_process_that_starts_can_be_told_to_stop() {
    let config = "[default.mcp.depot]\ncommand = \"COMMAND\"\nargs = [\"play.json\"]\nallow = [\"*\"]\nstart = \"20s\"\n";
    let config = config.replace("COMMAND", env!("CARGO_BIN_EXE_ambit-fake-mcp"));
    let (launch, _provider, _tools) = Setup::new("ok").offer("depot", &config).furnish().await;
    launch.write("play.json", &json!({"server": "depot", "tools": [], "script": [{"on": "initialize", "behaviour": "hang"}]}).to_string());
    let ambit = launch.serve_starting().await;
    assert_unhurt(&ambit.terminate().await.assert_code(0).stderr);
}

#[tokio::test]
async fn the_admin_listener_describes_itself() {
    let house = Setup::new("ok").serve().await;
    let document = house.api.get_admin("/openapi.json").await.assert_status(200).json();
    for (path, method) in [
        ("/admin/config", "get"),
        ("/admin/reload", "post"),
        ("/admin/drain", "post"),
        ("/metrics", "get"),
        ("/livez", "get"),
        ("/readyz", "get"),
        ("/version", "get"),
        ("/openapi.json", "get"),
    ] {
        assert!(document["paths"][path][method].is_object(), "{method} {path} is not in the document");
    }
    let document = house.api.get("/openapi.json").await.json();
    for (path, method) in [("/v1/health", "get"), ("/v1/sessions/{id}/limits", "patch")] {
        assert!(document["paths"][path][method].is_object(), "{method} {path} is not in the document");
    }
    assert!(document["paths"]["/admin/drain"].is_null());
    house.api.send(house.api.request(Method::POST, "/admin/drain")).await.assert_problem(404, "NOT_FOUND");
    house.close().await;
}

fn three_turns() -> Script {
    let call = |id: &str| Act::calls([Call::new("look", &json!({"id": id})).id(id)]);
    Script::new([call("a").held(), call("b"), Act::text("end")]).by_turn()
}

#[tokio::test]
async fn limits_of_a_running_session_are_tightened_and_never_loosened() {
    let house = Setup::new(three_turns()).read("look", Act::json(json!(1))).serve().await;
    let id = house.in_background().await;
    house.provider.wait_for("the first call", |seen| seen.in_flight == 1).await;

    let tightened = tighten(&house.api, &id, &json!({"tool_calls": 1, "total_tokens": 50_000})).await.assert_status(200).json();
    assert_eq!((&tightened["limits"]["tool_calls"], &tightened["limits"]["total_tokens"]), (&json!(1), &json!(50_000)));
    // Once more is the same.
    assert_eq!(tighten(&house.api, &id, &json!({"tool_calls": 1})).await.assert_status(200).json()["limits"], tightened["limits"]);

    let problem = tighten(&house.api, &id, &json!({"tool_calls": 2, "deadline_ms": 30_001, "model_calls": 3})).await;
    assert_eq!(pointers(&problem.assert_problem(400, "LIMITS_TOO_HIGH")), ["/deadline_ms", "/tool_calls"]);
    let problem = tighten(&house.api, &id, &json!({"speed": 1, "model_calls": "two"})).await;
    assert_eq!(pointers(&problem.assert_problem(400, "INVALID_REQUEST")), ["/model_calls", "/speed"]);
    assert_eq!(tighten(&house.api, &id, &json!({})).await.assert_status(200).json()["limits"], tightened["limits"]);
    let missing = format!("{}0", &id[..id.len() - 1]);
    if missing != id {
        tighten(&house.api, &missing, &json!({"tool_calls": 1})).await.assert_problem(404, "SESSION_NOT_FOUND");
    }
    let now = house.api.get(&format!("/v1/sessions/{id}")).await.json();
    assert_eq!(now["limits"], tightened["limits"], "what was refused changed nothing");

    house.provider.release();
    let end = house.verdict(&id).await;
    assert_eq!((&end["reason"], &end["spent"]["tool_calls"]), (&json!("tool_calls"), &json!(1)), "{end:#}");
    let after = tighten(&house.api, &id, &json!({"tool_calls": 0})).await.assert_status(200).json();
    assert_eq!((&after["limits"], &after["reason"]), (&end["limits"], &end["reason"]), "a session with its verdict stays as it is");
    tighten(&house.api, &id, &json!({"tool_calls": 2})).await.assert_problem(400, "LIMITS_TOO_HIGH");
    house.close().await;
}

#[tokio::test]
async fn a_limit_below_what_is_spent_ends_the_session_at_its_next_step() {
    let call = |id: &str| Act::calls([Call::new("look", &json!({"id": id})).id(id)]);
    let chat = Script::new([call("a"), call("b").held(), Act::text("end")]).by_turn();
    let house = Setup::new(chat).read("look", Act::json(json!(1))).serve().await;
    let id = house.in_background().await;
    house.provider.wait_for("the second call", |seen| seen.calls == 2 && seen.in_flight == 1).await;
    tighten(&house.api, &id, &json!({"model_calls": 1})).await.assert_status(200);
    house.provider.release();
    let end = house.verdict(&id).await;
    assert_end(&end, "incomplete", "model_calls");
    assert_eq!(house.provider.calls(), 2);
    house.close().await;
}

#[tokio::test]
async fn a_shorter_deadline_falls_due_earlier() {
    let house = Setup::new("sil").serve().await;
    let id = house.in_background().await;
    house.provider.wait_for("the call", |seen| seen.in_flight == 1).await;
    let session = tighten(&house.api, &id, &json!({"deadline_ms": 500})).await.assert_status(200).json();
    assert_eq!(session["limits"]["deadline_ms"], 500);
    let end = house.verdict(&id).await;
    assert_eq!((&end["status"], &end["reason"]), (&json!("incomplete"), &json!("deadline")), "{end:#}");
    house.close().await;
}

#[tokio::test]
async fn limits_are_tightened_sixteen_times_and_not_once_more() {
    let house = Setup::new("held ok").serve().await;
    let id = house.in_background().await;
    house.provider.wait_for("the call", |seen| seen.in_flight == 1).await;
    for n in 0..16 {
        tighten(&house.api, &id, &json!({"total_tokens": 100_000 - n})).await.assert_status(200);
    }
    let problem = tighten(&house.api, &id, &json!({"total_tokens": 1_000})).await.assert_problem(400, "INVALID_REQUEST");
    assert!(problem["detail"].as_str().unwrap().contains("16 times"), "{problem:#}");
    // What changes nothing is no tightening.
    tighten(&house.api, &id, &json!({"total_tokens": 99_985})).await.assert_status(200);
    house.provider.release();
    assert_end(&house.verdict(&id).await, "completed", "answered");
    house.close().await;
}

#[tokio::test]
async fn a_tightening_survives_a_crash() {
    let house = Setup::new(three_turns()).read("look", Act::json(json!(1))).serve().await;
    let id = house.in_background().await;
    house.provider.wait_for("the first call", |seen| seen.in_flight == 1).await;
    tighten(&house.api, &id, &json!({"tool_calls": 1})).await.assert_status(200);
    let House { launch, provider, tools, ambit, .. } = house;
    assert_unhurt(&ambit.crash().await.stderr);
    provider.release();
    let ambit = launch.serve().await;
    let api = Api::of(&ambit);
    let house = House { launch, provider, tools, ambit, api };
    assert_eq!(house.api.get(&format!("/v1/sessions/{id}")).await.json()["limits"]["tool_calls"], 1);
    let end = within("the session to be taken over", async {
        loop {
            let session = house.verdict(&id).await;
            if !session["verdict_at"].is_null() {
                return session;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!((&end["reason"], &end["spent"]["tool_calls"]), (&json!("tool_calls"), &json!(1)), "{end:#}");
    house.close().await;
}

#[tokio::test]
async fn a_session_of_another_process_is_tightened_through_the_store() {
    let house = Setup::new(three_turns()).read("look", Act::json(json!(1))).serve().await;
    let second = house.launch.serve().await;
    let elsewhere = Api::of(&second);
    let id = house.in_background().await;
    house.provider.wait_for("the first call", |seen| seen.in_flight == 1).await;
    let problem = tighten(&elsewhere, &id, &json!({"tool_calls": 11})).await;
    assert_eq!(pointers(&problem.assert_problem(400, "LIMITS_TOO_HIGH")), ["/tool_calls"]);
    let tightened = tighten(&elsewhere, &id, &json!({"tool_calls": 1})).await.assert_status(200).json();
    assert_eq!(tightened["limits"]["tool_calls"], 1);
    assert_eq!(house.api.get(&format!("/v1/sessions/{id}")).await.json()["limits"], tightened["limits"]);
    house.provider.release();
    let end = house.verdict(&id).await;
    assert_eq!((&end["reason"], &end["spent"]["tool_calls"]), (&json!("tool_calls"), &json!(1)), "{end:#}");
    assert_quiet(&elsewhere).await;
    assert_unhurt(&second.terminate().await.stderr);
    house.close().await;
}
