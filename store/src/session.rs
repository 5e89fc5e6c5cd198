//! The row of a session: what is listed and shown without reading its journal.
//!
//! Its words (`status`, `reason`, `settlement`) and JSON (`summary`, `metadata`) are the caller's; the store compares
//! them at most for equality.

use std::num::NonZeroU32;
use std::sync::Arc;

use ambit_core::SessionId;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::Store;
use crate::error::StoreError;
use crate::idempotency::{KeyFate, NewKey};
use crate::journal::{Append, Content, Need, Record};
use crate::lease::{Claim, FIRST_EPOCH, Lease};
use crate::queue::Queued;

/// Most rows that one page holds.
pub const PAGE_MAX: u32 = 100;

/// A session that begins.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its id, made by the caller; sorts by time.
    pub id: SessionId,
    /// Name of the agent.
    pub agent: Arc<str>,
    /// Who pays.
    pub tenant: Arc<str>,
    /// Who asked.
    pub principal: Arc<str>,
    /// The session that it continues.
    pub previous: Option<SessionId>,
    /// Its status for now.
    pub status: &'static str,
    /// When it began, milliseconds since 1970.
    pub created_ms: u64,
    /// When its verdict is due, milliseconds since 1970.
    pub deadline_ms: u64,
    /// JSON that the caller gave along; bounded by the caller.
    pub metadata: String,
    /// Its first record.
    pub started: Record,
    /// Texts that the record refers to.
    pub contents: Vec<Content>,
    /// True if its texts are to go once it is closed; see [`Store::sweep_texts`].
    pub forget: bool,
    /// The key under which it may be asked for again.
    pub key: Option<NewKey>,
}

/// What becomes of a session's texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFate {
    /// They stay.
    Kept,
    /// They go once the session is closed.
    ToGo,
    /// They are no longer there.
    Gone,
}

impl TextFate {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::ToGo => "to_go",
            Self::Gone => "gone",
        }
    }
}

/// What changes in a row; `None` leaves a column as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowUpdate {
    /// Where it stands.
    pub status: Option<&'static str>,
    /// Why it ended.
    pub reason: Option<&'static str>,
    /// What became of its effects.
    pub settlement: Option<&'static str>,
    /// When its verdict is due now, milliseconds since 1970.
    pub deadline_ms: Option<u64>,
    /// When the verdict fell, milliseconds since 1970.
    pub verdict_ms: Option<u64>,
    /// When it was closed, milliseconds since 1970: from then on it takes no messages, and followers end.
    pub closed_ms: Option<u64>,
    /// JSON for those who ask later.
    pub summary: Option<String>,
    /// Gives up the lease with this append: nothing more can be appended under it.
    pub release: bool,
    /// What becomes of the key under which the session was begun, if it was begun under one.
    pub key: Option<KeyFate>,
}

impl RowUpdate {
    /// Puts a later update over this one.
    pub(crate) fn merge(&mut self, later: &Self) {
        let Self { status, reason, settlement, deadline_ms, verdict_ms, closed_ms, summary, release, key } = later;
        self.status = status.or(self.status);
        self.reason = reason.or(self.reason);
        self.settlement = settlement.or(self.settlement);
        self.deadline_ms = deadline_ms.or(self.deadline_ms);
        self.verdict_ms = verdict_ms.or(self.verdict_ms);
        self.closed_ms = closed_ms.or(self.closed_ms);
        if summary.is_some() {
            self.summary.clone_from(summary);
        }
        self.release |= release;
        self.key = match (self.key, *key) {
            (Some(earlier), Some(later)) => Some(earlier.then(later)),
            (earlier, later) => later.or(earlier),
        };
    }
}

