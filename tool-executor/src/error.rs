//! Why an executor cannot be made of its options. Calls never fail: they end in a result.

use std::fmt;
use std::sync::Arc;

use ambit_core::{ErrorKind, Origin};

/// One tool (or server) that cannot be used as configured, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRefusal {
    /// Its name.
    pub tool: Arc<str>,
    /// Why not, as a lower-case fragment.
    pub reason: String,
}

impl fmt::Display for ToolRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tool `{}`: {}", self.tool, self.reason)
    }
}

/// Why there is no executor.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// Tools that cannot be used as configured, all of them at once.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<ToolRefusal>),
    /// The HTTP client could not be made.
    #[error("the HTTP client for tools cannot be made")]
    Client(#[source] reqwest::Error),
}

impl ExecutorError {
    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused(_) => ErrorKind::Invalid,
            Self::Client(_) => ErrorKind::Internal,
        }
    }

    /// Whose error it is.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        Origin::Us
    }
}
