//! What the tests of the executor share: options that say only what matters, a sink that remembers, a server that
//! answers as told.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ambit_core::port::{BeforeSend, BoxFuture};
use ambit_core::session::Principal;
use ambit_core::signal::{Signal, SignalSink, Subject};
use ambit_core::{Allowance, Effect, Money};
use ambit_tool_executor::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Remembers what was signalled.
#[derive(Default)]
pub(crate) struct Seen(pub(crate) Mutex<Vec<Signal>>);

impl SignalSink for Seen {
    fn emit(&self, _subject: Subject, signal: &Signal) {
        self.0.lock().unwrap().push(signal.clone());
    }
}

/// Says yes or no, and counts how often it was asked.
pub(crate) struct Door(pub(crate) bool, pub(crate) AtomicU32);

impl Door {
    pub(crate) fn new(answer: bool) -> Self {
        Self(answer, AtomicU32::new(0))
    }

    pub(crate) fn asked(&self) -> u32 {
        self.1.load(Ordering::Acquire)
    }
}

impl BeforeSend for Door {
    fn before_send(&self) -> BoxFuture<'_, bool> {
        self.1.fetch_add(1, Ordering::AcqRel);
        Box::pin(async { self.0 })
    }
}

pub(crate) fn policy(effect: Effect) -> ToolPolicy {
    ToolPolicy {
        effect,
        roles: vec![],
        tenants: vec![],
        timeout: Duration::from_secs(12),
        attempt: Duration::from_secs(10),
        attempts: NonZeroU32::new(2).unwrap(),
        min_useful: Duration::from_millis(300),
        retry: RetryDelays { base: Duration::from_millis(20), min_delay: Duration::from_millis(10), max_delay: Duration::from_secs(5) },
        permits: NonZeroU32::new(4).unwrap(),
        queue: 4,
        continuing_wait: Duration::from_secs(2),
        output_cap: NonZeroUsize::new(10 << 10).unwrap(),
        repeats: 3,
        trusted: false,
        egress: false,
    }
}

pub(crate) fn http_options() -> HttpOptions {
    HttpOptions {
        allow: vec!["127.0.0.1".parse().unwrap()],
        hosts: BTreeMap::new(),
        tool_body: NonZeroUsize::new(1 << 20).unwrap(),
        margin: Duration::from_millis(150),
        connect: Duration::from_secs(5),
        idle: Duration::from_secs(60),
    }
}

pub(crate) fn options() -> ExecutorOptions {
    ExecutorOptions { tools: BTreeMap::new(), mcp: BTreeMap::new(), http: http_options(), seed: 7 }
}

/// An HTTP tool with the schema of its placeholders and anything else.
pub(crate) fn http_tool(method: &str, url: &str, effect: Effect) -> ToolOptions {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {"id": {"type": "string", "pattern": "^[^?]{1,40}$"}, "n": {"type": "integer"}},
        "required": if url.contains("{id}") { serde_json::json!(["id"]) } else { serde_json::json!([]) }
    });
    ToolOptions {
        description: Some("a tool".into()),
        policy: policy(effect),
        bind: BTreeMap::new(),
        kind: ToolKind::Http(HttpToolOptions { method: method.into(), url: url.into(), headers: vec![], key_header: None, schema }),
    }
}

pub(crate) fn executor(tool: ToolOptions) -> (Executor, Arc<Seen>) {
    executor_of(ExecutorOptions { tools: BTreeMap::from([("t".into(), tool)]), ..options() })
}

pub(crate) fn executor_of(options: ExecutorOptions) -> (Executor, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    (Executor::new(options, seen.clone()).unwrap(), seen)
}

pub(crate) fn principal() -> Principal {
    Principal { id: "alice".into(), tenant: "acme".into(), roles: vec!["ops".into()] }
}

pub(crate) fn allowance(attempts: u32) -> Allowance {
    Allowance { attempts, tokens: 0, cost: Money::ZERO, deadline: u64::MAX }
}

/// Runs one call with 30 s to go.
pub(crate) async fn run(executor: &Executor, tool: &str, arguments: &str, door: &Door) -> ToolOutcome {
    run_for(executor, tool, arguments, door, Duration::from_secs(30)).await
}

pub(crate) async fn run_for(executor: &Executor, tool: &str, arguments: &str, door: &Door, left: Duration) -> ToolOutcome {
    executor
        .run(ToolRun {
            tool,
            arguments,
            key: Some("key-1"),
            allowance: allowance(4),
            deadline: Instant::now() + left,
            output_cap: 1 << 20,
            call_id: None,
            subject: Subject::default(),
            trace_state: None,
            before_send: door,
        })
        .await
}

/// The codes of the attempts, in order.
pub(crate) fn codes(outcome: &ToolOutcome) -> Vec<String> {
    outcome.attempts.iter().map(|attempt| attempt.code.to_string()).collect()
}

/// What a server does with one request.
#[derive(Clone)]
pub(crate) enum Act {
    /// Answers with these bytes and closes.
    Say(String),
    /// Reads the request, then closes without a word.
    Cut,
    /// Reads the request and never answers.
    Hang,
}

/// An answer with a status, headers and a body.
pub(crate) fn say(status: u16, headers: &[(&str, &str)], body: &str) -> Act {
    let mut text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    Act::Say(format!("{text}\r\n{body}"))
}

/// A server that answers one request a connection, each as told, the last act for ever.
pub(crate) struct Upstream {
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Upstream {
    /// The n-th request gets the n-th act, further ones the last.
    pub(crate) async fn start(acts: Vec<Act>) -> Self {
        Self::serve(move |n, _| acts[n.min(acts.len() - 1)].clone()).await
    }

    /// Each request gets what `answer` says to its number and text.
    pub(crate) async fn serve(answer: impl Fn(usize, &str) -> Act + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = heard.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = Vec::new();
            for n in 0.. {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let request = read_request(&mut stream).await;
                let act = answer(n, &request);
                log.lock().unwrap().push(request);
                match act {
                    Act::Say(text) => {
                        let _ = stream.write_all(text.as_bytes()).await;
                        let _ = stream.shutdown().await;
                    }
                    Act::Cut => drop(stream),
                    Act::Hang => open.push(stream),
                }
            }
        });
        Self { port, heard, _tasks: tasks }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).await.unwrap_or(0);
        bytes.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if n == 0 {
                return text;
            }
            continue;
        };
        let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        if body.len() >= length || n == 0 {
            return text;
        }
    }
}
