//! Which tools there are: each checked once, with the policy that guards it and the way it is reached.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use ambit_core::session::CallClass;
use ambit_core::signal::{DependencyKind, Peer, SignalSink};
use ambit_core::{Digest, Effect};
use ambit_resilience::{Bulkhead, BulkheadOptions, Bulkheads, Policy, PolicyOptions, RetryOptions};
use serde_json::Value;

use crate::builtin::Builtin;
use crate::error::{ExecutorError, ToolRefusal};
use crate::http::{Http, HttpTool};
use crate::mcp::{Listed, McpTool, Server, effect, offered_name};
use crate::options::{
    Binding, ExecutorOptions, HttpOptions, McpAllow, McpOptions, PolicyOverride, TOOLS_MAX, ToolKind, ToolOptions, ToolPolicy,
};
use crate::output::clean::clean;
use crate::prepare::json::Json;
use crate::prepare::schema::{Schema, property, without};
use crate::prepare::{Declaration, digest};

/// Longest name that providers accept, in characters.
const NAME_CHARS_MAX: usize = 64;
/// Longest description that a server may give its tool, in characters; it is sent with every model call.
const DESCRIPTION_CHARS_MAX: usize = 4_096;

/// One tool, ready to be called.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) declaration: Declaration,
    /// The server's own name for it, which some models use.
    pub(crate) alias: Option<Arc<str>>,
    pub(crate) schema: Schema,
    pub(crate) bind: Vec<(Arc<str>, Binding)>,
    pub(crate) options: ToolPolicy,
    pub(crate) policy: Policy,
    pub(crate) transport: Transport,
}

/// How a tool is reached.
#[derive(Debug)]
pub(crate) enum Transport {
    Http(HttpTool),
    Builtin(Builtin),
    Mcp(McpTool),
}

impl Transport {
    fn peer(&self) -> Peer {
        match self {
            Self::Http(tool) => tool.peer(),
            Self::Builtin(_) => Peer::Local,
            Self::Mcp(tool) => tool.peer(),
        }
    }
}

/// The tools of one server.
type Entries = Arc<[Arc<Entry>]>;

/// All tools, those of the configuration and those that servers have listed so far.
pub(crate) struct Registry {
    tools: BTreeMap<Arc<str>, Arc<Entry>>,
    servers: BTreeMap<Arc<str>, Arc<Server>>,
    /// The tools of each server that has listed any, in its order.
    listed: Mutex<BTreeMap<Arc<str>, Entries>>,
    bulkheads: Bulkheads,
    /// Servers of former registries: they are ended when no call can reach them any more.
    retired: Mutex<Vec<Arc<Server>>>,
    http: Arc<Http>,
    http_options: HttpOptions,
    sink: Arc<dyn SignalSink>,
    margin: std::time::Duration,
    seed: u64,
}

