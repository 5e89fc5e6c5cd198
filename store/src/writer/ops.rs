//! What the writer does beside appends: the node's own row and its lease, taking over, messages. Each is a transaction
//! of its own.

use std::sync::Arc;

use ambit_core::SessionId;
use sqlx::{Connection as _, Row as _};
use tokio::time::Instant;

use super::{Writer, chain, millis};
use crate::error::{Constraint, StoreError};
use crate::inbox;
use crate::journal::{Need, signed};
use crate::lease::{self, Lease};
use crate::observe::OpKind;
use crate::queue::Op;

impl Writer {
    /// Does one of them and answers it.
    pub(super) async fn operate(&mut self, op: Op) {
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
            Op::Delete { session, ack } => {
                let result = self.delete(session).await;
                let _ = ack.send(result);
            }
            Op::SweepKeys { limit, ack } => {
                let result = self.sweep_keys(limit).await;
                let _ = ack.send(result);
            }
            Op::SweepTexts { closed_ms, limit, ack } => {
                let result = self.sweep_texts(closed_ms, limit).await;
                let _ = ack.send(result);
            }
        }
    }

    async fn take_over(&mut self, limit: u32) -> Result<Vec<Lease>, StoreError> {
        const TAKE_OVER: &str = include_str!("../../sql/take_over.sql");
        let began = Instant::now();
        let query = sqlx::query(TAKE_OVER).bind(self.node.to_string()).bind(signed(self.clock.now_ms())).bind(limit);
        let result = match self.connection(Need::Applied).await {
            Ok(connection) => {
                let rows = query.fetch_all(connection).await;
                rows.and_then(|rows| rows.iter().map(lease::lease).collect()).map_err(StoreError::from)
            }
            Err(error) => Err(error),
        };
        self.settle(OpKind::TakeOver, began, result).await
    }

    async fn inbox_put(&mut self, session: SessionId, kind: &'static str, body: String, need: Need) -> Result<(), StoreError> {
        let began = Instant::now();
        let now_ms = self.clock.now_ms();
        let result = match self.connection(need).await {
            Ok(connection) => inbox::put(connection, session, kind, body, now_ms).await.map_err(StoreError::from),
            Err(error) => Err(error),
        };
        // The outer result is the database's, the inner one the session's.
        self.settle(OpKind::Inbox, began, result).await?
    }

    async fn delete(&mut self, session: SessionId) -> Result<bool, StoreError> {
        const DELETE: &str = include_str!("../../sql/delete_session.sql");
        let began = Instant::now();
        let query = sqlx::query(DELETE).bind(session.ulid().to_owned()).bind(signed(self.clock.now_ms()));
        let result = match self.connection(Need::Durable).await {
            Ok(connection) => {
                let rows = query.fetch_all(connection).await;
                rows.and_then(|rows| rows.first().map(|row| row.try_get::<bool, _>(0)).transpose()).map_err(StoreError::from)
            }
            Err(error) => Err(error),
        };
        self.settle(OpKind::Delete, began, result).await?.ok_or(StoreError::NotFound { session })
    }

    async fn sweep_keys(&mut self, limit: u32) -> Result<u64, StoreError> {
        const SWEEP: &str = "
            DELETE FROM idempotency
            WHERE rowid IN (SELECT rowid FROM idempotency WHERE expires_ms <= $1 ORDER BY expires_ms LIMIT $2)";
        let began = Instant::now();
        let query = sqlx::query(SWEEP).bind(signed(self.clock.now_ms())).bind(limit);
        let result = match self.connection(Need::Applied).await {
            Ok(connection) => query.execute(connection).await.map(|done| done.rows_affected()).map_err(StoreError::from),
            Err(error) => Err(error),
        };
        self.settle(OpKind::Sweep, began, result).await
    }

    async fn sweep_texts(&mut self, closed_ms: u64, limit: u32) -> Result<u64, StoreError> {
        const SWEEP: &str = include_str!("../../sql/sweep_texts.sql");
        let began = Instant::now();
        let query = sqlx::query(SWEEP).bind(signed(closed_ms)).bind(limit);
        let result = match self.connection(Need::Durable).await {
            Ok(connection) => query.fetch_all(connection).await.map(|rows| rows.len() as u64).map_err(StoreError::from),
            Err(error) => Err(error),
        };
        self.settle(OpKind::Sweep, began, result).await
    }

    /// Makes this node known under a name that nobody else has.
    pub(super) async fn register(&mut self) -> Result<(), StoreError> {
        const REGISTER: &str = "INSERT INTO node (id, started_ms, lease_until_ms) VALUES ($1, $2, $3)";
        let until_ms = self.started_ms.saturating_add(millis(self.lease));
        let query = sqlx::query(REGISTER).bind(self.node.to_string()).bind(signed(self.started_ms)).bind(signed(until_ms));
        query.execute(self.connection(Need::Applied).await?).await.map_err(|error| {
            if Constraint::of(&error).is_some() { StoreError::NodeInUse { node: Arc::clone(&self.node) } } else { error.into() }
        })?;
        self.lease_until_ms = until_ms;
        self.renew_at = Instant::now() + self.renew;
        Ok(())
    }

    /// Renews the lease of all sessions of this node. A node that was forgotten while it slept registers anew.
    pub(super) async fn renew(&mut self) {
        const RENEW: &str = "
            INSERT INTO node (id, started_ms, lease_until_ms) VALUES ($1, $2, $3)
            ON CONFLICT (id) DO UPDATE SET lease_until_ms = excluded.lease_until_ms";
        let began = Instant::now();
        self.renew_at = began + self.renew;
        let until_ms = self.clock.now_ms().saturating_add(millis(self.lease));
        let query = sqlx::query(RENEW).bind(self.node.to_string()).bind(signed(self.started_ms)).bind(signed(until_ms));
        let result = match self.connection(Need::Applied).await {
            Ok(connection) => query.execute(connection).await.map_err(StoreError::from),
            Err(error) => Err(error),
        };
        match self.settle(OpKind::Renew, began, result).await {
            Ok(_) => self.lease_until_ms = until_ms,
            Err(error) => tracing::warn!(error = chain(&error), "the lease of this node could not be renewed"),
        }
    }

    /// Leaves no trace of this node but the sessions that it did not finish: those may be taken over at once.
    pub(super) async fn finish(mut self) {
        const LEAVE: &str = "DELETE FROM node WHERE id = $1";
        let query = sqlx::query(LEAVE).bind(self.node.to_string());
        if let Ok(connection) = self.connection(Need::Applied).await
            && let Err(error) = query.execute(connection).await
        {
            tracing::warn!(error = chain(&error), "this node could not be signed off; its lease runs out by itself");
        }
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(error = chain(&error), "the database was not closed cleanly");
        }
        self.done.send_replace(true);
    }
}
