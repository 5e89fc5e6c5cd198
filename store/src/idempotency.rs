//! Keys under which the same thing may be asked for again without being done again.
//!
//! ```text
//!   no record ─► running ─► done ─► (expired) no record
//!                   └─────► no record, where nothing was done
//! ```
//!
//! A key is taken in the transaction that begins what it stands for, and the table's primary key decides who comes first:
//! there is no moment between looking and taking. It changes with the appends of its session, so that a crash leaves
//! both or neither. What a record means (replay, refuse, wait) is the caller's to say.

use std::num::NonZeroU32;
use std::sync::Arc;

use ambit_core::{Digest, SessionId};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use tokio::sync::oneshot;

use crate::Store;
use crate::error::StoreError;
use crate::journal::signed;
use crate::queue::{Op, Request};
use crate::session::session_id;

/// What is done once for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// A session; the scope of its key is the principal.
    Session,
}

impl KeyKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
        }
    }
}

/// A key with all that makes it unique.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyName {
    /// Whose it is.
    pub tenant: Arc<str>,
    /// What is done once.
    pub kind: KeyKind,
    /// Within what it is unique.
    pub scope: Arc<str>,
    /// The key as its owner chose it; bounded by the caller.
    pub key: Arc<str>,
}

/// A key to be taken together with a new session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Which.
    pub name: KeyName,
    /// SHA-256 of what is asked for: the same key with another one asks for something else.
    pub hash: Digest,
}

/// Where what a key stands for has got to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// It goes on.
    Running,
    /// It has its result, which does not change any more.
    Done,
    /// Nobody can say what came of it.
    Unknown,
}

/// A key that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// SHA-256 of what was asked for.
    pub hash: Digest,
    /// From 1; the next one begins after an undoing.
    pub generation: u64,
    /// Where it has got to.
    pub state: KeyState,
    /// The session that it stands for.
    pub session: Option<SessionId>,
    /// When it was taken, milliseconds since 1970.
    pub created_ms: u64,
    /// From when it is free again, milliseconds since 1970; `None` while its session is open.
    pub expires_ms: Option<u64>,
}

/// What an append does to the key of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFate {
    /// The result stands. The key is free again from `until_ms` on, milliseconds since 1970, once that is known.
    Done {
        /// `None` leaves it open.
        until_ms: Option<u64>,
    },
    /// Nothing was done: the key is free again at once.
    Released,
}

impl KeyFate {
    /// This one, then a later one: what is released stays so, and an end once known stays known.
    pub(crate) const fn then(self, later: Self) -> Self {
        match (self, later) {
            (Self::Released, _) | (_, Self::Released) => Self::Released,
            (Self::Done { until_ms }, Self::Done { until_ms: None }) => Self::Done { until_ms },
            (Self::Done { .. }, Self::Done { until_ms: Some(until_ms) }) => Self::Done { until_ms: Some(until_ms) },
        }
    }

    /// As the statement reads it: the word, and the end.
    pub(crate) fn columns(self) -> (&'static str, Option<i64>) {
        match self {
            Self::Done { until_ms } => ("done", until_ms.map(signed)),
            Self::Released => ("released", None),
        }
    }
}

impl Store {
    /// Reads the record of a key; `None` if it is free at `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn key(&self, name: &KeyName, now_ms: u64) -> Result<Option<KeyRecord>, StoreError> {
        const KEY: &str = "
            SELECT hash, generation, state, session, created_ms, expires_ms FROM idempotency
            WHERE tenant = $1 AND kind = $2 AND scope = $3 AND key = $4 AND (expires_ms IS NULL OR expires_ms > $5)";
        let query = sqlx::query(KEY)
            .bind(Arc::clone(&name.tenant))
            .bind(name.kind.as_str())
            .bind(Arc::clone(&name.scope))
            .bind(Arc::clone(&name.key))
            .bind(signed(now_ms));
        self.inner.read(query.try_map(record).fetch_optional(&self.inner.readers)).await
    }

    /// Deletes keys that are free again, at most `limit` of them; gives how many there were.
    ///
    /// # Errors
    /// If the database cannot be written.
    pub async fn sweep_keys(&self, limit: NonZeroU32) -> Result<u64, StoreError> {
        let (ack, answer) = oneshot::channel();
        self.inner.queue.put_op(Request::Op(Op::SweepKeys { limit: limit.get(), ack })).await?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

fn record(row: SqliteRow) -> Result<KeyRecord, sqlx::Error> {
    let hash = row.try_get::<&[u8], _>(0)?.try_into().map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
    Ok(KeyRecord {
        hash: Digest(hash),
        generation: row.try_get::<i64, _>(1)?.cast_unsigned(),
        state: match row.try_get::<&str, _>(2)? {
            "running" => KeyState::Running,
            "done" => KeyState::Done,
            // The table admits no other word.
            _ => KeyState::Unknown,
        },
        session: row.try_get::<Option<&str>, _>(3)?.map(session_id).transpose()?,
        created_ms: row.try_get::<i64, _>(4)?.cast_unsigned(),
        expires_ms: row.try_get::<Option<i64>, _>(5)?.map(i64::cast_unsigned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_released_stays_so_and_an_end_stays_known() {
        let done = |until_ms| KeyFate::Done { until_ms };
        let check = |earlier: KeyFate, later, expected| assert_eq!(earlier.then(later), expected);
        check(done(None), done(Some(7)), done(Some(7)));
        check(done(Some(7)), done(None), done(Some(7)));
        check(done(Some(7)), KeyFate::Released, KeyFate::Released);
        check(KeyFate::Released, done(Some(7)), KeyFate::Released);
    }
}
