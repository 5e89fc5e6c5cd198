//! `[agents.NAME]`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::AgentLimits;
use crate::value::words;

words! {
    /// What happens to calls that change the world, or send text out, once untrusted content is in the context.
    pub enum Taint {
        /// They are refused with `TAINTED`.
        Refuse = "refuse",
        /// They run.
        Allow = "allow",
    }
}

/// One agent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// What it is for, in a sentence, for people.
    #[schemars(extend("x-default" = "nothing"))]
    pub description: Option<String>,
    /// What the model is told first.
    #[schemars(extend("x-unit" = "characters, at most `limits.prompt_chars`"))]
    pub instructions: String,
    /// Which chain answers it.
    #[schemars(extend("default" = "default"))]
    pub chain: String,
    /// Which tools it is offered: names of `tools`, and of `mcp` for all that is allowed of a server.
    #[schemars(extend("default" = [], "x-cost" = "each declaration is read by the model in every call"))]
    pub tools: Vec<String>,
    /// Its own limits, never looser than the profile's.
    pub limits: AgentLimits,
    /// What happens to writes and egress once untrusted content is in the context.
    #[schemars(extend("default" = "refuse", "x-cost" = "`allow` lets untrusted text steer writes"))]
    pub taint: Taint,
}
