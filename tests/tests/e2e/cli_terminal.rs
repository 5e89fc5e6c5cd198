//! `ambit run` in front of a person and in front of a script: bars, lines, text as it comes, signals, broken outputs.

use ambit_tests::process::Launch;
use ambit_tests::pty::screen;
use ambit_tests::quiet::assert_quiet;
use ambit_tests::upstream::{Act, Call, Point, Reply, Script};
use serde_json::{Value, json};

use crate::house::{AGENT, Setup};

const ESCAPE: char = '\u{1b}';

/// One look, then an answer.
fn looking() -> Setup {
    let call = Call::new("look", &json!({"id": "r"})).id("c1");
    let chat = Script::new([Act::calls([call]), Act::text("the answer")]).by_turn();
    Setup::new(chat).read("look", Act::json(json!(41)))
}

/// As a terminal has it.
fn coloured(launch: Launch) -> Launch {
    launch.without_env("NO_COLOR").env("TERM", "xterm-256color")
}

#[tokio::test]
async fn on_a_terminal_budgets_are_bars_and_only_what_happened_stays() {
    let (launch, provider, tools) = looking().furnish().await;
    let end = coloured(launch).spawn_on_terminal(&["run", AGENT, "hi"]).finish().await;
    end.assert_code(0);
    for bar in ["time [", "model calls [", "tool calls [", "tokens [", "money ["] {
        assert!(end.stderr.contains(bar), "there is no bar `{bar}`:\n{}", end.stderr);
    }
    assert!(end.stderr.contains("2 of 8") && end.stderr.contains("1 of 10"), "{}", end.stderr);
    let stays = screen(&end.stderr);
    assert!(stays.iter().any(|line| line.contains("tool look: OK")), "{stays:#?}");
    assert!(!stays.iter().any(|line| line.contains(" [")), "bars stay: {stays:#?}");
    assert!(end.stdout.starts_with("the answer\n\n[completed (answered)") && !end.stdout.contains(ESCAPE), "{}", end.stdout);
    provider.assert_clean();
    tools.assert_clean();
}

#[tokio::test]
async fn whoever_wants_no_colour_gets_plain_lines_on_a_terminal_too() {
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let (launch, _provider, _tools) = looking().furnish().await;
        let end = coloured(launch).env(name, value).spawn_on_terminal(&["run", AGENT, "hi"]).finish().await;
        end.assert_code(0).assert_stderr("tool look: OK");
        assert!(!end.stderr.contains(ESCAPE) && !end.stderr.contains("model calls ["), "{name}: {}", end.stderr);
    }
    let (launch, _provider, _tools) = looking().furnish().await;
    let end = coloured(launch).spawn_on_terminal(&["run", AGENT, "hi", "--quiet"]).finish().await;
    assert_eq!(end.assert_code(0).stderr, "", "quiet is quiet");
}

#[tokio::test]
async fn what_a_model_says_cannot_drive_a_terminal() {
    let chat = Script::from(Act::text("a\u{1b}[2Jb\u{9b}31mc"));
    for arguments in [&["run", AGENT, "hi"][..], &["run", AGENT, "hi", "--stream"]] {
        let (launch, _provider, _tools) = Setup::new(chat.clone()).furnish().await;
        let end = coloured(launch).run(arguments).await;
        assert!(end.assert_code(0).stdout.starts_with("a\u{fffd}[2Jb\u{fffd}31mc"), "{:?}", end.stdout);
    }
}

#[tokio::test]
async fn text_is_printed_as_it_comes_and_once() {
    let (launch, provider, _tools) = looking().furnish().await;
    let end = launch.run(&["run", AGENT, "hi", "--stream"]).await;
    assert_eq!(end.assert_code(0).stdout.matches("the answer").count(), 1, "{}", end.stdout);
    assert!(end.stdout.starts_with("the answer\n\n[completed (answered)"), "{}", end.stdout);

    let end = coloured(launch.clone()).spawn_in_terminal(&["run", AGENT, "hi", "--stream"]).finish().await;
    let stays = screen(&end.assert_code(0).stderr);
    assert!(stays.contains(&"the answer".to_owned()), "text and steps do not share a line: {stays:#?}");
    assert!(!end.stderr.contains("model calls ["), "no bars where text comes in pieces");

    let end = launch.run(&["run", AGENT, "hi", "--stream", "--json"]).await;
    let events: Vec<Value> = end.assert_code(0).stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.first().unwrap()["type"], "session.started");
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["data"]["output_text"]), (&json!("session.completed"), &json!("the answer")));
    provider.assert_clean();
}

#[tokio::test]
async fn text_is_there_before_its_end_is() {
    let act = Act::reply(Reply::pieces(["first ", "second ", "third ", "fourth"])).held_at(Point::Half);
    let (launch, provider, _tools) = Setup::new(Script::new([act])).furnish().await;
    let running = launch.spawn(&["run", AGENT, "hi", "--stream"]);
    running.stdout_says("the first half", |text| text.contains("first")).await;
    assert!(!running.stdout().contains("fourth"));
    provider.release();
    let end = running.finish().await;
    assert!(end.assert_code(0).stdout.starts_with("first second third fourth\n\n["), "{}", end.stdout);
    provider.assert_clean();
}

#[tokio::test]
async fn a_session_that_time_cut_off_has_the_exit_code_of_a_timeout() {
    let setup = Setup::new("held ok").set(&format!("agents.{AGENT}.limits.deadline"), "1500ms");
    let (launch, _provider, _tools) = setup.furnish().await;
    let end = launch.run(&["run", AGENT, "hi"]).await;
    assert!(end.assert_code(124).stdout.contains("[incomplete (deadline)"), "{}", end.stdout);
}

