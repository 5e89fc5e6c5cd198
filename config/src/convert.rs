//! From settings to everyone's own options. Everything was checked before: nothing here can fail.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ambit_core::money::{Money, Price};
use ambit_core::signal::DependencyKind;
use ambit_model_gateway::{
    ChainOptions, DialectOptions, GatewayOptions, HOLD_DEFAULT, ProviderOptions, ScriptedOptions, Streaming, TargetOptions, WallClock,
};
use ambit_resilience::{BulkheadOptions, RetryOptions};
use ambit_store::{Clock, StoreOptions};
use ambit_tool_executor::{
    BuiltinFunction, BuiltinOptions, ExecutorOptions, HostMapping, HttpOptions, HttpToolOptions, McpAllow, McpEndpoint, McpOptions,
    PolicyOverride, RetryDelays, ToolKind as ExecutorToolKind, ToolOptions, ToolPolicy, Treat as ExecutorTreat,
};
use secrecy::SecretString;

use crate::config::Config;
use crate::demo;
use crate::settings::{self, Dialect, Effect, Mcp, McpTool, Method, Model, Retry, Tool, ToolBulkhead, ToolKind, Treat, Trust};
use crate::value::{Period, Secret, Size};

/// What a running process knows and no file can say.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Folder into which [`demo::write_sample`] wrote the sample; used if [`Config::needs_sample`].
    pub sample_root: PathBuf,
    /// Where the demo service listens, if it was started ([`Config::needs_demo_service`]).
    pub demo_service: Option<SocketAddr>,
    /// Where the jitter of back-offs starts.
    pub seed: u64,
}

/// Making a connection for a tool, where nothing else is said.
const CONNECT: Duration = Duration::from_secs(5);
/// Calls at once of reads and of others, where nothing else is said.
const PERMITS_READ: u32 = 32;
/// Waits of MCP calls, which have no setting of their own.
const MCP_DELAYS: RetryDelays =
    RetryDelays { base: Duration::from_millis(200), min_delay: Duration::from_millis(100), max_delay: Duration::from_secs(5) };

impl Config {
    /// True if a tool reads the shipped sample, which has to be written to a folder first.
    #[must_use]
    pub fn needs_sample(&self) -> bool {
        self.settings.tools.values().any(|tool| tool.root.as_deref().is_some_and(|root| root.starts_with(demo::SAMPLE)))
    }

    /// True if the demo service has to be started: it is wanted, and a tool talks to it.
    #[must_use]
    pub fn needs_demo_service(&self) -> bool {
        self.settings.server.demo_service && self.settings.tools.values().any(Tool::is_demo)
    }

    /// What the model gateway is built from.
    #[must_use]
    pub fn gateway_options(&self, clock: WallClock, seed: u64) -> GatewayOptions {
        GatewayOptions {
            targets: self.settings.models.iter().map(|(name, model)| self.target(name, model)).collect(),
            chains: self
                .settings
                .chains
                .iter()
                .map(|(name, chain)| ChainOptions {
                    name: name.as_str().into(),
                    targets: chain.targets.iter().map(|t| t.as_str().into()).collect(),
                })
                .collect(),
            clock,
            seed,
            hold: HOLD_DEFAULT,
        }
    }

    /// What the tool executor is built from. Tools of a demo service that is off are left out.
    #[must_use]
    pub fn executor_options(&self, surroundings: &Surroundings) -> ExecutorOptions {
        let off = |tool: &Tool| tool.is_demo() && !self.settings.server.demo_service;
        ExecutorOptions {
            tools: self
                .settings
                .tools
                .iter()
                .filter(|(_, tool)| !off(tool))
                .map(|(name, tool)| (name.as_str().into(), self.tool(name, tool, surroundings)))
                .collect(),
            mcp: self.settings.mcp.iter().map(|(name, server)| (name.as_str().into(), self.server(server))).collect(),
            http: self.http(surroundings),
            seed: surroundings.seed,
        }
    }

    /// What the store is built from.
    #[must_use]
    pub fn store_options(&self, node: impl Into<Arc<str>>, clock: Clock) -> StoreOptions {
        // The url was checked; its own text is a path that will not open, rather than a default that would.
        let path = StoreOptions::path_of_url(&self.settings.store.url).unwrap_or_else(|_| PathBuf::from(&self.settings.store.url));
        StoreOptions::new(path, node, clock)
    }

