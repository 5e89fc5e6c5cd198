//! The two things a caller may branch on: what kind of error, and whose.

/// What kind of error it is, in every crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The input is wrong; the same input will be wrong again.
    Invalid,
    /// Nobody is known to be asking.
    Unauthenticated,
    /// Known, and not allowed.
    Forbidden,
    /// No such thing.
    NotFound,
    /// Two wishes that exclude each other.
    Conflict,
    /// A limit, quota or permit was used up.
    LimitReached,
    /// A dependency did not answer, or not usefully.
    Unavailable,
    /// The time given was over.
    DeadlineExceeded,
    /// Asked to stop.
    Cancelled,
    /// Our own fault.
    Internal,
}

impl ErrorKind {
    /// True where the same request may succeed later without a change.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::LimitReached | Self::Unavailable => true,
            Self::Invalid
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::NotFound
            | Self::Conflict
            | Self::DeadlineExceeded
            | Self::Cancelled
            | Self::Internal => false,
        }
    }
}

/// Where an error came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Whoever asked.
    Caller,
    /// A model provider.
    Provider,
    /// A tool.
    Tool,
    /// The store.
    Store,
    /// Ambit itself.
    Us,
}
