//! The layers around one target, composed: deadline, bulkhead, retry, timeout, call.
//!
//! Outermost first, and each place has its reason:
//! - **deadline**: nothing starts when the time is spent;
//! - **bulkhead**: caps the calls at once before work queues up; its permit is kept through back-off;
//! - **breaker**: would stand here, around the retries, so that one logical call counts once;
//! - **retry**: repeats only what may be repeated, and builds everything mutable anew each time;
//! - **timeout**: a fresh one for each attempt, clipped by the deadline.
//!
//! **Invariant:** dropping the future of a call anywhere returns its permit and its place, and an attempt that was
//! announced as started is always announced as finished.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ambit_core::signal::{DependencyKind, Peer, RetryRefusal, Signal, SignalSink, Subject, Timer};
use ambit_core::{AttemptKind, ErrorKind, Origin};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::{Instant, timeout_at};

use crate::bulkhead::{Bulkhead, Permit, Saturated};
use crate::class::Row;
use crate::classify::Outcome;
use crate::deadline::{End, after, attempt_timeout};
use crate::failure::Failure;
use crate::ledger::{Ledger, Reserve};
use crate::leg::{Committed, Leg, LegRecord, Legs};
use crate::retry::{self, Decision, Facts, HOLD_MAX, RetryOptions};

/// What a policy is built from.
#[derive(Debug, Clone)]
pub struct PolicyOptions {
    /// What it guards.
    pub kind: DependencyKind,
    /// Metric label: `model`, or the tool's name.
    pub dependency: Arc<str>,
    /// Metric label: the target of the chain, or the tool's name again.
    pub target: Arc<str>,
    /// Whom it talks to, in the words of spans.
    pub peer: Arc<Peer>,
    /// One logical call with all its attempts and waits.
    pub request: Duration,
    /// One attempt, until the head of the answer or its first token.
    pub attempt: Duration,
    /// Kept back from what is left, for the answer to come back in time.
    pub margin: Duration,
    /// With less than this left no attempt is made.
    pub min_useful: Duration,
    /// How it is retried.
    pub retry: RetryOptions,
    /// Seed of the jitter.
    pub seed: u64,
}

/// What one logical call brings along.
#[derive(Debug)]
pub struct CallContext<'a> {
    /// When it has to be over.
    pub deadline: Instant,
    /// Whom its signals are about.
    pub subject: Subject,
    /// The allowance that every leg is taken from.
    pub ledger: &'a Ledger,
    /// What a leg takes from it besides one request.
    pub reserve: Reserve,
    /// True if it may be repeated: effect `read`, or a key that the other side honours.
    pub repeatable: bool,
    /// A permit taken earlier, at the door. One of another bulkhead is given back unused.
    pub admission: Option<Permit>,
    /// True for the first call of a session: without a permit in hand it is refused rather than made to wait.
    pub fresh: bool,
    /// The commit point, shared with whoever passes the answer on.
    pub committed: &'a Committed,
}

/// What a logical call came to.
#[derive(Debug)]
pub struct Called<T> {
    /// The answer with the permit that covers its body, or why there is none.
    pub result: Result<(T, Permit), PolicyError>,
    /// One record a request on the wire.
    pub legs: Legs,
}

/// Why a logical call brought no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There was no time for a useful attempt; nothing was sent.
    #[error("no time left for a useful attempt")]
    DeadlineExceeded,
    /// No permit could be had; nothing was sent.
    #[error("no permit could be had")]
    Saturated(#[source] Saturated),
    /// The command's allowance cannot pay an attempt; nothing was sent.
    #[error("the allowance of this command is used up")]
    AllowanceSpent,
    /// The last attempt failed, and is not made again.
    #[error("the call failed")]
    Failed(#[source] Failure),
}

impl PolicyError {
    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::DeadlineExceeded => ErrorKind::DeadlineExceeded,
            Self::Saturated(_) | Self::AllowanceSpent => ErrorKind::LimitReached,
            Self::Failed(failure) => failure.kind(),
        }
    }

    /// Whose fault it is, given what was called.
    #[must_use]
    pub const fn origin(&self, called: DependencyKind) -> Origin {
        match self {
            Self::DeadlineExceeded | Self::Saturated(_) | Self::AllowanceSpent => Origin::Us,
            Self::Failed(failure) if failure.class.row.is_local() => Origin::Us,
            Self::Failed(_) => match called {
                DependencyKind::Model => Origin::Provider,
                DependencyKind::Tool => Origin::Tool,
            },
        }
    }
}

