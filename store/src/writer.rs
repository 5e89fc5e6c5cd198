//! The writer: one task that owns the one connection that writes.
//!
//! It takes what waits, up to a bound and without waiting for more, and commits it as a group; a group in which anybody
//! needs durability is synced. A failed group is rolled back and answered; the writer goes on with the next one. It
//! ends when it is told to, or when nobody can send to it any more, and then only after all that was queued.

use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::clock::Clock;
use crate::error::{StoreError, is_constraint};
use crate::follow::{Followers, Published};
use crate::journal::{Need, signed};
use crate::lease::{self, Lease};
use crate::observe::{OpKind, OpObserver, OpOutcome};
use crate::options::StoreOptions;
use crate::queue::{Op, Queued, Request};
use crate::{Counters, database, group, inbox};

/// Bytes of bodies and texts after which a group is closed: what one transaction may hold in memory beside its pages.
const GROUP_BYTES: usize = 8 << 20;

/// See the file.
pub(crate) struct Writer {
    /// `None` after it broke; the next operation opens another.
    connection: Option<SqliteConnection>,
    connect: SqliteConnectOptions,
    /// True while the connection syncs each commit.
    syncing: bool,
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
            syncing: false,
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
            Ok(current) => self.answer(group, &current),
            // One of them asks for what cannot be: each gets a transaction of its own, so that only that one fails.
            Err(Failed::Constraint) if group.len() > 1 => {
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
            Ok(current) => self.answer(vec![queued], &current),
            Err(failed) => self.refuse(queued, failed),
        }
    }

    /// Passes on what was committed, then answers.
    fn answer(&self, group: Vec<Queued>, current: &[bool]) {
        let committed = group.iter().zip(current).filter(|(_, current)| **current).map(|(queued, _)| (queued.lease.session, queued));
        self.followers.publish(committed, |queued| Published {
            epoch: queued.lease.epoch,
            records: queued.append.records.as_slice().into(),
            closed: queued.append.row.as_ref().is_some_and(|row| row.closed_ms.is_some()),
        });
        for (queued, current) in group.into_iter().zip(current) {
            let Queued { lease, ack, .. } = queued;
            match ack {
                // Nobody waits any more: fine.
                Some(ack) if *current => drop(ack.send(Ok(()))),
                Some(ack) => drop(ack.send(Err(StoreError::NotOwner { session: lease.session, epoch: lease.epoch }))),
                None if *current => {}
                None => self.counters.note_dropped(),
            }
        }
    }

    fn refuse(&self, queued: Queued, failed: Failed) {
        let error = match failed {
            Failed::Constraint => StoreError::Exists { session: queued.lease.session },
            Failed::Store(error) => error,
        };
        match queued.ack {
            Some(ack) => drop(ack.send(Err(error))),
            None => self.counters.note_dropped(),
        }
    }

    /// Commits a group, or leaves nothing of it.
    async fn try_commit(&mut self, group: &[Queued]) -> Result<Vec<bool>, Failed> {
        let durable = group.iter().any(|queued| queued.need == Need::Durable);
        let kind = if durable { OpKind::CommitDurable } else { OpKind::CommitApplied };
        let began = Instant::now();
        let node = Arc::clone(&self.node);
        let result = match self.connection(durable).await {
            Ok(connection) => match group::commit(connection, &node, group).await {
                Ok(current) => Ok(current),
                Err(error) if is_constraint(&error) => Err(Failed::Constraint),
                Err(error) => Err(Failed::Store(error.into())),
            },
            Err(error) => Err(Failed::Store(error)),
        };
        match &result {
            Ok(_) => {}
            Err(Failed::Constraint) => self.roll_back(None).await,
            Err(Failed::Store(error)) => {
                tracing::warn!(error = %error, appends = group.len(), "a group of appends could not be committed");
                self.roll_back(Some(error)).await;
            }
        }
        self.observer.observed(kind, OpOutcome::of(&result), began.elapsed());
        result
    }

    async fn operate(&mut self, op: Op) {
        match op {
            Op::TakeOver { limit, ack } => {
                let result = self.take_over(limit).await;
                // Whoever asked is gone: the sessions stay with this node.
                let _ = ack.send(result);
            }
            Op::InboxPut { session, kind, body, need, ack } => {
                let result = self.inbox_put(session, kind, body, need).await;
                let _ = ack.send(result);
            }
        }
    }

    async fn take_over(&mut self, limit: u32) -> Result<Vec<Lease>, StoreError> {
        const TAKE_OVER: &str = include_str!("../sql/take_over.sql");
        let began = Instant::now();
        let query = sqlx::query(TAKE_OVER).bind(self.node.to_string()).bind(signed(self.clock.now_ms())).bind(limit);
        let result = match self.connection(false).await {
            Ok(connection) => {
                let rows = query.fetch_all(connection).await;
                rows.and_then(|rows| rows.iter().map(lease::lease).collect()).map_err(StoreError::from)
            }
            Err(error) => Err(error),
        };
        self.settle(OpKind::TakeOver, began, result).await
    }

    async fn inbox_put(&mut self, session: ambit_core::SessionId, kind: &'static str, body: String, need: Need) -> Result<(), StoreError> {
        let began = Instant::now();
        let now_ms = self.clock.now_ms();
        let result = match self.connection(need == Need::Durable).await {
            Ok(connection) => inbox::put(connection, session, kind, body, now_ms).await.map_err(StoreError::from),
            Err(error) => Err(error),
        };
        // The outer result is the database's, the inner one the session's.
        self.settle(OpKind::Inbox, began, result).await?
    }

    async fn register(&mut self) -> Result<(), StoreError> {
        const REGISTER: &str = "INSERT INTO node (id, started_ms, lease_until_ms) VALUES ($1, $2, $3)";
        let until_ms = self.started_ms.saturating_add(millis(self.lease));
        let query = sqlx::query(REGISTER).bind(self.node.to_string()).bind(signed(self.started_ms)).bind(signed(until_ms));
        query
            .execute(self.connection(false).await?)
            .await
            .map_err(|error| if is_constraint(&error) { StoreError::NodeInUse { node: Arc::clone(&self.node) } } else { error.into() })?;
        self.lease_until_ms = until_ms;
        self.renew_at = Instant::now() + self.renew;
        Ok(())
    }

    /// Renews the lease of all sessions of this node. A node that was forgotten while it slept registers anew.
    async fn renew(&mut self) {
        const RENEW: &str = "
            INSERT INTO node (id, started_ms, lease_until_ms) VALUES ($1, $2, $3)
            ON CONFLICT (id) DO UPDATE SET lease_until_ms = excluded.lease_until_ms";
        let began = Instant::now();
        self.renew_at = began + self.renew;
        let until_ms = self.clock.now_ms().saturating_add(millis(self.lease));
        let query = sqlx::query(RENEW).bind(self.node.to_string()).bind(signed(self.started_ms)).bind(signed(until_ms));
        let result = match self.connection(false).await {
            Ok(connection) => query.execute(connection).await.map_err(StoreError::from),
            Err(error) => Err(error),
        };
        match self.settle(OpKind::Renew, began, result).await {
            Ok(_) => self.lease_until_ms = until_ms,
            Err(error) => tracing::warn!(error = %error, "the lease of this node could not be renewed"),
        }
    }

    /// Leaves no trace of this node but the sessions that it did not finish: those may be taken over at once.
    async fn finish(mut self) {
        const LEAVE: &str = "DELETE FROM node WHERE id = $1";
        let query = sqlx::query(LEAVE).bind(self.node.to_string());
        if let Ok(connection) = self.connection(false).await
            && let Err(error) = query.execute(connection).await
        {
            tracing::warn!(error = %error, "this node could not be signed off; its lease runs out by itself");
        }
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(error = %error, "the database was not closed cleanly");
        }
        self.done.send_replace(true);
    }

    /// The connection, synced at each commit or not.
    async fn connection(&mut self, durable: bool) -> Result<&mut SqliteConnection, StoreError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none @ None => {
                self.syncing = false;
                none.insert(self.connect.connect().await?)
            }
        };
        if self.syncing != durable {
            // Takes effect while it is compiled: sent as bare text, since a cached statement would do nothing.
            let pragma = if durable { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            sqlx::raw_sql(pragma).execute(&mut *connection).await?;
            self.syncing = durable;
        }
        Ok(connection)
    }

    /// Reports an operation, and cleans up behind it if it failed.
    async fn settle<T>(&mut self, kind: OpKind, began: Instant, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result {
            self.roll_back(Some(error)).await;
        }
        self.observer.observed(kind, OpOutcome::of(&result), began.elapsed());
        result
    }

    /// Ends a transaction that failed; SQLite may have ended it already. A connection that cannot be trusted is dropped.
    async fn roll_back(&mut self, error: Option<&StoreError>) {
        if error.is_some_and(StoreError::breaks_connection) {
            self.connection = None;
        } else if let Some(connection) = &mut self.connection {
            let _ = sqlx::raw_sql("ROLLBACK").execute(connection).await;
        }
    }
}

/// Why a group was not committed.
#[derive(Debug, Clone)]
enum Failed {
    /// One of its rows is impossible.
    Constraint,
    /// The database could not.
    Store(StoreError),
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
        for (durable, lose) in [(true, false), (false, false), (true, false), (true, true), (false, true), (true, false)] {
            if lose {
                writer.connection = None;
            }
            let connection = writer.connection(durable).await.unwrap();
            let level: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(connection).await.unwrap();
            assert_eq!(level, if durable { 2 } else { 1 }, "durable {durable}, lost {lose}");
        }
    }
}
