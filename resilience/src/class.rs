//! What the outcome of an attempt means: the rows and columns of the one table.
//!
//! A [`Row`] names the kind of outcome, its [`Class`] says what each layer makes of it. The table below is the only
//! place where a column is written down; [`classify`](crate::classify) chooses the row. No layer looks at a status code.

/// The kind of outcome: one row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Row {
    /// A whole answer.
    Answered,
    /// A success by its status, and no answer: an error body, `null`, no choices, a login page, no end mark.
    Malformed,
    /// An answer that is empty though the model stopped normally; the machine may nudge it once.
    Empty,
    /// The model's own mistake, reported as an error: it goes back to the machine and counts as a model call.
    Mistake,
    /// The other side refuses the request itself.
    Rejected,
    /// The other side refuses the content.
    ContentFiltered,
    /// This target cannot do it, another one may: too large a body, unknown model, a parameter beyond its limit.
    Incapable,
    /// The request does not fit the model's window.
    ContextLength,
    /// The credential is unknown or may not.
    Unauthorised,
    /// Nobody pays any more.
    OutOfQuota,
    /// We ask too often.
    RateLimited,
    /// The other side was not ready for this request (408, 425).
    NotReady,
    /// Two wishes that exclude each other.
    Conflict,
    /// The other side failed (500, 502, 504).
    ServerError,
    /// The other side has too much to do (503, 529).
    Overloaded,
    /// The other side says that it sheds load on purpose.
    Shedding,
    /// It never arrived: refused, unknown name, no TLS, stream refused before processing.
    NeverArrived,
    /// The connection broke after the request was sent.
    Broken,
    /// An attempt ran into its own timeout, or its stream fell silent.
    TimedOut,
    /// The session with an MCP server is gone: the call never ran.
    SessionExpired,
    /// We refused this one target: saturated, circuit open, retry budget empty.
    RefusedByTarget,
    /// We refused the call as a whole: the gateway, the deadline, a quota, the allowance.
    RefusedByUs,
    /// The caller cancelled or is gone.
    Cancelled,
    /// The deadline came before the attempt had its full timeout.
    DeadlineCut,
    /// The deadline came after the attempt had its full timeout.
    DeadlineSpent,
    /// Another leg won and this one was dropped.
    HedgeLost,
    /// A tool answered something that its own schema forbids.
    OutputInvalid,
}

/// What the breaker hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaker {
    /// A success.
    Success,
    /// A failure, in the window and in the streak.
    Failure,
    /// A failure in the window, and nothing in the streak.
    FailureOutsideStreak,
    /// Nothing; a probe is given back.
    Neutral,
    /// Nothing, though a probe has succeeded: the other side answered.
    NeutralProbeSucceeds,
    /// Nothing, though a probe has failed.
    NeutralProbeFails,
}

/// What becomes of the credential that was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// It may be used again.
    Keep,
    /// It rests until somebody may have corrected it.
    Cool,
    /// It rests as long as the other side said.
    CoolAsTold,
    /// It rests for long.
    CoolLong,
}

/// Whether the same target may be asked again. After the commit point the answer is always no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// No: pointless, or not ours to decide.
    Never,
    /// Yes, whatever the call does: it had no effect.
    Always,
    /// Yes, if the call may be repeated.
    IfRepeatable,
    /// Yes, if the call may be repeated and a full attempt still fits in the time left.
    IfFullAttemptFits,
    /// Once and without a wait, on a new session: the call never ran.
    OnceOnNewSession,
}

/// Whether the next target of a chain may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There is nothing to ask for.
    NotNeeded,
    /// No.
    No,
    /// Yes, after the same target was asked again as far as it may be.
    Yes,
    /// Yes, if the call may be repeated.
    IfRepeatable,
    /// Yes, and before the same target is asked again.
    First,
    /// Only a target with a larger window.
    LargerWindow,
    /// With the next credential, else at the next target.
    OtherCredential,
}

/// What a health checker hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Nothing.
    Unchanged,
    /// It works.
    Up,
    /// It answers, not well.
    Degraded,
    /// It cannot be reached.
    Down,
    /// It limits us.
    Limited,
    /// It wants to be paid.
    Quota,
    /// Our settings are wrong.
    ConfigError,
}

/// What one outcome means to every layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// Which kind of outcome it is.
    pub row: Row,
    /// What the breaker hears.
    pub breaker: Breaker,
    /// What becomes of the credential.
    pub credential: Credential,
    /// Whether the same target may be asked again.
    pub retry: Retry,
    /// Whether the next target may be asked.
    pub next: Next,
    /// What a health checker hears.
    pub health: Health,
}

