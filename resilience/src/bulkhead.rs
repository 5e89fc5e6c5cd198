//! How many calls one dependency gets at once. Saturation is an answer, not a queue.
//!
//! A fresh call is answered at once by default. A call that continues something waits in a short first-in queue, since
//! work begun is finished before new work is taken; fresh calls that may wait stand behind those.
//!
//! **Invariant:** places and permits are semaphores, so a future that is dropped anywhere leaves nothing behind. The
//! tempting way, a counter beside a channel, leaks a place with each cancelled waiter.
//!
//! How the order comes about: continuing calls wait on the semaphore of the permits itself, which hands a freed permit
//! to its first waiter before anybody can grab it. Fresh calls never wait there; the first of them tries again whenever
//! something was freed, and finds a permit only if nobody who continues wants it.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ambit_core::signal::{DependencyKind, Signal, SignalSink, Subject};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout_at};

use self::elastic::Elastic;
use crate::deadline::after;

mod elastic;

/// Permits of a model target where nothing else is said: what one small provider account bears.
pub const PERMITS_MODEL: u32 = 8;
/// Longest a fresh call may be made to wait: a caller who is refused late could have been served elsewhere.
pub const FRESH_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a continuing call waits where nothing else is said.
pub const CONTINUING_WAIT_DEFAULT: Duration = Duration::from_secs(2);
/// Shortest Retry-After of a refusal: sooner than this nothing will have changed.
pub const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// Longest Retry-After of a refusal: an estimate beyond a minute is a guess.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// A new hold time moves the running mean by one part in so many.
const HOLD_WEIGHT: u64 = 8;

/// What a bulkhead is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkheadOptions {
    /// Its name: metric label `pool`.
    pub pool: Arc<str>,
    /// What it guards.
    pub kind: DependencyKind,
    /// Calls at once.
    pub permits: NonZeroU32,
    /// Calls that may wait. Fresh calls get at most half of the places, so that they cannot crowd the others out.
    pub queue: u32,
    /// How long a fresh call waits; zero means not at all. At most [`FRESH_WAIT_MAX`].
    pub fresh_wait: Duration,
    /// How long a continuing call waits.
    pub continuing_wait: Duration,
}

/// Why a bulkhead refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SaturatedReason {
    /// All permits are in use, and this call may not wait.
    Full,
    /// All places in the queue are taken too.
    QueueFull,
    /// It waited as long as it may.
    WaitExpired,
}

impl SaturatedReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::Full, Self::QueueFull, Self::WaitExpired];

    /// Its name as metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::QueueFull => "queue_full",
            Self::WaitExpired => "wait_expired",
        }
    }
}

/// Says that no permit could be had. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pool}` is saturated: all of its {permits} permits are in use")]
pub struct Saturated {
    /// Which bulkhead.
    pub pool: Arc<str>,
    /// How many calls it allows at once.
    pub permits: u32,
    /// Why it refused.
    pub reason: SaturatedReason,
    /// When it may be worth coming back, from how long permits have been held lately.
    pub retry_after: Duration,
}

/// The permits of one dependency. Cheap to clone; all clones are one bulkhead.
#[derive(Clone)]
pub struct Bulkhead(Arc<Pool>);

struct Pool {
    name: Arc<str>,
    kind: DependencyKind,
    waits: Mutex<Waits>,
    /// Continuing calls wait here, first in, first out.
    permits: Elastic,
    /// One place a waiting call.
    places: Elastic,
    /// The places that fresh calls may have at once; they hold one of each kind.
    fresh_places: Elastic,
    /// Held by the first of the waiting fresh calls.
    fresh_turn: Semaphore,
    /// A permit was freed, or somebody gave up who might have got one.
    freed: Notify,
    /// Somebody began to wait.
    crowded: Notify,
    /// Permits whose holders sleep between two attempts.
    sleeping: AtomicU32,
    /// Running mean of the time for which a permit is held, nanoseconds; 0 until the first was returned.
    held: AtomicU64,
    sink: Arc<dyn SignalSink>,
}

/// How long calls may wait.
#[derive(Clone, Copy)]
struct Waits {
    fresh: Duration,
    continuing: Duration,
}

/// The right to make one call, returned on drop. Lives as long as the body of the answer.
pub struct Permit {
    pool: Arc<Pool>,
    since: Instant,
}

impl Bulkhead {
    /// Opens a bulkhead; a `fresh_wait` above its ceiling is cut to it.
    #[must_use]
    pub fn new(options: BulkheadOptions, sink: Arc<dyn SignalSink>) -> Self {
        Self(Arc::new(Pool {
            waits: Mutex::new(Waits::of(&options)),
            permits: Elastic::new(options.permits.get()),
            places: Elastic::new(options.queue),
            fresh_places: Elastic::new(options.queue / 2),
            fresh_turn: Semaphore::new(1),
            freed: Notify::new(),
            crowded: Notify::new(),
            sleeping: AtomicU32::new(0),
            held: AtomicU64::new(0),
            name: options.pool,
            kind: options.kind,
            sink,
        }))
    }