/// The layers around one target. Shared by all calls to it.
pub struct Policy {
    options: PolicyOptions,
    bulkhead: Bulkhead,
    rng: Mutex<StdRng>,
    sink: Arc<dyn SignalSink>,
    /// Names that every call may need, made once.
    ok: Arc<str>,
    cancelled: Arc<str>,
}

impl Policy {
    /// Stacks the layers. Bulkheads may be shared by several policies.
    #[must_use]
    pub fn new(options: PolicyOptions, bulkhead: Bulkhead, sink: Arc<dyn SignalSink>) -> Self {
        let rng = Mutex::new(StdRng::seed_from_u64(options.seed));
        Self { options, bulkhead, rng, sink, ok: "ok".into(), cancelled: "cancelled".into() }
    }

    /// The bulkhead inside.
    #[must_use]
    pub const fn bulkhead(&self) -> &Bulkhead {
        &self.bulkhead
    }

    /// What it was built from.
    #[must_use]
    pub const fn options(&self) -> &PolicyOptions {
        &self.options
    }

    /// Makes one logical call. `send` is asked once an attempt and builds everything mutable of its request anew.
    ///
    /// # Cancel safety
    /// Dropping the future drops the attempt under way and returns permit and place; the reservation of that attempt
    /// stays taken, since nobody knows what it cost.
    pub async fn call<'a, T, F, Fut>(&self, context: CallContext<'a>, send: F) -> Called<T>
    where
        F: FnMut(Leg<'a>) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let mut legs = Legs::new();
        let result = self.guarded(context, send, &mut legs).await;
        Called { result, legs }
    }

    async fn guarded<'a, T, F, Fut>(&self, mut context: CallContext<'a>, mut send: F, legs: &mut Legs) -> Result<(T, Permit), PolicyError>
    where
        F: FnMut(Leg<'a>) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let deadline = context.deadline.min(context.ledger.deadline());
        let end = End::of(deadline, self.options.request, self.options.margin);
        self.check_time(&context, end)?;
        if !context.ledger.affords(context.reserve) {
            return Err(PolicyError::AllowanceSpent);
        }

        let permit = self.admit(&mut context, end).await?;
        // The wait for the permit may have eaten the time.
        self.check_time(&context, end)?;

        // The breaker's place: asked for admission here, told the class of the whole call when the retries are over.

        if !context.ledger.take(context.reserve) {
            return Err(PolicyError::AllowanceSpent);
        }
        let mut retries = Retries { policy: self, subject: context.subject, made: 0, renewed: false, recovered: false };
        loop {
            let failure = match self.attempt(&context, end, &retries, &mut send, legs).await {
                Ok(answer) => {
                    retries.recovered = true;
                    return Ok((answer, permit));
                }
                Err(failure) => failure,
            };
            // Bounded by the attempts, which `may_repeat` counts.
            if !self.may_repeat(&context, end, &mut retries, &permit, &failure).await {
                return Err(PolicyError::Failed(failure));
            }
        }
    }

    fn check_time(&self, context: &CallContext<'_>, end: End) -> Result<(), PolicyError> {
        if end.usable() >= self.options.min_useful && !end.usable().is_zero() {
            return Ok(());
        }
        self.timed_out(context.subject, end.timer);
        Err(PolicyError::DeadlineExceeded)
    }

    async fn admit(&self, context: &mut CallContext<'_>, end: End) -> Result<Permit, PolicyError> {
        // A permit that comes too late for a useful attempt is not waited for.
        let latest = after(end.usable().saturating_sub(self.options.min_useful));
        let held = context.admission.take().filter(|permit| permit.is_of(&self.bulkhead));
        let admitted = match held {
            Some(permit) => Ok(permit),
            None if context.fresh => self.bulkhead.admit_fresh(context.subject, latest).await,
            None => self.bulkhead.admit_continuing(context.subject, latest).await,
        };
        admitted.map_err(PolicyError::Saturated)
    }

    /// Sends one attempt under its own timeout, and records it.
    async fn attempt<'a, T, F, Fut>(
        &self,
        context: &CallContext<'a>,
        end: End,
        retries: &Retries<'_>,
        send: &mut F,
        legs: &mut Legs,
    ) -> Result<T, Failure>
    where
        F: FnMut(Leg<'a>) -> Fut,
        Fut: Future<Output = Result<T, Failure>>,
    {
        let usable = end.usable();
        let timeout = attempt_timeout(usable, Duration::ZERO, self.options.attempt);
        let started = Instant::now();
        let number = retries.made + 1;
        let kind = if retries.made == 0 { AttemptKind::First } else { AttemptKind::Retry };
        let leg = Leg {
            number,
            kind,
            head_by: started + timeout,
            end_by: started + usable,
            trace: context.subject.outgoing(&self.options.peer, &self.options.target, kind, number),
            started,
            committed: context.committed,
        };
        context.committed.leg_starts();
        let flight = Flight::start(self, context, &leg);
        let sending = pin!(send(leg));
        let result = within(&leg, end.timer, timeout == self.options.attempt, sending).await;
        let code = match &result {
            Ok(_) => &self.ok,
            Err(failure) => &failure.code,
        };
        let record = flight.land(code);
        match result {
            Ok(answer) => {
                legs.push(record);
                Ok(answer)
            }
            Err(failure) => {
                if let Some(timer) = failure.timer {
                    self.timed_out(context.subject, timer);
                }
                if failure.class.row.is_refusal() {
                    context.ledger.put_back(context.reserve);
                } else {
                    legs.push(LegRecord { sent: failure.sent, ..record });
                }
                Err(failure)
            }
        }
    }

    /// Decides about one more attempt, waits, and takes it from the ledger.
    async fn may_repeat(&self, context: &CallContext<'_>, end: End, retries: &mut Retries<'_>, permit: &Permit, failure: &Failure) -> bool {
        let facts = Facts {
            made: retries.made + 1,
            attempts_max: self.options.retry.attempts_max(),
            repeatable: context.repeatable,
            committed: context.committed.is_committed(),
            renewed: retries.renewed,
            others_wait: self.bulkhead.queued() > 0,
            affordable: context.ledger.affords(context.reserve),
            usable: end.usable(),
            attempt: self.options.attempt,
            min_useful: self.options.min_useful,
        };
        let delay = match retry::decide(failure, self.delay(failure, retries.made), &facts) {
            Decision::After(delay) => delay,
            Decision::Refuse(reason) => return self.retry_refused(context.subject, reason),
            Decision::Stop => return false,
        };
        self.emit(
            context.subject,
            &Signal::RetryScheduled {
                dependency: Arc::clone(&self.options.dependency),
                target: Arc::clone(&self.options.target),
                delay,
                code: Arc::clone(&failure.code),
            },
        );
        if !permit.sleep(Instant::now() + delay, HOLD_MAX).await {
            return self.retry_refused(context.subject, RetryRefusal::OthersWait);
        }
        // The breaker's second place: looked at again after each wait, without consuming.
        if end.usable() < self.options.min_useful || end.usable().is_zero() {
            return self.retry_refused(context.subject, RetryRefusal::NoTime);
        }
        if !context.ledger.take(context.reserve) {
            return self.retry_refused(context.subject, RetryRefusal::Allowance);
        }
        retries.made += 1;
        retries.renewed |= failure.class.row == Row::SessionExpired;
        true
    }

    fn delay(&self, failure: &Failure, n: u32) -> Duration {
        if failure.class.row == Row::SessionExpired {
            return Duration::ZERO;
        }
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        match failure.retry_after {
            Some(told) => retry::pushed_back(&self.options.retry, told, &mut *rng),
            None => retry::back_off(&self.options.retry, n, &mut *rng),
        }
    }

    /// Always `false`: what the caller answers.
    fn retry_refused(&self, subject: Subject, reason: RetryRefusal) -> bool {
        self.emit(subject, &Signal::RetryRefused { dependency: Arc::clone(&self.options.dependency), reason });
        false
    }

    fn timed_out(&self, subject: Subject, timer: Timer) {
        let PolicyOptions { dependency, target, .. } = &self.options;
        self.emit(subject, &Signal::TimedOut { dependency: Arc::clone(dependency), target: Arc::clone(target), timer });
    }

    fn emit(&self, subject: Subject, signal: &Signal) {
        self.sink.emit(subject, signal);
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy").field("options", &self.options).field("bulkhead", &self.bulkhead).finish_non_exhaustive()
    }
}

