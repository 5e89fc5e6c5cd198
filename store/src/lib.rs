//! The journal, sessions, content and inbox on SQLite.
//!
//! **Invariant:** the store decides nothing about a session. Ids, times, places in a sequence and JSON bodies are made
//! above it; it keeps them under the promise that was asked for, lets nobody but the owner append, and gives them back.
//!
//! One [writer](crate::Store::append) task owns the connection that writes and commits what waits in groups; a few
//! connections read. Several processes on one file are normal use: [leases](crate::Lease) say who owns a session, the
//! [inbox](crate::Message) takes wishes of others, [followers](crate::Follower) see what any of them writes.

mod clock;
mod content;
mod database;
mod error;
mod follow;
mod forget;
mod group;
mod idempotency;
mod inbox;
mod journal;
mod lease;
mod observe;
mod options;
mod queue;
mod session;
mod visit;
mod writer;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::sqlite::SqlitePool;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

pub use clock::Clock;
pub use error::{Fault, StoreError};
pub use follow::Follower;
pub use idempotency::{KeyFate, KeyKind, KeyName, KeyRecord, KeyState, NewKey};
pub use inbox::{INBOX_MAX, MESSAGE_BYTES_MAX, Message, MessageId};
pub use journal::{APPEND_BYTES_MAX, Append, Content, ENTRIES_PAGE_MAX, Need, Noted, Record, RecordKind};
pub use lease::Lease;
pub use observe::{Gauges, OpKind, OpObserver, OpOutcome, Unobserved};
pub use options::{BATCH_MAX, BUSY, DRAIN, LEASE, NOTE_LINGER, POLL, QUEUE_MAX, READERS, RENEW, StoreOptions};
pub use session::{Listing, NewSession, Order, PAGE_MAX, Page, RowUpdate, SessionRow, TextFate};
pub use visit::Visitor;

use follow::Followers;
use inbox::Inbox;
use queue::Queue;
use writer::{Ends, Writer};

/// The open database. A clone is the same store; when the last one goes, the writer finishes what was queued.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Queue,
    readers: SqlitePool,
    followers: Arc<Followers>,
    inbox: Inbox,
    counters: Arc<Counters>,
    node: Arc<str>,
    poll: Duration,
    drain: Duration,
    observer: Arc<dyn OpObserver>,
    stop: watch::Sender<bool>,
    done: watch::Receiver<bool>,
    /// Taken by whoever finds that the drain took too long.
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Opens the database, makes it if it is not there, brings its schema up to date and registers this node.
    ///
    /// # Errors
    /// [`StoreError::CannotOpen`], [`StoreError::ReadOnly`], [`StoreError::Damaged`], [`StoreError::Busy`],
    /// [`StoreError::Full`] and [`StoreError::Io`] for the file; [`StoreError::Schema`] if a newer release wrote it;
    /// [`StoreError::NodeInUse`] if another process uses the name; [`StoreError::Options`].
    pub async fn open(options: StoreOptions) -> Result<Self, StoreError> {
        options.check()?;
        let connection = database::open(&options).await?;
        let (queue, requests) = Queue::new(options.queue.get(), options.busy);
        let (stop, stopped) = watch::channel(false);
        let (finished, done) = watch::channel(false);
        let (followers, counters) = (Arc::new(Followers::default()), Arc::new(Counters::default()));
        let ends = Ends { requests, stop: stopped, done: finished, followers: Arc::clone(&followers), counters: Arc::clone(&counters) };
        let writer = Writer::start(connection, &options, ends).await?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the store owns the task: `close` drains it, and it ends by itself with the last store"
        )]
        let writer = tokio::spawn(writer.run());
        let inner = Inner {
            queue,
            readers: database::readers(&options),
            followers,
            inbox: Inbox::new(),
            counters,
            node: options.node,
            poll: options.poll,
            drain: options.drain,
            observer: options.observer,
            stop,
            done,
            writer: Mutex::new(Some(writer)),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Takes no more requests, commits what was queued, signs this node off and closes the file. Sessions that it still
    /// owns may then be taken over at once; followers end. A second call waits for the first.
    ///
    /// # Errors
    /// [`StoreError::DrainTimeout`] if that takes longer than `drain`; the writer is stopped then.
    pub async fn close(&self) -> Result<(), StoreError> {
        let give_up = Instant::now() + self.inner.drain;
        self.inner.stop.send_replace(true);
        let mut done = self.inner.done.clone();
        // An error says that the writer is gone.
        let finished = timeout_at(give_up, done.wait_for(|done| *done)).await.is_ok();
        if !finished && let Some(writer) = self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            writer.abort();
        }
        self.inner.followers.end();
        let closed = timeout_at(give_up.max(Instant::now()), self.inner.readers.close()).await.is_ok();
        if finished && closed { Ok(()) } else { Err(StoreError::DrainTimeout) }
    }

    /// The name that this process owns sessions under.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.inner.node
    }

    /// Until when the lease of this node runs, milliseconds since 1970, as the database has it: one cheap read that tells
    /// whether the database can be read, and whether it could be written lately. `None` if the node is not known there.
    ///
    /// # Errors
    /// If the database cannot be read.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn lease_until_ms(&self) -> Result<Option<u64>, StoreError> {
        const LEASE_OF: &str = "SELECT lease_until_ms FROM node WHERE id = $1";
        let query = sqlx::query_scalar::<_, i64>(LEASE_OF).bind(Arc::clone(&self.inner.node));
        let until = self.inner.read(query.fetch_optional(&self.inner.readers)).await?;
        Ok(until.map(i64::cast_unsigned))
    }

    /// How the store stands at this moment.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        Gauges {
            queued: self.inner.queue.len() + self.inner.counters.in_hand.load(Ordering::Acquire),
            followed: self.inner.followers.len(),
            notes_dropped: self.inner.counters.notes_dropped.load(Ordering::Relaxed),
        }
    }
}

impl Inner {
    /// Runs one read and reports it.
    async fn read<T>(&self, read: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
        let began = Instant::now();
        let result = read.await;
        self.observer.observed(OpKind::Read, OpOutcome::of(&result), began.elapsed());
        Ok(result?)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("node", &self.inner.node).finish_non_exhaustive()
    }
}

/// What the writer and the store count together.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    in_hand: AtomicUsize,
    notes_dropped: AtomicU64,
}

impl Counters {
    fn note_dropped(&self) {
        self.notes_dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests the writer has taken and not answered.
    fn in_hand(&self, requests: usize) {
        self.in_hand.store(requests, Ordering::Release);
    }
}