impl Registry {
    /// Checks everything that can be checked without asking anybody. One that takes the place of another goes on with its
    /// bulkheads, its connections, and the servers about which nothing has changed.
    pub(crate) fn new(options: ExecutorOptions, before: Option<&Self>, sink: Arc<dyn SignalSink>) -> Result<Self, ExecutorError> {
        let http = match before.filter(|before| before.http_options == options.http) {
            Some(before) => Arc::clone(&before.http),
            None => Arc::new(Http::new(&options.http)?),
        };
        let mut this = Self {
            tools: BTreeMap::new(),
            servers: BTreeMap::new(),
            listed: Mutex::default(),
            bulkheads: before.map_or_else(|| Bulkheads::new(Arc::clone(&sink)), |before| before.bulkheads.successor()),
            retired: Mutex::default(),
            http,
            http_options: options.http.clone(),
            sink,
            margin: options.http.margin,
            seed: options.seed,
        };
        let mut refusals = Vec::new();
        if options.tools.len() > TOOLS_MAX {
            refusals.push(ToolRefusal { tool: "*".into(), reason: format!("{} tools, more than {TOOLS_MAX}", options.tools.len()) });
        }
        for (name, tool) in options.tools {
            match this.configured(&name, tool) {
                Ok(entry) => {
                    this.tools.insert(name, Arc::new(entry));
                }
                Err(reason) => refusals.push(ToolRefusal { tool: name, reason }),
            }
        }
        for (name, server) in options.mcp {
            if this.tools.contains_key(&name) {
                refusals.push(ToolRefusal { tool: Arc::clone(&name), reason: "a tool and an MCP server have the same name".into() });
            }
            let server = match before.and_then(|before| before.unchanged(&name, &server, &this.http)) {
                Some(known) => known,
                None => Server::new(Arc::clone(&name), server, Arc::clone(&this.http), Arc::clone(&this.sink)),
            };
            this.servers.insert(name, server);
        }
        if !refusals.is_empty() {
            return Err(ExecutorError::Refused(refusals));
        }
        for server in this.servers.values() {
            if let Some(listed) = server.listed() {
                this.take(server, &listed);
            }
        }
        if let Some(before) = before {
            this.retired = Mutex::new(before.not_kept(&this));
        }
        Ok(this)
    }

    /// The server of this name, if it may go on as it is.
    fn unchanged(&self, name: &str, options: &McpOptions, http: &Arc<Http>) -> Option<Arc<Server>> {
        self.servers.get(name).filter(|server| server.options.is_same(options) && server.goes_out_by(http)).cloned()
    }

    /// The servers that a successor has no use for.
    fn not_kept(&self, successor: &Self) -> Vec<Arc<Server>> {
        let is_kept = |server: &&Arc<Server>| successor.servers.values().any(|kept| Arc::ptr_eq(kept, server));
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        self.servers.values().filter(|server| !is_kept(server)).chain(retired.iter()).cloned().collect()
    }

    /// The retired servers that nobody else has any more: neither a former registry nor a session that was offered a tool.
    pub(crate) fn take_unused(&self) -> Vec<Arc<Server>> {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.extract_if(.., |server| Arc::strong_count(server) == 1).collect()
    }

    /// All retired servers, used or not.
    pub(crate) fn take_retired(&self) -> Vec<Arc<Server>> {
        std::mem::take(&mut *self.retired.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives the bulkheads the sizes that are configured here.
    pub(crate) fn enforce(&self) {
        self.bulkheads.enforce();
    }

    /// The tool of this name, if it is known.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<Entry>> {
        if let Some(entry) = self.tools.get(name) {
            return Some(Arc::clone(entry));
        }
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.values().flat_map(|tools| tools.iter()).find(|entry| &*entry.declaration.name == name).cloned()
    }

    /// The tools that a name stands for: itself, or all of a server.
    pub(crate) fn named(&self, name: &str) -> Vec<Arc<Entry>> {
        if let Some(tools) = self.listed.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return tools.to_vec();
        }
        self.find(name).into_iter().collect()
    }

