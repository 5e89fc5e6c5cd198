//! Why the machine decided as it did, in words for a person: each event, command, bound and code has its sentence.
//!
//! Every match is written out: a decision without a reason does not compile.

use ambit_core::session::{Canceller, Command, Decision, Event, Finding, FinishReason, Machine, ModelFault, Started};
use ambit_core::{AttemptRecord, Axis, Reason, Settlement, Status, Step, ToolCode, Verdict};

/// What a session begins with.
pub(crate) fn begun(started: &Started) -> String {
    let Started { agent, tools, input, .. } = started;
    let tainted = if started.tainted { ", tainted from the beginning" } else { "" };
    format!("agent {agent}, {}, {}{tainted}", counted(input.len(), "message"), counted(tools.len(), "tool"))
}

/// The step that an event answers.
pub(crate) const fn step_of(event: &Event) -> Option<Step> {
    match event {
        Event::Retrieved { step, .. }
        | Event::ModelReplied { step, .. }
        | Event::ModelFailed { step, .. }
        | Event::Dispatched { step }
        | Event::ToolFinished { step, .. }
        | Event::ApprovalDecided { step, .. }
        | Event::Reconciled { step, .. }
        | Event::Compensated { step, .. } => Some(*step),
        Event::Cancelled { .. } | Event::LimitsTightened { .. } | Event::Woke | Event::Resumed => None,
    }
}

/// The requests on the wire that an event brings.
pub(crate) fn attempts_of(event: &Event) -> &[AttemptRecord] {
    match event {
        Event::ModelReplied { attempts, .. } | Event::ModelFailed { attempts, .. } | Event::ToolFinished { attempts, .. } => attempts,
        Event::Retrieved { .. }
        | Event::Dispatched { .. }
        | Event::ApprovalDecided { .. }
        | Event::Reconciled { .. }
        | Event::Compensated { .. }
        | Event::Cancelled { .. }
        | Event::LimitsTightened { .. }
        | Event::Woke
        | Event::Resumed => &[],
    }
}

