//! Tools: which there are, whether a call may go, and running it so that it ends in exactly one result.
//!
//! A call comes from a model, so its name, arguments and timing are untrusted; what it returns is untrusted too.
//! Preparation ([`Offer::prepare`]) resolves, authorises and validates without any I/O. Execution
//! ([`Executor::run`]) sends the call under its tool's policy, cleans and caps what comes back, and never fails: every
//! way to go wrong is a [`ToolCode`](ambit_core::ToolCode) and a text that the model reads.
//!
//! **Invariant:** nothing here reads files of configuration or the environment, decides about budgets, loops, order
//! or taint (the session machine does), or remembers anything past a call but connections and tool listings. MCP and
//! HTTP types never leave this crate.

mod builtin;
mod error;
mod executor;
mod fault;
mod http;
mod mcp;
mod options;
mod output;
mod prepare;
mod registry;
mod result;
mod wall;

pub use error::{ExecutorError, ToolRefusal};
pub use executor::{Executor, ServerView, ToolOutcome, ToolRun, ToolView};
pub use http::net::{AllowRule, HostMapping, InvalidAllowRule, Treat};
pub use mcp::Standing;
pub use options::{
    ARGUMENTS_BYTES_MAX, Binding, BuiltinFunction, BuiltinOptions, ExecutorOptions, HttpOptions, HttpToolOptions, McpAllow, McpEndpoint,
    McpOptions, PolicyOverride, RetryDelays, ToolKind, ToolOptions, ToolPolicy,
};
pub use output::{cap::Capped, cap::cap, clean::clean, fence::fence};
pub use prepare::json::canonical;
pub use prepare::{Declaration, Offer, Prepared};
pub use result::refusal_text;
