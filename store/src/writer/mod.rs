//! The writer: one task that owns the one connection that writes.
//!
//! It takes what waits, up to a bound and without waiting for more, and commits it as a group; a group in which anybody
//! needs durability is synced. A failed group is rolled back and answered; the writer goes on with the next one. It
//! ends when it is told to, or when nobody can send to it any more, and then only after all that was queued.

mod ops;

use std::sync::Arc;
use std::time::Duration;

use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::error::{Constraint, StoreError};
use crate::follow::{Followers, Published};
use crate::journal::Need;
use crate::lease::Claim;
use crate::observe::{OpKind, OpObserver, OpOutcome};
use crate::options::StoreOptions;
use crate::queue::{Queued, Request};
use crate::{Counters, database, group};

/// Bytes of bodies and texts after which a group is closed: what one transaction may hold in memory beside its pages.
const GROUP_BYTES: usize = 8 << 20;

/// How often whoever is about to ask gets a turn before a group is closed. Where other tasks are ready the group grows by
/// what they ask for; where there are none it costs nothing and nobody waits.
const TURNS: u32 = 2;

/// See the file.
pub(crate) struct Writer {
    /// `None` after it broke; the next operation opens another.
    connection: Option<SqliteConnection>,
    connect: SqliteConnectOptions,
    /// What a commit on the connection survives at present.
    synced_for: Need,
    requests: mpsc::Receiver<Request>,
    stop: watch::Receiver<bool>,
    done: watch::Sender<bool>,
    node: Arc<str>,
    started_ms: u64,
    lease_until_ms: u64,
    renew_at: Instant,
    clock: Clock,
    lease: Duration,
    renew: Duration,
    batch_max: usize,
    note_linger: Duration,
    followers: Arc<Followers>,
    counters: Arc<Counters>,
    observer: Arc<dyn OpObserver>,
}

/// What the writer shares with the store that it belongs to.
pub(crate) struct Ends {
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) done: watch::Sender<bool>,
    pub(crate) followers: Arc<Followers>,
    pub(crate) counters: Arc<Counters>,
}

impl Writer {
    /// Registers the node on a connection that is open.
    pub(crate) async fn start(connection: SqliteConnection, options: &StoreOptions, ends: Ends) -> Result<Self, StoreError> {
        let Ends { requests, stop, done, followers, counters } = ends;
        let mut writer = Self {
            connection: Some(connection),
            connect: database::writer_options(options),
            synced_for: Need::Applied,
            requests,
            stop,
            done,
            node: Arc::clone(&options.node),
            started_ms: options.clock.now_ms(),
            lease_until_ms: 0,
            renew_at: Instant::now(),
            clock: options.clock.clone(),
            lease: options.lease,
            renew: options.renew,
            batch_max: options.max_batch.get() as usize,
            note_linger: options.note_linger,
            followers,
            counters,
            observer: Arc::clone(&options.observer),
        };
        writer.register().await?;
        Ok(writer)
    }

