//! MCP servers: real ones over stdio and HTTP, and a fake one that misbehaves.

use std::path::Path;

use ambit_tests::mcp;
use ambit_tests::upstream::{Act, Call, Script};
use ambit_tests::within;
use serde_json::{Value, json};

use crate::house::{House, Setup, assert_end};

fn quoted(path: &Path) -> Value {
    json!(path.display().to_string())
}

fn turn(tail: &str, arguments: &Value) -> Script {
    Script::new([Act::calls([Call::new(tail, arguments).id("c1")]), Act::text("end")]).by_turn()
}

async fn told(house: &House) -> String {
    assert_end(&house.session("hi").await, "completed", "answered");
    house.told().first().map(|(_, text)| text.clone()).unwrap_or_default()
}

#[tokio::test]
async fn the_real_file_server_reads_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().canonicalize().unwrap().join("note.txt");
    std::fs::write(&file, "the depot holds 41 crates").unwrap();
    let config = format!(
        "[default.mcp.files]\ncommand = \"node\"\nargs = [{}, {}]\nallow = [\"read_text_file\", \"list_directory\"]\n",
        quoted(&mcp::filesystem()),
        quoted(file.parent().unwrap())
    );
    let house = Setup::new(turn("*read_text_file", &json!({"path": file}))).offer("files", &config).serve().await;
    let said = told(&house).await;
    assert!(said.contains("41 crates"), "{said}");
    let offered = house.provider.arrivals()[0].offered();
    assert!(offered.len() == 2 && offered.iter().all(|name| name.len() <= 64), "only what is allowed is offered: {offered:?}");
    house.close().await;
}

#[tokio::test]
async fn the_real_file_server_refuses_what_is_outside() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[default.mcp.files]\ncommand = \"node\"\nargs = [{}, {}]\nallow = [\"read_text_file\"]\n",
        quoted(&mcp::filesystem()),
        quoted(&folder.path().canonicalize().unwrap())
    );
    let house = Setup::new(turn("*read_text_file", &json!({"path": "/etc/passwd"}))).offer("files", &config).serve().await;
    let said = told(&house).await;
    assert!(said.contains("TOOL_ERROR") && !said.contains("root:"), "{said}");
    house.close().await;
}

#[tokio::test]
async fn the_real_server_of_everything_over_stdio_sees_no_environment_of_ours() {
    let config = format!(
        "[default.mcp.all]\ncommand = \"node\"\nargs = [{}, \"stdio\"]\nallow = [\"get-env\", \"get-sum\"]\n",
        quoted(&mcp::everything())
    );
    let house = Setup::new(turn("*get-env", &json!({}))).offer("all", &config).serve().await;
    let said = told(&house).await;
    assert!(said.contains("PATH") && !said.contains("key-of-the-provider") && !said.contains("AMBIT_"), "{said}");
    house.provider.play("chat", turn("*get-sum", &json!({"a": 19, "b": 23})));
    let said = told(&house).await;
    assert!(said.contains("42"), "{said}");
    house.close().await;
}

#[tokio::test]
async fn the_real_server_of_everything_over_http() {
    let server = mcp::everything_http().await;
    let config = format!("[default.mcp.all]\nurl = \"{}\"\nallow = [\"echo\", \"get-structured-content\"]\n", server.url());
    let house = Setup::new(turn("*echo", &json!({"message": "over http"}))).offer("all", &config).serve().await;
    let said = told(&house).await;
    assert!(said.contains("over http"), "{said}");
    drop(server);
    let said = told(&house).await;
    assert!(said.contains("UNAVAILABLE") || said.contains("OUTCOME_UNKNOWN"), "{said}");
    house.close().await;
}

