//! The local driver: a task a session, which does what the machine decides.

pub(crate) mod live;
pub(crate) mod local;
pub(crate) mod recovery;
pub(crate) mod steps;
pub(crate) mod text;

use std::collections::HashSet;
use std::sync::Arc;

use ambit_model_gateway::{Chain, ToolDeclaration, Tools};
use ambit_store::Store;
use ambit_tool_executor::{Executor, Offer};
use arc_swap::ArcSwap;

use crate::agent::Agent;
use crate::driver::live::Timeline;
use crate::setup::Setup;

/// What all sessions of a process share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) timeline: Arc<Timeline>,
    /// What sessions begin with from now on.
    pub(crate) setup: ArcSwap<Setup>,
}

/// An agent's surroundings for one session: whom to ask and what may be called.
pub(crate) struct Equipment {
    pub(crate) agent: Arc<Agent>,
    pub(crate) chain: Arc<Chain>,
    pub(crate) executor: Arc<Executor>,
    pub(crate) offer: Offer,
    pub(crate) tools: Arc<Tools>,
    pub(crate) trusted: HashSet<Arc<str>>,
}

impl Equipment {
    pub(crate) fn new(agent: Arc<Agent>, chain: Arc<Chain>, executor: Arc<Executor>, offer: Offer) -> Self {
        let mut trusted = HashSet::new();
        let mut declared = Vec::new();
        for tool in offer.declarations() {
            if tool.class.trusted {
                trusted.insert(tool.name.clone());
            }
            declared.push(ToolDeclaration { name: tool.name, description: tool.description, schema: tool.schema });
        }
        Self { agent, chain, executor, offer, tools: Arc::new(Tools::new(declared)), trusted }
    }
}
