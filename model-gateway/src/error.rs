//! Why a gateway cannot be built. A running gateway has no errors of its own: a call ends in a turn or a fault.

use ambit_core::{ErrorKind, Origin};

/// Why a gateway cannot be built from these options.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// Two targets or two chains share a name.
    #[error("{what} `{name}` is named twice")]
    Duplicate {
        /// `target` or `chain`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A chain names a target that is not there.
    #[error("chain `{chain}` names target `{target}`, and there is none of that name; there are: {known}")]
    UnknownTarget {
        /// The chain.
        chain: String,
        /// What it names.
        target: String,
        /// What there is, comma-separated.
        known: String,
    },
    /// A chain does not have exactly one target.
    #[error("chain `{chain}` has {targets} targets; exactly one is supported until fallback is built")]
    ChainLength {
        /// The chain.
        chain: String,
        /// How many it names.
        targets: usize,
    },
    /// A setting of a target cannot be used.
    #[error("target `{target}`: `{setting}` {reason}")]
    Setting {
        /// The target.
        target: String,
        /// The setting.
        setting: &'static str,
        /// What is wrong with it and what is allowed. Never the value of a secret.
        reason: String,
    },
    /// A file of rules cannot be read.
    #[error("target `{target}`: {error}")]
    Script {
        /// The target.
        target: String,
        /// Where and why.
        error: ScriptError,
    },
    /// The HTTP client cannot be built.
    #[error("the HTTP client cannot be built")]
    Client(#[source] reqwest::Error),
}

/// Where and why a file of rules cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}:{line}: {reason}; {allowed}")]
pub struct ScriptError {
    /// The file.
    pub source_name: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
    /// What would be right.
    pub allowed: String,
}

impl GatewayError {
    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Duplicate { .. } | Self::UnknownTarget { .. } | Self::ChainLength { .. } | Self::Setting { .. } | Self::Script { .. } => {
                ErrorKind::Invalid
            }
            Self::Client(_) => ErrorKind::Internal,
        }
    }

    /// Whose it is.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        match self {
            Self::Duplicate { .. } | Self::UnknownTarget { .. } | Self::ChainLength { .. } | Self::Setting { .. } | Self::Script { .. } => {
                Origin::Caller
            }
            Self::Client(_) => Origin::Us,
        }
    }
}
