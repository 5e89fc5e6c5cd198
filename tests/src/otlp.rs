//! A real receiver of traces, installed by `tests/otlp/install.sh` from a lock file, and the spans that it took.
//!
//! It prints what it takes; that is read back here, so that the tests see what went over the wire and was understood.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::process::output::Output;
use crate::{WAIT_MAX, within};

/// Most tries to find two ports that are still free when the receiver binds them.
const PORT_TRIES: u32 = 5;
/// Between two looks whether the receiver listens.
const LOOK: Duration = Duration::from_millis(20);

/// A running receiver. Dropping it kills it.
#[derive(Debug)]
pub struct Receiver {
    http: SocketAddr,
    grpc: SocketAddr,
    output: Output,
    _child: Child,
}

/// One span as it was received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    /// The trace, hexadecimal.
    pub trace: String,
    /// The span.
    pub id: String,
    /// The span above it; empty for a root.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// `SERVER`, `CLIENT`, `INTERNAL`..
    pub kind: String,
    /// `UNSET`, `OK` or `ERROR`.
    pub status: String,
    /// When it began and ended, nanoseconds since 1970.
    pub time: (u64, u64),
    /// Attributes, values as text.
    pub attributes: BTreeMap<String, String>,
    /// Names of its events, in order.
    pub events: Vec<String>,
    /// What the process says about itself.
    pub resource: BTreeMap<String, String>,
}

impl Receiver {
    /// Starts one that listens for both protocols.
    ///
    /// # Panics
    /// When it is not installed, or does not come up.
    pub async fn start() -> Receiver {
        let agent = installed();
        for _ in 0..PORT_TRIES {
            let (http, grpc) = free_ports();
            let mut command = Command::new(&agent);
            command.args(["start", "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed"]);
            command.args(["--otlp-http-endpoint", &http.to_string(), "--otlp-grpc-endpoint", &grpc.to_string()]);
            command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
            let mut child = command.spawn().expect("the receiver starts");
            let output = Output::of(child.stdout.take().expect("stdout is piped"));
            let up = within("the receiver to listen", async {
                loop {
                    if child.try_wait().expect("the state of a child").is_some() {
                        return false;
                    }
                    if TcpStream::connect(http).await.is_ok() && TcpStream::connect(grpc).await.is_ok() {
                        return true;
                    }
                    tokio::time::sleep(LOOK).await;
                }
            });
            if up.await {
                return Receiver { http, grpc, output, _child: child };
            }
        }
        panic!("the receiver did not find free ports in {PORT_TRIES} tries")
    }

    /// Where it takes protobuf over HTTP.
    #[must_use]
    pub fn http(&self) -> String {
        format!("http://{}", self.http)
    }

