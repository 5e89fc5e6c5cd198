//! Wishes of others for a session (cancel, tighten, approve): put by anybody, also in another process, taken by the
//! session's owner, and gone once the owner has journalled what it made of them.
//!
//! A message is handed out once an epoch. If the owner dies before journalling it, the next owner gets it again: none is
//! lost, none is heard twice. There is no place for content in a message beyond a short body.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use ambit_core::SessionId;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::Store;
use crate::error::StoreError;
use crate::journal::{Need, signed};
use crate::queue::{Op, Request};
use crate::session::session_id;

/// Most messages that wait for one session: every tightening that a session hears, and cancellations and decisions beside.
pub const INBOX_MAX: u32 = 64;
/// Largest body of a message, in bytes: a set of limits or a decision with a note.
pub const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Most messages looked at in one go, over all sessions of this node.
const INBOX_PAGE: u32 = 1_024;

/// Names a message; given back with the append that answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub(crate) i64);

/// One wish for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its name, for [`Append::heard`](crate::Append::heard).
    pub id: MessageId,
    /// For which session.
    pub session: SessionId,
    /// The owner's epoch at the time: a message of another epoch than the lease at hand is not this owner's to answer.
    pub epoch: u64,
    /// What is wished, in the caller's words.
    pub kind: String,
    /// JSON of the caller.
    pub body: String,
    /// When it was put, milliseconds since 1970.
    pub at_ms: u64,
}

/// Which messages have been handed out here, and whether there may be new ones.
#[derive(Debug)]
pub(crate) struct Inbox {
    handed_out: Mutex<HashSet<(MessageId, u64)>>,
    changed: watch::Sender<()>,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { handed_out: Mutex::default(), changed: watch::Sender::new(()) }
    }

    /// Keeps those that were not handed out before. What is no longer in the table is forgotten, so that the memory of
    /// them stays as bounded as the table.
    fn hand_out(&self, waiting: Vec<Message>) -> Vec<Message> {
        let mut handed_out = self.handed_out.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *handed_out);
        waiting
            .into_iter()
            .filter(|message| {
                let key = (message.id, message.epoch);
                handed_out.insert(key);
                !before.contains(&key)
            })
            .collect()
    }
}

impl Store {
    /// Gives back a message that could not be told: it is handed out again.
    pub fn inbox_return(&self, message: &Message) {
        self.inner.inbox.handed_out.lock().unwrap_or_else(PoisonError::into_inner).remove(&(message.id, message.epoch));
    }

    /// Puts a message for a session, whoever owns it. A `Durable` one survives a loss of power: ask for that before
    /// answering 202.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::SessionClosed`], [`StoreError::InboxFull`] at [`INBOX_MAX`],
    /// [`StoreError::TooLarge`] above [`MESSAGE_BYTES_MAX`], and whatever the disk has to say.
    pub async fn inbox_put(&self, session: SessionId, kind: &'static str, body: String, need: Need) -> Result<(), StoreError> {
        if body.len() > MESSAGE_BYTES_MAX {
            return Err(StoreError::TooLarge { bytes: body.len() });
        }
        let (ack, answer) = oneshot::channel();
        self.inner.queue.put_op(Request::Op(Op::InboxPut { session, kind, body, need, ack })).await?;
        answer.await.unwrap_or(Err(StoreError::Closed))?;
        self.inner.inbox.changed.send_replace(());
        Ok(())
    }

    /// Takes the messages for all sessions of this node that were not handed out yet: one query.
    ///
    /// # Errors
    /// If the database cannot be read.
    ///
    /// # Cancel safety
    /// Nothing is handed out unless it is returned.
    pub async fn inbox_take(&self) -> Result<Vec<Message>, StoreError> {
        const WAITING: &str = "
            SELECT m.id, m.session, s.epoch, m.kind, m.body, m.at_ms
            FROM inbox AS m CROSS JOIN session AS s
            WHERE s.id = m.session AND +s.owner = $1 ORDER BY m.id LIMIT $2";
        let query = sqlx::query(WAITING).bind(Arc::clone(&self.inner.node)).bind(INBOX_PAGE);
        let waiting = self.inner.read(query.try_map(message).fetch_all(&self.inner.readers)).await?;
        Ok(self.inner.inbox.hand_out(waiting))
    }

    /// Waits for messages: those put in this process come at once, those of others within `poll`.
    ///
    /// # Errors
    /// If the database cannot be read.
    ///
    /// # Cancel safety
    /// Nothing is handed out unless it is returned.
    pub async fn inbox_next(&self) -> Result<Vec<Message>, StoreError> {
        let mut changed = self.inner.inbox.changed.subscribe();
        loop {
            let messages = self.inbox_take().await?;
            if !messages.is_empty() {
                return Ok(messages);
            }
            // Whether something changed or the time is up: look again.
            let _ = timeout(self.inner.poll, changed.changed()).await;
        }
    }
}

fn message(row: SqliteRow) -> Result<Message, sqlx::Error> {
    Ok(Message {
        id: MessageId(row.try_get(0)?),
        session: session_id(row.try_get(1)?)?,
        epoch: row.try_get::<i64, _>(2)?.cast_unsigned(),
        kind: row.try_get(3)?,
        body: row.try_get(4)?,
        at_ms: row.try_get::<i64, _>(5)?.cast_unsigned(),
    })
}

/// Puts one message; says why not, if not.
pub(crate) async fn put(
    connection: &mut sqlx::SqliteConnection,
    session: SessionId,
    kind: &'static str,
    body: String,
    now_ms: u64,
) -> Result<Result<(), StoreError>, sqlx::Error> {
    const PUT: &str = "
        INSERT INTO inbox (session, kind, body, at_ms)
        SELECT id, $2, $3, $4 FROM session
        WHERE id = $1 AND closed_ms IS NULL AND (SELECT count(*) FROM inbox WHERE inbox.session = $1) < $5";
    const CLOSED: &str = "SELECT closed_ms IS NOT NULL FROM session WHERE id = $1";
    let put = sqlx::query(PUT).bind(session.ulid().to_owned()).bind(kind).bind(body).bind(signed(now_ms)).bind(INBOX_MAX);
    if put.execute(&mut *connection).await?.rows_affected() == 1 {
        return Ok(Ok(()));
    }
    let closed: Option<bool> = sqlx::query_scalar(CLOSED).bind(session.ulid().to_owned()).fetch_optional(connection).await?;
    Ok(Err(match closed {
        None => StoreError::NotFound { session },
        Some(true) => StoreError::SessionClosed { session },
        Some(false) => StoreError::InboxFull { session },
    }))
}
