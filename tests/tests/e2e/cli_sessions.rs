//! `ambit sessions` and `ambit replay`: the sessions of a file, beside whoever runs them.

use ambit_tests::client::Api;
use ambit_tests::process::{Finished, Launch};
use ambit_tests::quiet::assert_quiet;
use ambit_tests::upstream::{Act, Call, Script};
use serde_json::{Value, json};

use crate::house::{AGENT, House, Setup, assert_unhurt};

const NOBODY: &str = "ses_01ARZ3NDEKTSV4RRFFQ69G5FAV";

fn json_of(end: &Finished) -> Value {
    serde_json::from_str(&end.assert_code(0).stdout).unwrap()
}

fn call(tool: &str, id: &str) -> Call {
    Call::new(tool, &json!({"id": id})).id(id)
}

async fn background(api: &Api) -> String {
    let request = api.session(&House::request("hi")).header("prefer", "respond-async");
    api.send(request).await.assert_status(202).json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn where_there_is_no_database_none_is_made() {
    let launch = Launch::bare();
    for arguments in [
        &["sessions", "list"][..],
        &["sessions", "show", NOBODY],
        &["sessions", "tail", NOBODY],
        &["sessions", "cancel", NOBODY],
        &["replay", NOBODY],
    ] {
        let end = launch.run(arguments).await;
        end.assert_code(69).assert_stderr("there is no database at `ambit.db`").assert_stderr("hint:");
        assert_eq!(std::fs::read_dir(launch.folder()).unwrap().count(), 0, "{arguments:?}");
    }
}

#[tokio::test]
async fn ids_and_filters_that_cannot_be_are_refused() {
    let launch = Launch::bare();
    for arguments in [
        &["sessions", "show", "ses_1"][..],
        &["sessions", "list", "--limit", "0"],
        &["sessions", "list", "--limit", "101"],
        &["sessions", "list", "--status", "done"],
        &["sessions", "list", "--order", "up"],
        &["sessions", "list", "--after", "x"],
        &["sessions", "cancel", "last"],
        &["sessions"],
        &["replay"],
    ] {
        launch.run(arguments).await.assert_code(2);
    }
    launch.run(&["run", "ops", "hi"]).await.assert_code(0);
    for arguments in
        [&["sessions", "show", NOBODY][..], &["sessions", "tail", NOBODY], &["sessions", "cancel", NOBODY], &["replay", NOBODY]]
    {
        launch.run(arguments).await.assert_code(1).assert_stderr("does not exist").assert_stderr("hint:");
    }
    launch.run(&["sessions", "list", "--limit", "100"]).await.assert_code(0);
    let last = json_of(&launch.run(&["sessions", "show", "last", "--json"]).await);
    let second = json_of(&launch.run(&["run", "ops", "hi", "--json"]).await);
    assert_ne!(last["id"], second["id"]);
    for arguments in [&["sessions", "show", "last", "--json"][..], &["replay", "last", "--json"]] {
        let found = json_of(&launch.run(arguments).await);
        assert!(found["id"] == second["id"] || found["session_id"] == second["id"], "{found:#}");
    }
    launch.run(&["sessions", "tail", "last"]).await.assert_code(0);
}

#[tokio::test]
async fn lists_beside_a_server_as_its_api_does() {
    let house = Setup::new("[ok, 400, ok]").serve().await;
    house.session("hi").await;
    house.answer("hi").await.assert_status(400);
    house.session("hi").await;
    let list = async |arguments: &[&str]| house.launch.run(&[&["sessions", "list"], arguments].concat()).await;
    for (arguments, query) in [
        (&["--json"][..], ""),
        (&["--json", "--limit", "2"], "?limit=2"),
        (&["--json", "--order", "asc"], "?order=asc"),
        (&["--json", "--status", "failed"], "?status=failed"),
        (&["--json", "--agent", "nobody"], "?agent=nobody"),
    ] {
        let ours = json_of(&list(arguments).await);
        assert_eq!(ours, house.api.get(&format!("/v1/sessions{query}")).await.assert_status(200).json(), "{query}");
    }
    let first = list(&["--limit", "2"]).await;
    assert_eq!(first.assert_code(0).stdout.lines().count(), 3, "a head and two rows: {}", first.stdout);
    let last = first.stdout.lines().last().unwrap().split_whitespace().next().unwrap().to_owned();
    let rest = list(&["--after", &last]).await;
    first.assert_stderr(&format!("--after {last}"));
    assert_eq!(rest.assert_code(0).stdout.lines().count(), 2, "{}", rest.stdout);
    let none = list(&["--agent", "nobody"]).await;
    assert_eq!((none.assert_code(0).stdout.as_str(), none.stderr.trim()), ("", "no sessions"));
    house.close().await;
}

#[tokio::test]
async fn shows_a_session_as_the_api_does() {
    let chat = Script::new([Act::calls([call("look", "r1")]), Act::text("the answer")]).by_turn();
    let house = Setup::new(chat).read("look", Act::json(json!(41))).serve().await;
    let session = house.session("hi").await;
    let id = session["id"].as_str().unwrap();
    let shown = json_of(&house.launch.run(&["sessions", "show", id, "--json", "--steps", "--transcript"]).await);
    assert_eq!(shown, house.api.get(&format!("/v1/sessions/{id}?include=steps,transcript")).await.assert_status(200).json());
    // The same session under its other name.
    let other = id.replace("ses_", "resp_");
    let text = house.launch.run(&["sessions", "show", &other, "--steps"]).await;
    for part in [id, "completed (answered)", "2 of 8 (2 requests)", "look", "the answer"] {
        assert!(text.assert_code(0).stdout.contains(part), "`{part}` is missing: {}", text.stdout);
    }
    let text = house.launch.run(&["sessions", "show", id, "--transcript"]).await;
    assert!(text.assert_code(0).stdout.contains("[tool_result look OK]"), "{}", text.stdout);
    house.close().await;
}

#[tokio::test]
async fn tails_a_session_of_a_server_to_its_end() {
    let chat = Script::new([Act::calls([call("look", "r1")]), Act::text("the answer")]).by_turn();
    let house = Setup::new(chat).read("look", Act::json(json!(41)).held()).serve().await;
    let id = background(&house.api).await;
    house.tools.wait_for("the read", |seen| seen.in_flight == 1).await;
    let tail = house.launch.spawn(&["sessions", "tail", &id]);
    tail.stdout_says("that the tool began", |text| text.contains("tool look")).await;
    house.tools.release();
    let end = tail.finish().await;
    assert!(
        end.assert_code(0).stdout.contains("| the answer") && end.stdout.trim_end().ends_with("completed (answered)"),
        "{}",
        end.stdout
    );
    let events = house.launch.run(&["sessions", "tail", &id, "--json", "--settlement"]).await;
    let events: Vec<Value> = events.assert_code(0).stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], *kinds.last().unwrap()), ("session.started", "settlement.settled"), "{kinds:?}");
    house.close().await;
}

