//! One attempt as the caller sees it, and the record that is kept of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use ambit_core::AttemptKind;
use ambit_core::trace::TraceParent;
use tokio::time::Instant;

/// The commit point of one logical call: set once the first byte was passed to the caller, never cleared.
///
/// Owned by whoever makes the call; the policy repeats nothing after it is set.
#[derive(Debug, Default)]
pub struct Committed {
    passed_on: AtomicBool,
    /// Time to the first token of the running leg in nanoseconds plus one; 0 while there is none.
    first_token: AtomicU64,
    /// HTTP status of the running leg; 0 while there is none.
    status: AtomicU16,
    /// Tokens read and written by the running leg, each plus one; 0 while they are not known.
    usage: (AtomicU64, AtomicU64),
}

impl Committed {
    /// Nothing was passed on yet.
    #[must_use]
    pub const fn new() -> Self {
        let usage = (AtomicU64::new(0), AtomicU64::new(0));
        Self { passed_on: AtomicBool::new(false), first_token: AtomicU64::new(0), status: AtomicU16::new(0), usage }
    }

    /// Marks the commit point: something was, or is about to be, passed to the caller.
    pub fn commit(&self) {
        self.passed_on.store(true, Ordering::Release);
    }

    /// True once something was passed on.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.passed_on.load(Ordering::Acquire)
    }

    pub(crate) fn leg_starts(&self) {
        self.first_token.store(0, Ordering::Release);
        self.status.store(0, Ordering::Release);
        self.usage.0.store(0, Ordering::Release);
        self.usage.1.store(0, Ordering::Release);
    }

    pub(crate) fn first_token(&self) -> Option<Duration> {
        self.first_token.load(Ordering::Acquire).checked_sub(1).map(Duration::from_nanos)
    }

    pub(crate) fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Acquire)).filter(|status| *status != 0)
    }

    pub(crate) fn usage(&self) -> Option<(u64, u64)> {
        let known = |tokens: &AtomicU64| tokens.load(Ordering::Acquire).checked_sub(1);
        Some((known(&self.usage.0)?, known(&self.usage.1)?))
    }

    fn mark_first_token(&self, after: Duration) {
        let nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX - 1).saturating_add(1);
        // The first mark of a leg stands.
        let _ = self.first_token.compare_exchange(0, nanos, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// One attempt, handed to the code that sends it. Everything mutable of the request is built anew for each.
#[derive(Debug, Clone, Copy)]
pub struct Leg<'a> {
    /// Counts the attempts at this target from 1.
    pub number: u32,
    /// Why it is sent.
    pub kind: AttemptKind,
    /// When the head of the answer, or the first token, must be there.
    pub head_by: Instant,
    /// When the whole answer must be there; what goes upstream as its deadline.
    pub end_by: Instant,
    /// Its place in a distributed trace; what goes upstream as `traceparent`.
    pub trace: Option<TraceParent>,
    pub(crate) started: Instant,
    pub(crate) committed: &'a Committed,
}

impl Leg<'_> {
    /// Says that the head of the answer or its first token is there: from here on only `end_by` and the caller's own
    /// timer between pieces bound this attempt.
    pub fn first_token(&self) {
        self.committed.mark_first_token(self.started.elapsed());
    }

    /// Says with which HTTP status the other side answered. For people alone: what it means is said by the failure.
    pub fn status(&self, status: u16) {
        self.committed.status.store(status, Ordering::Release);
    }

    /// Says how many tokens the other side read and wrote. For people alone: what is charged is the ledger's business.
    pub fn usage(&self, input: u64, output: u64) {
        self.committed.usage.0.store(input.saturating_add(1), Ordering::Release);
        self.committed.usage.1.store(output.saturating_add(1), Ordering::Release);
    }

    /// Says that something is about to be passed to the caller: nothing is repeated after this.
    pub fn commit(&self) {
        self.first_token();
        self.committed.commit();
    }
}

/// What is known of one attempt after it ended. Local refusals have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegRecord {
    /// Why it was sent.
    pub kind: AttemptKind,
    /// To whom.
    pub target: Arc<str>,
    /// `ok`, or the low-cardinality name of its failure.
    pub code: Arc<str>,
    /// False if it certainly never reached the other side.
    pub sent: bool,
    /// From sending to its end, milliseconds.
    pub ms: u64,
    /// To the head of the answer or the first token, where it came.
    pub first_token: Option<Duration>,
}

/// The records of one logical call, in order. The first one needs no allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Legs {
    first: Option<LegRecord>,
    more: Vec<LegRecord>,
}

impl Legs {
    /// No record.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: None, more: Vec::new() }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    /// True if nothing was sent.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// In the order in which they were sent.
    pub fn iter(&self) -> impl Iterator<Item = &LegRecord> {
        self.first.iter().chain(&self.more)
    }

    pub(crate) fn push(&mut self, record: LegRecord) {
        if self.first.is_none() {
            self.first = Some(record);
        } else {
            self.more.push(record);
        }
    }
}

impl IntoIterator for Legs {
    type Item = LegRecord;
    type IntoIter = std::iter::Chain<std::option::IntoIter<LegRecord>, std::vec::IntoIter<LegRecord>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}
