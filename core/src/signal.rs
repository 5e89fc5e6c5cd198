//! Signals: the one source of everything that can be seen.
//!
//! Every decision of the machine and of the resilience layer is emitted once, as one of these. Metrics, spans and the
//! timeline of a session are projections, each in one place, each an exhaustive match: a signal without a metric
//! does not compile. No signal carries content.

use std::sync::Arc;
use std::time::Duration;

use crate::attempt::AttemptKind;
use crate::effect::Effect;
use crate::id::{SessionId, Step};
use crate::limit::Axis;
use crate::tool::ToolCode;
use crate::trace::{SpanId, Trace, TraceParent};
use crate::verdict::{Reason, Settlement, Status};

/// Whom a signal is about. Only logs, spans and the timeline use the ids; metrics never do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subject {
    /// The session, if any.
    pub session: Option<SessionId>,
    /// The step of it, if any.
    pub step: Option<Step>,
    /// Where the session hangs in a distributed trace.
    pub trace: Option<Trace>,
}

impl Subject {
    /// What one request about this subject carries as `traceparent`: the span of the attempt, or, where the attempt has
    /// none of its own, that of its step.
    #[must_use]
    pub fn outgoing(&self, peer: &Peer, target: &str, kind: AttemptKind, number: u32) -> Option<TraceParent> {
        let (trace, session, step) = (self.trace?, self.session?, self.step?);
        let own = match peer {
            Peer::Model { .. } | Peer::Http { .. } => SpanId::of_attempt(session, step, target, kind, number),
            Peer::Mcp { .. } | Peer::Local => SpanId::of_step(session, step),
        };
        Some(trace.outgoing(own))
    }
}

/// Whom a policy talks to, in the words of spans. Made once with the policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Peer {
    /// Nobody outside of this process.
    #[default]
    Local,
    /// A model.
    Model {
        /// The provider, by its well-known name where it has one.
        provider: &'static str,
        /// The model, as the provider calls it.
        model: Arc<str>,
        /// Where it is; `None` where there are several places.
        address: Option<Address>,
    },
    /// A tool that is one HTTP request.
    Http {
        /// `GET`..
        method: Arc<str>,
        /// The path with its placeholders unfilled, without query.
        path: Arc<str>,
        /// Where it is.
        address: Option<Address>,
    },
    /// A tool of an MCP server. The call is one span with its step: nothing could be said of it a second time.
    Mcp {
        /// The server, as the configuration calls it.
        server: Arc<str>,
        /// Where it is; `None` if it is a child process.
        address: Option<Address>,
    },
}

/// A host and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Name or address.
    pub host: Arc<str>,
    /// The port, known ones included.
    pub port: Option<u16>,
}

/// What was used of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AxisUse {
    /// Which limit.
    pub axis: Axis,
    /// How much was used, in the limit's own unit.
    pub used: u64,
    /// How much might have been.
    pub limit: u64,
}

impl AxisUse {
    /// What is left, from 0 to 1.
    #[must_use]
    pub fn remaining(&self) -> f64 {
        if self.limit == 0 {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let share = self.limit.saturating_sub(self.used) as f64 / self.limit as f64;
        share
    }
}

/// What kind of thing a policy guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependencyKind {
    /// A model target.
    Model,
    /// A tool.
    Tool,
}

/// Which configured duration ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Until the connection stood.
    Connect,
    /// Until the head of the answer, or the first token.
    Attempt,
    /// Between two pieces of a stream.
    Chunk,
    /// One logical call with all its attempts.
    Request,
    /// The deadline of the step or session.
    Deadline,
}

impl Timer {
    /// Every timer.
    pub const ALL: [Self; 5] = [Self::Connect, Self::Attempt, Self::Chunk, Self::Request, Self::Deadline];

    /// Its name as setting and metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Attempt => "attempt",
            Self::Chunk => "chunk",
            Self::Request => "request",
            Self::Deadline => "deadline",
        }
    }
}

