//! A session as its callers see it: what the API's session object is made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use ambit_core::session::{EffectState, Speaker, Spent};
use ambit_core::trace::TraceId;
use ambit_core::{Cause, Limits, SessionId, Settlement, Verdict};

use crate::content::Texts;
use crate::progress::{Progress, StepTally};

/// One session at one moment, complete.
#[derive(Debug, Clone)]
pub struct SessionView {
    /// Which.
    pub id: SessionId,
    /// Of which agent.
    pub agent: Arc<str>,
    /// The agent's content hash.
    pub agent_version: String,
    /// `running`, `awaiting_approval`, or the verdict's status.
    pub status: &'static str,
    /// The verdict, once it stands.
    pub verdict: Option<Verdict>,
    /// What the model said last.
    pub output_text: Option<Arc<str>>,
    /// The limits in force.
    pub limits: Limits,
    /// What was spent.
    pub spent: Spent,
    /// Milliseconds from the arrival to the verdict, or until now.
    pub elapsed_ms: u64,
    /// Milliseconds in model calls.
    pub model_ms: u64,
    /// Milliseconds in tool calls.
    pub tool_ms: u64,
    /// Milliseconds of steps that were not on the wire: queue and back-off.
    pub idle_ms: u64,
    /// Milliseconds in which no step was out: what Ambit itself took.
    pub overhead_ms: u64,
    /// Who answered last.
    pub served_by: Option<Arc<str>>,
    /// What that target's model is called, if the journal says so.
    pub served_by_model: Option<Arc<str>>,
    /// That target's place in the chain, from 0.
    pub served_by_position: u32,
    /// The session that it continues.
    pub previous: Option<SessionId>,
    /// Named losses of capability.
    pub degraded: Vec<Degradation>,
    /// Why no model could be used.
    pub cause: Option<Cause>,
    /// Effects by their state.
    pub effects: EffectCounts,
    /// What became of the effects.
    pub settlement: Settlement,
    /// Wall time of the start, milliseconds since 1970.
    pub created_ms: u64,
    /// Wall time of the deadline.
    pub deadline_ms: u64,
    /// Wall time of the verdict.
    pub verdict_ms: Option<u64>,
    /// Wall time at which it was closed.
    pub closed_ms: Option<u64>,
    /// Revision of the configuration that it runs under.
    pub config_revision: Arc<str>,
    /// The distributed trace that it is part of; `None` for sessions of before there were traces.
    pub trace: Option<TraceId>,
    /// The caller's own notes.
    pub metadata: BTreeMap<String, String>,
    /// The last failure of a model call, while its process remembers it.
    pub failure: Option<Arc<FailureView>>,
    /// Every step in the order issued.
    pub steps: Vec<StepTally>,
    /// What was said, in order; filled only where it was asked for.
    pub transcript: Vec<Line>,
}

/// A named loss of capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degradation {
    /// Which capability.
    pub capability: Arc<str>,
    /// What it is now.
    pub mode: Arc<str>,
    /// Why.
    pub reason: Arc<str>,
}

/// Effects by their state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EffectCounts {
    /// Took effect.
    pub done: u32,
    /// Awaited, being reconciled or being undone.
    pub pending: u32,
    /// Undone.
    pub compensated: u32,
    /// Nobody knows yet.
    pub unknown: u32,
    /// A person has to look.
    pub needs_attention: u32,
}

/// One line of the transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// `user`, `assistant`, `tool_call` or `tool_result`.
    pub role: &'static str,
    /// The tool, where there is one.
    pub tool: Option<Arc<str>>,
    /// The call's id, where there is one.
    pub call_id: Option<Arc<str>>,
    /// How the call ended, where it did.
    pub code: Option<&'static str>,
    /// The text.
    pub text: Arc<str>,
}

/// What a view needs besides the journal.
#[derive(Debug, Clone, Default)]
pub struct Around {
    /// The caller's own notes.
    pub metadata: BTreeMap<String, String>,
    /// Wall time at which it was closed.
    pub closed_ms: Option<u64>,
    /// The last failure of a model call, while its process remembers it.
    pub failure: Option<Arc<FailureView>>,
}

/// Why a model call brought no turn, in words for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureView {
    /// Low-cardinality name.
    pub code: Arc<str>,
    /// What was wrong, with the provider's words where there were any.
    pub detail: String,
    /// When to come back.
    pub retry_after: Option<std::time::Duration>,
}

