//! Many idle readers of one session that waits for its model: what each costs the server in memory.

use std::fmt;
use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::client::{Api, TERMINAL};
use crate::process::Launch;
use crate::quiet::assert_quiet;
use crate::upstream::{Act, Upstream};

/// Connections that are being opened at the same time: the listener's backlog holds more.
const OPENING_MAX: usize = 64;
/// What a reader has seen when it is idle: the model was called, and does not answer.
const IDLE: &str = "event: model.started\n";
/// Bytes of a stream that a reader keeps to find a line that arrives in two pieces.
const KEPT: usize = 64;

/// What was found.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Readers.
    pub readers: usize,
    /// Readers that got exactly one terminal event, and then the end.
    pub ended_well: usize,
    /// Resident memory of the server before the first reader, bytes.
    pub before: u64,
    /// The same with all of them idle.
    pub idle: u64,
    /// The same after all have left.
    pub after: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.idle.saturating_sub(self.before) / self.readers.max(1) as u64;
        let mib = |bytes: u64| bytes >> 20;
        writeln!(f, "readers {}, ended well {}", self.readers, self.ended_well)?;
        writeln!(f, "resident before {} MiB, idle {} MiB, after {} MiB", mib(self.before), mib(self.idle), mib(self.after))?;
        write!(f, "a reader {each} bytes")
    }
}

/// Opens `readers` streams on one silent session, waits until all are idle, and lets the session end.
///
/// # Panics
/// When a reader cannot be opened, or the server does not come to rest. Both ends need a descriptor a reader (`ulimit -n`).
pub async fn run(readers: usize) -> Report {
    let provider = Upstream::start(Act::text("done").held()).await;
    let launch = Launch::with(&super::config(8)).env("AMBIT_MODELS__PRIMARY__BASE_URL", &provider.base_url());
    let ambit = launch.serve().await;
    let api = Api::of(&ambit);
    let body = json!({"agent": "clerk", "input": "hi", "background": true});
    let started = api.run(&body).await.assert_status(202).json();
    provider.wait_for("the model call", |seen| seen.in_flight == 1).await;

    let address: Arc<str> = ambit.url().trim_start_matches("http://").into();
    let path = format!("/v1/sessions/{}/events", started["id"].as_str().expect("an id"));
    let request: Arc<str> = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").into();
    let before = ambit.resident();
    let opening = Arc::new(Semaphore::new(OPENING_MAX));
    let (idle, mut are_idle) = watch::channel(0);
    let idle = Arc::new(idle);
    let mut tasks = JoinSet::new();
    for _ in 0..readers {
        let permit = Arc::clone(&opening).acquire_owned().await.expect("a semaphore that is open");
        let (address, request, idle) = (Arc::clone(&address), Arc::clone(&request), Arc::clone(&idle));
        tasks.spawn(async move {
            let mut reader = Reader::open(&address, &request).await;
            reader.until_idle().await;
            drop(permit);
            idle.send_modify(|count| *count += 1);
            reader.terminals().await == 1
        });
    }
    are_idle.wait_for(|count| *count == readers).await.expect("readers that tell");
    let resident = ambit.resident();
    provider.release();
    let mut ended_well = 0;
    while let Some(end) = tasks.join_next().await {
        ended_well += usize::from(end.expect("a reader without a fault"));
    }
    assert_quiet(&api).await;
    Report { readers, ended_well, before, idle: resident, after: ambit.resident() }
}

/// A reader that keeps next to nothing.
struct Reader {
    socket: TcpStream,
    kept: String,
    terminals: usize,
}

impl Reader {
    async fn open(address: &str, request: &str) -> Reader {
        let mut socket = TcpStream::connect(address).await.expect("a connection");
        socket.write_all(request.as_bytes()).await.expect("a request that is taken");
        Reader { socket, kept: String::new(), terminals: 0 }
    }

    /// Reads on; false at the end.
    async fn more(&mut self) -> bool {
        let mut piece = [0; 512];
        let read = self.socket.read(&mut piece).await.expect("a stream that ends in order");
        self.kept.push_str(&String::from_utf8_lossy(&piece[..read]));
        read > 0
    }

    async fn until_idle(&mut self) {
        while !self.kept.contains(IDLE) {
            assert!(self.more().await, "the stream ended early: {}", self.kept);
        }
    }

    /// Reads to the end and counts the terminal events.
    async fn terminals(&mut self) -> usize {
        loop {
            // Whole lines are counted and dropped; the last one may still be coming.
            while let Some((line, rest)) = self.kept.split_once('\n') {
                self.terminals += usize::from(line.strip_prefix("event: ").is_some_and(|kind| TERMINAL.contains(&kind.trim_end())));
                self.kept = rest.to_owned();
            }
            if self.kept.len() > KEPT && !self.kept.starts_with("event: ") {
                self.kept.clear(); // The middle of a long line, which is no type.
            }
            if !self.more().await {
                return self.terminals;
            }
        }
    }
}
