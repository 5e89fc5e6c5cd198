//! What may stand in a profile: one struct a table, one field a key.
//!
//! The doc comments are the reference: `config/schema.json` and `docs/config.md` are generated from them. The first line
//! is the title, the rest the meaning; `default`, `x-unit`, `x-cost` (what raising it costs at worst) and `x-max` stand in
//! the attributes and are what the checks use. **Invariant:** a key whose enforcement is not built has no field here.

mod agents;
mod limits;
mod mcp;
mod models;
mod server;
mod tools;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

pub use agents::{Agent, Taint};
pub use limits::{AgentLimits, Limits};
pub use mcp::{Mcp, McpTool};
pub use models::{Bulkhead, Chain, Dialect, Model, Price, Retry, Stream};
pub use server::{Engine, EngineKind, Host, Http, Log, LogFormat, LogLevel, Server, Store, Telemetry, Treat};
pub use tools::{Effect, Idempotency, Method, Tool, ToolBulkhead, ToolKind, Trust};

/// One profile: all settings of Ambit.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// What a session may use, axis by axis.
    ///
    /// An agent may tighten each of them, a request may tighten further; nothing can raise them.
    pub limits: Limits,
    /// Models by name: each is one configured way to one model (a target).
    pub models: BTreeMap<String, Model>,
    /// Chains by name: which targets answer an agent.
    pub chains: BTreeMap<String, Chain>,
    /// Agents by name: instructions, a chain, tools and limits.
    pub agents: BTreeMap<String, Agent>,
    /// Tools by name.
    pub tools: BTreeMap<String, Tool>,
    /// MCP servers by name; their allowed tools are tools.
    pub mcp: BTreeMap<String, Mcp>,
    /// The process that serves.
    pub server: Server,
    /// Everything that leaves by HTTP.
    pub http: Http,
    /// Where journals and sessions are kept.
    pub store: Store,
    /// What drives sessions.
    pub engine: Engine,
    /// What can be seen from outside.
    pub telemetry: Telemetry,
}
