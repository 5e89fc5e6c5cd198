//! What the executor has to be told, in its own types. Keys, defaults and where a value came from belong to `config`.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ambit_core::Effect;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::http::net::{AllowRule, HostMapping};

/// Most bytes the arguments of one call may have. A model writes them token by token: this is more than most models
/// can write in one turn, and what a call may hold in memory three times over (text, tree, body).
pub const ARGUMENTS_BYTES_MAX: usize = 256 << 10;
/// Most tools that may be configured or listed by one MCP server; each declaration costs tokens in every model call.
pub(crate) const TOOLS_MAX: usize = 512;

/// Everything the executor has to know.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// The tools of the configuration, by the name the model sees.
    pub tools: BTreeMap<Arc<str>, ToolOptions>,
    /// MCP servers, by the name that prefixes their tools.
    pub mcp: BTreeMap<Arc<str>, McpOptions>,
    /// How HTTP goes out, for HTTP tools and MCP servers alike.
    pub http: HttpOptions,
    /// Where the jitter of back-offs starts.
    pub seed: u64,
}

/// One tool of the configuration.
#[derive(Debug, Clone)]
pub struct ToolOptions {
    /// What the model is told; a builtin has words of its own.
    pub description: Option<Arc<str>>,
    /// How it may be used.
    pub policy: ToolPolicy,
    /// Arguments that Ambit fills in and the model never sees.
    pub bind: BTreeMap<Arc<str>, Binding>,
    /// What it is.
    pub kind: ToolKind,
}

/// What a tool is.
#[derive(Debug, Clone)]
pub enum ToolKind {
    /// One HTTP request.
    Http(HttpToolOptions),
    /// A function of Ambit.
    Builtin(BuiltinOptions),
}

/// Whose property fills an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    /// The principal's id.
    PrincipalId,
    /// The principal's tenant.
    PrincipalTenant,
}

/// How a tool may be used, whatever it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPolicy {
    /// What it does to the world.
    pub effect: Effect,
    /// Roles of which the principal needs one; empty: everybody.
    pub roles: Vec<Arc<str>>,
    /// Tenants that may use it; empty: all.
    pub tenants: Vec<Arc<str>>,
    /// Bounds all attempts of a call together, waits included (12 s).
    pub timeout: Duration,
    /// Bounds one attempt, connecting and body included (10 s).
    pub attempt: Duration,
    /// Requests on the wire for one call, the first included. Without a key a write is sent once whatever this says.
    pub attempts: NonZeroU32,
    /// Less than this left: the call is refused instead of begun (300 ms).
    pub min_useful: Duration,
    /// Waits between attempts.
    pub retry: RetryDelays,
    /// Calls of this tool (of a whole MCP server: of this effect) in flight (32 reads, 16 writes).
    pub permits: NonZeroU32,
    /// Calls that may wait for a permit.
    pub queue: u32,
    /// Longest such wait (2 s).
    pub continuing_wait: Duration,
    /// What the model reads of a result, bytes (10 KiB); the session's own cap may be smaller.
    pub output_cap: NonZeroUsize,
    /// Identical results after which the next identical call is refused; 0 for a poller.
    pub repeats: u32,
    /// True if its output may be believed.
    pub trusted: bool,
    /// True if its destination or free text leaves the tenant.
    pub egress: bool,
}

/// Waits between attempts: uniform in `[min_delay, min(max_delay, base x 2^n)]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryDelays {
    /// Scale of the exponential (200 ms).
    pub base: Duration,
    /// Never sooner (100 ms).
    pub min_delay: Duration,
    /// Never later (5 s), but for a Retry-After.
    pub max_delay: Duration,
}

/// One HTTP request as a tool.
#[derive(Debug, Clone)]
pub struct HttpToolOptions {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// Absolute, `http` or `https`; `{name}` in a path segment or a query value is filled from the arguments.
    pub url: String,
    /// Sent with every request to the tool's own origin, never past a redirect to another.
    pub headers: Vec<(String, SecretString)>,
    /// The header that carries the call's key, if the other side honours one.
    pub key_header: Option<String>,
    /// JSON Schema of the arguments.
    pub schema: Value,
}

/// A function of Ambit as a tool.
#[derive(Debug, Clone)]
pub struct BuiltinOptions {
    /// Which.
    pub function: BuiltinFunction,
    /// The folder that it may look into, and never out of.
    pub root: PathBuf,
}

/// The functions that Ambit brings itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltinFunction {
    /// Names, sizes and modification times of the files below a folder.
    ListFiles,
    /// The text of one file.
    ReadFile,
}

/// How HTTP goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpOptions {
    /// Hosts that redirects may lead to besides a tool's own, and address ranges that are reachable though not public.
    pub allow: Vec<AllowRule>,
    /// Names that stand for an address, without asking DNS (profile `dev`).
    pub hosts: BTreeMap<String, HostMapping>,
    /// Most bytes of an answer's body (1 MiB).
    pub tool_body: NonZeroUsize,
    /// Kept back from the deadline that the other side is told (150 ms).
    pub margin: Duration,
    /// Until a connection stands, TLS included (5 s).
    pub connect: Duration,
    /// How long an unused connection is kept (60 s).
    pub idle: Duration,
}