/// Runs one attempt until its head is due, and on until its end once the head is there.
async fn within<T>(
    leg: &Leg<'_>,
    timer: Timer,
    full: bool,
    mut attempt: Pin<&mut impl Future<Output = Result<T, Failure>>>,
) -> Result<T, Failure> {
    if let Ok(result) = timeout_at(leg.head_by, attempt.as_mut()).await {
        return result;
    }
    if leg.committed.first_token().is_some() {
        if let Ok(result) = timeout_at(leg.end_by, attempt).await {
            return result;
        }
        return Err(Failure::new(Outcome::TimedOut { timer, full_attempt: full }));
    }
    Err(Failure::new(if full { Outcome::timed_out(Timer::Attempt) } else { Outcome::timed_out(timer) }))
}

/// An attempt under way: announced as started, and as finished whatever happens to its future.
struct Flight<'a> {
    policy: &'a Policy,
    subject: Subject,
    committed: &'a Committed,
    kind: AttemptKind,
    number: u32,
    started: Instant,
    code: Arc<str>,
}

impl<'a> Flight<'a> {
    fn start(policy: &'a Policy, context: &'a CallContext<'_>, leg: &Leg<'_>) -> Self {
        let PolicyOptions { kind, target, .. } = &policy.options;
        policy.emit(context.subject, &Signal::AttemptStarted { kind: *kind, target: Arc::clone(target), attempt: leg.kind });
        Self {
            policy,
            subject: context.subject,
            committed: context.committed,
            kind: leg.kind,
            number: leg.number,
            started: leg.started,
            code: Arc::clone(&policy.cancelled),
        }
    }

