//! The one error of this crate. What SQLite says is sorted here, by code and never by text; nothing of sqlx leaves the
//! crate but as an opaque source.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ambit_core::{ErrorKind, Origin, SessionId};

/// What SQLite or its driver said, for the log.
#[derive(Clone)]
pub struct Fault(Arc<sqlx::Error>);

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Fault {}

/// Why the store did not do what it was asked for. Cheap to clone: one failed commit answers a whole group.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is no space left, on the disk or under `pages_max`.
    #[error("the disk is full")]
    Full(#[source] Fault),
    /// The file, its folder or its file system may not be written.
    #[error("the database is read-only")]
    ReadOnly(#[source] Fault),
    /// Another process kept the database locked for as long as a wait may take.
    #[error("the database is locked by another process")]
    Busy(#[source] Fault),
    /// There is no such folder, or it may not be entered.
    #[error("the database cannot be opened")]
    CannotOpen(#[source] Fault),
    /// The file is no database, or a damaged one.
    #[error("the file is not a sound database")]
    Damaged(#[source] Fault),
    /// The disk failed, or the connection to it is gone; the next operation opens a new one.
    #[error("the database does not answer")]
    Io(#[source] Fault),
    /// The schema was made by a newer release, or a migration was altered.
    #[error("the database has schema version {version}, which this release does not know")]
    Schema {
        /// The version in the database.
        version: i64,
    },
    /// There is no database, and whoever asks does not make one.
    #[error("there is no database at `{}`", path.display())]
    Missing {
        /// Where it would be.
        path: PathBuf,
    },
    /// The schema was made by an older release, and whoever asks does not change it.
    #[error("the database has schema version {version}, older than version {known} of this release")]
    Outdated {
        /// The version in the database.
        version: i64,
        /// The version of this release.
        known: i64,
    },
    /// The lease is not the current one: somebody else has taken the session over, or it was released.
    #[error("session `{session}` is not owned under epoch {epoch}")]
    NotOwner {
        /// Which session.
        session: SessionId,
        /// The epoch that was claimed.
        epoch: u64,
    },
    /// The session exists already, or its journal has an entry at that place.
    #[error("the journal of session `{session}` has that entry already")]
    Exists {
        /// Which session.
        session: SessionId,
    },
    /// The key under which the session was to begin is taken.
    #[error("the idempotency key is taken")]
    KeyTaken,
    /// There is no such session.
    #[error("session `{session}` does not exist")]
    NotFound {
        /// Which session.
        session: SessionId,
    },
    /// The session is closed and hears nothing any more.
    #[error("session `{session}` is closed")]
    SessionClosed {
        /// Which session.
        session: SessionId,
    },
    /// The session has as many messages waiting as it may have.
    #[error("the inbox of session `{session}` is full")]
    InboxFull {
        /// Which session.
        session: SessionId,
    },
    /// The writer is so far behind that there was no room in its queue within `busy`.
    #[error("the queue of the journal's writer is full")]
    QueueFull,
    /// All connections that read were in use for as long as a wait may take.
    #[error("all readers of the database are busy")]
    ReadersBusy,
    /// One append holds more than a session may.
    #[error("an append of {bytes} bytes is too large")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The store is closing or closed.
    #[error("the store is closed")]
    Closed,
    /// Closing took longer than it may; what was queued may be lost.
    #[error("the store did not finish within the time to drain")]
    DrainTimeout,
    /// A node of this name is registered.
    #[error("node `{node}` is registered already")]
    NodeInUse {
        /// The name.
        node: Arc<str>,
    },
    /// The options contradict themselves.
    #[error("{what}")]
    Options {
        /// What is wrong.
        what: &'static str,
    },
    /// Our own fault.
    #[error("the store made a mistake")]
    Internal(#[source] Fault),
}

impl StoreError {
    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Full(_)
            | Self::ReadOnly(_)
            | Self::Busy(_)
            | Self::CannotOpen(_)
            | Self::Damaged(_)
            | Self::Io(_)
            | Self::Closed
            | Self::QueueFull
            | Self::ReadersBusy => ErrorKind::Unavailable,
            Self::Schema { .. } | Self::Outdated { .. } | Self::Options { .. } | Self::TooLarge { .. } => ErrorKind::Invalid,
            Self::NotOwner { .. } | Self::Exists { .. } | Self::KeyTaken | Self::SessionClosed { .. } | Self::NodeInUse { .. } => {
                ErrorKind::Conflict
            }
            Self::NotFound { .. } | Self::Missing { .. } => ErrorKind::NotFound,
            Self::InboxFull { .. } => ErrorKind::LimitReached,
            Self::DrainTimeout => ErrorKind::DeadlineExceeded,
            Self::Internal(_) => ErrorKind::Internal,
        }
    }

    /// Where it came from.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        match self {
            Self::Full(_)
            | Self::ReadOnly(_)
            | Self::Busy(_)
            | Self::CannotOpen(_)
            | Self::Damaged(_)
            | Self::Io(_)
            | Self::Schema { .. }
            | Self::Missing { .. }
            | Self::Outdated { .. }
            | Self::QueueFull
            | Self::ReadersBusy
            | Self::Closed
            | Self::DrainTimeout => Origin::Store,
            Self::NotFound { .. } | Self::KeyTaken | Self::SessionClosed { .. } | Self::InboxFull { .. } | Self::Options { .. } => {
                Origin::Caller
            }
            Self::NotOwner { .. } | Self::Exists { .. } | Self::NodeInUse { .. } | Self::TooLarge { .. } | Self::Internal(_) => Origin::Us,
        }
    }

    /// What an operator can do about it, where there is something.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Full(_) => Some("free some space on the disk of the database; sessions can start again at once"),
            Self::ReadOnly(_) => Some("let this user write the database file, its folder and the files `-wal` and `-shm` beside it"),
            Self::Busy(_) => {
                Some("look for a process that holds the database open, such as a backup or a `sqlite3` shell in a transaction")
            }
            Self::CannotOpen(_) => Some("make the folder of `store.url` and let this user write it"),
            Self::Damaged(_) => Some("`store.url` names another kind of file or a damaged one: restore a backup or name a new file"),
            Self::Io(_) => Some("look at the disk and at the system's log"),
            Self::Schema { .. } => Some("use the release that last wrote this database, or a newer one"),
            Self::Missing { .. } => Some("name the file of a running `ambit` with `store.url`, or run a session first"),
            Self::Outdated { .. } => Some("start `ambit serve` of this release once: it brings the database up to date"),
            Self::QueueFull => Some("the disk is too slow for this load: lower `server.max_in_flight`"),
            Self::ReadersBusy => Some("too many readers for a slow disk: list fewer sessions at once, or raise the number of readers"),
            Self::NodeInUse { .. } => Some("give each process a name of its own, a new one at each start"),
            Self::DrainTimeout => Some("the disk was too slow; sessions are taken up again from what was committed"),
            Self::NotOwner { .. }
            | Self::Exists { .. }
            | Self::KeyTaken
            | Self::NotFound { .. }
            | Self::SessionClosed { .. }
            | Self::InboxFull { .. }
            | Self::TooLarge { .. }
            | Self::Closed
            | Self::Options { .. }
            | Self::Internal(_) => None,
        }
    }

    /// True if the connection cannot be trusted any more.
    pub(crate) const fn breaks_connection(&self) -> bool {
        matches!(self, Self::Io(_) | Self::CannotOpen(_) | Self::Damaged(_) | Self::Internal(_))
    }

    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }
}

