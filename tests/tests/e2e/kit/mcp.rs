//! The fake MCP server, spoken to by hand.

use std::process::Stdio;

use ambit_tests::within;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

struct Spoken {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    folder: tempfile::TempDir,
}

impl Spoken {
    fn start(mut play: Value) -> Spoken {
        let folder = tempfile::tempdir().unwrap();
        play["record"] = json!(folder.path().join("seen.jsonl"));
        let script = folder.path().join("play.json");
        std::fs::write(&script, play.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ambit-fake-mcp"));
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Spoken { stdin: child.stdin.take(), child, lines, folder }
    }

    async fn say(&mut self, message: Value) {
        self.stdin.as_mut().unwrap().write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn call(&mut self, id: u32, name: &str) {
        self.say(json!({"id": id, "method": "tools/call", "params": {"name": name}})).await;
    }

    async fn hear(&mut self) -> String {
        within("a line of the fake MCP server", self.lines.next_line()).await.unwrap().unwrap_or_default()
    }

    fn seen(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.path().join("seen.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    async fn code(&mut self) -> Option<i32> {
        within("the end of the fake MCP server", self.child.wait()).await.unwrap().code()
    }
}

fn play(script: Value) -> Value {
    json!({"server": "s", "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
        "on_call": {"t": {"content": [{"type": "text", "text": "41"}]}}, "script": script})
}

#[tokio::test]
async fn it_behaves_without_a_script() {
    let mut fake = Spoken::start(play(json!([])));
    fake.say(json!({"id": 1, "method": "initialize", "params": {"protocolVersion": "x"}})).await;
    assert!(fake.hear().await.contains(r#""protocolVersion":"x""#));
    fake.say(json!({"method": "notifications/initialized"})).await;
    fake.say(json!({"id": 2, "method": "tools/list"})).await;
    assert!(fake.hear().await.contains(r#""name":"t""#));
    fake.call(3, "t").await;
    assert!(fake.hear().await.contains("41"));
    fake.call(4, "other").await;
    assert!(fake.hear().await.contains("-32602"));
    drop(fake.stdin.take());
    assert_eq!(fake.code().await, Some(0));
    let methods: Vec<Value> = fake.seen().iter().map(|m| m.get("method").unwrap_or(&m["event"]).clone()).collect();
    let expected = ["start", "initialize", "notifications/initialized", "tools/list", "tools/call", "tools/call", "stdin_closed"];
    assert_eq!(methods, expected.map(Value::from));
}

#[tokio::test]
async fn steps_replace_the_right_answer() {
    let mut fake = Spoken::start(play(json!([
        {"on": "tools/call", "nth": 1, "write": ["noise", "{\"id\":{{id}}}"]},
        {"on": "tools/call", "nth": 2, "notify": ["notifications/tools/list_changed"], "result": {"content": []}},
        {"on": "tools/call", "nth": 3, "behaviour": "hang"},
        {"on": "tools/call", "nth": 4, "behaviour": "exit", "code": 3},
    ])));
    fake.call(1, "t").await;
    assert_eq!((fake.hear().await, fake.hear().await), ("noise".to_owned(), r#"{"id":1}"#.to_owned()));
    fake.call(2, "t").await;
    assert!(fake.hear().await.contains("list_changed"));
    assert!(fake.hear().await.contains(r#""content":[]"#));
    fake.call(3, "t").await;
    fake.say(json!({"id": 4, "method": "ping"})).await;
    assert!(fake.hear().await.contains(r#""id":4"#), "a call that hangs holds up no other");
    fake.call(5, "t").await;
    assert_eq!(fake.code().await, Some(3));
}

#[tokio::test]
async fn a_cancelled_call_gets_no_answer_unless_the_cancellation_is_ignored() {
    for (ignore, expected) in [(false, 9), (true, 1)] {
        let mut script = vec![json!({"on": "tools/call", "nth": 1, "result_after_ms": 30})];
        script.push(json!({"on": "tools/call", "nth": 2, "result_after_ms": 60}));
        if ignore {
            script.push(json!({"on": "notifications/cancelled", "behaviour": "ignore"}));
        }
        let mut fake = Spoken::start(play(Value::from(script)));
        fake.call(1, "t").await;
        fake.say(json!({"method": "notifications/cancelled", "params": {"requestId": 1}})).await;
        fake.call(9, "t").await;
        let first: Value = serde_json::from_str(&fake.hear().await).unwrap();
        assert_eq!(first["id"], expected);
    }
}

#[tokio::test]
async fn it_can_refuse_to_stop() {
    let stubborn = json!([{"on": "stdin_closed", "behaviour": "ignore"}, {"on": "SIGTERM", "behaviour": "ignore"}]);
    let mut fake = Spoken::start(play(stubborn));
    drop(fake.stdin.take());
    let pid = fake.child.id().unwrap().to_string();
    within("both wishes to be recorded", async {
        while fake.folder.path().join("seen.jsonl").metadata().is_err() {
            tokio::task::yield_now().await;
        }
        assert!(Command::new("kill").arg(&pid).status().await.unwrap().success());
        while fake.seen().len() < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(fake.child.try_wait().unwrap().is_none(), "it lives on");
}