/// A house whose agent is offered the fake server's tool `level`.
async fn fake(script: Value) -> House {
    let setup = Setup::new(turn("*level", &json!({})));
    let config = "[default.mcp.depot]\ncommand = \"COMMAND\"\nargs = [\"play.json\"]\nallow = [\"*\"]\nstart = \"3s\"\n\
         timeout = \"4s\"\nattempt = \"2s\"\n[default.mcp.depot.tools.level]\neffect = \"read\"\n";
    let config = config.replace("COMMAND", env!("CARGO_BIN_EXE_ambit-fake-mcp"));
    let (launch, provider, tools) = setup.offer("depot", &config).furnish().await;
    let play = json!({
        "server": "depot",
        "tools": [{"name": "level", "description": "How full it is.", "inputSchema": {"type": "object"}}],
        "on_call": {"level": {"content": [{"type": "text", "text": "41 crates"}]}},
        "script": script,
        "record": launch.folder().join("seen.jsonl"),
    });
    launch.write("play.json", &play.to_string());
    let config = std::fs::read_to_string(launch.folder().join("ambit.toml")).unwrap();
    launch.write("ambit.toml", &config.replace("play.json", &launch.folder().join("play.json").display().to_string()));
    let ambit = launch.serve().await;
    let api = ambit_tests::client::Api::of(&ambit);
    House { launch, provider, tools, ambit, api }
}

fn seen(house: &House) -> String {
    std::fs::read_to_string(house.launch.folder().join("seen.jsonl")).unwrap_or_default()
}

#[tokio::test]
async fn a_server_that_behaves_is_started_once_and_stopped_with_us() {
    let house = fake(json!([])).await;
    for _ in 0..2 {
        assert!(told(&house).await.contains("41 crates"));
    }
    assert_eq!(seen(&house).matches(r#""event":"start""#).count(), 1);
    let children = house.ambit.descendants();
    assert_eq!(children.len(), 1, "{children:?}");
    house.close().await;
    assert!(!children[0].lives());
}

#[tokio::test]
async fn noise_on_stdout_does_not_hurt() {
    let noise = json!([{"on": "start", "write": ["Debugger listening on ws://127.0.0.1", "", "{not json", "{\"jsonrpc\":\"2.0\"}"]},
        {"on": "tools/call", "nth": 1, "write": ["warming up", "{\"jsonrpc\":\"2.0\",\"id\":{{id}},\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"41 crates\"}]}}"]}]);
    let house = fake(noise).await;
    assert!(told(&house).await.contains("41 crates"));
    house.close().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_told_and_started_anew() {
    let house = fake(json!([{"on": "tools/call", "nth": 1, "behaviour": "exit", "code": 3, "stderr": "panic: out of shelf\n"}])).await;
    let said = told(&house).await;
    assert!(said.contains("UPSTREAM_UNAVAILABLE"), "{said}");
    house.close().await;
}

#[tokio::test]
async fn a_server_that_never_greets_is_unavailable_and_the_session_goes_on() {
    let house = fake(json!([{"on": "initialize", "behaviour": "hang"}])).await;
    let session = house.session("hi").await;
    assert_end(&session, "completed", "answered");
    house.close().await;
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_unavailable_and_the_session_goes_on() {
    let config = "[default.mcp.depot]\ncommand = \"/nowhere/at/all\"\nallow = [\"*\"]\n";
    let house = Setup::new("ok").offer("depot", config).serve().await;
    assert_end(&house.session("hi").await, "completed", "answered");
    house.close().await;
}

#[tokio::test]
async fn a_call_that_ignores_its_cancellation_costs_its_server_its_life() {
    let house = fake(json!([
        {"on": "tools/call", "nth": 1, "behaviour": "hang"},
        {"on": "notifications/cancelled", "behaviour": "ignore"},
        {"on": "stdin_closed", "behaviour": "ignore"},
        {"on": "SIGTERM", "behaviour": "ignore"},
    ]))
    .await;
    let said = told(&house).await;
    assert!(said.contains("UPSTREAM_TIMEOUT"), "{said}");
    within("the server to be asked to stop first", async {
        while !seen(&house).contains("notifications/cancelled") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let first = house.ambit.descendants();
    within("the old server to be killed", async {
        while first.iter().any(ambit_tests::process::Member::lives) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    house.close().await;
}

#[tokio::test]
async fn a_server_that_refuses_to_stop_is_killed_with_us() {
    let house = fake(json!([{"on": "stdin_closed", "behaviour": "ignore"}, {"on": "SIGTERM", "behaviour": "ignore"}])).await;
    assert!(told(&house).await.contains("41 crates"));
    let children = house.ambit.descendants();
    assert_eq!(children.len(), 1, "{children:?}");
    house.close().await;
    within("the server to be gone", async {
        while children[0].lives() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}
