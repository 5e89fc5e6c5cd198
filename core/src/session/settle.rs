//! The settlement: after the verdict, every effect that was sent ends known, undone, or before a person.

use crate::attempt::Allowance;
use crate::effect::Effect;
use crate::id::Step;
use crate::limit::{COMPENSATION_ATTEMPTS_KEYED, COMPENSATION_MS, COMPENSATIONS_MS_MAX};
use crate::money::Money;
use crate::session::command::Command;
use crate::session::effects::{EffectRecord, EffectState};
use crate::session::event::Finding;
use crate::session::machine::{Machine, Phase};

impl Machine {
    /// Takes the next steps of the settlement, or closes the session once nothing is open.
    ///
    /// First every sent write is awaited and every unknown one reconciled. Only then, with the whole picture, it is
    /// decided what to undo; compensations run the latest turn first, the writes of one turn beside each other. What
    /// nobody could find out, and nothing undid, is a person's.
    pub(super) fn settle(&mut self, at: u64, commands: &mut Vec<Command>) {
        self.reconcile_unknown(at, commands);
        if self.effects.any_open() {
            return;
        }
        self.decide_undoing(at);
        // Every round starts or parks at least one effect that waits to be undone.
        while let Some(turn) = self.effects.records.iter().filter(|record| record.waits_to_be_undone()).map(|record| record.turn).max() {
            self.compensate_turn(turn, at, commands);
            if self.effects.any_open() {
                return;
            }
        }
        for record in self.effects.records.iter_mut().filter(|record| record.state == EffectState::Unknown) {
            record.state = EffectState::Attention;
        }
        self.phase = Phase::Closed;
    }

    fn reconcile_unknown(&mut self, at: u64, commands: &mut Vec<Command>) {
        for index in 0..self.effects.records.len() {
            let record = &self.effects.records[index];
            if record.state == EffectState::Unknown && record.class.reconcilable && !record.reconciled {
                let (of, step) = (record.step, self.step());
                self.effects.records[index].state = EffectState::Reconciling(step);
                commands.push(Command::Reconcile { step, of, allowance: settling_allowance(1, self.settling_until(at)) });
            }
        }
    }

    /// Decides which effects have to be undone: those that stand, and those of which nobody knows if undoing them needs
    /// no result. Asked again after each wave it says the same: what is complete is never touched, and nothing that is
    /// undone makes another group complete.
    fn decide_undoing(&mut self, at: u64) {
        let stands = |record: &EffectRecord| match record.state {
            EffectState::Done => true,
            EffectState::Unknown => record.class.compensable_blind,
            EffectState::Sent
            | EffectState::Absent
            | EffectState::Reconciling(_)
            | EffectState::Compensating(_)
            | EffectState::Compensated
            | EffectState::Attention => false,
        };
        let wanted: Vec<bool> = self.effects.records.iter().map(|record| stands(record) && self.wants_undone(record)).collect();
        let count: u64 = wanted.iter().map(|&wanted| u64::from(wanted)).sum();
        for (record, wanted) in self.effects.records.iter_mut().zip(wanted) {
            record.undo |= wanted;
        }
        if count > 0 {
            let longest = count.saturating_mul(COMPENSATION_MS).min(COMPENSATIONS_MS_MAX);
            let until = *self.compensating_until.get_or_insert(at.saturating_add(longest));
            self.phase = Phase::Settling { until };
        }
    }

    /// Starts the compensations of one turn, the write completed last in front.
    fn compensate_turn(&mut self, turn: u32, at: u64, commands: &mut Vec<Command>) {
        let until = self.compensating_until.unwrap_or(at);
        let records = &self.effects.records;
        let mut wave: Vec<usize> =
            (0..records.len()).filter(|&index| records[index].turn == turn && records[index].waits_to_be_undone()).collect();
        wave.sort_by_key(|&index| std::cmp::Reverse(records[index].completed));
        for index in wave {
            if self.effects.records[index].class.compensable && at < until {
                self.compensate(index, None, at.saturating_add(COMPENSATION_MS).min(until), commands);
            } else {
                // What cannot be undone is a person's, never a success.
                self.effects.records[index].state = EffectState::Attention;
            }
        }
    }

