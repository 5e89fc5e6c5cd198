//! What the store tells about itself: how long an operation took, and a few gauges. It counts nothing else.

use std::fmt;
use std::time::Duration;

/// An operation of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// One group of appends committed, from the begin of its transaction; survives a crash of the process.
    CommitApplied,
    /// The same, and survives a loss of power.
    CommitDurable,
    /// A read.
    Read,
    /// The lease was renewed.
    Renew,
    /// Sessions were taken over, or none were found.
    TakeOver,
    /// A message was put.
    Inbox,
    /// A session was deleted.
    Delete,
    /// What is over was swept: keys, or texts.
    Sweep,
}

impl OpKind {
    /// Every kind.
    pub const ALL: [Self; 8] =
        [Self::CommitApplied, Self::CommitDurable, Self::Read, Self::Renew, Self::TakeOver, Self::Inbox, Self::Delete, Self::Sweep];

    /// Its name as metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CommitApplied => "commit_applied",
            Self::CommitDurable => "commit_durable",
            Self::Read => "read",
            Self::Renew => "renew",
            Self::TakeOver => "take_over",
            Self::Inbox => "inbox",
            Self::Delete => "delete",
            Self::Sweep => "sweep",
        }
    }
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpOutcome {
    /// Well.
    Ok,
    /// Not.
    Error,
}

impl OpOutcome {
    /// Every outcome.
    pub const ALL: [Self; 2] = [Self::Ok, Self::Error];

    /// Its name as metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
        }
    }

    pub(crate) fn of<T, E>(result: &Result<T, E>) -> Self {
        if result.is_ok() { Self::Ok } else { Self::Error }
    }
}

/// Hears about operations. Must neither block nor fail.
pub trait OpObserver: Send + Sync + fmt::Debug {
    /// One operation ended after `took`.
    fn observed(&self, kind: OpKind, outcome: OpOutcome, took: Duration);
}

/// Drops what it hears.
#[derive(Debug, Clone, Copy)]
pub struct Unobserved;

impl OpObserver for Unobserved {
    fn observed(&self, _kind: OpKind, _outcome: OpOutcome, _took: Duration) {}
}

/// The store at one moment, for quiescence checks and gauges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauges {
    /// Requests accepted and not yet answered. 0 when quiescent.
    pub queued: usize,
    /// Sessions that are being followed in this process.
    pub followed: usize,
    /// Notes dropped since the start: queue too full, bound of the session reached, or commit failed.
    pub notes_dropped: u64,
}