    fn target(&self, name: &str, model: &Model) -> TargetOptions {
        let dialect = match model.spoken() {
            Dialect::OpenaiChat => DialectOptions::OpenAiChat(provider(model)),
            Dialect::OpenaiResponses => DialectOptions::OpenAiResponses(provider(model)),
            Dialect::Anthropic => DialectOptions::Anthropic(provider(model)),
            Dialect::Scripted => {
                let (source, text) = self.files.scripts.get(name).cloned().unwrap_or_default();
                DialectOptions::Scripted(ScriptedOptions { source, text })
            }
        };
        let bulkhead = &model.bulkhead;
        TargetOptions {
            name: name.into(),
            dialect,
            model: model.model.as_deref().unwrap_or(model.spoken().as_str()).into(),
            context_window: model.context_window.map(u64::from),
            max_output_tokens: model.max_output_tokens.and_then(NonZeroU32::new),
            price: model.price.as_ref().map(price).unwrap_or_default(),
            request: model.request.0,
            attempt: model.attempt.0,
            chunk: model.chunk.0,
            connect: model.connecting().0,
            idle: model.idle.0,
            min_useful: model.min_useful.0,
            margin: self.settings.http.margin.0,
            retry: RetryOptions {
                attempts: at_least_one(model.attempts),
                base: model.retry.base.0,
                min_delay: model.retry.min_delay.0,
                max_delay: model.retry.max_delay.0,
            },
            bulkhead: BulkheadOptions {
                pool: name.into(),
                kind: DependencyKind::Model,
                permits: at_least_one(bulkhead.permits),
                queue: self.queue(bulkhead.queue, bulkhead.permits),
                fresh_wait: bulkhead.fresh_wait.0,
                continuing_wait: bulkhead.continuing_wait.0,
            },
        }
    }

    /// Room for every session that has no permit, where nothing else is said.
    fn queue(&self, said: Option<u32>, permits: u32) -> u32 {
        said.unwrap_or_else(|| self.settings.server.max_in_flight.saturating_sub(permits))
    }

    fn tool(&self, name: &str, tool: &Tool, surroundings: &Surroundings) -> ToolOptions {
        let kind = match tool.kind {
            ToolKind::Http => ExecutorToolKind::Http(HttpToolOptions {
                method: tool.method.unwrap_or(Method::Get).as_str().to_owned(),
                url: tool.url.clone().unwrap_or_default(),
                headers: secrets(&tool.headers),
                key_header: tool.idempotency.as_ref().map(|idempotency| idempotency.header.clone()),
                schema: self.files.schemas.get(name).cloned().unwrap_or_default(),
            }),
            ToolKind::Builtin => ExecutorToolKind::Builtin(BuiltinOptions {
                function: match tool.builtin.as_deref().unwrap_or(name) {
                    "read_file" => BuiltinFunction::ReadFile,
                    _ => BuiltinFunction::ListFiles,
                },
                root: root(tool.root.as_deref().unwrap_or_default(), &surroundings.sample_root),
            }),
        };
        let bulkhead = ToolBulkhead { permits: Some(tool.permits()), ..tool.bulkhead.clone() };
        let policy = Policy {
            effect: tool.leaves(),
            timeout: tool.timeout,
            attempt: tool.attempting(),
            attempts: tool.attempts_max(),
            min_useful: tool.min_useful,
            retry: delays(&tool.retry),
            bulkhead: &bulkhead,
            output_cap: tool.output_cap,
            repeats: tool.repeats,
            trust: tool.trust,
            egress: tool.egress,
        };
        ToolOptions { description: tool.description.as_deref().map(Into::into), policy: self.policy(policy), bind: BTreeMap::new(), kind }
    }

    fn server(&self, server: &Mcp) -> McpOptions {
        let endpoint = match &server.url {
            Some(url) => McpEndpoint::Http { url: url.clone(), headers: secrets(&server.headers) },
            None => McpEndpoint::Stdio {
                command: server.command.clone().unwrap_or_default(),
                args: server.args.clone(),
                env: secrets(&server.env).into_iter().filter(|(name, _)| name != "PATH").collect(),
                path: server
                    .env
                    .get("PATH")
                    .map_or_else(|| self.path.clone(), |path| secrecy::ExposeSecret::expose_secret(&path.0).to_owned()),
                folder: None,
            },
        };
        let policy = Policy {
            effect: Effect::Write,
            timeout: server.timeout,
            attempt: server.attempt,
            attempts: 1,
            min_useful: server.min_useful,
            retry: MCP_DELAYS,
            bulkhead: &server.bulkhead,
            output_cap: None,
            repeats: ambit_core::limit::REPEATS_DEFAULT,
            trust: server.trust,
            egress: false,
        };
        McpOptions {
            endpoint,
            allow: if server.allow.iter().any(|tool| tool == "*") {
                McpAllow::All
            } else {
                McpAllow::Only(server.allow.iter().map(|tool| tool.as_str().into()).collect())
            },
            policy: self.policy(policy),
            overrides: server.tools.iter().map(|(tool, known)| (tool.as_str().into(), overridden(known))).collect(),
            start_timeout: server.start.0,
            idle: server.idle.0,
        }
    }