    /// Where it speaks gRPC.
    #[must_use]
    pub fn grpc(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Waits until the spans that it took satisfy `condition`, and returns them all. What must hold of a span belongs into
    /// the condition: the last one may not be printed whole when it is first seen.
    ///
    /// # Panics
    /// When they do not within [`WAIT_MAX`], with all of them.
    pub async fn wait_for(&self, what: &str, condition: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let found = self.output.wait_for(|text| Some(read(text)).filter(|spans| condition(spans)));
        match tokio::time::timeout(WAIT_MAX, found).await {
            Ok(Some(spans)) => spans,
            Ok(None) | Err(_) => panic!("waited in vain for {what}; the receiver has {:#?}", read(&self.output.text())),
        }
    }

    /// Waits until a trace is this tree, as [`tree`] draws it.
    ///
    /// # Panics
    /// When it is not within [`WAIT_MAX`], with the tree that it is.
    pub async fn draws(&self, trace: &str, expected: &str) -> Vec<Span> {
        let expected = expected.trim_matches('\n');
        let drawn = self.output.wait_for(|text| Some(read(text)).filter(|spans| tree(spans, trace) == expected));
        match tokio::time::timeout(WAIT_MAX, drawn).await {
            Ok(Some(spans)) => spans,
            Ok(None) | Err(_) => panic!("expected\n{expected}\nbut the trace is\n{}", tree(&read(&self.output.text()), trace)),
        }
    }
}

/// A trace as text: a line a span (kind, name, `error.type` after `!`, events in brackets), children indented, by step,
/// attempt and time.
#[must_use]
pub fn tree(spans: &[Span], trace: &str) -> String {
    let spans: Vec<&Span> = spans.iter().filter(|span| span.trace == trace).collect();
    let mut lines = Vec::new();
    let roots = spans.iter().filter(|span| !spans.iter().any(|other| other.id == span.parent));
    let mut open: Vec<(usize, &Span)> = sorted(roots.copied().collect()).into_iter().rev().map(|root| (0, root)).collect();
    // Ends: a span is visited once, as the child of the one span above it.
    while let Some((depth, span)) = open.pop() {
        let error = span.attributes.get("error.type").map(|code| format!(" !{code}")).unwrap_or_default();
        let events = if span.events.is_empty() { String::new() } else { format!(" [{}]", span.events.join(", ")) };
        lines.push(format!("{}{} {}{error}{events}", "  ".repeat(depth), span.kind, span.name));
        let children = spans.iter().filter(|child| child.parent == span.id && child.id != span.id);
        open.extend(sorted(children.copied().collect()).into_iter().rev().map(|child| (depth + 1, child)));
    }
    lines.join("\n")
}

fn sorted(mut spans: Vec<&Span>) -> Vec<&Span> {
    let number = |span: &Span, key: &str| span.attributes.get(key).and_then(|value| value.parse::<u64>().ok());
    spans.sort_by_key(|span| (number(span, "ambit.step"), number(span, "ambit.attempt"), span.time.0));
    spans
}

fn free_ports() -> (SocketAddr, SocketAddr) {
    // Both at once, so that they differ.
    let listeners = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).expect("a free port"));
    let [http, grpc] = listeners.map(|listener| listener.local_addr().expect("its address"));
    (http, grpc)
}

fn installed() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("otlp");
    let agent = folder.join(".venv/bin/rotel-agent");
    assert!(agent.is_file(), "the receiver is not installed; hint: run `{}`", folder.join("install.sh").display());
    agent
}

/// Which attributes the lines `-> key: Type(value)` belong to.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Resource,
    Span,
    Event,
}

/// What the receiver printed, as spans. The last one may lack what is not printed yet.
fn read(text: &str) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut resource = BTreeMap::new();
    let mut part = Part::Resource;
    // The last line may be half written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let (key, value) = line.split_once(':').map_or((line.trim(), ""), |(key, value)| (key.trim(), value.trim()));
        if line.starts_with("ResourceSpans #") {
            (part, resource) = (Part::Resource, BTreeMap::new());
        } else if line.starts_with("Span #") {
            part = Part::Span;
            spans.push(Span { resource: resource.clone(), ..Span::default() });
        } else if line.starts_with("SpanEvent #") {
            part = Part::Event;
        } else if let Some(pair) = line.trim_start().strip_prefix("-> ") {
            let (key, value) = pair.split_once(": ").unwrap_or((pair, ""));
            match (part, spans.last_mut()) {
                (Part::Resource, _) => drop(resource.insert(key.to_owned(), plain(value))),
                (Part::Span, Some(span)) => drop(span.attributes.insert(key.to_owned(), plain(value))),
                (Part::Event, Some(span)) if key == "Name" => span.events.push(value.to_owned()),
                (Part::Span | Part::Event, _) => {}
            }
        } else if let Some(span) = spans.last_mut().filter(|_| part == Part::Span) {
            match key {
                "Trace ID" => span.trace = value.to_owned(),
                "Parent ID" => span.parent = value.to_owned(),
                "ID" => span.id = value.to_owned(),
                "Name" => span.name = value.to_owned(),
                "Kind" => span.kind = value.trim_start_matches("SPAN_KIND_").to_owned(),
                "Status code" => span.status = value.trim_start_matches("STATUS_CODE_").to_owned(),
                "Start time" => span.time.0 = value.parse().unwrap_or_default(),
                "End time" => span.time.1 = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
    }
    spans
}

/// `Str(text)`, `Int(3)`.. without what is around the value.
fn plain(value: &str) -> String {
    value.split_once('(').and_then(|(_, value)| value.strip_suffix(')')).unwrap_or(value).to_owned()
}
