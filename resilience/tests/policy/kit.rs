//! What the tests of the policy share: a recorder of signals, a scripted other side, and the trace that both leave.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ambit_core::signal::{DependencyKind, Signal, SignalSink, Subject, Timer};
use ambit_core::{Allowance, Money};
use ambit_resilience::{
    Bulkhead, BulkheadOptions, CallContext, Called, Committed, Failure, Ledger, Leg, Outcome, Permit, Policy, PolicyError, PolicyOptions,
    Refuser, Reserve, RetryOptions,
};
use tokio::time::Instant;

/// Keeps every signal as one short line with the time since the start.
pub(crate) struct Recorder {
    start: Instant,
    lines: Mutex<Vec<String>>,
}

impl Recorder {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), lines: Mutex::default() })
    }

    pub(crate) fn note(&self, line: impl std::fmt::Display) {
        self.lines.lock().unwrap().push(format!("{} {line}", self.start.elapsed().as_millis()));
    }

    /// Takes the lines recorded so far.
    pub(crate) fn trace(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }
}

impl SignalSink for Recorder {
    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever else a policy emits shows in the trace and fails the test")]
    fn emit(&self, _subject: Subject, signal: &Signal) {
        let ms = |time: &Option<Duration>| time.map_or_else(String::new, |time| format!(" first_token={}", time.as_millis()));
        match signal {
            Signal::Admitted { waited, .. } => self.note(format_args!("admitted waited={}", waited.as_millis())),
            Signal::Saturated { reason, .. } => self.note(format_args!("saturated {reason}")),
            Signal::AttemptStarted { attempt, .. } => self.note(format_args!("started {}", attempt.as_str())),
            Signal::AttemptFinished { attempt, code, duration, first_token, .. } => {
                self.note(format_args!("finished {} {code} after={}{}", attempt.as_str(), duration.as_millis(), ms(first_token)))
            }
            Signal::TimedOut { timer, .. } => self.note(format_args!("timed_out {}", timer.as_str())),
            Signal::RetryScheduled { delay, code, .. } => self.note(format_args!("scheduled {} for {code}", delay.as_millis())),
            Signal::Retried { recovered, .. } => self.note(format_args!("retried recovered={recovered}")),
            Signal::RetryRefused { reason, .. } => self.note(format_args!("refused {}", reason.as_str())),
            other => self.note(format_args!("unexpected {other:?}")),
        }
    }
}

/// Everything around one call, with figures that make a readable trace.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) permits: u32,
    pub(crate) queue: u32,
    pub(crate) fresh: bool,
    pub(crate) repeatable: bool,
    pub(crate) attempts: u32,
    pub(crate) request: u64,
    pub(crate) attempt: u64,
    pub(crate) deadline: u64,
    pub(crate) allowance: u32,
    pub(crate) tokens: u64,
}

/// Deadline 10 s, request 8 s, attempt 2 s, margin 100 ms, at least 500 ms useful, two attempts 200 ms apart.
pub(crate) const SETUP: Setup = Setup {
    permits: 1,
    queue: 4,
    fresh: false,
    repeatable: true,
    attempts: 2,
    request: 8_000,
    attempt: 2_000,
    deadline: 10_000,
    allowance: 9,
    tokens: 900,
};

/// What every leg reserves.
pub(crate) const RESERVE: Reserve = Reserve { tokens: 100, cost: Money(10) };

/// One policy with its recorder.
pub(crate) struct Stage {
    pub(crate) setup: Setup,
    pub(crate) policy: Policy,
    pub(crate) ledger: Ledger,
    pub(crate) committed: Committed,
    pub(crate) recorder: Arc<Recorder>,
}

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn policy(setup: Setup, sink: Arc<dyn SignalSink>) -> Policy {
    let bulkhead = Bulkhead::new(
        BulkheadOptions {
            pool: "primary".into(),
            kind: DependencyKind::Model,
            permits: NonZeroU32::new(setup.permits).unwrap(),
            queue: setup.queue,
            fresh_wait: Duration::ZERO,
            continuing_wait: ms(2_000),
        },
        Arc::clone(&sink),
    );
    let attempts = NonZeroU32::new(setup.attempts).unwrap();
    let options = PolicyOptions {
        kind: DependencyKind::Model,
        dependency: "model".into(),
        target: "primary".into(),
        peer: Arc::default(),
        request: ms(setup.request),
        attempt: ms(setup.attempt),
        margin: ms(100),
        min_useful: ms(500),
        // The shortest wait is above the range, so that every wait is exactly this long.
        retry: RetryOptions { base: ms(1), min_delay: ms(200), max_delay: ms(200), attempts },
        seed: 1,
    };
    Policy::new(options, bulkhead, sink)
}

