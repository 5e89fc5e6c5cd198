//! The writes that were sent, and what became of each: the books that the settlement closes.

use std::sync::Arc;

use crate::attempt::Allowance;
use crate::effect::Effect;
use crate::id::{Body, Step};
use crate::session::event::CallClass;
use crate::tool::ToolCode;

/// One write that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRecord {
    /// The step that sent it.
    pub step: Step,
    /// The turn that asked for it, from 1.
    pub turn: u32,
    /// The tool.
    pub tool: Arc<str>,
    /// Its arguments.
    pub arguments: Body,
    /// What the registry says about it.
    pub class: CallClass,
    /// Where it stands.
    pub state: EffectState,
    /// What it was lent, until it answered.
    pub(super) allowance: Allowance,
    /// Place in the order in which writes were completed.
    pub(super) completed: u32,
    /// True once it was asked again after a crash: "nothing was sent" then speaks of the second time only.
    pub(super) again: bool,
    /// True once the downstream was asked whether it took effect; it is not asked twice.
    pub(super) reconciled: bool,
    /// True if the settlement decided that it has to be undone.
    pub(super) undo: bool,
}

/// Where an effect stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectState {
    /// Sent; no answer yet.
    Sent,
    /// It took effect.
    Done,
    /// It certainly did not.
    Absent,
    /// Nobody knows.
    Unknown,
    /// The downstream is being asked.
    Reconciling(Step),
    /// It is being undone.
    Compensating(Step),
    /// It was undone.
    Compensated,
    /// A person has to look.
    Attention,
}

impl EffectState {
    /// True while an answer is awaited.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Sent | Self::Reconciling(_) | Self::Compensating(_) => true,
            Self::Done | Self::Absent | Self::Unknown | Self::Compensated | Self::Attention => false,
        }
    }
}

impl EffectRecord {
    /// True if it has to be undone and that has not been tried.
    pub(super) fn waits_to_be_undone(&self) -> bool {
        self.undo && matches!(self.state, EffectState::Done | EffectState::Unknown)
    }
}

/// All of them, in the order in which they were sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Effects {
    pub(super) records: Vec<EffectRecord>,
    completed: u32,
}

impl Effects {
    pub(super) fn sent(&mut self, mut record: EffectRecord) {
        record.state = EffectState::Sent;
        self.records.push(record);
    }

    pub(super) fn find(&self, step: Step) -> Option<usize> {
        self.records.iter().position(|record| record.step == step)
    }

    /// The first effect that stands at `state`: what a step of the settlement belongs to.
    pub(super) fn standing_at(&self, state: EffectState) -> Option<usize> {
        self.records.iter().position(|record| record.state == state)
    }

    /// Writes that were sent and have not answered.
    pub(super) fn awaited(&self) -> Vec<Step> {
        self.records.iter().filter(|record| record.state == EffectState::Sent).map(|record| record.step).collect()
    }

    /// Books the result of a sent write; `None` if it was not awaited.
    pub(super) fn finished(&mut self, step: Step, code: ToolCode) -> Option<Allowance> {
        let record = self.records.iter_mut().find(|record| record.step == step && record.state == EffectState::Sent)?;
        self.completed += 1;
        record.completed = self.completed;
        let answered = matches!(code, ToolCode::ToolError | ToolCode::UpstreamRejected);
        record.state = if code == ToolCode::OutcomeUnknown {
            EffectState::Unknown
        } else if !code.is_without_effect() {
            EffectState::Done
        } else if record.again && !answered {
            EffectState::Unknown
        } else {
            EffectState::Absent
        };
        Some(record.allowance)
    }

    /// True if `record` is final because an irreversible effect came after it.
    pub(super) fn is_sealed(&self, record: &EffectRecord) -> bool {
        record.class.effect == Effect::Irreversible
            || self.records.iter().any(|other| {
                other.class.effect == Effect::Irreversible
                    && matches!(other.state, EffectState::Done | EffectState::Unknown | EffectState::Attention)
                    && other.step > record.step
            })
    }

    pub(super) fn any_open(&self) -> bool {
        self.records.iter().any(|record| record.state.is_open())
    }

    pub(super) fn any_attention(&self) -> bool {
        self.records.iter().any(|record| record.state == EffectState::Attention)
    }
}
