//! `[mcp.NAME]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Effect, ToolBulkhead, Trust};
use crate::value::{Period, Secret, Size};

/// One MCP server: a command (stdio) or a URL (streamable HTTP).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mcp {
    /// Program to start; speaks MCP on its standard input and output.
    pub command: Option<String>,
    /// Its arguments.
    #[schemars(extend("default" = []))]
    pub args: Vec<String>,
    /// Its whole environment besides `PATH`: nothing else is passed on. A value may be a reference to a secret.
    #[schemars(extend("x-names" = "free"))]
    pub env: BTreeMap<String, Secret>,
    /// Where a streamable HTTP server listens.
    pub url: Option<String>,
    /// Headers added to every request; a value may be a reference to a secret.
    #[schemars(extend("x-names" = "free"))]
    pub headers: BTreeMap<String, Secret>,
    /// Tools of the server that an agent is offered which names the server among its tools; `["*"]` for all.
    #[schemars(extend("x-cost" = "each declaration is read by the model in every call"))]
    pub allow: Vec<String>,
    /// What the config knows better than the server, by tool.
    #[schemars(extend("x-names" = "free"))]
    pub tools: BTreeMap<String, McpTool>,
    /// Starting the process or connecting, and its greeting.
    #[schemars(extend("default" = "10s", "x-cost" = "the first call waits that long at worst"))]
    pub start: Period,
    /// How long an unused server is kept.
    #[schemars(extend("default" = "60s", "x-cost" = "a process or a connection"))]
    pub idle: Period,
    /// One call with all its attempts.
    #[schemars(extend("default" = "12s", "x-cost" = "a write that was sent is awaited that long after the verdict"))]
    pub timeout: Period,
    /// One attempt.
    #[schemars(extend("default" = "10s", "x-cost" = "a permit is held that long"))]
    pub attempt: Period,
    /// With less time left than this nothing is sent.
    #[schemars(extend("default" = "300ms", "x-cost" = "that much of the deadline goes unused at worst"))]
    pub min_useful: Period,
    /// How many calls of the server run at once, over all sessions.
    pub bulkhead: ToolBulkhead,
    /// Whether its output may steer writes.
    #[schemars(extend("default" = "untrusted"))]
    pub trust: Trust,
}

/// Policy of one tool of an MCP server. What is absent is the server's word, where that is stricter, or `mcp.SERVER`'s.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpTool {
    /// What a call leaves behind.
    #[schemars(extend("x-default" = "`read` if the server says so, else `write`"))]
    pub effect: Option<Effect>,
    /// One call with all its attempts.
    #[schemars(extend("x-default" = "as in `mcp.SERVER`"))]
    pub timeout: Option<Period>,
    /// One attempt.
    #[schemars(extend("x-default" = "as in `mcp.SERVER`"))]
    pub attempt: Option<Period>,
    /// Attempts of one call, the first included; more than one is for reads only.
    #[schemars(range(min = 1, max = 5), extend("default" = 1, "x-unit" = "attempts", "x-cost" = "load on a server in trouble"))]
    pub attempts: u32,
    /// Its result as the model reads it.
    #[schemars(extend("x-default" = "`limits.tool_output`", "x-max" = "1MiB", "x-cost" = "read by the model again in every later call"))]
    pub output_cap: Option<Size>,
    /// Identical results after which the next identical call is refused as a loop; 0 for a poller.
    #[schemars(range(min = 0, max = 100), extend("default" = 3, "x-unit" = "results"))]
    pub repeats: u32,
    /// Whether its output may steer writes.
    #[schemars(extend("x-default" = "as in `mcp.SERVER`"))]
    pub trust: Option<Trust>,
    /// True if its destination or free text leaves the tenant.
    #[schemars(extend("default" = false))]
    pub egress: bool,
}