impl Stage {
    /// Must be made inside the paused runtime.
    pub(crate) fn new(setup: Setup) -> Self {
        let recorder = Recorder::new();
        let allowance = Allowance { attempts: setup.allowance, tokens: setup.tokens, cost: Money(900), deadline: 0 };
        Self {
            setup,
            policy: policy(setup, recorder.clone()),
            ledger: Ledger::new(&allowance, Instant::now() + ms(60_000)),
            committed: Committed::new(),
            recorder,
        }
    }

    pub(crate) fn context(&self) -> CallContext<'_> {
        CallContext {
            deadline: Instant::now() + ms(self.setup.deadline),
            subject: Subject::default(),
            ledger: &self.ledger,
            reserve: RESERVE,
            repeatable: self.setup.repeatable,
            admission: None,
            fresh: self.setup.fresh,
            committed: &self.committed,
        }
    }

    /// Calls an other side that answers attempt after attempt as the words say.
    pub(crate) async fn call(&self, words: &str) -> Called<()> {
        self.call_with(self.context(), words).await
    }

    pub(crate) async fn call_with<'a>(&'a self, context: CallContext<'a>, words: &str) -> Called<()> {
        let mut words = words.split_whitespace();
        self.policy.call(context, |leg| answer(leg, words.next().unwrap_or("unasked").to_owned())).await
    }

    pub(crate) fn bulkhead(&self) -> &Bulkhead {
        self.policy.bulkhead()
    }
}

/// One attempt as a word says, parts joined by `+` in order: a number of milliseconds passes, `head` is the first
/// token, `commit` passes something on, and the last part is how it ends: `ok`, a status (`429/1500` with a
/// Retry-After in milliseconds), `hang`..
pub(crate) async fn answer(leg: Leg<'_>, word: String) -> Result<(), Failure> {
    for part in word.split('+') {
        match part.split_once('/').unwrap_or((part, "")) {
            ("head", _) => leg.first_token(),
            ("commit", _) => leg.commit(),
            ("ok", _) => return Ok(()),
            ("hang", _) => std::future::pending().await,
            ("reset", _) => return Err(Failure::new(Outcome::Broken)),
            ("connect", _) => return Err(Failure::new(Outcome::timed_out(Timer::Connect))),
            ("chunk", _) => return Err(Failure::new(Outcome::timed_out(Timer::Chunk))),
            ("expired", _) => return Err(Failure::new(Outcome::SessionExpired)),
            ("local", _) => return Err(Failure::new(Outcome::Refused(Refuser::Whole))),
            (wait, "ms") => tokio::time::sleep(ms(wait.parse().unwrap())).await,
            (status, told) => {
                let status = status.parse().unwrap_or_else(|_| panic!("no such word: {word}"));
                return Err(Failure::new(Outcome::status(status)).with_retry_after(told.parse().ok().map(ms)));
            }
        }
    }
    panic!("`{word}` does not end");
}

/// What a call came to, in a word.
pub(crate) fn told(result: &Result<((), Permit), PolicyError>) -> String {
    match result {
        Ok(_) => "ok".into(),
        Err(PolicyError::Failed(failure)) => failure.code.to_string(),
        Err(PolicyError::Saturated(saturated)) => format!("saturated {}", saturated.reason.as_str()),
        Err(PolicyError::DeadlineExceeded) => "deadline_exceeded".into(),
        Err(PolicyError::AllowanceSpent) => "allowance_spent".into(),
    }
}

/// Runs something in a runtime of its own whose clock moves only when all wait.
pub(crate) fn paused<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(future)
}

/// One call against its whole trace, the result in the last line.
#[track_caller]
pub(crate) fn check(setup: Setup, words: &str, expected: &[&str]) {
    let trace = paused(async {
        let stage = Stage::new(setup);
        let called = stage.call(words).await;
        stage.recorder.note(format_args!("= {} legs={}", told(&called.result), called.legs.len()));
        drop(called);
        assert!(stage.bulkhead().is_quiescent(), "{:?}", stage.bulkhead());
        stage.recorder.trace()
    });
    assert_eq!(trace, expected, "{trace:#?}");
}
