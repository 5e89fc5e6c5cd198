//! `ambit replay`: a session retold from its journal, every decision with its reason.

use std::process::ExitCode;
use std::sync::Arc;

use ambit_config::Config;
use ambit_core::session::Spent;
use ambit_core::{Allowance, AttemptRecord, Money};
use ambit_orchestrator::{Decided, Decision, Left, RefusedCall, Replay, limits_json, settled};
use clap::Args;
use serde_json::{Value, json};

use crate::cli::look::{DIM, Look, RED, YELLOW};
use crate::cli::sessions::{Which, close, open, secs, short};
use crate::exit;
use crate::http::rfc3339;
use crate::output::{out, plain, say};
use crate::telemetry::logs;

/// Which session.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The session, or `last` for the youngest.
    #[arg(value_name = "ID")]
    id: Which,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl ReplayArgs {
    pub(crate) async fn execute(self, config: Arc<Config>, look: Look) -> ExitCode {
        logs::init("warn", false);
        let desk = match open(&config).await {
            Ok(desk) => desk,
            Err(code) => return code,
        };
        let done = async {
            let Some(id) = self.id.find(&desk).await? else { return Ok(ExitCode::from(exit::FAILURE)) };
            desk.replay(id).await.map(|replay| self.tell(&replay, look))
        };
        let done = done.await;
        close(desk, done).await
    }

    fn tell(&self, replay: &Replay, look: Look) -> ExitCode {
        if self.json {
            out!("{}", serde_json::to_string_pretty(&json_of(replay)).unwrap_or_default());
        } else {
            text_of(replay, look);
        }
        match replay.disagrees_at {
            None => ExitCode::from(exit::DONE),
            Some(seq) => {
                say!(
                    "error: from record {seq} on this release decides otherwise than the journal records\nhint: use the release that ran the session"
                );
                ExitCode::from(exit::FAILURE)
            }
        }
    }
}

fn text_of(replay: &Replay, look: Look) {
    let (started, limits) = (&replay.started, &replay.limits);
    out!(
        "session {}, agent {} ({}), config {}",
        started.session,
        plain(&started.agent),
        short(&started.agent_version.to_string()),
        started.config_revision
    );
    out!(
        "limits  {:.1} s with {:.1} s kept for the answer, {} model calls, {} tool calls, {} and {} requests, {} tokens, {}",
        secs(limits.deadline_ms),
        secs(limits.answer_reserve_ms),
        limits.model_calls,
        limits.tool_calls,
        limits.model_attempts,
        limits.tool_attempts,
        limits.total_tokens,
        limits.cost_usd,
    );
    for decision in &replay.decisions {
        told(decision, look);
    }
    match replay.verdict {
        Some(_) => out!("\nsettlement {}: {}", replay.settlement, settled(replay.settlement)),
        None => out!("\nno verdict yet"),
    }
}

fn told(decision: &Decision, look: Look) {
    let of = decision.step.map(|step| format!(" of step {step}")).unwrap_or_default();
    let at = look.out(DIM, &format!("{:7.2}s", secs(decision.at_ms)));
    out!("\n{at}  #{:<4} {}{of}: {}", decision.seq, decision.event, plain(&decision.said));
    for leg in &decision.attempts {
        out!("          {}", look.out(DIM, &plain(&request(leg))));
    }
    if decision.shortened > 0 {
        out!("          cut {} old tool outputs to make room", decision.shortened);
    }
    for call in &decision.refused {
        out!("          {} {} refused {}: {}", look.out(YELLOW, "x"), plain(&call.tool), call.code.as_str(), plain(&call.why));
    }
    for decided in &decision.commands {
        let step = decided.step.map(|step| format!(" step {step}")).unwrap_or_default();
        let tool = decided.tool.as_ref().map(|tool| format!(" {}", plain(tool))).unwrap_or_default();
        let lent = decided.allowance.map(|allowance| format!(" [{}]", lent(&allowance))).unwrap_or_default();
        out!("          -> {}{step}{tool}: {}{}", decided.command, plain(&decided.why), look.out(DIM, &lent));
    }
    if !decision.agrees {
        out!("          {}", look.out(RED, "! the journal records another decision here"));
    }
    out!("          {}", look.out(DIM, &left_in_words(decision)));
}

