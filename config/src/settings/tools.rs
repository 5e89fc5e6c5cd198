//! `[tools.NAME]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Retry;
use crate::value::{Anything, Period, Secret, Size, Wait, words};

words! {
    /// How a tool is reached.
    pub enum ToolKind {
        /// A request made from a template.
        Http = "http",
        /// Part of Ambit.
        Builtin = "builtin",
    }
}

words! {
    /// Method of an HTTP tool.
    pub enum Method {
        /// GET
        Get = "GET",
        /// POST
        Post = "POST",
        /// PUT
        Put = "PUT",
        /// PATCH
        Patch = "PATCH",
        /// DELETE
        Delete = "DELETE",
    }
}

words! {
    /// What a call leaves behind.
    pub enum Effect {
        /// Nothing: it may be repeated and dropped.
        Read = "read",
        /// A change that can be undone or repeated under a key.
        Write = "write",
        /// A change that nothing undoes; runs alone and last in its turn.
        Irreversible = "irreversible",
    }
}

words! {
    /// Whether a tool's output may steer writes.
    pub enum Trust {
        /// No: once read, the agent's `taint` setting applies.
        Untrusted = "untrusted",
        /// Yes.
        Trusted = "trusted",
    }
}

/// One tool.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// How it is reached.
    pub kind: ToolKind,
    /// What the model is told about it.
    #[schemars(extend("x-default" = "the builtin's own words, else none"))]
    pub description: Option<String>,
    /// Which builtin: `list_files` or `read_file`.
    #[schemars(extend("x-default" = "the tool's own name"))]
    pub builtin: Option<String>,
    /// The folder that a builtin reads, and never leaves; `sample:` is the folder shipped inside the binary.
    #[schemars(extend("x-path" = true))]
    pub root: Option<String>,
    /// HTTP method.
    #[schemars(extend("x-default" = "`GET`"))]
    pub method: Option<Method>,
    /// URL template; arguments fill each `{placeholder}`, percent-encoded, and the rest goes to the query or a JSON body.
    pub url: Option<String>,
    /// Headers added to every request; a value may be a reference to a secret.
    #[schemars(extend("x-names" = "free"))]
    pub headers: BTreeMap<String, Secret>,
    /// JSON Schema of the arguments; every `{placeholder}` needs a `format`, a `pattern`, an `enum` or a number's type.
    pub schema: Option<Anything>,
    /// A file with the JSON Schema of the arguments.
    #[schemars(extend("x-path" = true))]
    pub schema_file: Option<String>,
    /// What a call leaves behind.
    #[schemars(extend("x-default" = "`write`; `read` for builtins"))]
    pub effect: Option<Effect>,
    /// The key under which the other side runs a call only once.
    pub idempotency: Option<Idempotency>,
    /// One call with all its attempts and the waits between them.
    #[schemars(extend("default" = "12s", "x-cost" = "a write that was sent is awaited that long after the verdict"))]
    pub timeout: Period,
    /// One attempt, from sending to the last byte.
    #[schemars(extend("x-default" = "2s for a read, 4s else", "x-cost" = "a permit is held that long"))]
    pub attempt: Option<Period>,
    /// Attempts of one call, the first included.
    #[schemars(range(min = 1, max = 5), extend("x-unit" = "attempts", "x-default" = "3 for a read, 1 else", "x-cost" = "load on a dependency in trouble"))]
    pub attempts: Option<u32>,
    /// With less time left than this nothing is sent.
    #[schemars(extend("default" = "300ms", "x-cost" = "that much of the deadline goes unused at worst"))]
    pub min_useful: Period,
    /// Its result as the model reads it.
    #[schemars(extend("x-default" = "`limits.tool_output`", "x-max" = "1MiB", "x-cost" = "read by the model again in every later call"))]
    pub output_cap: Option<Size>,
    /// How many calls run at once, over all sessions.
    pub bulkhead: ToolBulkhead,
    /// How long to wait before another attempt.
    pub retry: Retry,
    /// Identical results after which the next identical call is refused as a loop; 0 for a poller.
    #[schemars(range(min = 0, max = 100), extend("default" = 3, "x-unit" = "results", "x-cost" = "calls spent on a loop; 0 leaves it to `limits.tool_calls`"))]
    pub repeats: u32,
    /// Whether its output may steer writes.
    #[schemars(extend("default" = "untrusted"))]
    pub trust: Trust,
    /// True if its destination or free text leaves the tenant: gated like a write once the context is tainted.
    #[schemars(extend("default" = false))]
    pub egress: bool,
}

/// The key under which the other side runs a call only once; each step has its own, sent on every attempt.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Idempotency {
    /// The header that carries it.
    pub header: String,
}

/// Concurrent calls of one tool, or of one MCP server.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolBulkhead {
    /// Calls at once.
    #[schemars(range(min = 1, max = 10_000), extend("x-unit" = "calls", "x-default" = "32 for a read, 16 else", "x-cost" = "a connection and `http.tool_body` of memory each"))]
    pub permits: Option<u32>,
    /// Calls that may wait for a place, first in, first out.
    #[schemars(range(min = 0, max = 10_000), extend("x-unit" = "calls", "x-default" = "`server.max_in_flight` less `permits`", "x-cost" = "their sessions wait up to `continuing_wait`"))]
    pub queue: Option<u32>,
    /// How long a call may wait.
    #[schemars(extend("default" = "2s", "x-max" = "1m", "x-cost" = "that much of the session's deadline"))]
    pub continuing_wait: Wait,
}