/// Why a retry was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RetryRefusal {
    /// All attempts were used.
    AttemptsUsed,
    /// The session's allowance for this command is used up.
    Allowance,
    /// Waiting and a useful attempt do not fit in the time left.
    NoTime,
    /// The other side asked for a longer wait than is worth waiting.
    RetryAfterTooLong,
    /// The failure says that a repetition is pointless or dangerous.
    NotRepeatable,
    /// Others wait for the permit that this call would keep through a long back-off.
    OthersWait,
    /// Part of the answer was passed on already.
    Committed,
}

impl RetryRefusal {
    /// Every refusal.
    pub const ALL: [Self; 7] = [
        Self::AttemptsUsed,
        Self::Allowance,
        Self::NoTime,
        Self::RetryAfterTooLong,
        Self::NotRepeatable,
        Self::OthersWait,
        Self::Committed,
    ];

    /// Its name as metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AttemptsUsed => "attempts_used",
            Self::Allowance => "allowance",
            Self::NoTime => "no_time",
            Self::RetryAfterTooLong => "retry_after_too_long",
            Self::NotRepeatable => "not_repeatable",
            Self::OthersWait => "others_wait",
            Self::Committed => "committed",
        }
    }
}

/// What became of a request with an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdempotencyOutcome {
    /// The key was free: what it stands for begins.
    Acquired,
    /// What it stands for is there already, and was given again.
    Replay,
    /// What it stands for still goes on.
    InFlight,
    /// The key stands for something else.
    Conflict,
}

impl IdempotencyOutcome {
    /// Every outcome.
    pub const ALL: [Self; 4] = [Self::Acquired, Self::Replay, Self::InFlight, Self::Conflict];

    /// Its name as metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Replay => "replay",
            Self::InFlight => "in_flight",
            Self::Conflict => "conflict",
        }
    }
}

