//! All configured targets and chains, built once from options.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ambit_core::signal::SignalSink;
use ambit_resilience::Bulkheads;

use crate::chain::Chain;
use crate::dialect::Dialect;
use crate::dialect::scripted::Script;
use crate::dialect::{anthropic, openai_chat, openai_responses};
use crate::error::GatewayError;
use crate::options::{DialectOptions, GatewayOptions, TargetOptions};
use crate::target::Target;

/// What we call ourselves.
const USER_AGENT: &str = concat!("ambit/", env!("CARGO_PKG_VERSION"));

/// All configured targets and chains.
#[derive(Debug)]
pub struct Gateway {
    targets: BTreeMap<Arc<str>, Arc<Target>>,
    chains: BTreeMap<Arc<str>, Arc<Chain>>,
    bulkheads: Bulkheads,
    clients: Clients,
}

/// How full the bulkhead of one target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolState {
    /// Its name.
    pub pool: Arc<str>,
    /// Calls allowed at once.
    pub permits: u32,
    /// Calls that are running.
    pub in_use: u32,
    /// Of these, how many sleep between two attempts.
    pub sleeping: u32,
    /// Calls that wait.
    pub queued: u32,
}

impl Gateway {
    /// Builds every target and chain; nothing is sent.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn new(options: GatewayOptions, sink: Arc<dyn SignalSink>) -> Result<Self, GatewayError> {
        Self::built(options, None, sink)
    }

    /// Builds the gateway that takes this one's place. A target of the same name keeps its bulkhead, with every permit that
    /// is out, and what was learned of its tokens; connections are kept. This one goes on for sessions that began with it.
    /// Once the new one is in force, [`enforce`](Self::enforce) gives the bulkheads their new sizes.
    ///
    /// # Errors
    /// The first setting that cannot be used; nothing has changed then.
    pub fn succeeded_by(&self, options: GatewayOptions, sink: Arc<dyn SignalSink>) -> Result<Self, GatewayError> {
        Self::built(options, Some(self), sink)
    }

    fn built(options: GatewayOptions, before: Option<&Self>, sink: Arc<dyn SignalSink>) -> Result<Self, GatewayError> {
        let mut clients = before.map(|before| before.clients.clone()).unwrap_or_default();
        clients.keep(&options.targets);
        let bulkheads = before.map_or_else(|| Bulkheads::new(Arc::clone(&sink)), |before| before.bulkheads.successor());
        let mut targets = BTreeMap::new();
        for (place, target) in options.targets.into_iter().enumerate() {
            let name = Arc::clone(&target.name);
            let clock = options.clock;
            let dialect = match &target.dialect {
                DialectOptions::OpenAiChat(provider) => {
                    Dialect::OpenAiChat(openai_chat::Client::new(&target, provider, clients.of(&target)?, clock)?)
                }
                DialectOptions::OpenAiResponses(provider) => {
                    Dialect::OpenAiResponses(openai_responses::Client::new(&target, provider, clients.of(&target)?, clock)?)
                }
                DialectOptions::Anthropic(provider) => {
                    Dialect::Anthropic(anthropic::Client::new(&target, provider, clients.of(&target)?, clock)?)
                }
                DialectOptions::Scripted(script) => Dialect::Scripted(
                    Script::parse(&script.source, &script.text)
                        .map_err(|error| GatewayError::Script { target: name.to_string(), error })?,
                ),
            };
            // Targets that fail together must not come back together.
            let seed = options.seed.wrapping_add(place as u64);
            let bulkhead = bulkheads.open(target.bulkhead.clone());
            let former = before.and_then(|before| before.targets.get(&name));
            let target = Target::new(target, dialect, options.hold, seed, bulkhead, Arc::clone(&sink));
            let target = Arc::new(match former {
                Some(former) => target.learned_from(former),
                None => target,
            });
            if targets.insert(Arc::clone(&name), target).is_some() {
                return Err(GatewayError::Duplicate { what: "target", name: name.to_string() });
            }
        }
        let mut chains = BTreeMap::new();
        for chain in options.chains {
            let [target] = &chain.targets[..] else {
                return Err(GatewayError::ChainLength { chain: chain.name.to_string(), targets: chain.targets.len() });
            };
            let Some(target) = targets.get(target) else {
                let known = targets.keys().map(|name| &**name).collect::<Vec<_>>().join(", ");
                return Err(GatewayError::UnknownTarget { chain: chain.name.to_string(), target: target.to_string(), known });
            };
            let name = chain.name;
            let chain = Arc::new(Chain::new(Arc::clone(&name), Arc::clone(target)));
            if chains.insert(Arc::clone(&name), chain).is_some() {
                return Err(GatewayError::Duplicate { what: "chain", name: name.to_string() });
            }
        }
        Ok(Self { targets, chains, bulkheads, clients })
    }

    /// Gives every bulkhead the size that its target is configured with; see [`succeeded_by`](Self::succeeded_by).
    pub fn enforce(&self) {
        self.bulkheads.enforce();
    }

    /// The chain of this name.
    #[must_use]
    pub fn chain(&self, name: &str) -> Option<&Arc<Chain>> {
        self.chains.get(name)
    }

    /// All chains, by name.
    pub fn chains(&self) -> impl Iterator<Item = &Arc<Chain>> {
        self.chains.values()
    }

    /// How full each bulkhead is, by target; those of former targets as long as they are in use.
    pub fn pools(&self) -> impl Iterator<Item = PoolState> + use<> {
        self.bulkheads.all().into_iter().map(|bulkhead| PoolState {
            pool: Arc::clone(bulkhead.pool()),
            permits: bulkhead.permits(),
            in_use: bulkhead.in_use(),
            sleeping: bulkhead.sleeping(),
            queued: bulkhead.queued(),
        })
    }

    /// True if no permit is out and nobody waits for one.
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        self.bulkheads.is_quiescent()
    }
}

/// One HTTP client for all targets that agree in what only a client can be told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clients(BTreeMap<(Duration, Duration), reqwest::Client>);

impl Clients {
    /// Forgets those that none of these targets needs.
    fn keep(&mut self, targets: &[TargetOptions]) {
        self.0.retain(|key, _| targets.iter().any(|target| (target.connect, target.idle) == *key));
    }

    pub(crate) fn of(&mut self, target: &TargetOptions) -> Result<reqwest::Client, GatewayError> {
        let key = (target.connect, target.idle);
        if let Some(client) = self.0.get(&key) {
            return Ok(client.clone());
        }
        let client = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .connect_timeout(target.connect)
            .pool_idle_timeout(target.idle)
            .tcp_nodelay(true)
            // Everything that would act behind the policy's back is off: repeats, redirects, proxies from outside.
            .retry(reqwest::retry::never())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(GatewayError::Client)?;
        self.0.insert(key, client.clone());
        Ok(client)
    }
}