    /// The servers that have to be asked before these names are known.
    pub(crate) fn unlisted(&self, names: &[Arc<str>]) -> Vec<Arc<Server>> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = |server: &str| {
            names.iter().any(|name| {
                &**name == server || name.strip_prefix(server).is_some_and(|rest| rest.starts_with("__")) || may_be_mangled(server, name)
            })
        };
        self.servers.iter().filter(|(name, _)| !listed.contains_key(*name) && wanted(name)).map(|(_, server)| Arc::clone(server)).collect()
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.servers.values()
    }

    /// How many tools of a server are offered.
    pub(crate) fn offered_of(&self, server: &str) -> usize {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).get(server).map_or(0, |tools| tools.len())
    }

    /// Every tool known by now.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        self.tools.values().chain(listed.values().flat_map(|tools| tools.iter())).cloned().collect()
    }

    pub(crate) fn bulkheads(&self) -> Vec<Bulkhead> {
        self.bulkheads.all()
    }

    pub(crate) fn http(&self) -> &Http {
        &self.http
    }

    /// Takes the tools of a server that has just been asked. Those that cannot be used are left out, with a line in
    /// the log that says why.
    pub(crate) fn take(&self, server: &Arc<Server>, listed: &[Listed]) {
        let mut known = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains_key(&server.name) {
            return;
        }
        let mut names: BTreeSet<Arc<str>> = self
            .tools
            .keys()
            .cloned()
            .chain(known.values().flat_map(|tools| tools.iter()).map(|e| Arc::clone(&e.declaration.name)))
            .collect();
        let mut pools = BTreeMap::new();
        let mut entries = Vec::new();
        if let McpAllow::Only(allowed) = &server.options.allow {
            for name in allowed.iter().filter(|name| !listed.iter().any(|Listed(tool)| *tool.name == ***name)) {
                tracing::warn!(server = %server.name, tool = %name, "an MCP server does not list a tool that is allowed");
            }
        }
        for Listed(tool) in listed {
            let is_allowed = match &server.options.allow {
                McpAllow::All => true,
                McpAllow::Only(allowed) => allowed.iter().any(|name| **name == *tool.name),
            };
            if !is_allowed {
                continue;
            }
            let entry = self.of_server(server, tool, &mut pools).and_then(|entry| {
                if names.insert(Arc::clone(&entry.declaration.name)) { Ok(entry) } else { Err("its name is taken".to_owned()) }
            });
            match entry {
                Ok(entry) => entries.push(Arc::new(entry)),
                Err(reason) => tracing::warn!(server = %server.name, tool = %tool.name, %reason, "a tool of an MCP server is not used"),
            }
        }
        known.insert(Arc::clone(&server.name), entries.into());
    }

    fn configured(&self, name: &Arc<str>, tool: ToolOptions) -> Result<Entry, String> {
        if !is_name(name) {
            return Err(format!("its name is not 1 to {NAME_CHARS_MAX} of the characters `A-Z a-z 0-9 _ -`"));
        }
        let (schema, description, transport) = match &tool.kind {
            ToolKind::Http(options) => {
                if !crate::http::describes_object(&options.schema) {
                    return Err("its schema does not describe an object".into());
                }
                let description = tool.description.clone().ok_or("it has no description for the model")?;
                (options.schema.clone(), description, Transport::Http(HttpTool::new(options, &self.http)?))
            }
            ToolKind::Builtin(options) => {
                let builtin = Builtin::new(options)?;
                if tool.policy.effect != Effect::Read {
                    return Err("it only reads, so its effect is `read`".into());
                }
                let description = tool.description.clone().unwrap_or_else(|| builtin.description().into());
                (builtin.schema(), description, Transport::Builtin(builtin))
            }
        };
        for bound in tool.bind.keys() {
            if property(&schema, bound).is_none() {
                return Err(format!("it binds the argument `{bound}`, which its schema does not describe"));
            }
        }
        let pool = self.pool(Arc::clone(name), &tool.policy);
        self.entry(Arc::clone(name), None, description, &schema, tool.bind.into_iter().collect(), tool.policy, transport, pool)
    }

    fn of_server(&self, server: &Arc<Server>, tool: &rmcp::model::Tool, pools: &mut BTreeMap<Effect, Bulkhead>) -> Result<Entry, String> {
        let known = PolicyOverride::default();
        let known = server.options.overrides.get(&*tool.name).unwrap_or(&known);
        let mut policy = server.options.policy.overridden_by(known);
        policy.effect = effect(policy.effect, tool.annotations.as_ref());
        let own: Arc<str> = clean(&tool.name).into();
        let description: String = clean(tool.description.as_deref().unwrap_or_default()).chars().take(DESCRIPTION_CHARS_MAX).collect();
        let schema = Value::Object((*tool.input_schema).clone());
        let pool = pools
            .entry(policy.effect)
            .or_insert_with(|| self.pool(format!("{}:{}", server.name, policy.effect.as_str()).into(), &policy))
            .clone();
        let transport = Transport::Mcp(McpTool {
            server: Arc::clone(server),
            name: tool.name.as_ref().into(),
            // One that cannot be compiled checks nothing; the tool is not worse for it than without any.
            output: tool.output_schema.as_ref().and_then(|schema| Schema::compile(&Value::Object((**schema).clone())).ok()),
        });
        self.entry(
            offered_name(&server.name, &tool.name).into(),
            Some(own),
            description.into(),
            &schema,
            Vec::new(),
            policy,
            transport,
            pool,
        )
    }

    #[expect(clippy::too_many_arguments, reason = "the one place where all that makes a tool comes together")]
    fn entry(
        &self,
        name: Arc<str>,
        alias: Option<Arc<str>>,
        description: Arc<str>,
        schema: &Value,
        bind: Vec<(Arc<str>, Binding)>,
        options: ToolPolicy,
        transport: Transport,
        pool: Bulkhead,
    ) -> Result<Entry, String> {
        let compiled = Schema::compile(schema)?;
        let shown = without(&cleaned(schema), &bind.iter().map(|(name, _)| &**name).collect::<Vec<_>>());
        let keyed = match &transport {
            Transport::Http(tool) => tool.is_keyed(),
            Transport::Builtin(_) | Transport::Mcp(_) => false,
        };
        // A write without a key is sent once, whatever else is said.
        let attempts = if options.effect.is_write() && !keyed { NonZeroU32::MIN } else { options.attempts };
        let class = CallClass {
            effect: options.effect,
            keyed,
            compensable: false,
            compensable_blind: false,
            compensation_keyed: false,
            reconcilable: false,
            trusted: options.trusted,
            egress: options.egress,
            repeats: options.repeats,
            attempts: attempts.get().min(ambit_resilience::ATTEMPTS_MAX),
        };
        let policy = Policy::new(
            PolicyOptions {
                kind: DependencyKind::Tool,
                dependency: Arc::clone(&name),
                target: Arc::clone(&name),
                peer: Arc::new(transport.peer()),
                request: options.timeout,
                attempt: options.attempt,
                margin: self.margin,
                min_useful: options.min_useful,
                retry: RetryOptions {
                    attempts,
                    base: options.retry.base,
                    min_delay: options.retry.min_delay,
                    max_delay: options.retry.max_delay,
                },
                seed: self.seed ^ first_bits(&digest(name.as_bytes())),
            },
            pool,
            Arc::clone(&self.sink),
        );
        let digest = digest(Json::from(&shown).to_canonical().as_bytes());
        let declaration = Declaration { name, description, schema: Arc::new(shown), digest, class };
        Ok(Entry { declaration, alias, schema: compiled, bind, options, policy, transport })
    }

    fn pool(&self, name: Arc<str>, policy: &ToolPolicy) -> Bulkhead {
        self.bulkheads.open(BulkheadOptions {
            pool: name,
            kind: DependencyKind::Tool,
            permits: policy.permits,
            queue: policy.queue,
            // Every tool call continues a session.
            fresh_wait: std::time::Duration::ZERO,
            continuing_wait: policy.continuing_wait,
        })
    }
}

/// True if a name that was offered once may be one of this server's, though it does not begin like it.
fn may_be_mangled(server: &str, name: &str) -> bool {
    let spoken: String = server.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect();
    spoken != server && name.starts_with(&spoken)
}

/// True for what every provider accepts as the name of a tool.
fn is_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// A schema as a model may read it: its words cleaned like any other text from outside.
fn cleaned(schema: &Value) -> Value {
    match schema {
        Value::String(text) => Value::String(clean(text).into_owned()),
        Value::Array(items) => Value::Array(items.iter().map(cleaned).collect()),
        Value::Object(members) => Value::Object(members.iter().map(|(key, value)| (key.clone(), cleaned(value))).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) => schema.clone(),
    }
}

fn first_bits(digest: &Digest) -> u64 {
    digest.0.iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}