impl SessionView {
    /// The session as `progress` has it at `now`, milliseconds on its clock.
    #[must_use]
    pub fn of(progress: &Progress, texts: &Texts, around: &Around, now: u64) -> Self {
        let Progress { machine, tally } = progress;
        let started = machine.started();
        let verdict = machine.verdict().copied();
        let elapsed_ms = tally.verdict_at.unwrap_or(now);
        let created_ms = started.wall_ms;
        let status = match &verdict {
            Some(verdict) => verdict.status.as_str(),
            None if machine.is_awaiting_approval() => "awaiting_approval",
            None => "running",
        };
        let answer = verdict.map_or_else(|| machine.transcript().last_text(), |verdict| verdict.answer);
        let served = started.targets.iter().enumerate().find(|(_, target)| tally.served_by.as_ref() == Some(&target.name));
        Self {
            id: started.session,
            agent: started.agent.clone(),
            agent_version: started.agent_version.to_string(),
            status,
            verdict,
            output_text: answer.map(|body| texts.get(body)),
            limits: *machine.limits(),
            spent: *machine.spent(),
            elapsed_ms,
            model_ms: tally.model_ms,
            tool_ms: tally.tool_ms,
            idle_ms: (tally.model_ms + tally.tool_ms).saturating_sub(tally.wire_ms),
            overhead_ms: elapsed_ms.saturating_sub(tally.waited_ms),
            served_by: tally.served_by.clone(),
            served_by_model: served.map(|(_, target)| target.model.clone()),
            served_by_position: served.map_or(0, |(place, _)| u32::try_from(place).unwrap_or(u32::MAX)),
            previous: started.continues.map(|continues| continues.previous),
            degraded: degradations(progress),
            cause: verdict.and_then(|verdict| verdict.cause),
            effects: EffectCounts::of(progress),
            settlement: machine.settlement(),
            created_ms,
            deadline_ms: created_ms.saturating_add(machine.limits().deadline_ms),
            verdict_ms: tally.verdict_at.map(|at| created_ms.saturating_add(at)),
            closed_ms: around.closed_ms,
            config_revision: started.config_revision.clone(),
            trace: started.trace.as_ref().map(|context| context.trace.id),
            metadata: around.metadata.clone(),
            failure: around.failure.clone(),
            steps: tally.steps.clone(),
            transcript: Vec::new(),
        }
    }

    /// The same with everything that was said.
    #[must_use]
    pub fn with_transcript(mut self, progress: &Progress, texts: &Texts) -> Self {
        let line = |role, text| Line { role, tool: None, call_id: None, code: None, text };
        let machine = &progress.machine;
        for item in &machine.started().input {
            let role = match item.speaker {
                Speaker::User => "user",
                Speaker::Agent => "assistant",
            };
            self.transcript.push(line(role, texts.get(item.body)));
        }
        for turn in machine.transcript().turns() {
            if let Some(text) = turn.text {
                self.transcript.push(line("assistant", texts.get(text)));
            }
            for call in &turn.calls {
                let (tool, call_id) = (Some(call.tool.clone()), Some(call.id.clone()));
                let arguments = texts.get(call.arguments);
                self.transcript.push(Line { role: "tool_call", tool: tool.clone(), call_id: call_id.clone(), code: None, text: arguments });
                if let Some(result) = call.result {
                    let text = result.body.map_or_else(|| "".into(), |body| texts.get(body));
                    self.transcript.push(Line { role: "tool_result", tool, call_id, code: Some(result.code.as_str()), text });
                }
            }
        }
        self
    }
}

impl EffectCounts {
    fn of(progress: &Progress) -> Self {
        let mut counts = Self::default();
        for effect in progress.machine.effects() {
            match effect.state {
                EffectState::Done => counts.done += 1,
                EffectState::Sent | EffectState::Reconciling(_) | EffectState::Compensating(_) => counts.pending += 1,
                EffectState::Compensated => counts.compensated += 1,
                EffectState::Unknown => counts.unknown += 1,
                EffectState::Attention => counts.needs_attention += 1,
                EffectState::Absent => {}
            }
        }
        counts
    }
}

/// Why a session goes on with less than the whole of what its tools said.
pub(crate) const CUT: &str = "older tool outputs were cut to make room";
/// Why a session that continues another one knows less than all of it.
pub(crate) const LEFT_OUT: &str = "earlier inputs and answers were left out to make room";

fn degradations(progress: &Progress) -> Vec<Degradation> {
    let turns = progress.machine.transcript().turns();
    let mut found = Vec::new();
    let left_out = progress.machine.started().continues.map_or(0, |continues| continues.left_out);
    if left_out > 0 {
        found.push(Degradation { capability: "context".into(), mode: "shortened".into(), reason: LEFT_OUT.into() });
    } else if turns.iter().flat_map(|turn| &turn.calls).any(|call| call.shortened) {
        found.push(Degradation { capability: "context".into(), mode: "shortened".into(), reason: CUT.into() });
    }
    for call in turns.iter().flat_map(|turn| &turn.calls) {
        let down = call.result.is_some_and(|result| {
            matches!(
                result.code,
                ambit_core::ToolCode::UpstreamUnavailable
                    | ambit_core::ToolCode::UpstreamTimeout
                    | ambit_core::ToolCode::DependencyUnavailable
            )
        });
        let capability: Arc<str> = format!("tool:{}", call.tool).into();
        if down && !found.iter().any(|known| known.capability == capability) {
            let reason = call.result.map_or("", |result| result.code.as_str());
            found.push(Degradation { capability, mode: "unavailable".into(), reason: reason.to_ascii_lowercase().into() });
        }
    }
    found
}
