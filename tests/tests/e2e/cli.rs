//! The command line as a newcomer meets it: nothing configured, nothing installed.

use ambit_tests::process::Launch;
use ambit_tests::upstream::{Act, Script, Upstream};
use serde_json::Value;

const QUESTION: &str = "What changed in the deploy folder last week, and is the service healthy?";

#[tokio::test]
async fn the_first_command_of_the_readme() {
    let launch = Launch::bare();
    let end = launch.run(&["run", "ops", QUESTION]).await;
    end.assert_code(0);
    assert!(end.stdout.contains("last") && end.stdout.to_lowercase().contains("health"), "{}", end.stdout);
    assert!(!end.stderr.is_empty(), "progress goes to stderr");
    assert!(!end.stdout.contains('\u{1b}') && !end.stderr.contains('\u{1b}'), "no colour off a terminal");
}

#[tokio::test]
async fn the_same_as_json() {
    let end = Launch::bare().run(&["run", "ops", QUESTION, "--json"]).await;
    let session: Value = serde_json::from_str(&end.assert_code(0).stdout).unwrap();
    assert_eq!(session["status"], "completed");
    assert!(session["spent"]["tool_calls"].as_u64().unwrap() >= 2, "{session:#}");
    assert_eq!(session["effects"]["done"], 0, "it only looked: {session:#}");
}

#[tokio::test]
async fn a_restart_is_a_write_and_is_done_once() {
    let end = Launch::bare().run(&["run", "ops", "restart the web service", "--json"]).await;
    let session: Value = serde_json::from_str(&end.assert_code(0).stdout).unwrap();
    assert_eq!((session["status"].as_str(), session["effects"]["done"].as_u64()), (Some("completed"), Some(1)), "{session:#}");
}

#[tokio::test]
async fn three_variables_make_it_a_real_provider() {
    let provider = Upstream::start("ok(from the provider)").await;
    let launch = Launch::bare()
        .env("AMBIT_MODELS__PRIMARY__BASE_URL", &provider.base_url())
        .env("AMBIT_MODELS__PRIMARY__MODEL", "m7")
        .env("AMBIT_MODELS__PRIMARY__API_KEY", "12345");
    let end = launch.run(&["run", "ops", "hi"]).await;
    assert!(end.assert_code(0).stdout.contains("from the provider"), "{}", end.stdout);
    let arrival = &provider.arrivals()[0];
    assert_eq!(arrival.header("authorization"), Some("Bearer 12345"), "a key of digits stays text");
    assert_eq!(arrival.body.as_ref().unwrap()["model"], "m7");
    assert!(!end.stderr.contains("12345"));
    provider.assert_clean();
}

#[tokio::test]
async fn exit_codes_say_how_it_ended() {
    for (script, code) in [
        (Script::from("ok"), 0),
        (Script::from(Act::text("half").finish(Some("length"))), 3),
        (Script::from("401"), 69),
        (Script::from("400"), 4),
    ] {
        let provider = Upstream::start(script).await;
        let launch = Launch::bare()
            .env("AMBIT_MODELS__PRIMARY__BASE_URL", &provider.base_url())
            .env("AMBIT_MODELS__PRIMARY__MODEL", "m")
            .env("AMBIT_MODELS__PRIMARY__API_KEY", "k");
        launch.run(&["run", "ops", "hi"]).await.assert_code(code);
    }
    Launch::bare().run(&["run", "nobody", "hi"]).await.assert_code(2).assert_stderr("ops");
    Launch::bare().run(&["fly"]).await.assert_code(2);
    Launch::bare().run(&["run", "ops", ""]).await.assert_code(2);
}

#[tokio::test]
async fn an_interrupted_run_is_cancelled_in_order() {
    let provider = Upstream::start("held ok").await;
    let launch = Launch::bare()
        .env("AMBIT_MODELS__PRIMARY__BASE_URL", &provider.base_url())
        .env("AMBIT_MODELS__PRIMARY__MODEL", "m")
        .env("AMBIT_MODELS__PRIMARY__API_KEY", "k");
    let running = launch.spawn(&["run", "ops", "hi"]);
    provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    running.interrupt();
    running.finish().await.assert_code(130);
    provider.wait_for("the end of the model call", |seen| seen.aborted == 1).await;
}

#[tokio::test]
async fn run_beside_serve_on_one_file() {
    let launch = Launch::bare();
    let ambit = launch.serve().await;
    let api = ambit_tests::client::Api::of(&ambit);
    let end = launch.run(&["run", "ops", "restart the web service", "--json"]).await;
    let session: Value = serde_json::from_str(&end.assert_code(0).stdout).unwrap();
    let found = api.get(&format!("/v1/sessions/{}", session["id"].as_str().unwrap())).await;
    assert_eq!(found.assert_status(200).json()["status"], "completed");
    ambit_tests::quiet::assert_quiet(&api).await;
    ambit.terminate().await.assert_code(0);
}

#[tokio::test]
async fn the_configuration_can_be_checked_shown_and_explained() {
    let launch = Launch::with("[default.limits]\ndeadline = \"40s\"\n").env("AMBIT_LIMITS__MODEL_CALLS", "5");
    launch.run(&["config", "check"]).await.assert_code(0);
    let shown = launch.run(&["config", "show"]).await;
    assert!(shown.assert_code(0).stdout.contains("40s"), "{}", shown.stdout);
    let explained = launch.run(&["config", "explain", "limits.deadline"]).await;
    let text = &explained.assert_code(0).stdout;
    assert!(text.contains("40s") && text.contains("ambit.toml") && text.contains("45s"), "{text}");
    let explained = launch.run(&["config", "explain", "limits.model_calls"]).await;
    assert!(explained.assert_code(0).stdout.contains("AMBIT_LIMITS__MODEL_CALLS"), "{}", explained.stdout);
    let schema = launch.run(&["config", "schema"]).await;
    let schema: Value = serde_json::from_str(&schema.assert_code(0).stdout).unwrap();
    assert!(schema["properties"].is_object() || schema["additionalProperties"].is_object(), "{schema}");
    let broken = Launch::with("[default.limits]\nmodel_calls = 0\ntool_cals = 1\n");
    let end = broken.run(&["config", "check"]).await;
    end.assert_code(78).assert_stderr("model_calls").assert_stderr("tool_calls").assert_stderr("ambit.toml:");
}

#[tokio::test]
async fn the_bounds_show_their_arithmetic() {
    let end = Launch::bare().run(&["bounds"]).await;
    let text = &end.assert_code(0).stdout;
    assert!(text.contains("ops") && text.contains('='), "{text}");
    let end = Launch::bare().run(&["bounds", "--json"]).await;
    assert!(serde_json::from_str::<Value>(&end.assert_code(0).stdout).unwrap().is_object());
}

#[tokio::test]
async fn an_input_on_stdin_is_taken_whole_or_not_at_all() {
    const MAX: usize = 1 << 20;
    let launch = Launch::bare().env("AMBIT_LIMITS__PROMPT_CHARS", "8000000").env("AMBIT_LIMITS__TRANSCRIPT", "16MiB");
    let whole = launch.run_fed(&"x".repeat(MAX), &["run", "ops", "-"]).await;
    assert!(!whole.stderr.contains("stdin"), "{}", whole.stderr);
    let cut = launch.run_fed(&"x".repeat(MAX + 1), &["run", "ops", "-"]).await;
    cut.assert_code(2).assert_stderr("never cut");
}
