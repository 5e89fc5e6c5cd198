//! The calls of one turn on their way to one result each.

use std::sync::Arc;

use crate::attempt::Allowance;
use crate::effect::{Effect, Gate};
use crate::id::Step;
use crate::session::event::PreparedCall;
use crate::tool::ToolCode;

/// The calls of the current turn; empty between turns.
#[derive(Debug, Clone, Default)]
pub(super) struct Batch {
    pub(super) slots: Vec<Slot>,
}

/// One call of the turn.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) call: PreparedCall,
    pub(super) state: SlotState,
}

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Waits for its turn; `ask` if a person has to say yes first.
    Queued { ask: bool },
    /// A person is being asked.
    Asking { step: Step },
    /// Issued; `dispatched` once it is known to be about to leave.
    Running { step: Step, allowance: Allowance, dispatched: bool },
    /// Has its result.
    Done { code: ToolCode },
}

/// What the batch wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Start the call at this index.
    Start(usize),
    /// Ask a person about the call at this index.
    Ask(usize),
    /// Answer the call at this index `NOT_ATTEMPTED`: another write of the turn failed.
    Skip(usize),
    /// Wait for what runs.
    Wait,
    /// Every call has its result.
    Complete,
}

impl Batch {
    pub(super) fn running(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot.state, SlotState::Running { .. })).count()
    }

    /// Calls that wait for their turn, the one at `index` not counted.
    pub(super) fn queued_beside(&self, index: usize) -> usize {
        let waits = |(other, slot): &(usize, &Slot)| *other != index && matches!(slot.state, SlotState::Queued { .. });
        self.slots.iter().enumerate().filter(waits).count()
    }

    /// The call that runs as `step`.
    pub(super) fn running_as(&self, step: Step) -> Option<usize> {
        self.slots.iter().position(|slot| matches!(slot.state, SlotState::Running { step: own, .. } if own == step))
    }

    /// Reads and plain writes in order and in parallel; then, with nothing in flight, what a person must decide;
    /// then the irreversible, each alone, and only if every other write of the turn succeeded.
    pub(super) fn next(&self, parallel: u32) -> Next {
        let running = self.running();
        let queued = |irreversible: bool, asks: bool| {
            self.slots.iter().position(|slot| {
                (slot.call.class.effect == Effect::Irreversible) == irreversible && slot.state == SlotState::Queued { ask: asks }
            })
        };
        if let Some(index) = queued(false, false) {
            return if running < parallel.max(1) as usize { Next::Start(index) } else { Next::Wait };
        }
        if running > 0 {
            return Next::Wait;
        }
        if let Some(index) = queued(false, true) {
            return Next::Ask(index);
        }
        let irreversible = self
            .slots
            .iter()
            .position(|slot| slot.call.class.effect == Effect::Irreversible && matches!(slot.state, SlotState::Queued { .. }));
        match irreversible {
            None => Next::Complete,
            Some(index) if self.a_write_failed() => Next::Skip(index),
            Some(index) if self.slots[index].state == (SlotState::Queued { ask: true }) => Next::Ask(index),
            Some(index) => Next::Start(index),
        }
    }

    fn a_write_failed(&self) -> bool {
        self.slots
            .iter()
            .any(|slot| slot.call.class.effect.is_write() && matches!(slot.state, SlotState::Done { code } if code != ToolCode::Ok))
    }
}

impl Slot {
    pub(super) fn new(call: PreparedCall) -> Self {
        let ask = call.gate == Gate::Ask;
        Self { call, state: SlotState::Queued { ask } }
    }

    pub(super) fn tool(&self) -> &Arc<str> {
        &self.call.tool
    }
}