/// What was heard. `wake` is what the machine had asked to be woken for.
pub(crate) fn heard(event: &Event, wake: Option<(u64, &'static str)>) -> String {
    match event {
        Event::Retrieved { passages: Some(_), tainting: true, .. } => "passages were found, and they are not to be believed".into(),
        Event::Retrieved { passages: Some(_), .. } => "passages were found".into(),
        Event::Retrieved { passages: None, .. } => "no passages were found".into(),
        Event::ModelReplied { reply, .. } => {
            let finish = match reply.finish {
                FinishReason::Stop => "",
                FinishReason::Length => ", cut off by its output limit",
                FinishReason::ContentFilter => ", withheld by the provider",
                FinishReason::Refusal => ", declining",
            };
            let text = reply.text.map_or(0, |text| text.chars);
            match (reply.calls.len(), text) {
                (0, 0) => format!("the model said nothing{finish}"),
                (0, text) => format!("the model answered with {}{finish}", counted(text as usize, "character")),
                (calls, _) => format!("the model asks for {}{finish}", counted(calls, "call")),
            }
        }
        Event::ModelFailed { fault, partial, .. } => {
            let kept = if partial.is_some() { "; the text that had arrived is kept" } else { "" };
            format!("no turn: {}{kept}", fault_in_words(*fault))
        }
        Event::Dispatched { .. } => "a call that is no read is about to leave".into(),
        Event::ToolFinished { result, .. } => {
            let cut = if result.truncated { ", cut to its cap" } else { "" };
            format!("the call ended {}{cut}", result.code.as_str())
        }
        Event::ApprovalDecided { decision: Decision::Approve, .. } => "a person said yes".into(),
        Event::ApprovalDecided { decision: Decision::Deny, .. } => "a person said no".into(),
        Event::ApprovalDecided { decision: Decision::Expired, .. } => "no person said anything in time".into(),
        Event::Reconciled { finding: Finding::Found, .. } => "the other side says that it took effect".into(),
        Event::Reconciled { finding: Finding::Absent, .. } => "the other side says that it did not take effect".into(),
        Event::Reconciled { finding: Finding::Unknown, .. } => "the other side cannot tell".into(),
        Event::Compensated { undone: true, .. } => "it is undone".into(),
        Event::Compensated { undone: false, .. } => "it could not be undone".into(),
        Event::Cancelled { by } => match by {
            Canceller::Caller => "the caller asked to stop".into(),
            Canceller::Operator => "an operator asked to stop".into(),
            Canceller::Disconnect => "the caller went away".into(),
            Canceller::Shutdown => "the process is going down".into(),
            Canceller::StoreLost => "the journal cannot be written any more".into(),
            Canceller::Recovery => "a recovery cannot go on with it".into(),
        },
        Event::LimitsTightened { .. } => "an operator tightened its limits".into(),
        Event::Woke => wake.map_or_else(|| "it was woken".into(), |(_, why)| format!("the moment has come: {why}")),
        Event::Resumed => "its process was gone; another one took it over".into(),
    }
}

/// Why a command was given, on which event (`None` for the beginning).
pub(crate) fn why(command: &Command, event: Option<&Event>, machine: &Machine) -> String {
    match command {
        Command::Retrieve { .. } => "the agent has a knowledge base".into(),
        Command::CallModel { last, nudge, .. } => {
            let why = if *nudge { "the model said nothing: it is asked once more" } else { why_model(event) };
            match last {
                Some(reason) => format!("{why}; the last one, without tools: {}", why_last(*reason, machine)),
                None => why.into(),
            }
        }
        Command::CallTool { again: true, .. } => "it had been sent before the crash: asked again under the same key".into(),
        Command::CallTool { .. } => match event {
            Some(Event::ApprovalDecided { .. }) => "a person said yes to exactly these arguments".into(),
            Some(Event::Resumed) => "it certainly left nothing behind: run again".into(),
            Some(Event::ToolFinished { .. }) => "its turn has come".into(),
            Some(
                Event::Retrieved { .. }
                | Event::ModelReplied { .. }
                | Event::ModelFailed { .. }
                | Event::Dispatched { .. }
                | Event::Reconciled { .. }
                | Event::Compensated { .. }
                | Event::Cancelled { .. }
                | Event::LimitsTightened { .. }
                | Event::Woke,
            )
            | None => "the model asks for it, and nothing forbids it".into(),
        },
        Command::AskApproval { .. } => "a person has to say yes first; the session's clock stands meanwhile".into(),
        Command::Abandon { .. } if machine.verdict().is_none() => "the answer reserve has begun: what only reads makes room".into(),
        Command::Abandon { .. } => "the session has ended: nobody waits for it any more".into(),
        Command::Reconcile { of, .. } => format!("nobody knows whether step {of} took effect: the other side is asked"),
        Command::Compensate { of, .. } => format!("the agent wants step {of} undone when a session ends like this"),
        Command::Finish(verdict) => format!("{} ({}): {}", verdict.status, verdict.reason, why_ended(verdict, machine)),
    }
}

fn why_model(event: Option<&Event>) -> &'static str {
    match event {
        None => "the session begins",
        Some(Event::Retrieved { .. }) => "the passages are there",
        Some(Event::ModelReplied { .. }) => "no call of the turn could run, and the model has to be told",
        Some(Event::ModelFailed { fault, .. }) => match fault {
            ModelFault::Context => "old tool outputs were cut to make room: tried again",
            ModelFault::Mistake => "the mistake was the model's own: tried again",
            ModelFault::Saturated => "no permit was free: tried once more",
            ModelFault::Deadline => "the time for a turn is over",
            ModelFault::Allowance => "the requests lent to the turn are used up",
            ModelFault::Unavailable(_)
            | ModelFault::Rejected
            | ModelFault::ContentFiltered
            | ModelFault::Abandoned
            | ModelFault::Internal => "the call brought no turn",
        },
        Some(Event::ToolFinished { .. } | Event::ApprovalDecided { .. }) => "every call of the turn has its result",
        Some(Event::Woke) => "the answer reserve has begun",
        Some(Event::Resumed) => "what was out died with its process; all that it was lent counts as spent",
        Some(
            Event::Dispatched { .. }
            | Event::Reconciled { .. }
            | Event::Compensated { .. }
            | Event::Cancelled { .. }
            | Event::LimitsTightened { .. },
        ) => "the session goes on",
    }
}