    /// Runs until the end; see the file.
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::with_capacity(self.batch_max);
        loop {
            tokio::select! {
                biased;
                () = sleep_until(self.renew_at) => self.renew().await,
                Ok(()) = self.stop.changed() => self.requests.close(),
                request = self.requests.recv() => match request {
                    Some(request) => {
                        batch.push(request);
                        for _ in 0..TURNS {
                            yield_now().await;
                        }
                        self.fill(&mut batch).await;
                        self.work(&mut batch).await;
                    }
                    None => break,
                },
            }
        }
        self.finish().await;
    }

    /// Takes what waits. A batch of notes alone waits a little for an append to share its commit with.
    async fn fill(&mut self, batch: &mut Vec<Request>) {
        let give_up = Instant::now() + self.note_linger;
        let mut bytes: usize = batch.iter().map(bytes).sum();
        while batch.len() < self.batch_max && bytes < GROUP_BYTES {
            self.counters.in_hand(batch.len());
            let next = match self.requests.try_recv() {
                Ok(request) => Some(request),
                Err(_) if batch.iter().all(is_note) => tokio::select! {
                    biased;
                    request = self.requests.recv() => request,
                    () = sleep_until(give_up) => None,
                },
                Err(_) => None,
            };
            let Some(request) = next else { break };
            bytes += self::bytes(&request);
            batch.push(request);
        }
        self.counters.in_hand(batch.len());
    }

    async fn work(&mut self, batch: &mut Vec<Request>) {
        if self.clock.now_ms().saturating_add(millis(self.lease - self.renew)) >= self.lease_until_ms {
            // The timer came late, as after a sleep of the machine: what is made now must not be up for grabs.
            self.renew().await;
        }
        let mut group = Vec::with_capacity(batch.len());
        let mut ops = Vec::new();
        for request in batch.drain(..) {
            match request {
                Request::Append(queued) => group.push(*queued),
                Request::Op(op) => ops.push(op),
            }
        }
        if !group.is_empty() {
            self.commit(group).await;
        }
        for op in ops {
            self.operate(op).await;
        }
        self.counters.in_hand(0);
    }

    /// Commits a group and answers all of it.
    async fn commit(&mut self, group: Vec<Queued>) {
        match self.try_commit(&group).await {
            Ok(written) => self.answer(group, &written),
            // One of them asks for what cannot be: each gets a transaction of its own, so that only that one fails.
            Err(Failed::Constraint(_)) if group.len() > 1 => {
                for queued in group {
                    let alone = [queued];
                    let result = self.try_commit(&alone).await;
                    self.answer_one(alone, result);
                }
            }
            Err(failed) => {
                for queued in group {
                    self.answer_one([queued], Err(failed.clone()));
                }
            }
        }
    }

    fn answer_one(&self, [queued]: [Queued; 1], result: Result<Vec<bool>, Failed>) {
        match result {
            Ok(written) => self.answer(vec![queued], &written),
            Err(failed) => self.refuse(queued, failed),
        }
    }

    /// Passes on what was committed, then answers.
    fn answer(&self, group: Vec<Queued>, written: &[bool]) {
        let committed = group.iter().zip(written).filter(|(_, written)| **written).map(|(queued, _)| (queued.lease.session, queued));
        self.followers.publish(committed, |queued| Published {
            epoch: queued.lease.epoch,
            records: queued.append.records.as_slice().into(),
            closed: queued.append.row.as_ref().is_some_and(|row| row.closed_ms.is_some()),
        });
        for (queued, written) in group.into_iter().zip(written) {
            if !written {
                self.refuse(queued, Failed::Constraint(Constraint::Lease));
            } else if let Some(ack) = queued.ack {
                // An error says that nobody waits any more: fine.
                let _ = ack.send(Ok(()));
            }
        }
    }

    fn refuse(&self, queued: Queued, failed: Failed) {
        let Claim { session, epoch } = queued.lease;
        let error = match failed {
            Failed::Constraint(Constraint::Lease) => StoreError::NotOwner { session, epoch },
            Failed::Constraint(Constraint::Taken) => StoreError::Exists { session },
            Failed::Store(error) => error,
        };
        match queued.ack {
            Some(ack) => drop(ack.send(Err(error))),
            None => self.counters.note_dropped(),
        }
    }

    /// Commits a group, or leaves nothing of it.
    async fn try_commit(&mut self, group: &[Queued]) -> Result<Vec<bool>, Failed> {
        let need = group.iter().map(|queued| queued.need).max().unwrap_or(Need::Applied);
        let kind = match need {
            Need::Applied => OpKind::CommitApplied,
            Need::Durable => OpKind::CommitDurable,
        };
        let began = Instant::now();
        let node = Arc::clone(&self.node);
        let result = match self.connection(need).await {
            Ok(connection) => match group::commit(connection, &node, group).await {
                Ok(written) => Ok(written),
                Err(error) => Err(Constraint::of(&error).map_or_else(|| Failed::Store(error.into()), Failed::Constraint)),
            },
            Err(error) => Err(Failed::Store(error)),
        };
        if let Err(Failed::Store(error)) = &result {
            tracing::warn!(error = chain(error), appends = group.len(), "a group of appends could not be committed");
            self.clean_up(error).await;
        }
        self.observer.observed(kind, OpOutcome::of(&result), began.elapsed());
        result
    }

    /// The connection, so that what it commits survives what it needs to.
    async fn connection(&mut self, need: Need) -> Result<&mut SqliteConnection, StoreError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none @ None => {
                self.synced_for = Need::Applied;
                none.insert(database::connect(&self.connect).await?)
            }
        };
        if self.synced_for != need {
            // Takes effect while it is compiled, and only outside a transaction: a cached statement would save nothing.
            let pragma = match need {
                Need::Applied => "PRAGMA synchronous = NORMAL",
                Need::Durable => "PRAGMA synchronous = FULL",
            };
            sqlx::raw_sql(pragma).execute(&mut *connection).await?;
            self.synced_for = need;
        }
        Ok(connection)
    }

    /// Reports an operation, and cleans up behind it if it failed.
    async fn settle<T>(&mut self, kind: OpKind, began: Instant, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result {
            self.clean_up(error).await;
        }
        self.observer.observed(kind, OpOutcome::of(&result), began.elapsed());
        result
    }

    /// Ends a transaction that an operation left open; a group leaves none. A connection that cannot be trusted is
    /// dropped.
    async fn clean_up(&mut self, error: &StoreError) {
        if error.breaks_connection() {
            self.connection = None;
        } else if let Some(connection) = &mut self.connection {
            // Fails where there is no transaction: fine.
            let _ = sqlx::raw_sql("ROLLBACK").execute(connection).await;
        }
    }
}

/// Why a group was not committed.
#[derive(Debug, Clone)]
enum Failed {
    /// One append of it asks for what cannot be.
    Constraint(Constraint),
    /// The database could not.
    Store(StoreError),
}

/// An error with its sources, as a field of a log line.
fn chain<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    error
}

fn is_note(request: &Request) -> bool {
    matches!(request, Request::Append(queued) if queued.ack.is_none())
}

fn bytes(request: &Request) -> usize {
    match request {
        Request::Append(queued) => queued.append.bytes(),
        Request::Op(_) => 0,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Queue;

    #[tokio::test]
    async fn the_connection_syncs_when_asked_and_only_then() {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions::new(folder.path().join("a.db"), "a", Clock::from_fn(|| 0));
        let connection = database::open(&options).await.unwrap();
        let (_queue, requests) = Queue::new(1, Duration::ZERO);
        let ends = Ends {
            requests,
            stop: watch::channel(false).1,
            done: watch::channel(false).0,
            followers: Arc::default(),
            counters: Arc::default(),
        };
        let mut writer = Writer::start(connection, &options, ends).await.unwrap();
        // Back and forth, and over a connection that was lost.
        let steps = [(Need::Durable, false), (Need::Applied, false), (Need::Durable, false), (Need::Durable, true), (Need::Applied, true)];
        for (need, lose) in steps.into_iter().cycle().take(8) {
            if lose {
                writer.connection = None;
            }
            let connection = writer.connection(need).await.unwrap();
            let level: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(connection).await.unwrap();
            assert_eq!(level, 1 + i64::from(need == Need::Durable), "{need:?}, lost {lose}");
        }
    }
}
