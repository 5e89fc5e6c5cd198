//! `[server]`, `[http]`, `[store]`, `[engine]`, `[telemetry]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::value::{Period, Size, words};

/// The process that serves.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Address of the API; port 0 takes any free one. Loopback only, as long as there is no authentication.
    #[schemars(extend("default" = "127.0.0.1:8080"))]
    pub listen: String,
    /// Address of metrics and administration. Loopback only.
    #[schemars(extend("default" = "127.0.0.1:8081"))]
    pub admin_listen: String,
    /// Sessions at once in one process; one more is answered 503.
    #[schemars(range(min = 1, max = 100_000), extend("default" = 64, "x-unit" = "sessions", "x-cost" = "memory: `ambit bounds` computes it"))]
    pub max_in_flight: u32,
    /// One request, from its head to the last byte of the answer.
    #[schemars(extend("x-default" = "`limits.deadline` + 5s", "x-cost" = "a connection is held that long"))]
    pub request: Option<Period>,
    /// The head of a request, from its first byte to its last; also how long a connection may stay unused.
    #[schemars(extend("default" = "15s", "x-max" = "10m", "x-cost" = "a connection is held that long by whoever says nothing"))]
    pub head: Period,
    /// Connections at once on each address; further ones wait in the system's queue until one closes.
    #[schemars(range(min = 16, max = 1_000_000), extend("default" = 16_384, "x-unit" = "connections", "x-cost" = "an open file each, and some KiB"))]
    pub connections: u32,
    /// Starts a small service on loopback for the demo tools to talk to.
    ///
    /// False also takes the tools whose `url` points at it away from every agent.
    #[schemars(extend("default" = true, "x-cost" = "one loopback listener"))]
    pub demo_service: bool,
}

/// Everything that leaves by HTTP.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// For tests, in profile `dev` only: maps a host name to the address that is connected to instead.
    #[schemars(extend("x-names" = "free"))]
    pub hosts: BTreeMap<String, Host>,
    /// Hosts and networks that tools may reach although they are loopback, private or link-local.
    ///
    /// A name (`payments.internal`), all names below one (`*.internal`), an address or a range of them (`10.0.0.0/8`).
    #[schemars(extend("default" = [], "x-cost" = "a model that was talked into it can reach them through the tools that name them"))]
    pub allow: Vec<String>,
    /// Making a connection, TLS included.
    #[schemars(extend("x-default" = "5s, or `attempt` of the tool if that is shorter"))]
    pub connect: Option<Period>,
    /// How long an unused connection is kept.
    #[schemars(extend("default" = "60s", "x-cost" = "an open socket"))]
    pub idle: Period,
    /// Largest answer of a tool, after decompression.
    #[schemars(extend("default" = "1MiB", "x-max" = "64MiB", "x-cost" = "memory, times the tools' permits"))]
    pub tool_body: Size,
    /// What the deadline passed on is shorter than ours, for the answer to arrive in time.
    #[schemars(extend("default" = "150ms", "x-max" = "5s", "x-cost" = "that much of the deadline"))]
    pub margin: Period,
}

words! {
    /// How a mapped address is judged.
    pub enum Treat {
        /// By what it is: loopback is refused unless `allow` names it.
        AsIs = "as_is",
        /// As if it were public.
        Public = "public",
    }
}

/// What a name stands for, without asking DNS.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Address and port, for example `127.0.0.1:9000`.
    pub address: String,
    /// How the address is judged.
    #[schemars(extend("default" = "as_is"))]
    pub treat: Treat,
}

/// Where journals and sessions are kept.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// `sqlite:PATH`; a relative path starts at the working directory.
    #[schemars(extend("default" = "sqlite:ambit.db", "x-cost" = "disk: `ambit bounds` computes it a session"))]
    pub url: String,
}

words! {
    /// What drives sessions.
    pub enum EngineKind {
        /// A task a session in this process.
        Local = "local",
    }
}

/// What drives sessions.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// Which engine.
    #[schemars(extend("default" = "local"))]
    pub kind: EngineKind,
}

/// What can be seen from outside.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// The log on standard error.
    pub log: Log,
}

words! {
    /// The least important line that is written.
    pub enum LogLevel {
        /// Failures of ours.
        Error = "error",
        /// What should interest someone at night.
        Warn = "warn",
        /// What happened.
        Info = "info",
        /// Why it happened; may hold prompts and tool output.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

words! {
    /// Form of the log.
    pub enum LogFormat {
        /// One JSON object a line.
        Json = "json",
        /// For people.
        Text = "text",
    }
}

/// The log on standard error.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The least important line that is written.
    #[schemars(extend("default" = "info", "x-cost" = "`debug` and `trace` may write prompts and tool output"))]
    pub level: LogLevel,
    /// Its form.
    #[schemars(extend("default" = "json"))]
    pub format: LogFormat,
}