/// Why a model call is the last.
fn why_last(reason: Reason, machine: &Machine) -> String {
    match reason {
        Reason::Limit(axis) => used_up(axis, machine),
        Reason::Context => "the history fills the model's window".into(),
        Reason::Loop => "the same call kept giving the same result".into(),
        Reason::ApprovalDenied => "a person said no to a call".into(),
        Reason::ApprovalExpired => "no person said anything in time".into(),
        Reason::Answered
        | Reason::Refused
        | Reason::Saturated
        | Reason::OutputTruncated
        | Reason::OutputInvalid
        | Reason::ContentFiltered
        | Reason::EmptyResponse
        | Reason::StreamInterrupted
        | Reason::ModelUnavailable
        | Reason::ModelRejected
        | Reason::DependencyUnavailable
        | Reason::StoreLost
        | Reason::Quota
        | Reason::Cancelled
        | Reason::Shutdown
        | Reason::Internal => reason.as_str().into(),
    }
}

/// A bound that has come near, with its figures.
fn used_up(axis: Axis, machine: &Machine) -> String {
    let (spent, limits) = (machine.spent(), machine.limits());
    match axis {
        Axis::Deadline => {
            format!("of {} ms the last {} are kept for the answer", limits.deadline_ms, limits.answer_reserve_ms)
        }
        Axis::ModelCalls => format!("model call {} of {}", spent.model_calls, limits.model_calls),
        Axis::ToolCalls => format!("{} of {} tool calls are used", spent.tool_calls, limits.tool_calls),
        Axis::ModelAttempts => format!("{} of {} requests to models are used", spent.model_attempts, limits.model_attempts),
        Axis::ToolAttempts => format!("{} of {} requests to tools are used", spent.tool_attempts, limits.tool_attempts),
        Axis::TotalTokens => format!("{} of {} tokens are used, and an answer has to fit", spent.tokens(), limits.total_tokens),
        Axis::CostUsd => format!("{} of {} are spent, and an answer has to be paid", spent.cost, limits.cost_usd),
        Axis::Transcript => format!("the transcript has {} of {} bytes", machine.transcript().bytes(), limits.transcript),
        Axis::Events => format!("{} of {} events are used", machine.events(), limits.events),
    }
}

fn why_ended(verdict: &Verdict, machine: &Machine) -> String {
    let cause = verdict.cause.map(|cause| format!(", {}", cause.as_str())).unwrap_or_default();
    match verdict.reason {
        Reason::Answered => "the model answered".into(),
        Reason::Refused => "the model declined to answer".into(),
        Reason::Limit(Axis::Deadline) if verdict.status == Status::Incomplete => "the time was over".into(),
        Reason::Limit(axis) => used_up(axis, machine),
        Reason::Context => "the history does not fit the model's window".into(),
        Reason::Loop => "the same call kept giving the same result".into(),
        Reason::Saturated => "no permit could be had".into(),
        Reason::OutputTruncated => "the model's output limit cut its answer".into(),
        Reason::OutputInvalid => "the answer does not have the form asked for".into(),
        Reason::ContentFiltered => "the provider withheld the answer".into(),
        Reason::EmptyResponse => "the model said nothing, twice".into(),
        Reason::StreamInterrupted => "the answer broke off in the middle".into(),
        Reason::ModelUnavailable => format!("no model could be used{cause}"),
        Reason::ModelRejected => "the provider refused the request itself".into(),
        Reason::ApprovalDenied => "a person said no to a call".into(),
        Reason::ApprovalExpired => "no person said anything in time".into(),
        Reason::DependencyUnavailable => "something that it cannot do without is down".into(),
        Reason::StoreLost => "the journal could not be written".into(),
        Reason::Quota => "the tenant's quota is used up".into(),
        Reason::Cancelled => "somebody asked to stop".into(),
        Reason::Shutdown => "the process was going down".into(),
        Reason::Internal => "our own fault".into(),
    }
}