/// A row as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// Name of the agent.
    pub agent: String,
    /// Who pays.
    pub tenant: String,
    /// Who asked.
    pub principal: String,
    /// The session that it continues.
    pub previous: Option<SessionId>,
    /// Where it stands.
    pub status: String,
    /// Why it ended.
    pub reason: Option<String>,
    /// What became of its effects.
    pub settlement: Option<String>,
    /// When it began, milliseconds since 1970.
    pub created_ms: u64,
    /// When its verdict is due, milliseconds since 1970.
    pub deadline_ms: u64,
    /// When the verdict fell, milliseconds since 1970.
    pub verdict_ms: Option<u64>,
    /// When it was closed, milliseconds since 1970.
    pub closed_ms: Option<u64>,
    /// JSON that the caller gave along.
    pub metadata: String,
    /// JSON that its owner wrote for those who ask.
    pub summary: Option<String>,
    /// The node that owns it; `None` once released.
    pub owner: Option<String>,
    /// How often it changed hands, from 1.
    pub epoch: u64,
    /// Until when its owner's lease lasts, milliseconds since 1970.
    pub lease_until_ms: Option<u64>,
    /// The last place taken in its journal.
    pub last_seq: u64,
    /// What becomes of its texts.
    pub texts: TextFate,
    /// Since when it is deleted, milliseconds since 1970: kept for its journal, and nobody's to see.
    pub deleted_ms: Option<u64>,
}

/// In which order sessions are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The youngest first.
    NewestFirst,
    /// The oldest first.
    OldestFirst,
}

/// Which sessions are listed.
#[derive(Debug, Clone)]
pub struct Page {
    /// Begins behind this one, in the order asked for.
    pub after: Option<SessionId>,
    /// At most so many, and at most [`PAGE_MAX`].
    pub limit: NonZeroU32,
    /// In which order.
    pub order: Order,
    /// Only those of this status.
    pub status: Option<String>,
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those of this tenant.
    pub tenant: Option<String>,
}

/// One page of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The sessions.
    pub rows: Vec<SessionRow>,
    /// True if another page would hold something.
    pub has_more: bool,
}

impl Store {
    /// Makes a session with its first record; this node owns it.
    ///
    /// # Errors
    /// [`StoreError::Exists`] if the id is taken, [`StoreError::KeyTaken`] if the key is; else as for [`Store::append`].
    /// Session and key stand or fall together.
    ///
    /// # Cancel safety
    /// Once queued the session is made. If nobody waits for its lease, nobody drives it either: it is taken over once
    /// this process has gone.
    pub async fn create(&self, session: NewSession, need: Need) -> Result<Lease, StoreError> {
        let NewSession {
            id,
            agent,
            tenant,
            principal,
            previous,
            status,
            created_ms,
            deadline_ms,
            metadata,
            started,
            contents,
            forget,
            key,
        } = session;
        let keyed = key.is_some();
        let texts = if forget { TextFate::ToGo } else { TextFate::Kept };
        let append = Append { records: vec![started], contents, ..Append::default() };
        append.check()?;
        let create = Some(Box::new(NewRow { agent, tenant, principal, previous, status, created_ms, deadline_ms, metadata, texts, key }));
        let lease = Lease::new(id, FIRST_EPOCH, 0);
        let (ack, answer) = tokio::sync::oneshot::channel();
        let claim = Claim { session: id, epoch: FIRST_EPOCH };
        self.inner.queue.put_or_wait(&lease, Queued { lease: claim, create, append, need, ack: Some(ack) }).await?;
        match answer.await.unwrap_or(Err(StoreError::Closed)) {
            Ok(()) => Ok(lease),
            // Ids are made to be new: what was taken is the key.
            Err(StoreError::Exists { .. }) if keyed => Err(StoreError::KeyTaken),
            Err(error) => Err(error),
        }
    }

