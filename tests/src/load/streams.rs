//! What Ambit adds to a streamed token, against a bare pass-through in the same run.
//!
//! Provider and clients are this process, so that one clock tells when a token was sent and when it arrived. Ambit and the
//! pass-through are processes of their own, asked in turn.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::bare::{micros, provider};
use super::{median, percentile};
use crate::client::{Api, Parser};
use crate::process::{Launch, binary};
use crate::quiet::assert_quiet;
use crate::within;

/// Name of the program that can be the pass-through.
const PROGRAM: &str = "ambit-load";
/// The word that makes it one.
pub const PASS_THROUGH: &str = "pass-through";

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Streams at the same time.
    pub concurrency: usize,
    /// Tokens of each.
    pub tokens: usize,
    /// Between two tokens of one stream.
    pub every: Duration,
    /// How often both are asked.
    pub rounds: usize,
}

/// Microseconds from the provider to the client.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    /// Tokens that arrived.
    pub tokens: usize,
    /// Half of them took at most so long.
    pub p50: u64,
    /// 99 of 100 of them took at most so long.
    pub p99: u64,
}

/// What was found: the pass-through and Ambit, round by round.
#[derive(Debug, Clone)]
pub struct Report {
    /// As asked.
    pub options: Options,
    /// Pass-through, then Ambit.
    pub rounds: Vec<(Side, Side)>,
}

impl Report {
    /// The median over the rounds of what Ambit adds to the median token, microseconds.
    #[must_use]
    pub fn added_p50(&self) -> i64 {
        self.added(|side| side.p50)
    }

    /// The same of the 99th percentile.
    #[must_use]
    pub fn added_p99(&self) -> i64 {
        self.added(|side| side.p99)
    }

    fn added(&self, of: impl Fn(&Side) -> u64) -> i64 {
        let difference = |(bare, ambit): &(Side, Side)| of(ambit).cast_signed() - of(bare).cast_signed();
        median(self.rounds.iter().map(difference).collect())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { concurrency, tokens, every, rounds } = self.options;
        writeln!(f, "concurrency {concurrency}, {tokens} tokens a stream, one every {} ms, {rounds} rounds", every.as_millis())?;
        for (bare, ambit) in &self.rounds {
            let side = |side: &Side| format!("p50 {} us, p99 {} us", side.p50, side.p99);
            writeln!(f, "pass-through {}; ambit {}", side(bare), side(ambit))?;
        }
        write!(f, "added a token, median of rounds: p50 {} us, p99 {} us", self.added_p50(), self.added_p99())
    }
}

/// Asks the pass-through and Ambit in turn.
///
/// # Panics
/// When a peer does not start, a stream breaks off, or a token is lost.
pub async fn run(options: Options) -> Report {
    let provider = provider(options.tokens, options.every).await;
    let bare = Peer::start(&provider.url).await;
    let launch = Launch::with(&super::config(options.concurrency))
        .env("AMBIT_MODELS__PRIMARY__BASE_URL", &format!("{}/v1", provider.url))
        .env("AMBIT_MODELS__PRIMARY__STREAM", "always");
    let ambit = launch.serve().await;
    let api = Api::of(&ambit);
    let client = Client::builder().no_proxy().build().expect("an HTTP client");
    let to_bare = client.post(format!("{}/v1/chat/completions", bare.url)).json(&json!({"model": "m", "stream": true, "messages": []}));
    let to_ambit = api.session(&json!({"agent": "clerk", "input": "hi", "stream": true}));
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let bare = side(&options, &to_bare, bare_text).await;
        let ambit = side(&options, &to_ambit, ambit_text).await;
        rounds.push((bare, ambit));
    }
    assert_quiet(&api).await;
    Report { options, rounds }
}

/// All streams of one side.
async fn side(options: &Options, request: &RequestBuilder, text: fn(&Value) -> Option<&str>) -> Side {
    let mut streams = JoinSet::new();
    for _ in 0..options.concurrency {
        let request = request.try_clone().expect("a request without a stream");
        streams.spawn(one(request, text));
    }
    let mut all = Vec::new();
    while let Some(latencies) = streams.join_next().await {
        let latencies = latencies.expect("a stream without a fault");
        assert_eq!(latencies.len(), options.tokens, "tokens of a stream");
        all.extend(latencies);
    }
    all.sort_unstable();
    Side { tokens: all.len(), p50: percentile(&all, 50), p99: percentile(&all, 99) }
}

/// Reads one stream, and says how long each token took.
async fn one(request: RequestBuilder, text: fn(&Value) -> Option<&str>) -> Vec<u64> {
    let response = within("the head of a stream", request.send()).await.expect("an HTTP answer");
    assert!(response.status().is_success(), "a stream was expected, not {}", response.status());
    let mut body = response.bytes_stream();
    let (mut parser, mut latencies, mut cut) = (Parser::default(), Vec::new(), String::new());
    while let Some(piece) = within("a piece of a stream", body.next()).await {
        let piece = piece.expect("a stream that ends in order");
        let now = micros();
        for event in parser.feed(&piece) {
            let Ok(data) = serde_json::from_str::<Value>(&event.data) else { continue };
            cut.push_str(text(&data).unwrap_or_default());
            while let Some((token, rest)) = cut.split_once(' ') {
                let sent: u64 = token.parse().expect("a time");
                latencies.push(now.saturating_sub(sent));
                cut = rest.to_owned();
            }
        }
    }
    latencies
}

fn bare_text(data: &Value) -> Option<&str> {
    data["choices"][0]["delta"]["content"].as_str()
}

fn ambit_text(data: &Value) -> Option<&str> {
    (data["type"] == "output_text.delta").then(|| data["data"]["delta"].as_str()).flatten()
}

/// The pass-through as a process of its own; dropping it ends it.
struct Peer {
    url: String,
    _child: Child,
}

impl Peer {
    async fn start(upstream: &str) -> Peer {
        let mut command = Command::new(program());
        command.args([PASS_THROUGH, upstream]).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("the pass-through");
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let url = within("the address of the pass-through", lines.next_line()).await.ok().flatten().expect("an address");
        Peer { url, _child: child }
    }
}

/// This program itself, or the one beside the binary under test.
fn program() -> PathBuf {
    let own = std::env::current_exe().expect("the path of the running program");
    let is_it = own.file_stem().is_some_and(|name| name == PROGRAM);
    if is_it { own } else { binary().with_file_name(PROGRAM) }
}