    fn policy(&self, policy: Policy<'_>) -> ToolPolicy {
        let permits = policy.bulkhead.permits.unwrap_or(PERMITS_READ);
        ToolPolicy {
            effect: effect(policy.effect),
            roles: Vec::new(),
            tenants: Vec::new(),
            timeout: policy.timeout.0,
            attempt: policy.attempt.0,
            attempts: at_least_one(policy.attempts),
            min_useful: policy.min_useful.0,
            retry: policy.retry,
            permits: at_least_one(permits),
            queue: self.queue(policy.bulkhead.queue, permits),
            continuing_wait: policy.bulkhead.continuing_wait.0,
            output_cap: cap(policy.output_cap.unwrap_or(self.settings.limits.tool_output)),
            repeats: policy.repeats,
            trusted: policy.trust == Trust::Trusted,
            egress: policy.egress,
        }
    }

    fn http(&self, surroundings: &Surroundings) -> HttpOptions {
        let http = &self.settings.http;
        let mapped = http.hosts.iter().filter_map(|(name, host)| Some((name.clone(), mapping(host)?)));
        let demo = surroundings.demo_service.map(|address| {
            // Ambit's own listener: loopback, and not to be refused for it.
            (demo::SERVICE_HOST.to_owned(), HostMapping { address, treat: ExecutorTreat::Public })
        });
        HttpOptions {
            allow: http.allow.iter().filter_map(|rule| rule.parse().ok()).collect(),
            hosts: mapped.chain(demo).collect(),
            tool_body: cap(http.tool_body),
            margin: http.margin.0,
            connect: http.connect.map_or(CONNECT, |connect| connect.0),
            idle: http.idle.0,
        }
    }
}

/// What a tool and an MCP server have in common.
struct Policy<'a> {
    effect: Effect,
    timeout: Period,
    attempt: Period,
    attempts: u32,
    min_useful: Period,
    retry: RetryDelays,
    bulkhead: &'a ToolBulkhead,
    output_cap: Option<Size>,
    repeats: u32,
    trust: Trust,
    egress: bool,
}

/// Prices as providers tell them (dollars a million tokens) as prices a token.
pub(crate) fn price(price: &settings::Price) -> Price {
    let token = |million: f64| Money::from_usd(million / 1e6);
    Price { input: token(price.input), output: token(price.output), cached: token(price.cached.unwrap_or(price.input)) }
}

fn overridden(known: &McpTool) -> PolicyOverride {
    PolicyOverride {
        effect: known.effect.map(effect),
        roles: None,
        tenants: None,
        timeout: known.timeout.map(|timeout| timeout.0),
        attempt: known.attempt.map(|attempt| attempt.0),
        attempts: Some(at_least_one(known.attempts)),
        output_cap: known.output_cap.map(cap),
        repeats: Some(known.repeats),
        trusted: known.trust.map(|trust| trust == Trust::Trusted),
        egress: Some(known.egress),
    }
}

fn effect(effect: Effect) -> ambit_core::Effect {
    match effect {
        Effect::Read => ambit_core::Effect::Read,
        Effect::Write => ambit_core::Effect::Write,
        Effect::Irreversible => ambit_core::Effect::Irreversible,
    }
}

fn delays(retry: &Retry) -> RetryDelays {
    RetryDelays { base: retry.base.0, min_delay: retry.min_delay.0, max_delay: retry.max_delay.0 }
}

fn mapping(host: &settings::Host) -> Option<HostMapping> {
    let treat = match host.treat {
        Treat::AsIs => ExecutorTreat::AsIs,
        Treat::Public => ExecutorTreat::Public,
    };
    Some(HostMapping { address: host.address.parse().ok()?, treat })
}

fn root(said: &str, sample_root: &Path) -> PathBuf {
    said.strip_prefix(demo::SAMPLE).map_or_else(|| PathBuf::from(said), |below| sample_root.join(below))
}

fn provider(model: &Model) -> ProviderOptions {
    ProviderOptions {
        base_urls: model.base_url.as_ref().map(|urls| urls.0.clone()).unwrap_or_default(),
        api_key: model.api_key.as_ref().map(|key| key.0.clone()),
        headers: secrets(&model.headers),
        streaming: match model.stream {
            settings::Stream::Always => Streaming::Always,
            settings::Stream::WhenHeard => Streaming::WhenHeard,
        },
        sse_line: length(model.sse_line),
        response: length(model.response),
    }
}

fn secrets(of: &BTreeMap<String, Secret>) -> Vec<(String, SecretString)> {
    of.iter().map(|(name, secret)| (name.clone(), secret.0.clone())).collect()
}

fn at_least_one(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}

fn length(size: Size) -> usize {
    usize::try_from(size.bytes()).unwrap_or(usize::MAX)
}

fn cap(size: Size) -> NonZeroUsize {
    NonZeroUsize::new(length(size)).unwrap_or(NonZeroUsize::MIN)
}