/// Whoever reads has had enough while the session still runs.
#[tokio::test]
async fn a_tail_ends_with_its_reader_and_leaves_the_session_alone() {
    let house = Setup::new("held ok").serve().await;
    let id = background(&house.api).await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    house.launch.spawn_into(writer, &["sessions", "tail", &id]).finish().await.assert_code(0);
    house.provider.release();
    assert_eq!(house.verdict(&id).await["status"], "completed");
    house.close().await;
}

#[tokio::test]
async fn cancels_a_session_of_a_server_and_asking_again_changes_nothing() {
    let house = Setup::new("held ok").serve().await;
    let id = background(&house.api).await;
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    let end = house.launch.run(&["sessions", "cancel", &id]).await;
    assert_eq!((end.assert_code(0).stdout.trim(), end.stderr.as_str()), (format!("{id} cancelled (cancelled)").as_str(), ""));
    house.provider.wait_for("the end of the model call", |seen| seen.aborted == 1).await;
    let again = house.launch.run(&["sessions", "cancel", &id, "--json"]).await;
    again.assert_stderr("it had ended before");
    assert_eq!(json_of(&again)["status"], "cancelled");
    let replay = json_of(&house.launch.run(&["replay", &id, "--json"]).await);
    assert_sound(&replay, &house.verdict(&id).await);
    assert!(replay.to_string().contains("an operator asked to stop"), "{replay:#}");
    house.close().await;
}

