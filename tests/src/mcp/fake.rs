//! An MCP server over stdio that behaves but for the steps of its script. The binary `ambit-fake-mcp` runs it.
//!
//! Its one argument is a JSON file:
//!
//! ```json
//! { "server": "frail",
//!   "tools": [ {"name": "level", "inputSchema": {"type": "object"}} ],
//!   "on_call": { "level": {"content": [{"type": "text", "text": "41"}]} },
//!   "script": [ {"on": "tools/call", "nth": 2, "behaviour": "exit", "code": 3, "stderr": "panic\n"} ],
//!   "record": "seen.jsonl" }
//! ```
//!
//! A step says `on` what it plays: `start`, `stdin_closed`, `SIGTERM`, or a request or notification by its method; narrowed by
//! `name` (the tool), `nth` (from 1, among equal methods and names) and `cursor` (`"*"` = any, null = none). The first step
//! that fits is played *instead of* the right behaviour:
//!
//! - `write`: raw lines to stdout, `{{id}}` is the id of the request;
//! - `result`, after `result_after_ms` if given; `notify`: methods to send before it;
//! - `behaviour`: `hang` (no answer), `ignore` (does not stop), `exit` (with `code`, after `stderr`).
//!
//! Every message received is appended to `record`, a line each, together with `{"event": "start" | "stdin_closed" | "SIGTERM"}`.
//! A delayed call that is cancelled gets no answer, unless a step ignores `notifications/cancelled`. A call without an entry is
//! answered with the JSON-RPC error -32602.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// Protocol version offered where the client asks for none that is a text.
const PROTOCOL: &str = "2025-06-18";

/// Longest life of a fake, in seconds: what ignores every wish to stop must not outlive a test run by much.
const LIFE_MAX: Duration = Duration::from_secs(300);

/// Calls whose answer is delayed at the same time; more are answered at once.
const DELAYED_MAX: usize = 256;

