//! The records of sessions: what is appended, under which promise, and how it is read back.
//!
//! The caller counts: each record brings its place in the session's one sequence. The store guards that a place is
//! taken once and that only the owner appends; it never looks into a body.

use std::future::Future;
use std::sync::Arc;

use ambit_core::limit::{NOTES_MAX, TRANSCRIPT_MAX};
use ambit_core::{Digest, SessionId};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use tokio::sync::oneshot;

use crate::Store;
use crate::error::StoreError;
use crate::inbox::MessageId;
use crate::lease::Lease;
use crate::queue::{Queued, Refusal};
use crate::session::RowUpdate;

/// Most records that one read returns: about 1 MiB of journal.
pub const ENTRIES_PAGE_MAX: u32 = 1_024;
/// Largest append, in bytes of bodies and texts: what a whole transcript may be, and as much again for its records.
pub const APPEND_BYTES_MAX: usize = 2 * TRANSCRIPT_MAX as usize;

/// Which of the two kinds a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// Replayed to rebuild the session.
    Event,
    /// Shown in timeline and streams only; may be missing.
    Note,
}

impl RecordKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Note => "note",
        }
    }
}

/// One entry of a session's journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place in the session's sequence; later records have larger ones, with gaps where a note was dropped.
    pub seq: u64,
    /// Event or note.
    pub kind: RecordKind,
    /// When it happened, as its maker counts (the session's clock, or milliseconds since 1970).
    pub at_ms: u64,
    /// JSON made by the caller: ids, digests, sizes and codes, never content.
    pub body: String,
    /// Of the commands that an event caused; 0 for notes.
    pub fingerprint: u64,
}

/// A text that records refer to by digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// SHA-256 of the text, computed by the caller.
    pub digest: Digest,
    /// The text.
    pub text: Arc<str>,
}

/// What an append must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// A crash of the process, `kill -9` included.
    Applied,
    /// A loss of power as well.
    Durable,
}

/// What is to be written in one go: all of it or nothing.
#[derive(Debug, Clone, Default)]
pub struct Append {
    /// Records, in rising order of their `seq`.
    pub records: Vec<Record>,
    /// Texts that they refer to; one that the session has already is left as it is.
    pub contents: Vec<Content>,
    /// What changes in the session's row.
    pub row: Option<RowUpdate>,
    /// Messages that the records answer: they leave the inbox with this append.
    pub heard: Vec<MessageId>,
}

impl Append {
    /// Refuses what is larger than any session may be.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let bytes = self.bytes();
        if bytes > APPEND_BYTES_MAX { Err(StoreError::TooLarge { bytes }) } else { Ok(()) }
    }

    /// Bytes of bodies and texts.
    pub(crate) fn bytes(&self) -> usize {
        let bodies: usize = self.records.iter().map(|r| r.body.len()).sum();
        let texts: usize = self.contents.iter().map(|c| c.text.len() + crate::group::DIGEST_BYTES).sum();
        bodies + texts + self.row.as_ref().and_then(|r| r.summary.as_ref()).map_or(0, String::len)
    }
}

/// What became of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It will share the next commit.
    Queued,
    /// The session has as many notes as it may have.
    LimitReached,
    /// The writer is behind, or the store is closed.
    QueueFull,
}

impl Store {
    /// Appends under a lease. Queued by the call itself, in the order of the calls, before the future is first polled;
    /// only where the queue is full does the future have to be polled for it.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] if the lease is stale, [`StoreError::Exists`] if a place of the sequence is taken,
    /// [`StoreError::QueueFull`] if there was no room within `busy`, and whatever the disk has to say. Nothing of this
    /// append is written then, and appends of others are not touched by it.
    ///
    /// # Cancel safety
    /// Once queued it is written, whether or not anybody waits for the answer.
    pub fn append(&self, lease: &Lease, append: Append, need: Need) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let (ack, answer) = oneshot::channel();
        let sent = match append.check() {
            Ok(()) => self.inner.queue.put(lease, Queued { lease: lease.claim(), create: None, append, need, ack: Some(ack) }),
            Err(error) => Err(Refusal::Final(error)),
        };
        let queue = self.inner.queue.clone();
        async move {
            match sent {
                Ok(()) => {}
                Err(Refusal::Final(error)) => return Err(error),
                Err(Refusal::NoRoom(waiting)) => queue.wait(*waiting).await?,
            }
            // The writer answers everything it took; it is gone only if the runtime is going down.
            answer.await.unwrap_or(Err(StoreError::Closed))
        }
    }

    /// Appends a note with the next commit, and the texts that it refers to, if there is room; nobody waits for it.
    ///
    /// A session may have [`NOTES_MAX`] of them; they take at most half of the queue.
    pub fn note(&self, lease: &Lease, record: Record, contents: Vec<Content>) -> Noted {
        let noted = if !lease.flow.take_note(NOTES_MAX) {
            Noted::LimitReached
        } else {
            let append = Append { records: vec![record], contents, ..Append::default() };
            if self.inner.queue.put_note(lease, Queued { lease: lease.claim(), create: None, append, need: Need::Applied, ack: None }) {
                return Noted::Queued;
            }
            lease.flow.give_note_back();
            Noted::QueueFull
        };
        self.inner.counters.note_dropped();
        noted
    }

    /// Reads the records after a place of the sequence, in order: at most `limit` and at most [`ENTRIES_PAGE_MAX`].
    /// Fewer than that means that there are no more for now. An unknown session has none.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn entries(&self, session: SessionId, after_seq: u64, limit: u32) -> Result<Vec<Record>, StoreError> {
        const ENTRIES: &str = "
            SELECT seq, kind, at_ms, body, fingerprint FROM entry
            WHERE session = $1 AND seq > $2 ORDER BY seq LIMIT $3";
        let query = sqlx::query(ENTRIES).bind(session.ulid().to_owned()).bind(signed(after_seq)).bind(limit.min(ENTRIES_PAGE_MAX));
        self.inner.read(query.try_map(record).fetch_all(&self.inner.readers)).await
    }
}

/// A count as SQLite keeps it: bit by bit, so that a fingerprint comes back as it went in.
pub(crate) const fn signed(count: u64) -> i64 {
    count.cast_signed()
}

fn record(row: SqliteRow) -> Result<Record, sqlx::Error> {
    let kind = if row.try_get::<&str, _>(1)? == RecordKind::Event.as_str() { RecordKind::Event } else { RecordKind::Note };
    Ok(Record {
        seq: row.try_get::<i64, _>(0)?.cast_unsigned(),
        kind,
        at_ms: row.try_get::<i64, _>(2)?.cast_unsigned(),
        body: row.try_get(3)?,
        fingerprint: row.try_get::<i64, _>(4)?.cast_unsigned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::DIGEST_BYTES;

    #[test]
    fn the_largest_append_is_let_in_and_one_byte_more_is_not() {
        let text: Arc<str> = "x".repeat(APPEND_BYTES_MAX / 4 - DIGEST_BYTES).into();
        let contents = vec![Content { digest: Digest([0; 32]), text }; 4];
        let mut append = Append { contents, ..Append::default() };
        assert_eq!(append.bytes(), APPEND_BYTES_MAX);
        assert!(append.check().is_ok());
        append.records.push(Record { seq: 1, kind: RecordKind::Event, at_ms: 0, body: "x".to_owned(), fingerprint: 0 });
        assert!(matches!(append.check(), Err(StoreError::TooLarge { bytes }) if bytes == APPEND_BYTES_MAX + 1));
    }
}