impl Row {
    /// What this kind of outcome means: the table itself.
    #[must_use]
    pub const fn class(self) -> Class {
        use Row as R;
        use {Breaker as B, Credential as C, Health as H, Next as N, Retry as T};
        let (breaker, credential, retry, next, health) = match self {
            R::Answered => (B::Success, C::Keep, T::Never, N::NotNeeded, H::Up),
            // A write that answered with a login page may have run: only what is repeatable goes out again.
            R::Malformed => (B::Failure, C::Keep, T::IfRepeatable, N::Yes, H::Degraded),
            R::Empty => (B::Failure, C::Keep, T::Never, N::Yes, H::Degraded),
            R::Mistake => (B::Neutral, C::Keep, T::Never, N::No, H::Up),
            R::Rejected | R::ContentFiltered => (B::NeutralProbeSucceeds, C::Keep, T::Never, N::No, H::Up),
            R::Incapable => (B::NeutralProbeSucceeds, C::Keep, T::Never, N::Yes, H::Up),
            R::ContextLength => (B::Neutral, C::Keep, T::Never, N::LargerWindow, H::Up),
            R::Unauthorised => (B::Neutral, C::Cool, T::Never, N::OtherCredential, H::ConfigError),
            R::OutOfQuota => (B::Neutral, C::CoolLong, T::Never, N::Yes, H::Quota),
            R::RateLimited => (B::NeutralProbeFails, C::CoolAsTold, T::Always, N::First, H::Limited),
            R::NotReady => (B::FailureOutsideStreak, C::Keep, T::Always, N::Yes, H::Up),
            R::Conflict => (B::Neutral, C::Keep, T::Never, N::No, H::Up),
            R::ServerError => (B::Failure, C::Keep, T::IfRepeatable, N::Yes, H::Degraded),
            R::Overloaded => (B::Failure, C::Keep, T::Always, N::Yes, H::Degraded),
            R::Shedding => (B::Neutral, C::Keep, T::Always, N::Yes, H::Degraded),
            R::NeverArrived => (B::Failure, C::Keep, T::Always, N::Yes, H::Down),
            R::Broken => (B::Failure, C::Keep, T::IfRepeatable, N::IfRepeatable, H::Degraded),
            R::TimedOut => (B::Failure, C::Keep, T::IfFullAttemptFits, N::First, H::Degraded),
            R::SessionExpired => (B::Neutral, C::Keep, T::OnceOnNewSession, N::NotNeeded, H::Unchanged),
            R::RefusedByTarget => (B::Neutral, C::Keep, T::Never, N::Yes, H::Unchanged),
            R::RefusedByUs | R::Cancelled | R::DeadlineCut => (B::Neutral, C::Keep, T::Never, N::No, H::Unchanged),
            R::DeadlineSpent => (B::Failure, C::Keep, T::Never, N::No, H::Unchanged),
            R::HedgeLost => (B::Neutral, C::Keep, T::Never, N::NotNeeded, H::Unchanged),
            R::OutputInvalid => (B::Neutral, C::Keep, T::Never, N::NotNeeded, H::Up),
        };
        Class { row: self, breaker, credential, retry, next, health }
    }

    /// True for what we did ourselves: no evidence about the other side, never repeated by us.
    #[must_use]
    pub const fn is_local(self) -> bool {
        match self {
            Self::RefusedByTarget | Self::RefusedByUs | Self::Cancelled | Self::DeadlineCut | Self::DeadlineSpent | Self::HedgeLost => true,
            Self::Answered
            | Self::Malformed
            | Self::Empty
            | Self::Mistake
            | Self::Rejected
            | Self::ContentFiltered
            | Self::Incapable
            | Self::ContextLength
            | Self::Unauthorised
            | Self::OutOfQuota
            | Self::RateLimited
            | Self::NotReady
            | Self::Conflict
            | Self::ServerError
            | Self::Overloaded
            | Self::Shedding
            | Self::NeverArrived
            | Self::Broken
            | Self::TimedOut
            | Self::SessionExpired
            | Self::OutputInvalid => false,
        }
    }

    /// True for a refusal of our own: nothing was sent, nothing is taken from an allowance, no attempt is recorded.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::RefusedByTarget | Self::RefusedByUs)
    }

    /// True if the call may or may not have taken effect: a write that ended so is reported as `OUTCOME_UNKNOWN`,
    /// provided that it was sent.
    #[must_use]
    pub const fn leaves_fate_unknown(self) -> bool {
        match self {
            Self::Malformed
            | Self::ServerError
            | Self::Broken
            | Self::TimedOut
            | Self::Cancelled
            | Self::DeadlineCut
            | Self::DeadlineSpent
            | Self::HedgeLost => true,
            Self::Answered
            | Self::Empty
            | Self::Mistake
            | Self::Rejected
            | Self::ContentFiltered
            | Self::Incapable
            | Self::ContextLength
            | Self::Unauthorised
            | Self::OutOfQuota
            | Self::RateLimited
            | Self::NotReady
            | Self::Conflict
            | Self::Overloaded
            | Self::Shedding
            | Self::NeverArrived
            | Self::SessionExpired
            | Self::RefusedByTarget
            | Self::RefusedByUs
            | Self::OutputInvalid => false,
        }
    }
}
