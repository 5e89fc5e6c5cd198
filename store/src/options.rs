//! What the store has to be told: where its file is, who this process is, and every bound with its unit.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::StoreError;
use crate::observe::{OpObserver, Unobserved};

/// How long a lease lasts: a crashed process keeps its sessions from others for this long.
pub const LEASE: Duration = Duration::from_secs(10);
/// How often a lease is renewed: two renewals may fail before it runs out.
pub const RENEW: Duration = Duration::from_secs(3);
/// Most appends in one transaction. More would save little (a commit is shared by 256 already) and hold the lock longer.
pub const BATCH_MAX: u32 = 256;
/// Most requests that wait for the writer; each holds its records and shares its texts with the session.
pub const QUEUE_MAX: usize = 4_096;
/// Connections that read; each has a thread and a page cache of 2 MiB.
pub const READERS: u32 = 2;
/// Longest wait for the lock of another process, for room in the queue and for a reader.
pub const BUSY: Duration = Duration::from_secs(5);
/// Longest that closing may take: one wait for the lock and the last groups.
pub const DRAIN: Duration = Duration::from_secs(10);
/// Longest that a note waits for an append to share its commit with.
pub const NOTE_LINGER: Duration = Duration::from_millis(25);
/// How often what other processes write is looked for; a follower that finds nothing slows down to eight times that.
pub const POLL: Duration = Duration::from_millis(250);

/// Where the store is and what it may use.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The database file; made if it is not there. Its folder must exist.
    pub path: PathBuf,
    /// Names this process as an owner of sessions. Never used by another process, nor by this one's last life: a ULID.
    pub node: Arc<str>,
    /// Tells the wall time that leases are measured in.
    pub clock: Clock,
    /// How long a lease lasts.
    pub lease: Duration,
    /// How often it is renewed; at most a third of `lease`.
    pub renew: Duration,
    /// Most appends in one transaction.
    pub max_batch: NonZeroU32,
    /// Most requests that wait for the writer. Notes use at most half of it.
    pub queue: NonZeroUsize,
    /// Most connections that read.
    pub readers: NonZeroU32,
    /// Longest wait for the lock of another process, for room in the queue, and for a reader.
    pub busy: Duration,
    /// Longest that [`Store::close`](crate::Store::close) may take.
    pub drain: Duration,
    /// Longest that a note waits for an append to share its commit with.
    pub note_linger: Duration,
    /// How often what other processes write is looked for.
    pub poll: Duration,
    /// Largest size of the database in pages of 4 KiB; `None` leaves it to the disk.
    pub pages_max: Option<NonZeroU32>,
    /// Hears how long each operation took.
    pub observer: Arc<dyn OpObserver>,
}

impl StoreOptions {
    /// The recommended values for a file, a process and a clock.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, node: impl Into<Arc<str>>, clock: Clock) -> Self {
        Self {
            path: path.into(),
            node: node.into(),
            clock,
            lease: LEASE,
            renew: RENEW,
            max_batch: NonZeroU32::new(BATCH_MAX).unwrap_or(NonZeroU32::MIN),
            queue: NonZeroUsize::new(QUEUE_MAX).unwrap_or(NonZeroUsize::MIN),
            readers: NonZeroU32::new(READERS).unwrap_or(NonZeroU32::MIN),
            busy: BUSY,
            drain: DRAIN,
            note_linger: NOTE_LINGER,
            poll: POLL,
            pages_max: None,
            observer: Arc::new(Unobserved),
        }
    }

    /// Takes the file's path out of a setting like `sqlite:ambit.db`, `sqlite:///var/lib/ambit.db`.
    ///
    /// # Errors
    /// [`StoreError::Options`] for other databases, for memory (two connections would see two databases) and for
    /// parameters, which belong into settings of their own.
    pub fn path_of_url(url: &str) -> Result<PathBuf, StoreError> {
        let refused = |what| Err(StoreError::Options { what });
        let Some(rest) = url.strip_prefix("sqlite:") else {
            return refused("the url does not begin with `sqlite:`, the only database of this version");
        };
        let path = rest.strip_prefix("//").unwrap_or(rest);
        if path.is_empty() || path == "/" {
            return refused("the url names no file");
        }
        if path.contains(":memory:") {
            return refused("a database in memory cannot be shared by the writer and its readers");
        }
        if path.contains('?') {
            return refused("the url has parameters");
        }
        Ok(Path::new(path).to_owned())
    }

    /// Checks what the types cannot say.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let wrong = |what| Err(StoreError::Options { what });
        if self.node.is_empty() {
            return wrong("`node` is empty");
        }
        if self.renew.is_zero() || self.renew.saturating_mul(3) > self.lease {
            return wrong("`renew` must be more than nothing and at most a third of `lease`");
        }
        if self.poll.is_zero() {
            return wrong("`poll` is zero");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file_or_is_refused() {
        let check = |url: &str, expected: Option<&str>| {
            assert_eq!(StoreOptions::path_of_url(url).ok().as_deref(), expected.map(Path::new), "{url}");
        };
        check("sqlite:ambit.db", Some("ambit.db"));
        check("sqlite://ambit.db", Some("ambit.db"));
        check("sqlite:///var/lib/ambit.db", Some("/var/lib/ambit.db"));
        check("sqlite:/var/lib/ambit.db", Some("/var/lib/ambit.db"));
        check("sqlite::memory:", None);
        check("sqlite:", None);
        check("sqlite://", None);
        check("sqlite:a.db?mode=ro", None);
        check("postgres://localhost/ambit", None);
        check("ambit.db", None);
    }

    #[test]
    fn a_lease_must_outlive_two_failed_renewals() {
        let check = |lease, renew, fine| {
            let options = StoreOptions {
                lease: Duration::from_millis(lease),
                renew: Duration::from_millis(renew),
                ..StoreOptions::new("a.db", "n", Clock::from_fn(|| 0))
            };
            assert_eq!(options.check().is_ok(), fine, "{lease} {renew}");
        };
        check(10_000, 3_000, true);
        check(9_000, 3_000, true);
        check(8_999, 3_000, false);
        check(10_000, 0, false);
    }
}