/// What one append of a group asked for that cannot be: its own fault, and no reason to fail its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Constraint {
    /// Its lease is stale.
    Lease,
    /// Its session, or its place in the sequence, is there already.
    Taken,
}

impl Constraint {
    /// Finds out which one an error speaks of, if any.
    pub(crate) fn of(error: &sqlx::Error) -> Option<Self> {
        match code(error)? {
            // Raised by a trigger.
            1811 => Some(Self::Lease),
            // Primary key, unique.
            1555 | 2067 => Some(Self::Taken),
            _ => None,
        }
    }
}

/// The extended result code, if SQLite itself said no.
fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let sort = match (&error, code(&error)) {
            (_, Some(code)) => sort(code),
            (sqlx::Error::PoolClosed, None) => return Self::Closed,
            (sqlx::Error::PoolTimedOut, None) => return Self::ReadersBusy,
            (sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed, None) => Self::Io,
            (_, None) => Self::Internal,
        };
        sort(Fault(Arc::new(error)))
    }
}

/// Sorts an extended result code of SQLite (sqlite.org/rescode.html); its low byte is the primary one.
fn sort(code: i32) -> fn(Fault) -> StoreError {
    match code & 0xff {
        13 => StoreError::Full,
        8 => StoreError::ReadOnly,
        5 | 6 => StoreError::Busy,
        // Permission denied while opening, and cannot open.
        3 | 14 | 23 => StoreError::CannotOpen,
        11 | 26 => StoreError::Damaged,
        10 => StoreError::Io,
        _ => StoreError::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_of_sqlite_has_one_meaning() {
        let check = |code, expected: &str, kind| {
            let error = sort(code)(Fault(Arc::new(sqlx::Error::WorkerCrashed)));
            assert_eq!((error.to_string().as_str(), error.kind()), (expected, kind), "{code}");
            assert_eq!(error.hint().is_some(), kind == ErrorKind::Unavailable, "{code}");
        };
        check(13, "the disk is full", ErrorKind::Unavailable);
        check(8, "the database is read-only", ErrorKind::Unavailable);
        check(1032, "the database is read-only", ErrorKind::Unavailable);
        check(5, "the database is locked by another process", ErrorKind::Unavailable);
        check(517, "the database is locked by another process", ErrorKind::Unavailable);
        check(14, "the database cannot be opened", ErrorKind::Unavailable);
        check(26, "the file is not a sound database", ErrorKind::Unavailable);
        check(778, "the database does not answer", ErrorKind::Unavailable);
        check(1, "the store made a mistake", ErrorKind::Internal);
    }
}