/// A write that is out when somebody leaves: once waits for it, twice does not.
#[tokio::test]
async fn the_first_interrupt_cancels_and_the_second_leaves_at_once() {
    let call = Call::new("bare", &json!({"id": "w"})).id("c1");
    let chat = Script::new([Act::calls([call]), Act::text("told")]).by_turn();
    let (launch, _provider, tools) = Setup::new(chat).write("bare", Act::json(json!(1)).held()).furnish().await;
    let launch = launch.clone().env("TMPDIR", &launch.folder().display().to_string());
    let running = launch.spawn(&["run", AGENT, "hi"]);
    tools.wait_for("the write", |seen| seen.in_flight == 1).await;
    running.interrupt();
    running.stdout_says("that it was cancelled", |text| text.contains("[cancelled (cancelled)")).await;
    running.interrupt();
    let end = running.finish().await;
    end.assert_code(130).assert_stderr("stopping").assert_stderr("waiting for what was sent").assert_stderr("left at once");
    tools.wait_for("the end of the write", |seen| seen.aborted == 1).await;
    // The journal knows that it was out: whoever takes the session up finds an effect that nobody knows the outcome of.
    let list = launch.run(&["sessions", "list", "--json"]).await;
    let list: Value = serde_json::from_str(&list.assert_code(0).stdout).unwrap();
    assert_eq!((&list["data"][0]["status"], &list["data"][0]["settlement"]), (&json!("cancelled"), &json!("pending")), "{list:#}");
    assert_no_sample(&launch);
}

#[tokio::test]
async fn one_interrupt_waits_for_the_settlement() {
    let call = Call::new("bare", &json!({"id": "w"})).id("c1");
    let chat = Script::new([Act::calls([call]), Act::text("told")]).by_turn();
    let (launch, _provider, tools) = Setup::new(chat).write("bare", Act::json(json!(1)).held()).furnish().await;
    let running = launch.spawn(&["run", AGENT, "hi"]);
    tools.wait_for("the write", |seen| seen.in_flight == 1).await;
    running.terminate();
    running.stdout_says("that it was cancelled", |text| text.contains("[cancelled (cancelled)")).await;
    tools.release();
    running.finish().await.assert_code(143);
    let list = launch.run(&["sessions", "list", "--json"]).await;
    let list: Value = serde_json::from_str(&list.assert_code(0).stdout).unwrap();
    assert_eq!((&list["data"][0]["settlement"], &list["data"][0]["effects"]["done"]), (&json!("settled"), &json!(1)), "{list:#}");
    tools.assert_clean();
}

/// Stopped while an MCP server is still coming up: nothing was started, nothing stays.
#[tokio::test]
async fn an_interrupt_before_everything_is_up_leaves_nothing_behind() {
    let config = "[default.mcp.slow]\ncommand = \"sleep\"\nargs = [\"60\"]\nallow = [\"*\"]\n[default.agents.ops]\ninstructions = \"x\"\nchain = \"default\"\ntools = [\"slow\", \"list_files\"]\n";
    let launch = Launch::with(config);
    let launch = launch.clone().env("TMPDIR", &launch.folder().display().to_string());
    for arguments in [&["run", "ops", "hi"][..], &["serve"]] {
        let running = launch.spawn(arguments);
        let server = ambit_tests::within("the MCP server's process", async {
            loop {
                if let Some(server) = running.descendants().into_iter().find(|member| member.name == "sleep") {
                    return server;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        running.interrupt();
        running.finish().await.assert_code(130);
        assert!(!server.lives(), "the server outlived {arguments:?}");
        assert_no_sample(&launch);
    }
}

fn assert_no_sample(launch: &Launch) {
    let left: Vec<_> = samples(launch);
    assert!(left.is_empty(), "{left:?}");
}

fn samples(launch: &Launch) -> Vec<String> {
    let names = std::fs::read_dir(launch.folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("ambit-demo-")).collect()
}

#[tokio::test]
async fn a_start_that_fails_leaves_nothing_behind() {
    let launch = Launch::bare();
    let launch = launch.clone().env("TMPDIR", &launch.folder().display().to_string()).env("AMBIT_STORE__URL", "sqlite:nowhere/ambit.db");
    for arguments in [&["run", "ops", "hi"][..], &["serve"]] {
        launch.run(arguments).await.assert_code(69).assert_stderr("hint:");
        assert_no_sample(&launch);
    }
}

#[tokio::test]
async fn what_a_killed_process_left_is_swept_by_the_next_and_what_a_living_one_has_is_not() {
    let launch = Launch::bare();
    let launch = launch.clone().env("TMPDIR", &launch.folder().display().to_string());
    let living = launch.serve().await;
    let kept = samples(&launch);
    assert_eq!(kept.len(), 2, "a folder and its lock: {kept:?}");
    launch.serve().await.crash().await;
    assert_eq!(samples(&launch).len(), 4);
    launch.run(&["run", "ops", "Is the web service healthy?"]).await.assert_code(0);
    let mut left = samples(&launch);
    left.sort();
    let mut kept = kept;
    kept.sort();
    assert_eq!(left, kept);
    let api = ambit_tests::client::Api::of(&living);
    assert_quiet(&api).await;
    living.terminate().await.assert_code(0);
    assert_no_sample(&launch);
}

#[tokio::test]
async fn output_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() {
    let launch = Launch::bare();
    for arguments in [&["bounds"][..], &["config", "show"], &["openapi"], &["completions", "bash"], &["run", "ops", "hi"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        launch.spawn_into(full, arguments).finish().await.assert_code(1).assert_stderr("the output could not be written");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let end = launch.spawn_into(writer, arguments).finish().await;
        end.assert_code(0);
        assert!(!end.stderr.contains("error") && !end.stderr.contains("panic"), "{arguments:?}: {}", end.stderr);
    }
}