    fn compensate(&mut self, index: usize, step: Option<Step>, deadline: u64, commands: &mut Vec<Command>) {
        let step = step.unwrap_or_else(|| self.step());
        let record = &mut self.effects.records[index];
        record.state = EffectState::Compensating(step);
        let attempts = if record.class.compensation_keyed { COMPENSATION_ATTEMPTS_KEYED } else { 1 };
        commands.push(Command::Compensate { step, of: record.step, allowance: settling_allowance(attempts, deadline) });
    }

    /// True if the saga wants this effect undone under the verdict that stands.
    fn wants_undone(&self, record: &EffectRecord) -> bool {
        let (Some(saga), Some(verdict)) = (&self.started.saga, &self.verdict) else { return false };
        if !saga.on.contains(&verdict.status) || record.class.effect == Effect::Irreversible || self.effects.is_sealed(record) {
            return false;
        }
        // A group that is complete did what it was meant to do.
        let took_effect =
            |tool: &std::sync::Arc<str>| self.effects.records.iter().any(|other| other.tool == *tool && other.state == EffectState::Done);
        !saga.groups.iter().any(|group| group.contains(&record.tool) && group.iter().all(took_effect))
    }

    pub(super) fn reconciled(&mut self, index: usize, finding: Finding) {
        let record = &mut self.effects.records[index];
        record.reconciled = true;
        record.state = match finding {
            Finding::Found => EffectState::Done,
            Finding::Absent => EffectState::Absent,
            Finding::Unknown => EffectState::Unknown,
        };
    }

    /// Patience is over: what is still open is a person's.
    pub(super) fn give_up_settling(&mut self) {
        for index in 0..self.effects.records.len() {
            let record = &mut self.effects.records[index];
            if record.state.is_open() {
                if record.state == EffectState::Sent {
                    let allowance = record.allowance;
                    self.budget.charge_tool(&allowance);
                }
                self.effects.records[index].state = EffectState::Attention;
            }
        }
    }

    /// After a crash in mid-settlement: answers that nobody will bring are asked for again, under the same steps.
    pub(super) fn resumed_settling(&mut self, at: u64, commands: &mut Vec<Command>) {
        let until = self.settling_until(at);
        if !self.may_resume() {
            // It has failed too often: nothing new is begun, what waits to be undone is a person's as well.
            self.give_up_settling();
            self.compensating_until = Some(at);
        }
        self.forget(|_| true);
        for index in 0..self.effects.records.len() {
            let record = &self.effects.records[index];
            match record.state {
                EffectState::Reconciling(step) => {
                    commands.push(Command::Reconcile { step, of: record.step, allowance: settling_allowance(1, until) });
                }
                EffectState::Compensating(step) if record.class.compensation_keyed => {
                    self.compensate(index, Some(step), at.saturating_add(COMPENSATION_MS).min(until), commands);
                }
                // Undoing twice without a key could do harm.
                EffectState::Compensating(_) => self.effects.records[index].state = EffectState::Attention,
                EffectState::Sent
                | EffectState::Done
                | EffectState::Absent
                | EffectState::Unknown
                | EffectState::Compensated
                | EffectState::Attention => {}
            }
        }
        self.settle(at, commands);
    }

    fn settling_until(&self, at: u64) -> u64 {
        match self.phase {
            Phase::Settling { until } => until,
            Phase::Retrieving { .. } | Phase::AwaitingModel(_) | Phase::Running | Phase::AwaitingApproval { .. } | Phase::Closed => at,
        }
    }
}

const fn settling_allowance(attempts: u32, deadline: u64) -> Allowance {
    Allowance { attempts, tokens: 0, cost: Money::ZERO, deadline }
}