    /// Takes over other settings, also while calls run and wait: name and kind stay what they are. More permits are there
    /// at once; of fewer, those that are out go when they come back, so that no more calls run than one of the two settings
    /// allows. Whoever waits by now goes on waiting as long as the former settings said.
    pub fn adjust(&self, options: &BulkheadOptions) {
        let pool = &*self.0;
        *pool.waits.lock().unwrap_or_else(PoisonError::into_inner) = Waits::of(options);
        pool.permits.resize(options.permits.get());
        pool.places.resize(options.queue);
        pool.fresh_places.resize(options.queue / 2);
        // The first of the waiting fresh calls looks again; the next one looks when its turn comes.
        pool.freed.notify_one();
    }

    /// True if nobody else has it: no policy, no permit.
    #[must_use]
    pub fn is_forsaken(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Admits a fresh call now or never, whatever `fresh_wait` says.
    ///
    /// # Errors
    /// [`Saturated`] if no permit is free, or others of its kind wait already.
    pub fn try_admit_fresh(&self, subject: Subject) -> Result<Permit, Saturated> {
        match self.take_fresh() {
            Some(permit) => Ok(self.admitted(subject, permit, Duration::ZERO)),
            None => Err(self.refused(subject, SaturatedReason::Full)),
        }
    }

    /// Admits a fresh call, after at most `fresh_wait` and not past `deadline`.
    ///
    /// # Errors
    /// [`Saturated`] if no permit could be had in that time.
    ///
    /// # Cancel safety
    /// Dropping the future gives its place back.
    pub async fn admit_fresh(&self, subject: Subject, deadline: Instant) -> Result<Permit, Saturated> {
        let pool = &*self.0;
        let Waits { fresh: wait, .. } = pool.waits();
        if wait.is_zero() {
            return self.try_admit_fresh(subject);
        }
        if let Some(permit) = self.take_fresh() {
            return Ok(self.admitted(subject, permit, Duration::ZERO));
        }
        let (Some(_fresh), Some(_place)) = (pool.fresh_places.try_hold(), pool.places.try_hold()) else {
            return Err(self.refused(subject, SaturatedReason::QueueFull));
        };
        let since = Instant::now();
        pool.crowded.notify_waiters();
        match timeout_at(deadline.min(after(wait)), self.wait_behind()).await {
            Ok(permit) => Ok(self.admitted(subject, permit, since.elapsed())),
            Err(_) => Err(self.refused(subject, SaturatedReason::WaitExpired)),
        }
    }

    /// Admits a call that continues something, after at most `continuing_wait` and not past `deadline`.
    ///
    /// # Errors
    /// [`Saturated`] if no permit could be had in that time, or the queue is full.
    ///
    /// # Cancel safety
    /// Dropping the future gives its place back, and a permit that it was about to get goes to the next one.
    pub async fn admit_continuing(&self, subject: Subject, deadline: Instant) -> Result<Permit, Saturated> {
        let pool = &*self.0;
        if let Some(permit) = self.take() {
            return Ok(self.admitted(subject, permit, Duration::ZERO));
        }
        let Some(_place) = pool.places.try_hold() else {
            return Err(self.refused(subject, SaturatedReason::QueueFull));
        };
        // Dropped after the wait below: a permit that was handed to a cancelled waiter is free again, and nobody else
        // would tell the fresh ones.
        let _nudge = Nudge(&pool.freed);
        let since = Instant::now();
        pool.crowded.notify_waiters();
        match timeout_at(deadline.min(after(pool.waits().continuing)), pool.permits.take()).await {
            Ok(true) => Ok(self.admitted(subject, self.permit(), since.elapsed())),
            // The semaphore is never closed; if it were, nobody would be admitted any more.
            Ok(false) | Err(_) => Err(self.refused(subject, SaturatedReason::WaitExpired)),
        }
    }

    /// Its name.
    #[must_use]
    pub fn pool(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Calls allowed at once.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.0.permits.size()
    }

    /// Permits that are out now; more than are allowed for a while after [`adjust`](Self::adjust) took some away.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.0.permits.out()
    }

