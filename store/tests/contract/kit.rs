//! A folder with a database, a wall clock that stands still until it is moved, and short ways to say what is appended.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ambit_core::{Digest, SessionId};
use ambit_store::{
    Append, Clock, Content, Lease, Need, NewSession, OpKind, OpObserver, OpOutcome, Record, RecordKind, RowUpdate, Store, StoreOptions,
};
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;

/// Wall time at which every test begins.
pub(crate) const START_MS: u64 = 1_700_000_000_000;

pub(crate) struct Kit {
    pub(crate) folder: TempDir,
    now_ms: Arc<AtomicU64>,
    pub(crate) ops: Arc<Ops>,
}

/// What the observer heard.
#[derive(Debug, Default)]
pub(crate) struct Ops(Mutex<Vec<(OpKind, OpOutcome)>>);

impl OpObserver for Ops {
    fn observed(&self, kind: OpKind, outcome: OpOutcome, _took: Duration) {
        self.0.lock().unwrap().push((kind, outcome));
    }
}

impl Ops {
    /// How many commits there were so far, applied and durable.
    pub(crate) fn commits(&self) -> (usize, usize) {
        (self.count(OpKind::CommitApplied), self.count(OpKind::CommitDurable))
    }

    /// How many operations of a kind went well so far.
    pub(crate) fn count(&self, kind: OpKind) -> usize {
        self.0.lock().unwrap().iter().filter(|op| **op == (kind, OpOutcome::Ok)).count()
    }
}

impl Kit {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), now_ms: Arc::new(AtomicU64::new(START_MS)), ops: Arc::default() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("ambit.db")
    }

    pub(crate) fn pass(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
    }

    pub(crate) fn options(&self, node: &str) -> StoreOptions {
        let now_ms = Arc::clone(&self.now_ms);
        let observer: Arc<dyn OpObserver> = Arc::<Ops>::clone(&self.ops);
        StoreOptions {
            poll: Duration::from_millis(10),
            observer,
            ..StoreOptions::new(self.path(), node, Clock::from_fn(move || now_ms.load(Ordering::Relaxed)))
        }
    }

    pub(crate) async fn open(&self, node: &str) -> Store {
        Store::open(self.options(node)).await.unwrap()
    }

    /// A connection of somebody else.
    pub(crate) async fn stranger(&self) -> SqliteConnection {
        SqliteConnection::connect(self.path().to_str().unwrap()).await.unwrap()
    }
}

pub(crate) fn id(n: u64) -> SessionId {
    format!("ses_{n:026}").parse().unwrap()
}

pub(crate) fn digest(n: u8) -> Digest {
    Digest([n; 32])
}

pub(crate) fn content(n: u8, text: &str) -> Content {
    Content { digest: digest(n), text: text.into() }
}

pub(crate) fn event(seq: u64) -> Record {
    Record { seq, kind: RecordKind::Event, at_ms: seq * 10, body: format!("{{\"n\":{seq}}}"), fingerprint: u64::MAX - seq }
}

pub(crate) fn note(seq: u64) -> Record {
    Record { seq, kind: RecordKind::Note, at_ms: seq * 10, body: "{}".to_owned(), fingerprint: 0 }
}

pub(crate) fn events(seqs: impl IntoIterator<Item = u64>) -> Append {
    Append { records: seqs.into_iter().map(event).collect(), ..Append::default() }
}

pub(crate) fn row(row: RowUpdate) -> Append {
    Append { row: Some(row), ..Append::default() }
}

pub(crate) fn closing() -> RowUpdate {
    RowUpdate { status: Some("completed"), closed_ms: Some(START_MS + 9), release: true, ..RowUpdate::default() }
}

pub(crate) fn new_session(n: u64) -> NewSession {
    NewSession {
        id: id(n),
        agent: "ops".into(),
        tenant: "acme".into(),
        principal: "ann".into(),
        previous: None,
        status: "running",
        created_ms: START_MS,
        deadline_ms: START_MS + 45_000,
        metadata: "{}".to_owned(),
        started: event(1),
        contents: Vec::new(),
        forget: false,
        key: None,
    }
}

pub(crate) async fn create(store: &Store, n: u64) -> Lease {
    store.create(new_session(n), Need::Applied).await.unwrap()
}

/// The places taken in the journal of a session.
pub(crate) async fn seqs(store: &Store, n: u64) -> Vec<u64> {
    store.entries(id(n), 0, u32::MAX).await.unwrap().into_iter().map(|record| record.seq).collect()
}