fn request(leg: &AttemptRecord) -> String {
    let tokens = if leg.tokens() > 0 { format!(", {} tokens", leg.tokens()) } else { String::new() };
    let cost = if leg.cost > Money::ZERO { format!(", {}", leg.cost) } else { String::new() };
    let least = if leg.at_least { " at least" } else { "" };
    format!("{} request to {}: {} after {} ms{tokens}{cost}{least}", leg.kind.as_str(), leg.target, leg.code, leg.ms)
}

fn lent(allowance: &Allowance) -> String {
    let Allowance { attempts, tokens, cost, deadline } = allowance;
    let tokens = if *tokens > 0 { format!(", {tokens} tokens") } else { String::new() };
    let cost = if *cost > Money::ZERO { format!(", {cost}") } else { String::new() };
    format!("at most {attempts} request{}{tokens}{cost}, until {:.2} s", if *attempts == 1 { "" } else { "s" }, secs(*deadline))
}

/// What was spent of each limit, as it stood then.
fn left_in_words(decision: &Decision) -> String {
    let (left, spent) = (&decision.left, &decision.spent);
    format!(
        "spent {} of {} model calls ({} of {} requests), {} of {} tool calls ({} of {}), {} of {} tokens, {} of {}; left {:.1} s",
        spent.model_calls,
        spent.model_calls + left.model_calls,
        spent.model_attempts,
        spent.model_attempts + left.model_attempts,
        spent.tool_calls,
        spent.tool_calls + left.tool_calls,
        spent.tool_attempts,
        spent.tool_attempts + left.tool_attempts,
        spent.tokens(),
        spent.tokens() + left.total_tokens,
        spent.cost,
        spent.cost.saturating_add(left.cost),
        secs(left.ms),
    )
}

fn json_of(replay: &Replay) -> Value {
    let started = &replay.started;
    json!({
        "object": "replay",
        "session_id": started.session.to_string(),
        "agent": started.agent,
        "agent_version": started.agent_version.to_string(),
        "config_revision": started.config_revision,
        "machine_version": started.machine,
        "created_at": rfc3339(started.wall_ms),
        "limits": limits_json(&replay.limits),
        "decisions": replay.decisions.iter().map(decision).collect::<Vec<_>>(),
        "verdict": replay.verdict.map(|verdict| json!({
            "status": verdict.status, "reason": verdict.reason.as_str(), "cause": verdict.cause.map(|cause| cause.as_str()),
        })),
        "settlement": replay.settlement,
        "disagrees_at": replay.disagrees_at,
    })
}

fn decision(decision: &Decision) -> Value {
    json!({
        "seq": decision.seq,
        "at_ms": decision.at_ms,
        "event": decision.event,
        "step": decision.step,
        "said": decision.said,
        "attempts": decision.attempts,
        "refused": decision.refused.iter().map(refused).collect::<Vec<_>>(),
        "shortened": decision.shortened,
        "commands": decision.commands.iter().map(decided).collect::<Vec<_>>(),
        "spent": spent(&decision.spent),
        "remaining": left(&decision.left),
        "phase": decision.phase,
        "agrees": decision.agrees,
    })
}

fn refused(call: &RefusedCall) -> Value {
    json!({"tool": call.tool, "call_id": call.call_id, "code": call.code.as_str(), "why": call.why})
}

fn decided(decided: &Decided) -> Value {
    json!({
        "command": decided.command,
        "step": decided.step,
        "tool": decided.tool,
        "of": decided.of,
        "last_because": decided.last.map(|reason| reason.as_str()),
        "allowance": decided.allowance.map(|allowance| json!({
            "attempts": allowance.attempts, "tokens": allowance.tokens, "cost_usd": allowance.cost.usd(), "deadline_ms": allowance.deadline,
        })),
        "why": decided.why,
    })
}

fn spent(spent: &Spent) -> Value {
    json!({
        "model_calls": spent.model_calls, "tool_calls": spent.tool_calls, "model_attempts": spent.model_attempts,
        "tool_attempts": spent.tool_attempts, "hedges": spent.hedges, "total_tokens": spent.tokens(), "cost_usd": spent.cost.usd(),
        "cost_is_at_least": spent.at_least,
    })
}

fn left(left: &Left) -> Value {
    json!({
        "ms": left.ms, "model_calls": left.model_calls, "tool_calls": left.tool_calls, "model_attempts": left.model_attempts,
        "tool_attempts": left.tool_attempts, "total_tokens": left.total_tokens, "cost_usd": left.cost.usd(), "events": left.events,
    })
}
