//! The harness, as far as it can be tried without knowing what `ambit` does; and the real MCP servers.

use ambit_tests::process::{Launch, binary};
use ambit_tests::{mcp, within};
use serde_json::{Value, json};

#[test]
fn the_binary_is_there() {
    assert!(binary().is_file());
}

#[tokio::test]
async fn a_launch_has_a_folder_of_its_own_and_a_bounded_end() {
    let launch = Launch::with("");
    launch.write("deep/er/file", "x");
    let other = Launch::bare();
    assert_ne!(launch.folder(), other.folder());
    assert!(launch.folder().join("deep/er/file").is_file() && launch.folder().join("ambit.toml").is_file());
    assert!(!other.folder().join("ambit.toml").exists());
    let end = launch.run(&["--version"]).await;
    assert!(end.code().is_some(), "{end:?}");
    let kept = launch.clone();
    drop(launch);
    assert!(kept.folder().is_dir(), "clones share the folder");
    let path = kept.folder().to_owned();
    drop((kept, end));
    assert!(!path.exists(), "the last one removes it");
}

#[tokio::test]
async fn the_real_mcp_server_answers_over_http() {
    let server = mcp::everything_http().await;
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "kit", "version": "1"}}});
    let request = reqwest::Client::new().post(server.url()).json(&initialize).header("accept", "application/json, text/event-stream");
    let text = within("the answer", async { request.send().await.unwrap().text().await.unwrap() }).await;
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let answer: Value = serde_json::from_str(data).unwrap();
    assert!(answer["result"]["serverInfo"]["name"].as_str().unwrap().contains("everything"), "{answer}");
}

#[test]
fn the_real_file_server_is_installed() {
    assert!(mcp::filesystem().is_file());
}
