//! A raw server on a free port of loopback that plays one script a request, byte for byte.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Longest that anything here is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// One thing that the server does.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Does nothing for a while.
    Wait(Duration),
    /// Waits until the other side closes.
    Hang,
    /// Closes in good order.
    Close,
    /// Closes with a reset.
    Reset,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) head: String,
    pub(super) body: Value,
    /// Which connection it came on, counted from 0.
    pub(super) connection: usize,
}

pub(super) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Ends with the test.
    _tasks: JoinSet<()>,
}

struct Shared {
    scripts: Mutex<VecDeque<Vec<Act>>>,
    requests: Mutex<Vec<Request>>,
    /// Connections that the other side closed while the server hung.
    closed: Mutex<usize>,
    changed: Notify,
}

impl Upstream {
    /// Plays these scripts in the order in which requests arrive; the last one again and again.
    pub(super) async fn plays(scripts: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            scripts: Mutex::new(scripts.into()),
            requests: Mutex::default(),
            closed: Mutex::default(),
            changed: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, shared.clone()));
        Self { address, shared, _tasks: tasks }
    }

    pub(super) async fn answers(act: Vec<Act>) -> Self {
        Self::plays(vec![act]).await
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits until so many connections were closed by the other side in the middle of an answer.
    pub(super) async fn closed(&self, n: usize) {
        self.wait(|shared| *shared.closed.lock().unwrap() >= n).await;
    }

    /// Waits until so many requests arrived.
    pub(super) async fn arrived(&self, n: usize) {
        self.wait(|shared| shared.requests.lock().unwrap().len() >= n).await;
    }

    async fn wait(&self, until: impl Fn(&Shared) -> bool) {
        timeout(PATIENCE, async {
            loop {
                let changed = self.shared.changed.notified();
                if until(&self.shared) {
                    return;
                }
                changed.await;
            }
        })
        .await
        .expect("it never happened");
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    for connection in 0.. {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(serve(stream, connection, shared.clone()));
    }
}

async fn serve(mut stream: TcpStream, connection: usize, shared: Arc<Shared>) {
    while let Some((head, body)) = read(&mut stream).await {
        let script = {
            let mut scripts = shared.scripts.lock().unwrap();
            if scripts.len() > 1 { scripts.pop_front().unwrap() } else { scripts[0].clone() }
        };
        shared.requests.lock().unwrap().push(Request { head, body, connection });
        shared.changed.notify_waiters();
        for act in script {
            match act {
                Act::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Act::Wait(wait) => sleep(wait).await,
                Act::Hang => {
                    while stream.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {}
                    *shared.closed.lock().unwrap() += 1;
                    shared.changed.notify_waiters();
                    return;
                }
                Act::Close => return,
                Act::Reset => {
                    stream.set_zero_linger().unwrap();
                    return;
                }
            }
        }
    }
}

/// Reads one request with a `content-length`; nothing at the end of the connection.
async fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length: usize = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
            while bytes.len() < end + 4 + length {
                if stream.read_buf(&mut bytes).await.ok()? == 0 {
                    return None;
                }
            }
            return Some((head, serde_json::from_slice(&bytes[end + 4..]).unwrap()));
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// A whole answer with a known length.
pub(super) fn response(status: u16, headers: &str, body: &str) -> Vec<Act> {
    let headers = headers.lines().map(|line| format!("{line}\r\n")).collect::<String>();
    vec![Act::Send(format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes())]
}

pub(super) fn json(body: &str) -> Vec<Act> {
    response(200, "content-type: application/json", body)
}

/// A chunked event stream of these texts, each one piece on the wire, with its proper end.
pub(super) fn sse(pieces: &[&str]) -> Vec<Act> {
    let mut acts = sse_open(pieces);
    acts.push(Act::Send(b"0\r\n\r\n".to_vec()));
    acts
}

/// The same without the end of the body: whatever follows is up to the test.
pub(super) fn sse_open(pieces: &[&str]) -> Vec<Act> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut acts = vec![Act::Send(head.into())];
    acts.extend(pieces.iter().map(|piece| Act::Send(format!("{:x}\r\n{piece}\r\n", piece.len()).into_bytes())));
    acts
}

/// One event of a stream with this choice.
pub(super) fn chunk(delta: &str, finish: Option<&str>) -> String {
    let finish = finish.map_or("null".to_owned(), |finish| format!("\"{finish}\""));
    format!("data: {{\"model\":\"m-1\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n")
}

/// A whole stream that says these words.
pub(super) fn words(text: &[&str]) -> Vec<String> {
    let mut pieces: Vec<_> = text.iter().map(|text| chunk(&format!("{{\"content\":\"{text}\"}}"), None)).collect();
    pieces.push(chunk("{}", Some("stop")));
    pieces.push("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":4}}\n\n".to_owned());
    pieces.push("data: [DONE]\n\n".to_owned());
    pieces
}

/// A whole plain answer.
pub(super) fn completion(message: &str, finish: &str) -> String {
    format!(
        "{{\"model\":\"m-1\",\"choices\":[{{\"index\":0,\"message\":{message},\"finish_reason\":\"{finish}\"}}],\
         \"usage\":{{\"prompt_tokens\":10,\"completion_tokens\":4,\"prompt_tokens_details\":{{\"cached_tokens\":6}}}}}}"
    )
}

/// One event of a stream with its name beside it, as the newer APIs send them.
pub(super) fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// A stream of these events.
pub(super) fn events(all: &[Value]) -> Vec<Act> {
    let pieces: Vec<_> = all.iter().map(event).collect();
    sse(&pieces.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The same without the end of the body, and then this.
pub(super) fn events_then(all: &[Value], last: Act) -> Vec<Act> {
    let pieces: Vec<_> = all.iter().map(event).collect();
    let mut acts = sse_open(&pieces.iter().map(String::as_str).collect::<Vec<_>>());
    acts.push(last);
    acts
}