/// What became of the effects, once nothing is heard any more.
#[must_use]
pub fn settled(settlement: Settlement) -> &'static str {
    match settlement {
        Settlement::None => "there were no effects to settle",
        Settlement::Pending => "some effects are awaited, reconciled or undone",
        Settlement::Settled => "every effect is known and as it should be",
        Settlement::NeedsAttention => "some effects need a person",
    }
}

/// Why a call did not run, or was not waited for, where nothing else says it.
pub(crate) fn refused(code: ToolCode, machine: &Machine) -> String {
    let (spent, limits) = (machine.spent(), machine.limits());
    match code {
        ToolCode::Ok => "it was answered without running".into(),
        ToolCode::UnknownTool => "no tool of this name is offered".into(),
        ToolCode::NotPermitted => "the caller may not use it".into(),
        ToolCode::InvalidArguments => "the arguments do not fit its schema".into(),
        ToolCode::ToolError => "it failed".into(),
        ToolCode::UpstreamUnavailable => "it could not be reached".into(),
        ToolCode::UpstreamTimeout => "it did not answer in time".into(),
        ToolCode::UpstreamRejected => "it refused the request".into(),
        ToolCode::DependencyUnavailable => "what it depends on is known to be down".into(),
        ToolCode::Saturated => "all its permits are taken".into(),
        ToolCode::DeadlineExceeded => "too little time was left".into(),
        ToolCode::OutcomeUnknown => "it was sent, and nobody can say whether it took effect".into(),
        ToolCode::OutputInvalid => "its answer does not fit its schema".into(),
        ToolCode::BudgetExhausted => {
            format!(
                "{} of {} tool calls and {} of {} requests are used, or no further turn may act",
                spent.tool_calls, limits.tool_calls, spent.tool_attempts, limits.tool_attempts
            )
        }
        ToolCode::LoopDetected => "the same call gave the same result too often".into(),
        ToolCode::ApprovalDenied => "a person said no".into(),
        ToolCode::ApprovalExpired => "no person said anything in time".into(),
        ToolCode::Tainted => "untrusted content is in the context, and this call could act on it".into(),
        ToolCode::IdempotencyConflict => "the same key was used with other arguments".into(),
        ToolCode::InFlight => "the same call is running already".into(),
        ToolCode::NotAttempted => "an earlier write of the turn failed, or the session ended first".into(),
        ToolCode::CallTruncated => "the model's output ended inside the call".into(),
        ToolCode::Blocked => "its host or address is not allowed".into(),
        ToolCode::AuditUnavailable => "the audit record could not be written".into(),
        ToolCode::Deferred => "it is recorded, to be run later".into(),
    }
}

fn fault_in_words(fault: ModelFault) -> String {
    match fault {
        ModelFault::Unavailable(cause) => format!("every target failed ({})", cause.as_str()),
        ModelFault::Rejected => "the provider refused the request itself".into(),
        ModelFault::Context => "the request does not fit the model's window".into(),
        ModelFault::ContentFiltered => "the provider withheld the answer".into(),
        ModelFault::Mistake => "the model made a mistake of its own".into(),
        ModelFault::Saturated => "no permit could be had; nothing was sent".into(),
        ModelFault::Deadline => "the time given was over".into(),
        ModelFault::Allowance => "the requests or tokens lent were used up".into(),
        ModelFault::Abandoned => "it was abandoned".into(),
        ModelFault::Internal => "our own fault".into(),
    }
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