/// What the fake is told.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Play {
    server: String,
    tools: Vec<Value>,
    on_call: BTreeMap<String, Value>,
    script: Vec<Step>,
    record: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Step {
    on: String,
    name: Option<String>,
    nth: Option<u64>,
    cursor: Option<Value>,
    write: Vec<String>,
    result: Option<Value>,
    result_after_ms: u64,
    notify: Vec<String>,
    behaviour: Option<Behaviour>,
    code: u8,
    stderr: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Behaviour {
    Hang,
    Exit,
    Ignore,
}

/// What follows from a message.
enum Next {
    Answer(Value),
    Delayed(Duration, Value),
    Nothing,
    Exit(u8),
}

/// Runs the fake until its stdin closes, SIGTERM comes, or its script ends it.
///
/// # Panics
/// When the file cannot be read.
pub async fn run(script: &Path) -> ExitCode {
    let text = std::fs::read_to_string(script).expect("the script of the fake MCP server");
    let play: Play = serde_json::from_str(&text).expect("a script in the form of the fake MCP server");
    match tokio::time::timeout(LIFE_MAX, Fake { play, seen: BTreeMap::new() }.serve()).await {
        Ok(code) => ExitCode::from(code),
        Err(_) => ExitCode::FAILURE,
    }
}

struct Fake {
    play: Play,
    /// How often each method and name came.
    seen: BTreeMap<(String, String), u64>,
}

impl Fake {
    async fn serve(mut self) -> u8 {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut terminate = signal(SignalKind::terminate()).expect("a handler of SIGTERM");
        let mut delayed: JoinSet<(Value, Value)> = JoinSet::new();
        let mut cancelled: Vec<Value> = Vec::new();
        let mut open = true;
        self.record(&json!({"event": "start"}));
        if let Next::Exit(code) = self.step("start", &Value::Null).await.unwrap_or(Next::Nothing) {
            return code;
        }
        loop {
            tokio::select! {
                line = lines.next_line(), if open => {
                    let Ok(Some(line)) = line else {
                        open = false;
                        self.record(&json!({"event": "stdin_closed"}));
                        if !self.ignores("stdin_closed") {
                            return 0;
                        }
                        continue;
                    };
                    let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                    self.record(&message);
                    if message["method"] == "notifications/cancelled" && !self.ignores("notifications/cancelled") {
                        cancelled.push(message["params"]["requestId"].clone());
                    }
                    match self.handle(&message).await {
                        Next::Answer(answer) => say(&answer.to_string()).await,
                        Next::Delayed(wait, answer) if delayed.len() < DELAYED_MAX => {
                            let id = message["id"].clone();
                            delayed.spawn(async move {
                                tokio::time::sleep(wait).await;
                                (id, answer)
                            });
                        }
                        Next::Delayed(_, answer) => say(&answer.to_string()).await,
                        Next::Nothing => {}
                        Next::Exit(code) => return code,
                    }
                }
                Some(Ok((id, answer))) = delayed.join_next() => {
                    if !cancelled.contains(&id) {
                        say(&answer.to_string()).await;
                    }
                }
                _ = terminate.recv() => {
                    self.record(&json!({"event": "SIGTERM"}));
                    if !self.ignores("SIGTERM") {
                        return 143;
                    }
                }
            }
        }
    }

    /// Whether the script says to ignore this.
    fn ignores(&self, on: &str) -> bool {
        self.play.script.iter().any(|step| step.on == on && step.behaviour == Some(Behaviour::Ignore))
    }

    async fn handle(&mut self, message: &Value) -> Next {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        if let Some(next) = self.step(&method, message).await {
            return next;
        }
        if message.get("id").is_none() {
            return Next::Nothing;
        }
        let params = &message["params"];
        let result = match method.as_str() {
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"].as_str().unwrap_or(PROTOCOL),
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": self.play.server, "version": "1"},
            }),
            "ping" => json!({}),
            "tools/list" => json!({"tools": self.play.tools}),
            "tools/call" => match params["name"].as_str().and_then(|name| self.play.on_call.get(name)) {
                Some(result) => result.clone(),
                None => return Next::Answer(error(message, -32602, "no such tool")),
            },
            _ => return Next::Answer(error(message, -32601, "no such method")),
        };
        Next::Answer(answer(message, &result))
    }

    /// Plays the first step that fits, if any.
    async fn step(&mut self, method: &str, message: &Value) -> Option<Next> {
        let name = message["params"]["name"].as_str().unwrap_or_default().to_owned();
        let nth = self.seen.entry((method.to_owned(), name.clone())).or_default();
        *nth += 1;
        let (nth, cursor) = (*nth, message["params"].get("cursor").cloned().unwrap_or_default());
        let step = self.play.script.iter().find(|step| {
            step.on == method
                && step.behaviour != Some(Behaviour::Ignore)
                && step.name.as_ref().is_none_or(|wanted| *wanted == name)
                && step.nth.is_none_or(|wanted| wanted == nth)
                && step.cursor.as_ref().is_none_or(|wanted| *wanted == "*" || *wanted == cursor)
        })?;
        for line in &step.write {
            say(&line.replace("{{id}}", &message["id"].to_string())).await;
        }
        for method in &step.notify {
            say(&json!({"jsonrpc": "2.0", "method": method}).to_string()).await;
        }
        if !step.stderr.is_empty() {
            let _ = std::io::stderr().write_all(step.stderr.as_bytes());
        }
        if step.behaviour == Some(Behaviour::Exit) {
            return Some(Next::Exit(step.code));
        }
        if step.behaviour == Some(Behaviour::Hang) || message.get("id").is_none() {
            return Some(Next::Nothing);
        }
        let known = self.play.on_call.get(&name).filter(|_| step.write.is_empty());
        let Some(result) = step.result.as_ref().or(known) else { return Some(Next::Nothing) };
        let answer = answer(message, result);
        Some(match step.result_after_ms {
            0 => Next::Answer(answer),
            ms => Next::Delayed(Duration::from_millis(ms), answer),
        })
    }

    fn record(&self, message: &Value) {
        if let Some(path) = &self.play.record {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let written = file.and_then(|mut file| file.write_all(format!("{message}\n").as_bytes()));
            written.expect("the record of the fake MCP server");
        }
    }
}

fn answer(request: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
}

fn error(request: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})
}

async fn say(line: &str) {
    let mut stdout = tokio::io::stdout();
    // A client that closed its end is about to close ours.
    let _ = stdout.write_all(format!("{line}\n").as_bytes()).await;
    let _ = stdout.flush().await;
}
