//! Why a session was not let in, or could not be found.

use std::time::Duration;

use ambit_core::limit::TIGHTENINGS_MAX;
use ambit_core::{ErrorKind, Origin, SessionId};
use ambit_model_gateway::Refusal;
use ambit_store::StoreError;

use crate::record::Unreadable;
use crate::request::LimitRefusal;

/// Why no session was started. Nothing was journalled and nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No such agent.
    #[error("agent `{name}` does not exist")]
    AgentNotFound {
        /// As asked for.
        name: String,
        /// Those that exist.
        known: Vec<String>,
    },
    /// The request names tools that the agent does not have.
    #[error("the agent has no tool {names:?}")]
    UnknownTools {
        /// As asked for.
        names: Vec<String>,
        /// Those that it has.
        known: Vec<String>,
    },
    /// The request asks for more than the agent allows.
    #[error("limits above those of the agent")]
    LimitsTooHigh(Vec<LimitRefusal>),
    /// Instructions and input are longer than the limit.
    #[error("the prompt has {chars} characters, the limit is {limit}")]
    PromptTooLarge {
        /// As counted.
        chars: u64,
        /// The limit `prompt_chars`.
        limit: u32,
    },
    /// Instructions, input and tools do not fit the model's window.
    #[error("the prompt needs about {tokens} tokens, the window has {window}")]
    ContextTooLong {
        /// As estimated.
        tokens: u64,
        /// The smallest window of the chain.
        window: u64,
    },
    /// The deadline had passed before anything was done.
    #[error("the deadline had passed on arrival")]
    DeadlineExceeded,
    /// Too little time is left for any call of the model.
    #[error("{left_ms} ms are left, and no call of the model is made with less than {needed_ms} ms")]
    DeadlineTooShort {
        /// Milliseconds to the deadline.
        left_ms: u64,
        /// The setting `models.NAME.min_useful` and the time for the answer to leave, milliseconds.
        needed_ms: u64,
    },
    /// The session that the key stands for still runs, and whoever asks would wait for its end. Requests that may be
    /// answered before it (streams, in the background) are given the running session instead.
    #[error("the session of this idempotency key still runs")]
    IdempotencyInProgress {
        /// Which one; `None` while nobody can say.
        session: Option<SessionId>,
        /// What remains of it.
        left: Duration,
    },
    /// The key stands for another request.
    #[error("the idempotency key was used for another request")]
    IdempotencyKeyReused,
    /// There is no session to go on from, or it is somebody else's.
    #[error("session `{id}` does not exist")]
    PreviousNotFound {
        /// As asked for.
        id: SessionId,
    },
    /// The session to go on from has nothing to go on from.
    #[error("session `{id}` cannot be continued: {why}")]
    PreviousUnusable {
        /// As asked for.
        id: SessionId,
        /// Why not.
        why: &'static str,
    },
    /// The model's permits are taken.
    #[error("no permit for a model call is free")]
    Saturated(#[source] Refusal),
    /// As many sessions run as may.
    #[error("{max} sessions are running, which is the limit")]
    Overloaded {
        /// The setting `server.max_in_flight`.
        max: usize,
    },
    /// The process is going down.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The journal could not be written.
    #[error("the session could not be recorded")]
    Store(#[source] StoreError),
    /// The journal of the session that the key stands for cannot be understood.
    #[error("the session of this idempotency key cannot be read")]
    Unreadable(#[source] Unreadable),
    /// Our own fault: starting it was broken off.
    #[error("starting the session was broken off")]
    Interrupted,
    /// Our own fault: the configuration names a chain that is not there.
    #[error("chain `{chain}` of agent `{agent}` does not exist")]
    NoChain {
        /// The agent.
        agent: String,
        /// The chain that it names.
        chain: String,
    },
}

impl StartError {
    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::AgentNotFound { .. } | Self::PreviousNotFound { .. } => ErrorKind::NotFound,
            Self::UnknownTools { .. }
            | Self::LimitsTooHigh(_)
            | Self::PromptTooLarge { .. }
            | Self::ContextTooLong { .. }
            | Self::PreviousUnusable { .. } => ErrorKind::Invalid,
            Self::IdempotencyInProgress { .. } | Self::IdempotencyKeyReused => ErrorKind::Conflict,
            Self::DeadlineExceeded | Self::DeadlineTooShort { .. } => ErrorKind::DeadlineExceeded,
            Self::Saturated(_) | Self::Overloaded { .. } => ErrorKind::LimitReached,
            Self::ShuttingDown => ErrorKind::Unavailable,
            Self::Store(error) => error.kind(),
            Self::NoChain { .. } | Self::Interrupted | Self::Unreadable(_) => ErrorKind::Internal,
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self {
            Self::AgentNotFound { .. }
            | Self::UnknownTools { .. }
            | Self::LimitsTooHigh(_)
            | Self::PromptTooLarge { .. }
            | Self::ContextTooLong { .. }
            | Self::DeadlineExceeded
            | Self::DeadlineTooShort { .. }
            | Self::IdempotencyInProgress { .. }
            | Self::IdempotencyKeyReused
            | Self::PreviousNotFound { .. }
            | Self::PreviousUnusable { .. } => Origin::Caller,
            Self::Saturated(_)
            | Self::Overloaded { .. }
            | Self::ShuttingDown
            | Self::Interrupted
            | Self::Unreadable(_)
            | Self::NoChain { .. } => Origin::Us,
            Self::Store(_) => Origin::Store,
        }
    }
}

/// Why the limits of a running session were not tightened.
#[derive(Debug, thiserror::Error)]
pub enum Untightened {
    /// The session cannot be found or reached.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// It asks for more than the session has.
    #[error("limits above those of the session")]
    TooHigh(Vec<LimitRefusal>),
    /// The limits of one session can be tightened so often and not more.
    #[error("the limits were tightened {TIGHTENINGS_MAX} times already")]
    TooOften,
    /// The journal could not be written, or somebody else has taken the session over.
    #[error("the journal of the session cannot be written")]
    Lost,
}

impl Untightened {
    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Lookup(failed) => failed.kind(),
            Self::TooHigh(_) => ErrorKind::Invalid,
            Self::TooOften => ErrorKind::LimitReached,
            Self::Lost => ErrorKind::Unavailable,
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self {
            Self::Lookup(failed) => failed.origin(),
            Self::TooHigh(_) | Self::TooOften => Origin::Caller,
            Self::Lost => Origin::Store,
        }
    }
}

/// Why a session cannot be shown or told something.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// There is none of this id.
    #[error("session `{0}` does not exist")]
    NotFound(SessionId),
    /// The store does not answer.
    #[error("the session could not be read")]
    Store(#[source] StoreError),
    /// Its journal cannot be understood.
    #[error("the session's journal cannot be understood")]
    Unreadable(#[source] Unreadable),
}

impl LookupError {
    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound(_) => ErrorKind::NotFound,
            Self::Store(error) => error.kind(),
            Self::Unreadable(_) => ErrorKind::Internal,
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self {
            Self::NotFound(_) => Origin::Caller,
            Self::Store(_) => Origin::Store,
            Self::Unreadable(_) => Origin::Us,
        }
    }
}
