//! An agent as it stands in a running process: what config says, resolved and with its version.

use std::fmt::Write as _;
use std::sync::Arc;

use ambit_core::session::{Started, TaintRule};
use ambit_core::{Digest, Limits};

use crate::content::digest_of;

/// A named definition: instructions, model chain, tools, limits and rules.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Its name.
    pub name: Arc<str>,
    /// What it is for, in a sentence; shown to people.
    pub description: Arc<str>,
    /// What the model is told before everything else.
    pub instructions: Arc<str>,
    /// The chain of targets that answers for it.
    pub chain: Arc<str>,
    /// The tools that it may use; MCP servers stand for all tools that are allowed of them.
    pub tools: Vec<Arc<str>>,
    /// Its limits, already tightened by those of the profile.
    pub limits: Limits,
    /// What untrusted content forbids.
    pub taint: TaintRule,
}

impl Agent {
    /// Stands in for an agent that is no longer configured as the session knew it: it can do nothing more.
    #[must_use]
    pub fn departed(started: &Started, chain: Arc<str>) -> Self {
        Self {
            name: started.agent.clone(),
            description: "".into(),
            instructions: "".into(),
            chain,
            tools: Vec::new(),
            limits: started.limits,
            taint: started.taint,
        }
    }

    /// Digest of the definition: equal versions behave alike.
    #[must_use]
    pub fn version(&self) -> Digest {
        let Self { name, description: _, instructions, chain, tools, limits, taint } = self;
        let mut text = String::new();
        // Lengths stand before texts, so that no two definitions share a form.
        for part in [name, instructions, chain].into_iter().chain(tools) {
            let _ = write!(text, "{}:{part};", part.len());
        }
        let _ = write!(text, "{limits:?}{taint:?}");
        digest_of(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> Agent {
        Agent {
            name: "ops".into(),
            description: "".into(),
            instructions: "help".into(),
            chain: "default".into(),
            tools: vec!["a".into(), "b".into()],
            limits: Limits::DEFAULT,
            taint: TaintRule::Refuse,
        }
    }

    #[test]
    fn whatever_changes_behaviour_changes_the_version() {
        let version = agent().version();
        assert_eq!(Agent { description: "other".into(), ..agent() }.version(), version);
        for other in [
            Agent { instructions: "help!".into(), ..agent() },
            Agent { tools: vec!["ab".into()], ..agent() },
            Agent { limits: Limits { model_calls: 3, ..Limits::DEFAULT }, ..agent() },
            Agent { taint: TaintRule::Allow, ..agent() },
        ] {
            assert_ne!(other.version(), version);
        }
    }
}