/// One fact, emitted once where it happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// A session was let in and its first record is in the journal.
    SessionStarted {
        /// Of which agent.
        agent: Arc<str>,
    },
    /// A session was taken up again by replay.
    SessionResumed {
        /// Of which agent.
        agent: Arc<str>,
    },
    /// A session reached its verdict.
    SessionEnded {
        /// Of which agent.
        agent: Arc<str>,
        /// How it ended.
        status: Status,
        /// Why.
        reason: Reason,
        /// From its start to the verdict.
        duration: Duration,
        /// Wall time minus the union of all waits for upstream, queue or back-off: what Ambit itself cost.
        overhead: Duration,
        /// Time past the deadline until the verdict.
        overrun: Duration,
        /// Model calls made.
        model_calls: u32,
        /// Tool calls dispatched.
        tool_calls: u32,
        /// Wall time at which it began, milliseconds since 1970; before a crash, if it was taken up again.
        began_ms: u64,
        /// Tokens that models read.
        input_tokens: u64,
        /// Tokens that models wrote.
        output_tokens: u64,
        /// What was used of each limit.
        axes: Vec<AxisUse>,
    },
    /// A session is closed.
    SessionSettled {
        /// Of which agent.
        agent: Arc<str>,
        /// How its effects ended.
        settlement: Settlement,
    },
    /// A session reached a limit.
    LimitHit {
        /// Of which agent.
        agent: Arc<str>,
        /// Which one.
        axis: Axis,
    },
    /// The loop guard refused a call.
    LoopDetected {
        /// Which tool.
        tool: Arc<str>,
    },
    /// A logical call got its permit.
    Admitted {
        /// The bulkhead.
        pool: Arc<str>,
        /// Model or tool.
        kind: DependencyKind,
        /// Time in the queue.
        waited: Duration,
    },
    /// A logical call was refused by a full bulkhead.
    Saturated {
        /// The bulkhead.
        pool: Arc<str>,
        /// `full`, `queue_full` or `wait_expired`.
        reason: &'static str,
    },
    /// A request is about to leave.
    AttemptStarted {
        /// Model or tool.
        kind: DependencyKind,
        /// To whom.
        target: Arc<str>,
        /// Why it is sent.
        attempt: AttemptKind,
    },
    /// A request ended, well or not.
    AttemptFinished {
        /// Model or tool.
        kind: DependencyKind,
        /// To whom.
        target: Arc<str>,
        /// Why it was sent.
        attempt: AttemptKind,
        /// `ok`, or the low-cardinality name of the failure.
        code: Arc<str>,
        /// From sending to the end.
        duration: Duration,
        /// To the first valid token, where there was one.
        first_token: Option<Duration>,
        /// Counts the attempts at this target from 1.
        number: u32,
        /// Whom it was sent to, in the words of spans.
        peer: Arc<Peer>,
        /// The HTTP status that came back, if one did.
        status: Option<u16>,
        /// Tokens read and written, of the attempt that won.
        usage: Option<(u64, u64)>,
    },
    /// A timer ran out.
    TimedOut {
        /// The dependency: `model` or the tool's name.
        dependency: Arc<str>,
        /// The target.
        target: Arc<str>,
        /// Which timer.
        timer: Timer,
    },
    /// Another attempt will be made after a wait.
    RetryScheduled {
        /// The dependency: `model` or the tool's name.
        dependency: Arc<str>,
        /// The target.
        target: Arc<str>,
        /// How long the wait is.
        delay: Duration,
        /// The failure that caused it.
        code: Arc<str>,
    },
    /// What the retries of one call came to: `true` if one of them succeeded.
    Retried {
        /// The dependency: `model` or the tool's name.
        dependency: Arc<str>,
        /// The target.
        target: Arc<str>,
        /// Whether the call succeeded in the end.
        recovered: bool,
    },
    /// A failure that could have been retried was not.
    RetryRefused {
        /// The dependency: `model` or the tool's name.
        dependency: Arc<str>,
        /// Why not.
        reason: RetryRefusal,
    },
    /// A logical model call ended, or was dropped (then `cancelled`, with nothing known of what it cost).
    ModelCallFinished {
        /// The chain that was asked.
        chain: Arc<str>,
        /// Who answered, or was asked last.
        target: Arc<str>,
        /// `ok`, or the low-cardinality name of the failure.
        outcome: Arc<str>,
        /// With all its attempts and waits.
        duration: Duration,
        /// Tokens read.
        input_tokens: u64,
        /// Tokens written.
        output_tokens: u64,
        /// What it cost, dollars.
        cost_usd: f64,
    },
    /// A tool call ended, or was dropped: then it has no code.
    ToolCallFinished {
        /// Which tool.
        tool: Arc<str>,
        /// What it does to the world.
        effect: Effect,
        /// How it ended.
        code: Option<ToolCode>,
        /// With all its attempts and waits.
        duration: Duration,
        /// The id under which the model wants its result.
        call_id: Option<Arc<str>>,
        /// Hash of the key under which it went out, where the other side honours one.
        key: Option<u64>,
        /// Whom it was sent to, in the words of spans.
        peer: Arc<Peer>,
    },
    /// A request with an idempotency key was decided on.
    Idempotency {
        /// How.
        outcome: IdempotencyOutcome,
    },
    /// A tool's output was cut.
    Truncated {
        /// Which tool.
        tool: Arc<str>,
        /// How many bytes are gone.
        bytes: u64,
    },
    /// A session goes on with less than it should have.
    SessionDegraded {
        /// Of which agent.
        agent: Arc<str>,
        /// Of which capability it has less: `context`..
        capability: Arc<str>,
        /// What it is now: `shortened`..
        mode: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// A capability of the process is not what it should be.
    Degraded {
        /// Which one: `context`, `tool:NAME`, `journal`..
        capability: Arc<str>,
        /// What it is now: `shortened`, `unavailable`..
        mode: &'static str,
        /// Why.
        reason: &'static str,
    },
}

/// Where signals go. Emitting never blocks and never fails.
pub trait SignalSink: Send + Sync {
    /// Takes one fact about `subject`.
    fn emit(&self, subject: Subject, signal: &Signal);
}

/// Drops every signal: for tests and tools that show nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl SignalSink for Silent {
    fn emit(&self, _subject: Subject, _signal: &Signal) {}
}
