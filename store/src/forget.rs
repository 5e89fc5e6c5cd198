//! Forgetting: a session's texts go, its journal stays.
//!
//! A session that is to be forgotten loses its texts some time after it is closed, so that whoever is reading its stream
//! reads it to the end. One that is deleted is hidden at once and loses them with the append that closes it, or at once if
//! that has been; being one transaction with the close, that cannot be missed by a crash.

use std::num::NonZeroU32;

use ambit_core::SessionId;
use tokio::sync::oneshot;

use crate::Store;
use crate::error::StoreError;
use crate::queue::{Op, Request};

impl Store {
    /// Deletes a session: hidden, its key free, its texts gone as soon as it is closed. Gives whether it is closed. Once
    /// answered it survives a loss of power.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is none or it is deleted already; else if the database cannot be written.
    ///
    /// # Cancel safety
    /// Once queued it is done.
    pub async fn delete(&self, session: SessionId) -> Result<bool, StoreError> {
        let (ack, answer) = oneshot::channel();
        self.inner.queue.put_op(Request::Op(Op::Delete { session, ack })).await?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Deletes the texts of sessions that are to be forgotten and were closed at `closed_ms` (milliseconds since 1970) or
    /// earlier: at most `limit` sessions, the longest closed first. Gives how many there were.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub async fn sweep_texts(&self, closed_ms: u64, limit: NonZeroU32) -> Result<u64, StoreError> {
        let (ack, answer) = oneshot::channel();
        self.inner.queue.put_op(Request::Op(Op::SweepTexts { closed_ms, limit: limit.get(), ack })).await?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}
