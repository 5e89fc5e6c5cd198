//! What a tool call does to the world, and whether it may go.

use serde::{Deserialize, Serialize};

/// What a call leaves behind. Unknown means `Write`: a server's own hints can only make it stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing: may be repeated, hedged and dropped.
    Read,
    /// A change that can be undone or repeated under a key.
    Write,
    /// A change that nothing undoes: runs alone and last in its turn.
    Irreversible,
}

impl Effect {
    /// Its name in config, API and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Irreversible => "irreversible",
        }
    }

    /// True for all that changes the world.
    #[must_use]
    pub const fn is_write(self) -> bool {
        match self {
            Self::Read => false,
            Self::Write | Self::Irreversible => true,
        }
    }
}

/// What preparation decided about a call before anything ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// May run.
    Go,
    /// A person has to say yes first.
    Ask,
    /// Becomes this result at once and never reaches a tool.
    Refuse(crate::tool::ToolCode),
}
