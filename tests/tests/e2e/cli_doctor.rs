//! `ambit doctor`: every check well, and every check that can fail, failing.

use ambit_tests::process::{Finished, Launch};
use ambit_tests::quiet::assert_quiet;
use ambit_tests::upstream::{Act, Upstream};
use serde_json::{Value, json};

/// The one check of a name.
fn check(end: &Finished, name: &str) -> Value {
    let report: Value = serde_json::from_str(&end.stdout).unwrap();
    let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).cloned();
    assert!(found.is_some(), "there is no check `{name}`: {report:#}");
    found.unwrap_or_default()
}

/// Asserts how a check came out, that it says why, and that it says what to do unless all is well.
fn assert_check(end: &Finished, name: &str, status: &str, says: &str) {
    let check = check(end, name);
    assert_eq!(check["status"], status, "{check:#}");
    assert!(check["detail"].as_str().unwrap().contains(says), "`{says}` is missing: {check:#}");
    assert_eq!(check["hint"].is_string(), status != "ok", "{check:#}");
}

async fn doctor(launch: &Launch) -> Finished {
    launch.run(&["doctor", "--json"]).await
}

async fn doctor_online(launch: &Launch) -> Finished {
    launch.run(&["doctor", "--online", "--json"]).await
}

#[tokio::test]
async fn a_newcomer_is_well_and_nothing_is_made() {
    let launch = Launch::bare();
    let end = doctor(&launch).await;
    end.assert_code(0);
    for name in
        ["config", "profile", "ladder", "store", "disk", "clock", "server.listen", "server.admin_listen", "open files", "model primary"]
    {
        assert_eq!(check(&end, name)["status"], "ok", "{}", end.stdout);
    }
    assert_eq!(std::fs::read_dir(launch.folder()).unwrap().count(), 0);
    let text = launch.run(&["doctor"]).await;
    assert!(text.assert_code(0).stdout.lines().all(|line| line.starts_with("ok    ")), "{}", text.stdout);
    assert!(!text.stdout.contains('\u{1b}'));
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_is_all_that_is_said() {
    let launch = Launch::with("[default.limits]\nmodel_calls = 0\ntool_cals = 1\n");
    let end = doctor(&launch).await;
    end.assert_code(78);
    assert_check(&end, "config", "fail", "model_calls");
    let text = launch.run(&["doctor"]).await;
    assert!(text.assert_code(78).stdout.lines().any(|line| line.starts_with("fail  config")), "{}", text.stdout);
    // A rung of the ladder, and a key whose reference leads nowhere, are problems of the configuration.
    for config in ["[default.models.primary]\nrequest = \"50s\"\n", "[default.models.primary]\napi_key = \"env:NOT_THERE\"\n"] {
        doctor(&Launch::with(config)).await.assert_code(78);
    }
}

#[tokio::test]
async fn a_store_is_read_written_and_never_made() {
    let launch = Launch::bare();
    launch.run(&["run", "ops", "hi"]).await.assert_code(0);
    assert_check(&doctor(&launch).await, "store", "ok", "schema version");
    launch.write("text.db", &"no database, and long enough to be read as one ".repeat(40));
    let damaged = launch.clone().env("AMBIT_STORE__URL", "sqlite:text.db");
    let end = doctor(&damaged).await;
    assert_check(end.assert_code(1), "store", "fail", "cannot be read");
    let nowhere = launch.clone().env("AMBIT_STORE__URL", "sqlite:nowhere/ambit.db");
    let end = doctor(&nowhere).await;
    assert_check(end.assert_code(1), "store", "fail", "its folder cannot be written");
    assert_check(&end, "disk", "warn", "cannot be told");
    assert!(!launch.folder().join("nowhere").exists());
    let end = doctor(&launch.env("TMPDIR", "nowhere")).await;
    assert_check(end.assert_code(1), "temporary", "fail", "cannot be made");
}

#[tokio::test]
async fn a_port_is_free_or_ours_or_a_strangers() {
    let launch = Launch::bare();
    let ambit = launch.serve().await;
    let address = |url: &str| url.strip_prefix("http://").unwrap().to_owned();
    let beside =
        launch.clone().env("AMBIT_SERVER__LISTEN", &address(ambit.url())).env("AMBIT_SERVER__ADMIN_LISTEN", &address(ambit.admin_url()));
    let end = doctor(&beside).await;
    assert_check(end.assert_code(0), "server.listen", "ok", "serves there");
    assert_check(&end, "server.admin_listen", "ok", "serves there");
    let api = ambit_tests::client::Api::of(&ambit);
    assert_quiet(&api).await;
    ambit.terminate().await.assert_code(0);

    let stranger = Upstream::builder().route("any", "/*", Act::json(json!({"version": 1}))).start().await;
    let end = doctor(&launch.clone().env("AMBIT_SERVER__LISTEN", &stranger.address().to_string())).await;
    assert_check(end.assert_code(1), "server.listen", "fail", "taken by another program");
    // Whoever listens and says nothing is waited for, not for ever.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let end = doctor(&launch.env("AMBIT_SERVER__LISTEN", &silent.local_addr().unwrap().to_string())).await;
    assert_check(end.assert_code(1), "server.listen", "fail", "taken by another program");
}

#[tokio::test]
async fn a_model_without_a_key_and_too_few_files_are_warnings() {
    let launch = Launch::bare()
        .env("AMBIT_MODELS__PRIMARY__BASE_URL", "https://provider.example.org/v1")
        .env("AMBIT_MODELS__PRIMARY__MODEL", "m")
        .env("AMBIT_SERVER__MAX_IN_FLIGHT", "100000");
    let end = doctor(&launch).await;
    end.assert_code(0);
    assert_check(&end, "model primary", "warn", "without a key");
    assert_check(&end, "open files", "warn", "a full process needs about");
    let end = doctor(&launch.env("AMBIT_MODELS__PRIMARY__API_KEY", "topsecret")).await;
    assert_check(&end, "model primary", "ok", "key found (set in AMBIT_MODELS__PRIMARY__API_KEY)");
    assert!(!end.stdout.contains("topsecret"));
}

#[tokio::test]
async fn a_program_that_is_not_there_fails() {
    let launch = Launch::with(
        "[default.mcp.gone]\ncommand = \"no-such-program\"\nallow = [\"*\"]\n[default.mcp.there]\ncommand = \"sh\"\nallow = [\"*\"]\n",
    );
    let end = doctor(&launch).await;
    assert_check(end.assert_code(1), "mcp gone", "fail", "there is no program `no-such-program`");
    assert_check(&end, "mcp there", "ok", "starts /");
}

/// A provider whose list of models is played, as a launch knows it.
async fn provider(act: Act) -> (Launch, Upstream) {
    let provider = Upstream::builder().route("models", "/v1/models", act).start().await;
    let launch = Launch::bare()
        .env("AMBIT_MODELS__PRIMARY__BASE_URL", &provider.base_url())
        .env("AMBIT_MODELS__PRIMARY__MODEL", "m7")
        .env("AMBIT_MODELS__PRIMARY__API_KEY", "topsecret");
    (launch, provider)
}

#[tokio::test]
async fn online_a_provider_is_asked_for_its_models_and_for_nothing_else() {
    let list = |model: &str| Act::json(json!({"object": "list", "data": [{"id": "m1"}, {"id": model}]}));
    for (act, code, status, says) in [
        (list("m7"), 0, "ok", "lists `m7`"),
        (list("m8"), 0, "warn", "does not list `m7`"),
        (Act::error(404), 0, "ok", "has no list of models"),
        (Act::body("no JSON"), 0, "ok", "has no list of models"),
        (Act::huge(2 << 20), 0, "ok", "has no list of models"),
        (Act::error(401), 1, "fail", "does not accept the key (status 401)"),
        (Act::error(503), 1, "fail", "status 503"),
    ] {
        let (launch, provider) = provider(act).await;
        let end = doctor_online(&launch).await;
        assert_check(end.assert_code(code), "online model primary", status, says);
        assert!(!end.stdout.contains("topsecret"));
        let arrivals = provider.arrivals();
        assert_eq!((arrivals.len(), arrivals[0].method.as_str()), (1, "GET"));
        assert_eq!(arrivals[0].header("authorization"), Some("Bearer topsecret"));
    }
    let (launch, provider) = provider(list("m7")).await;
    doctor(&launch).await.assert_code(0);
    assert_eq!(provider.calls(), 0, "nothing reaches out unasked");
    let refused = Upstream::refused();
    let end = doctor_online(&launch.env("AMBIT_MODELS__PRIMARY__BASE_URL", &refused.base_url())).await;
    assert_check(end.assert_code(1), "online model primary", "fail", "cannot be reached");
}

#[tokio::test]
async fn online_servers_are_started_and_ended_and_hosts_looked_up() {
    let fake = env!("CARGO_BIN_EXE_ambit-fake-mcp");
    let config = format!(
        r#"
[default.mcp.frail]
command = "{fake}"
args = ["play.json"]
allow = ["level"]
[default.mcp.dead]
command = "false"
allow = ["*"]
[default.tools.near]
kind = "http"
description = "x"
url = "http://localhost:1/x"
method = "GET"
effect = "read"
schema = {{ type = "object" }}
[default.tools.far]
kind = "http"
description = "x"
url = "https://no-such-host.invalid/x"
method = "GET"
effect = "read"
schema = {{ type = "object" }}
"#
    );
    let launch = Launch::with(&config);
    launch.write(
        "play.json",
        r#"{"server": "frail", "tools": [{"name": "level", "inputSchema": {"type": "object"}}], "record": "seen.jsonl"}"#,
    );
    let end = doctor_online(&launch).await;
    assert_check(end.assert_code(1), "online mcp frail", "ok", "1 of its tools");
    let dead = check(&end, "online mcp dead");
    assert_eq!((&dead["status"], dead["hint"].is_string()), (&json!("fail"), true), "{dead:#}");
    assert_check(&end, "online host localhost", "ok", "for near");
    assert_check(&end, "online host no-such-host.invalid", "fail", "for far");
    let seen = std::fs::read_to_string(launch.folder().join("seen.jsonl")).unwrap();
    assert!(seen.contains("stdin_closed") || seen.contains("SIGTERM"), "it was asked to end: {seen}");
    assert!(!seen.contains("tools/call"), "nothing was called: {seen}");
}