/// Nobody runs the session: nothing is taken over, the wish waits, and the next server hears it.
#[tokio::test]
async fn a_session_whose_process_died_is_cancelled_by_the_next() {
    let house = Setup::new("held ok").serve().await;
    let id = background(&house.api).await;
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    let House { launch, ambit, .. } = house;
    ambit.crash().await;
    for arguments in [&["sessions", "list"][..], &["sessions", "show", &id], &["replay", &id], &["doctor"]] {
        launch.run(arguments).await.assert_code(0);
    }
    // Within the dead owner's lease it may still be thought to live: either answer is right, and none is wrong.
    let end = launch.run(&["sessions", "cancel", &id]).await;
    assert!(end.assert_code(0).stdout.contains("running"), "nobody heard it: {}", end.stdout);
    assert!(end.stderr.contains("no process runs it") || end.stderr.contains("asked to stop"), "{}", end.stderr);
    let ambit = launch.serve().await;
    let api = Api::of(&ambit);
    let session = ambit_tests::within("the session to be cancelled", async {
        loop {
            let session = api.get(&format!("/v1/sessions/{id}")).await.assert_status(200).json();
            if !session["verdict_at"].is_null() {
                return session;
            }
            api.send(api.request(reqwest::Method::GET, &format!("/v1/sessions/{id}")).header("prefer", "wait=5")).await;
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(session["status"], "cancelled", "{session:#}");
    let replay = json_of(&launch.run(&["replay", &id, "--json"]).await);
    assert_sound(&replay, &session);
    assert!(replay.to_string().contains("another one took it over"), "{replay:#}");
    assert_quiet(&api).await;
    assert_unhurt(&ambit.terminate().await.stderr);
}

/// What holds for every replay.
fn assert_sound(replay: &Value, session: &Value) {
    let shown = || format!("{replay:#}");
    let decisions = replay["decisions"].as_array().unwrap();
    assert_eq!((&decisions[0]["event"], &decisions[0]["seq"]), (&json!("Started"), &json!(1)));
    assert_eq!(replay["disagrees_at"], Value::Null, "{}", shown());
    let reason = |of: &Value| of["why"].as_str().is_some_and(|why| !why.is_empty());
    let (mut left, mut finished) = (u64::MAX, 0);
    for decision in decisions {
        assert!(!decision["said"].as_str().unwrap().is_empty() && decision["agrees"] == true, "{decision:#}");
        for decided in decision["commands"].as_array().unwrap().iter().chain(decision["refused"].as_array().unwrap()) {
            assert!(reason(decided), "{decided:#}");
        }
        finished += decision["commands"].as_array().unwrap().iter().filter(|command| command["command"] == "Finish").count();
        let now = decision["remaining"]["ms"].as_u64().unwrap();
        assert!(now <= left, "{}", shown());
        left = now;
        for axis in ["model_calls", "tool_calls", "model_attempts", "tool_attempts"] {
            let sum = decision["remaining"][axis].as_u64().unwrap() + decision["spent"][axis].as_u64().unwrap();
            assert_eq!(Some(sum), replay["limits"][axis].as_u64(), "{axis}: {decision:#}");
        }
    }
    let end = decisions.last().unwrap();
    assert_eq!(end["spent"]["total_tokens"], session["spent"]["total_tokens"]);
    let is_over = !session["verdict_at"].is_null();
    assert_eq!(finished, usize::from(is_over), "{}", shown());
    if is_over {
        assert_eq!((&replay["verdict"]["status"], &replay["verdict"]["reason"]), (&session["status"], &session["reason"]));
        assert_eq!(replay["settlement"], session["settlement"]);
    }
}

/// One kind of session each: how it is set up, how it ends, and words that its replay must find.
fn kinds() -> Vec<(Setup, &'static str, Vec<&'static str>)> {
    let look = |n: usize| Act::calls([call("look", &format!("r{n}"))]);
    let looking = |n: usize| Script::new((0..n).map(look)).by_turn().when_tools_are_off(Act::text("that is all"));
    let read = |setup: Setup| setup.read("look", Act::json(json!(41)));
    let same = || Act::calls([Call::new("look", &json!({"id": "same"}))]);
    vec![
        (Setup::new("ok"), "completed(answered)", vec!["the session begins", "the model answered"]),
        (
            read(Setup::new(Script::new([
                Act::calls([Call::new("fly", &json!({})).id("a"), Call::new("look", &json!({"id": 7})).id("b"), call("look", "c")]),
                Act::text("end"),
            ]))),
            "completed(answered)",
            vec!["UNKNOWN_TOOL", "INVALID_ARGUMENTS", "every call of the turn has its result"],
        ),
        (
            read(Setup::new(looking(4)).set("limits.model_calls", "2")),
            "completed(model_calls)",
            vec!["the last one, without tools: model call 2 of 2"],
        ),
        (
            read(
                Setup::new(Script::new([Act::calls([call("look", "a"), call("look", "b")]), Act::text("end")]))
                    .set("limits.tool_calls", "1"),
            ),
            "completed(tool_calls)",
            vec!["BUDGET_EXHAUSTED", "1 of 1 tool calls"],
        ),
        (
            read(Setup::new(Script::new([same(), same(), same(), same(), Act::text("end")]))),
            "completed(loop)",
            vec!["LOOP_DETECTED", "the same call kept giving the same result"],
        ),
        (Setup::new("503 x9"), "failed(model_unavailable)", vec!["no turn: every target failed (overloaded)", "retry request"]),
        (Setup::new("400"), "failed(model_rejected)", vec!["the provider refused the request itself"]),
        (Setup::new(Act::text("half").finish(Some("length"))), "incomplete(output_truncated)", vec!["cut off by its output limit"]),
        (
            Setup::new(Script::new([Act::text(""), Act::text("")])),
            "incomplete(empty_response)",
            vec!["it is asked once more", "the model said nothing, twice"],
        ),
        (
            Setup::new(Script::new([Act::calls([call("bare", "w")]), Act::text("end")])).write("bare", "500"),
            "completed(answered)",
            vec!["a call that is no read is about to leave", "OUTCOME_UNKNOWN", "some effects need a person"],
        ),
    ]
}

#[tokio::test]
async fn every_kind_of_session_is_retold_with_its_reasons() {
    for (setup, ends, words) in kinds() {
        let (launch, _provider, _tools) = setup.furnish().await;
        let run = launch.run(&["run", AGENT, "hi", "--json"]).await;
        let session: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{ends}: {}", run.stderr));
        let how = format!("{}({})", session["status"].as_str().unwrap(), session["reason"].as_str().unwrap());
        assert_eq!(how, ends, "{session:#}");
        let id = session["id"].as_str().unwrap();
        let session = json_of(&launch.run(&["sessions", "show", id, "--json"]).await);
        let replay = json_of(&launch.run(&["replay", id, "--json"]).await);
        assert_sound(&replay, &session);
        let text = launch.run(&["replay", id]).await;
        for word in words {
            assert!(text.assert_code(0).stdout.contains(word), "{ends}: `{word}` is missing:\n{}", text.stdout);
        }
        assert!(!text.stdout.contains('\u{1b}'));
    }
}

#[tokio::test]
async fn sessions_that_run_and_that_ran_out_of_time_are_retold() {
    let house = Setup::new("held ok").serve().await;
    let id = background(&house.api).await;
    house.provider.wait_for("the model call", |seen| seen.in_flight == 1).await;
    let replay = json_of(&house.launch.run(&["replay", &id, "--json"]).await);
    assert_sound(&replay, &house.api.get(&format!("/v1/sessions/{id}")).await.json());
    let text = house.launch.run(&["replay", &id]).await;
    assert!(text.assert_code(0).stdout.contains("no verdict yet"), "{}", text.stdout);
    let late = house.api.run(&json!({"agent": AGENT, "input": "hi", "limits": {"deadline_ms": 600}})).await;
    let problem = late.assert_problem(504, "DEADLINE_EXCEEDED");
    let late = problem["session_id"].as_str().unwrap();
    let session = json_of(&house.launch.run(&["sessions", "show", late, "--json"]).await);
    let replay = json_of(&house.launch.run(&["replay", late, "--json"]).await);
    assert_sound(&replay, &session);
    for word in ["the last one, without tools: of 600 ms the last 150 are kept for the answer", "the time was over"] {
        assert!(replay.to_string().contains(word), "`{word}` is missing: {replay:#}");
    }
    house.provider.release();
    house.verdict(&id).await;
    house.close().await;
}