/// One MCP server.
#[derive(Debug, Clone)]
pub struct McpOptions {
    /// Where it is.
    pub endpoint: McpEndpoint,
    /// Which of its tools are used.
    pub allow: McpAllow,
    /// The policy of a tool about which nothing else is said. Its effect should be `write`, its attempts 1.
    pub policy: ToolPolicy,
    /// What is known better about single tools, by the server's own name for them.
    pub overrides: BTreeMap<Arc<str>, PolicyOverride>,
    /// From starting to the list of tools (10 s).
    pub start_timeout: Duration,
    /// Closed when unused for so long (60 s).
    pub idle: Duration,
}

/// Where an MCP server is.
#[derive(Debug, Clone)]
pub enum McpEndpoint {
    /// A program that speaks on its standard input and output.
    Stdio {
        /// The program; looked up in `path` if it has no slash.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its whole environment besides `PATH`; nothing else is passed on.
        env: Vec<(String, SecretString)>,
        /// Its `PATH`; `config` fills in that of the process where nothing else is said.
        path: String,
        /// Where it runs.
        folder: Option<PathBuf>,
    },
    /// A streamable HTTP endpoint.
    Http {
        /// Its address.
        url: String,
        /// Sent with every request.
        headers: Vec<(String, SecretString)>,
    },
}

/// Which tools of a server are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpAllow {
    /// All that it lists.
    All,
    /// These, by the server's own names.
    Only(Vec<Arc<str>>),
}

/// What the configuration knows better about one tool of an MCP server; `None` keeps the server's policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyOverride {
    /// What it does to the world; the server's own annotations can only make it stricter.
    pub effect: Option<Effect>,
    /// Roles of which the principal needs one.
    pub roles: Option<Vec<Arc<str>>>,
    /// Tenants that may use it.
    pub tenants: Option<Vec<Arc<str>>>,
    /// Bounds all attempts.
    pub timeout: Option<Duration>,
    /// Bounds one attempt.
    pub attempt: Option<Duration>,
    /// Requests for one call; heard for reads only.
    pub attempts: Option<NonZeroU32>,
    /// What the model reads of a result, bytes.
    pub output_cap: Option<NonZeroUsize>,
    /// Identical results after which the next identical call is refused.
    pub repeats: Option<u32>,
    /// True if its output may be believed.
    pub trusted: Option<bool>,
    /// True if its destination or free text leaves the tenant.
    pub egress: Option<bool>,
}

impl McpOptions {
    /// True if a server that runs under these can go on under those: they are the same, secrets included.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let Self { endpoint, allow, policy, overrides, start_timeout, idle } = self;
        endpoint.is_same(&other.endpoint)
            && (allow, policy, overrides) == (&other.allow, &other.policy, &other.overrides)
            && (start_timeout, idle) == (&other.start_timeout, &other.idle)
    }
}

impl McpEndpoint {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stdio { command, args, env, path, folder }, Self::Stdio { command: c, args: a, env: e, path: p, folder: f }) => {
                (command, args, path, folder) == (c, a, p, f) && same_secrets(env, e)
            }
            (Self::Http { url, headers }, Self::Http { url: u, headers: h }) => url == u && same_secrets(headers, h),
            (Self::Stdio { .. }, Self::Http { .. }) | (Self::Http { .. }, Self::Stdio { .. }) => false,
        }
    }
}

/// Compares values that their type does not let compare. Both are ours, so that the time it takes tells nobody anything.
fn same_secrets(one: &[(String, SecretString)], other: &[(String, SecretString)]) -> bool {
    let same = |((name, value), (n, v)): (&(String, SecretString), &(String, SecretString))| {
        name == n && value.expose_secret() == v.expose_secret()
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

impl ToolPolicy {
    /// The policy with what is known better about one tool.
    pub(crate) fn overridden_by(&self, known: &PolicyOverride) -> Self {
        let PolicyOverride { effect, roles, tenants, timeout, attempt, attempts, output_cap, repeats, trusted, egress } = known;
        Self {
            effect: effect.unwrap_or(self.effect),
            roles: roles.clone().unwrap_or_else(|| self.roles.clone()),
            tenants: tenants.clone().unwrap_or_else(|| self.tenants.clone()),
            timeout: timeout.unwrap_or(self.timeout),
            attempt: attempt.unwrap_or(self.attempt),
            attempts: attempts.unwrap_or(self.attempts),
            output_cap: output_cap.unwrap_or(self.output_cap),
            repeats: repeats.unwrap_or(self.repeats),
            trusted: trusted.unwrap_or(self.trusted),
            egress: egress.unwrap_or(self.egress),
            ..self.clone()
        }
    }
}