    /// Reads the row of a session.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn session(&self, id: SessionId) -> Result<Option<SessionRow>, StoreError> {
        const SESSION: &str = concat!(include_str!("../sql/session_row.sql"), " WHERE s.id = $1");
        let query = sqlx::query(SESSION).bind(id.ulid().to_owned());
        self.inner.read(query.try_map(session_row).fetch_optional(&self.inner.readers)).await
    }

    /// Lists sessions that are not deleted by id, which is by age.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn sessions(&self, page: Page) -> Result<Listing, StoreError> {
        // `~` sorts behind and the empty text before every id. The filters are no index conditions: a rare match is
        // looked for from the newest on.
        const NEWEST: &str = concat!(
            include_str!("../sql/session_row.sql"),
            " WHERE s.id < coalesce($1, '~') AND s.status = coalesce($2, s.status) AND s.agent = coalesce($3, s.agent)
              AND s.tenant = coalesce($4, s.tenant) AND s.deleted_ms IS NULL ORDER BY s.id DESC LIMIT $5"
        );
        const OLDEST: &str = concat!(
            include_str!("../sql/session_row.sql"),
            " WHERE s.id > coalesce($1, '') AND s.status = coalesce($2, s.status) AND s.agent = coalesce($3, s.agent)
              AND s.tenant = coalesce($4, s.tenant) AND s.deleted_ms IS NULL ORDER BY s.id LIMIT $5"
        );
        let limit = page.limit.get().min(PAGE_MAX);
        let sql = match page.order {
            Order::NewestFirst => NEWEST,
            Order::OldestFirst => OLDEST,
        };
        let query = sqlx::query(sql)
            .bind(page.after.map(|id| id.ulid().to_owned()))
            .bind(page.status)
            .bind(page.agent)
            .bind(page.tenant)
            .bind(limit + 1);
        let mut rows = self.inner.read(query.try_map(session_row).fetch_all(&self.inner.readers)).await?;
        let limit = limit as usize;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        Ok(Listing { rows, has_more })
    }
}

/// The columns of a session that begins, beside its id.
#[derive(Debug)]
pub(crate) struct NewRow {
    pub(crate) agent: Arc<str>,
    pub(crate) tenant: Arc<str>,
    pub(crate) principal: Arc<str>,
    pub(crate) previous: Option<SessionId>,
    pub(crate) status: &'static str,
    pub(crate) created_ms: u64,
    pub(crate) deadline_ms: u64,
    pub(crate) metadata: String,
    pub(crate) texts: TextFate,
    pub(crate) key: Option<NewKey>,
}

/// Reads an id as the tables keep it.
pub(crate) fn session_id(ulid: &str) -> Result<SessionId, sqlx::Error> {
    format!("ses_{ulid}").parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))
}

fn session_row(row: SqliteRow) -> Result<SessionRow, sqlx::Error> {
    let ms = |column: usize| row.try_get::<i64, _>(column).map(i64::cast_unsigned);
    let ms_maybe = |column: usize| row.try_get::<Option<i64>, _>(column).map(|ms| ms.map(i64::cast_unsigned));
    Ok(SessionRow {
        id: session_id(row.try_get(0)?)?,
        agent: row.try_get(1)?,
        tenant: row.try_get(2)?,
        principal: row.try_get(3)?,
        previous: row.try_get::<Option<&str>, _>(4)?.map(session_id).transpose()?,
        status: row.try_get(5)?,
        reason: row.try_get(6)?,
        settlement: row.try_get(7)?,
        created_ms: ms(8)?,
        deadline_ms: ms(9)?,
        verdict_ms: ms_maybe(10)?,
        closed_ms: ms_maybe(11)?,
        metadata: row.try_get(12)?,
        summary: row.try_get(13)?,
        owner: row.try_get(14)?,
        epoch: ms(15)?,
        lease_until_ms: ms_maybe(16)?,
        last_seq: ms(17)?,
        texts: match row.try_get::<&str, _>(18)? {
            "kept" => TextFate::Kept,
            "to_go" => TextFate::ToGo,
            // The table admits no other word; texts that are thought gone are not looked for.
            _ => TextFate::Gone,
        },
        deleted_ms: ms_maybe(19)?,
    })
}
