//! The first record of a journal: all that a replay needs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::id::{Body, Digest, SessionId};
use crate::limit::Limits;
use crate::money::Price;
use crate::trace::TraceContext;
use crate::verdict::Status;

/// Version of the machine's behaviour. A change that would replay differently gets the next number, never a used one.
pub const MACHINE_VERSION: u32 = 1;

/// Who asked: fixed at authentication, never taken from a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// Stable identifier.
    pub id: Arc<str>,
    /// Who pays and is kept apart.
    pub tenant: Arc<str>,
    /// What it may do.
    pub roles: Vec<Arc<str>>,
}

/// What to do when a limit comes near.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// Use the reserve for a last call without tools.
    #[default]
    Answer,
    /// Stop with what there is.
    Stop,
}

/// What happens to calls that could act on untrusted content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaintRule {
    /// A person decides.
    Approve,
    /// They are refused `TAINTED`.
    #[default]
    Refuse,
    /// They go.
    Allow,
}

/// When and what to undo after the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saga {
    /// The statuses on which to compensate.
    pub on: Vec<Status>,
    /// Tools that belong together: a group that is complete is left alone. Writes outside any group are compensated.
    #[serde(default)]
    pub groups: Vec<Vec<Arc<str>>>,
}

/// One tool as it is offered in this session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// The name the model sees.
    pub name: Arc<str>,
    /// Digest of its schema as offered.
    pub schema: Digest,
    /// What it does to the world.
    pub effect: Effect,
}

/// Most that a single model call may be lent, from the chain's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCeiling {
    /// Requests on the wire: attempts of every target of the chain, and one hedge where there is one.
    pub attempts: u32,
    /// The smallest context window of the chain, in tokens; `None` where nobody said.
    pub context_window: Option<u64>,
    /// The dearest price of the chain.
    pub price: Price,
    /// Characters of the tools' declarations, sent with every call.
    pub tools_chars: u32,
}

/// A session as it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Version of the machine that made the record.
    pub machine: u32,
    /// Which session.
    pub session: SessionId,
    /// Name of the agent.
    pub agent: Arc<str>,
    /// Content hash of the agent's definition: its version.
    pub agent_version: Digest,
    /// Who asked.
    pub principal: Principal,
    /// The limits in force, already tightened by agent and request.
    pub limits: Limits,
    /// What to do when one comes near.
    pub on_limit: OnLimit,
    /// What untrusted content forbids.
    pub taint: TaintRule,
    /// True if the session begins tainted (it continues a tainted one, or quotes foreign history).
    pub tainted: bool,
    /// What to undo, if the agent says so.
    pub saga: Option<Saga>,
    /// True if passages are to be retrieved first.
    pub retrieval: bool,
    /// The agent's instructions.
    pub instructions: Body,
    /// Earlier inputs and answers that the session continues, then the input itself; at least one.
    pub input: Vec<InputItem>,
    /// The session that this one continues, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<Continues>,
    /// The targets that may answer, in the order in which they are asked. For people; the machine never reads it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<NamedTarget>,
    /// What may be called.
    pub tools: Vec<OfferedTool>,
    /// Most that one model call may be lent.
    pub ceiling: CallCeiling,
    /// Wall time of the start, milliseconds since 1970. For people; the machine never reads it.
    pub wall_ms: u64,
    /// Revision of the configuration that it runs under.
    pub config_revision: Arc<str>,
    /// Its place in a distributed trace; journals of before there were traces have none. The machine never reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// What a session goes on from. The words themselves stand at the front of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continues {
    /// The earlier session.
    pub previous: SessionId,
    /// Pairs of earlier inputs and answer that found no room.
    pub left_out: u32,
}

/// One configured way to a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedTarget {
    /// The target's name.
    pub name: Arc<str>,
    /// The model, as its provider calls it.
    pub model: Arc<str>,
}

/// Who said a piece of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The caller.
    User,
    /// The agent, in a session that this one continues.
    Agent,
}

/// One piece of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputItem {
    /// Who said it.
    pub speaker: Speaker,
    /// What.
    pub body: Body,
}
