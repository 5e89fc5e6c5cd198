//! One configuration as sessions use it. A session takes it along when it begins and keeps it to its end, whatever is
//! configured meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use ambit_core::session::Principal;
use ambit_model_gateway::Gateway;
use ambit_tool_executor::{Executor, Offer};

use crate::agent::Agent;
use crate::driver::Equipment;
use crate::error::StartError;
use crate::request::SessionRequest;

/// Agents by name.
pub type Agents = BTreeMap<Arc<str>, Arc<Agent>>;

/// Agents, models and tools that belong together.
pub struct Setup {
    agents: Arc<Agents>,
    gateway: Arc<Gateway>,
    executor: Arc<Executor>,
    revision: Arc<str>,
}

impl Setup {
    /// Puts together what came from the configuration of this revision.
    #[must_use]
    pub fn new(revision: Arc<str>, agents: Vec<Agent>, gateway: Gateway, executor: Executor) -> Self {
        let agents = agents.into_iter().map(|agent| (agent.name.clone(), Arc::new(agent))).collect();
        Self { agents: Arc::new(agents), gateway: Arc::new(gateway), executor: Arc::new(executor), revision }
    }

    /// The agents.
    #[must_use]
    pub const fn agents(&self) -> &Arc<Agents> {
        &self.agents
    }

    /// What calls the models.
    #[must_use]
    pub const fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// What runs the tools.
    #[must_use]
    pub const fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Revision of the configuration, kept with each session.
    #[must_use]
    pub const fn revision(&self) -> &Arc<str> {
        &self.revision
    }

    /// Every tool and MCP server that an agent names.
    pub(crate) fn tools(&self) -> Vec<Arc<str>> {
        self.agents.values().flat_map(|agent| agent.tools.clone()).collect()
    }

    /// What a new session is given: the tools that the request leaves of the agent's.
    pub(crate) fn equip(&self, agent: &Arc<Agent>, request: &SessionRequest) -> Result<Equipment, StartError> {
        let chosen = |name: &Arc<str>| {
            request.tools_allow.as_ref().is_none_or(|allow| allow.iter().any(|tool| **tool == **name))
                && !request.tools_deny.iter().any(|tool| **tool == **name)
        };
        let full = self.offer(agent, request.principal.clone());
        let known: Vec<Arc<str>> = full.declarations().map(|tool| tool.name).collect();
        let wished = request.tools_allow.iter().flatten().chain(&request.tools_deny);
        // What the agent's definition names may be named, also while its server is not there.
        let named = |name: &&String| known.iter().chain(&agent.tools).any(|tool| **tool == ***name);
        let names: Vec<String> = wished.filter(|name| !named(name)).cloned().collect();
        if !names.is_empty() {
            return Err(StartError::UnknownTools { names, known: known.iter().map(ToString::to_string).collect() });
        }
        let offer = full.only(|name| known.iter().any(|tool| **tool == *name && chosen(tool)));
        self.equipment(agent, offer)
    }

    /// All tools of an agent that are known by now.
    pub(crate) fn offer(&self, agent: &Agent, principal: Principal) -> Offer {
        self.executor.offer(&agent.tools, principal)
    }

    pub(crate) fn equipment(&self, agent: &Arc<Agent>, offer: Offer) -> Result<Equipment, StartError> {
        let chain = self.gateway.chain(&agent.chain).cloned();
        let chain = chain.ok_or_else(|| StartError::NoChain { agent: agent.name.to_string(), chain: agent.chain.to_string() })?;
        Ok(Equipment::new(agent.clone(), chain, self.executor.clone(), offer))
    }

    /// A chain for a session that will not call a model any more.
    pub(crate) fn any_chain(&self) -> Arc<str> {
        self.agents.values().next().map_or_else(|| "default".into(), |agent| agent.chain.clone())
    }
}