    /// Calls that wait now.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.0.queued()
    }

    /// Permits that are out and whose holders sleep between two attempts.
    #[must_use]
    pub fn sleeping(&self) -> u32 {
        self.0.sleeping.load(Ordering::Relaxed)
    }

    /// True if nothing is out and nobody waits.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        self.in_use() == 0 && self.queued() == 0 && self.sleeping() == 0
    }

    /// The first of the fresh calls waits for something to be freed, the others for their turn.
    async fn wait_behind(&self) -> Permit {
        let _turn = self.0.fresh_turn.acquire().await;
        loop {
            if let Some(permit) = self.take() {
                return permit;
            }
            // What was freed after the try is remembered by `freed`, so that it cannot be missed here.
            self.0.freed.notified().await;
        }
    }

    /// A permit for a newcomer that is fresh: not ahead of fresh ones who wait.
    fn take_fresh(&self) -> Option<Permit> {
        if self.0.fresh_places.out() == 0 { self.take() } else { None }
    }

    /// A permit that is free: nobody who continues wants it, else it would have been handed over.
    fn take(&self) -> Option<Permit> {
        self.0.permits.try_take().then(|| self.permit())
    }

    fn permit(&self) -> Permit {
        Permit { pool: Arc::clone(&self.0), since: Instant::now() }
    }

    fn admitted(&self, subject: Subject, permit: Permit, waited: Duration) -> Permit {
        let Pool { name, kind, .. } = &*self.0;
        self.0.sink.emit(subject, &Signal::Admitted { pool: Arc::clone(name), kind: *kind, waited });
        permit
    }

    fn refused(&self, subject: Subject, reason: SaturatedReason) -> Saturated {
        let pool = Arc::clone(self.pool());
        self.0.sink.emit(subject, &Signal::Saturated { pool: Arc::clone(&pool), reason: reason.as_str() });
        Saturated { pool, permits: self.permits(), reason, retry_after: self.0.retry_after() }
    }
}

impl Permit {
    /// True if it came from `bulkhead`.
    #[must_use]
    pub fn is_of(&self, bulkhead: &Bulkhead) -> bool {
        Arc::ptr_eq(&self.pool, &bulkhead.0)
    }

    /// Sleeps until `wake` with the permit in hand, and gives up as soon as others wait while more than `hold_max` of
    /// the sleep is still to come. Says whether it slept to the end.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub(crate) async fn sleep(&self, wake: Instant, hold_max: Duration) -> bool {
        let _asleep = Asleep::new(&self.pool.sleeping);
        // Each turn is caused by somebody who began to wait, and the sleep ends it.
        while wake.saturating_duration_since(Instant::now()) > hold_max {
            // Made before the look, so that nobody who comes in between is missed.
            let crowded = self.pool.crowded.notified();
            if self.pool.queued() > 0 {
                return false;
            }
            // From `hold_max` before the end on nobody's waiting changes anything.
            if timeout_at(wake - hold_max, crowded).await.is_err() {
                break;
            }
        }
        tokio::time::sleep_until(wake).await;
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pool.learn(self.since.elapsed());
        self.pool.permits.give_back();
        self.pool.freed.notify_one();
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("pool", &self.pool.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Bulkhead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bulkhead")
            .field("pool", self.pool())
            .field("permits", &self.permits())
            .field("in_use", &self.in_use())
            .field("queued", &self.queued())
            .finish_non_exhaustive()
    }
}

impl Waits {
    fn of(options: &BulkheadOptions) -> Self {
        Self { fresh: options.fresh_wait.min(FRESH_WAIT_MAX), continuing: options.continuing_wait }
    }
}

impl Pool {
    fn queued(&self) -> u32 {
        self.places.out()
    }

    fn waits(&self) -> Waits {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one hold time into the mean. Two at the same moment may lose one: it is an estimate.
    fn learn(&self, held: Duration) {
        let new = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX).max(1);
        let old = self.held.load(Ordering::Relaxed);
        let mean = if old == 0 { new } else { old - old / HOLD_WEIGHT + new / HOLD_WEIGHT };
        self.held.store(mean, Ordering::Relaxed);
    }

    /// When a newcomer's turn would come: full, the pool drains `permits` calls a mean hold time.
    fn retry_after(&self) -> Duration {
        let ahead = u64::from(self.queued()) + 1;
        let nanos = self.held.load(Ordering::Relaxed).saturating_mul(ahead) / u64::from(self.permits.size().max(1));
        Duration::from_nanos(nanos).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }
}

/// Tells the first of the waiting fresh calls to try again, when dropped.
struct Nudge<'a>(&'a Notify);

impl Drop for Nudge<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Counts one sleeper for as long as it lives.
struct Asleep<'a>(&'a AtomicU32);

impl<'a> Asleep<'a> {
    fn new(sleeping: &'a AtomicU32) -> Self {
        sleeping.fetch_add(1, Ordering::Relaxed);
        Self(sleeping)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
