//! Who may append to a session: its owner, under the current epoch.
//!
//! A session belongs to a node, and a node's lease is the lease of all its sessions: renewing costs one row, however
//! many sessions wait. Only a session whose owner's lease has run out changes hands, and then under the next epoch, so
//! that whatever the former owner still sends is refused in the transaction that would have written it. A process that
//! was merely asleep goes on with the sessions that nobody took.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ambit_core::SessionId;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use tokio::sync::oneshot;

use crate::Store;
use crate::error::StoreError;
use crate::journal::{Append, Need};
use crate::queue::{Op, Request};
use crate::session::{RowUpdate, session_id};

/// The epoch of a session that never changed hands.
pub(crate) const FIRST_EPOCH: u64 = 1;

/// The right to append to a session. A clone is the same right.
#[derive(Clone)]
pub struct Lease {
    /// Which session.
    pub session: SessionId,
    /// Under which epoch.
    pub epoch: u64,
    pub(crate) flow: Arc<Flow>,
}

impl Lease {
    pub(crate) fn new(session: SessionId, epoch: u64, notes: u32) -> Self {
        Self { session, epoch, flow: Arc::new(Flow { notes: AtomicU32::new(notes), waiting: AtomicU32::new(0) }) }
    }

    pub(crate) const fn claim(&self) -> Claim {
        Claim { session: self.session, epoch: self.epoch }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("session", &self.session).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// What a request says about its right; whether it has it is decided in the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) session: SessionId,
    pub(crate) epoch: u64,
}

/// What all clones of a lease share: how many notes the session has, and whether appends of it wait for room.
pub(crate) struct Flow {
    notes: AtomicU32,
    waiting: AtomicU32,
}

impl Flow {
    /// Takes a place for a note, of which there are `limit`.
    pub(crate) fn take_note(&self, limit: u32) -> bool {
        self.notes.try_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1)).is_ok()
    }

    pub(crate) fn give_note_back(&self) {
        self.notes.fetch_sub(1, Ordering::Relaxed);
    }

    /// True while an append of the session has not found room: what is sent now must not overtake it.
    pub(crate) fn must_not_overtake(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    pub(crate) fn wait(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(Arc::clone(self))
    }
}

/// One append that waits for room, until it is dropped.
pub(crate) struct Waiting(Arc<Flow>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Store {
    /// Takes over sessions whose owner's lease has run out, the oldest first, each under its next epoch. Messages that
    /// their former owner has not journalled are handed out again.
    ///
    /// # Errors
    /// If the database cannot be written.
    ///
    /// # Cancel safety
    /// None: what was taken over and not received waits until this process has gone.
    pub async fn take_over(&self, limit: NonZeroU32) -> Result<Vec<Lease>, StoreError> {
        let (ack, answer) = oneshot::channel();
        self.inner.queue.put_op(Request::Op(Op::TakeOver { limit: limit.get(), ack })).await?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Gives up the lease of a closed session. [`RowUpdate::release`] does the same as part of a last append, for the
    /// price of no commit of its own.
    ///
    /// # Errors
    /// As for [`Store::append`].
    pub fn release(&self, lease: &Lease) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let row = Some(RowUpdate { release: true, ..RowUpdate::default() });
        self.append(lease, Append { row, ..Append::default() }, Need::Applied)
    }
}

/// Reads a session that was taken over: id, epoch, notes so far.
pub(crate) fn lease(row: &SqliteRow) -> Result<Lease, sqlx::Error> {
    Ok(Lease::new(session_id(row.try_get(0)?)?, row.try_get::<i64, _>(1)?.cast_unsigned(), row.try_get(2)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_its_last_note_and_not_one_more() {
        let flow = Lease::new("ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse().unwrap(), 1, 0).flow;
        assert_eq!((0..5).map(|_| flow.take_note(3)).collect::<Vec<_>>(), [true, true, true, false, false]);
        flow.give_note_back();
        assert!(flow.take_note(3));
        assert!(!flow.take_note(3));
    }

    #[test]
    fn nothing_overtakes_an_append_that_waits() {
        let lease = Lease::new("ses_01K0Q8WZ5E7Y2M3N4P5Q6R7S8T".parse().unwrap(), 1, 0);
        let waiting = (lease.flow.wait(), lease.flow.wait());
        assert!(lease.flow.must_not_overtake());
        drop(waiting.0);
        assert!(lease.flow.must_not_overtake());
        drop(waiting.1);
        assert!(!lease.flow.must_not_overtake());
    }
}