    fn land(mut self, code: &Arc<str>) -> LegRecord {
        self.code = Arc::clone(code);
        LegRecord {
            kind: self.kind,
            target: Arc::clone(&self.policy.options.target),
            code: Arc::clone(code),
            sent: true,
            ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            first_token: self.committed.first_token(),
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let PolicyOptions { kind, target, peer, .. } = &self.policy.options;
        self.policy.emit(
            self.subject,
            &Signal::AttemptFinished {
                kind: *kind,
                target: Arc::clone(target),
                attempt: self.kind,
                code: Arc::clone(&self.code),
                duration: self.started.elapsed(),
                first_token: self.committed.first_token(),
                number: self.number,
                peer: Arc::clone(peer),
                status: self.committed.status(),
                usage: self.committed.usage(),
            },
        );
    }
}

/// The retries of one call; says at its end what they came to, if there were any.
struct Retries<'a> {
    policy: &'a Policy,
    subject: Subject,
    made: u32,
    renewed: bool,
    recovered: bool,
}

impl Drop for Retries<'_> {
    fn drop(&mut self) {
        if self.made == 0 {
            return;
        }
        let PolicyOptions { dependency, target, .. } = &self.policy.options;
        self.policy.emit(
            self.subject,
            &Signal::Retried { dependency: Arc::clone(dependency), target: Arc::clone(target), recovered: self.recovered },
        );
    }
}
